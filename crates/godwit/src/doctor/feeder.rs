//! How fast one pair of gzip files can be read here: what all nodes of a run together cannot outrun.

use std::time::Instant;

use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_formats::with_causes;
use godwit_pipeline::simulate::{Assembly, GenomeOptions, ReadOptions, Sample, SampleOptions, write_reads};
use godwit_process::Temporary;

use super::{Area, Finding, State};

/// Enough to take some tens of milliseconds.
const PAIRS: u64 = 20_000;
/// What a core aligns, pairs of 150 bases per second: bwa takes about 100 CPU seconds for a million (bench/results/align.md).
const PAIRS_PER_CORE: f64 = 10_000.0;

/// Reads a small simulated lane and tells the rate.
pub fn feeder() -> Finding {
    let finding = |state, found| Finding::new(Area::Cluster, "one gzip lane", state, found);
    match rate() {
        Ok(pairs_per_s) => {
            let (rate, cores) = (pairs_per_s.round(), (pairs_per_s / PAIRS_PER_CORE).round());
            let found = format!(
                "is read at {rate:.0} pairs of 150 bases per second: bwa on about {cores:.0} cores takes as much"
            );
            let finding = finding(State::Note, found);
            finding.remedy(
                "on more cores than that, nodes wait for reads: compress them with bgzip, which several threads read",
            )
        }
        Err(problem) => finding(State::Note, format!("could not be measured: {problem}")),
    }
}

/// Pairs per second.
fn rate() -> Result<f64, String> {
    let directory = Temporary::create(|| tempfile::Builder::new().prefix("godwit-doctor-").tempdir());
    let directory = directory.map_err(|error| format!("scratch space: {error}"))?;
    let failed = |error: &dyn std::error::Error| with_causes(error);
    let assembly = Assembly::simulate(&GenomeOptions::default()).map_err(|error| failed(&error))?;
    let sample = Sample::draw(&assembly, &SampleOptions::default());
    let options = ReadOptions { pairs: PAIRS, read_bases: 150, gzip: true, ..ReadOptions::default() };
    let written =
        write_reads(&assembly, &sample, &options, &directory.path().join("r")).map_err(|error| failed(&error))?;
    let started = Instant::now();
    let mut lane = LaneReader::open(&written.lanes[0], &LaneOptions::default()).map_err(|error| failed(&error))?;
    let mut reads = 0;
    while let Some(event) = lane.next().map_err(|error| failed(&error))? {
        if let LaneEvent::BlockEnd { reads: more, .. } = event {
            reads += more;
        }
    }
    Ok(reads as f64 / 2.0 / started.elapsed().as_secs_f64())
}
