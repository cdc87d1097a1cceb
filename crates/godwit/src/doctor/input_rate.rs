//! Measures how fast this host reads one pair of gzip files. A cluster run cannot align the reads of such a lane
//! faster.

use std::time::Instant;

use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};
use godwit_model::message_with_causes;
use godwit_process::TemporaryItem;
use godwit_simulate::{Assembly, GenomeOptions, ReadOptions, Sample, SampleOptions, write_reads};

use super::{Area, Finding, FindingState};

/// Number of read pairs to measure with, which takes some tens of milliseconds.
const MEASURED_PAIRS: u64 = 20_000;
/// Number of read pairs of 150 bases that a core aligns per second. bwa takes about 100 CPU seconds for a million pairs
/// (bench/results/align.md).
const PAIRS_PER_CORE_SECOND: f64 = 10_000.0;

/// Measures the read rate of a small simulated lane, and returns it as a finding.
pub fn input_rate() -> Finding {
    let finding = |state, found| Finding::new(Area::Cluster, "one gzip lane", state, found);
    match measure_pairs_per_s() {
        Ok(pairs_per_s) => {
            let (rate, cores) = (pairs_per_s.round(), (pairs_per_s / PAIRS_PER_CORE_SECOND).round());
            let found = format!(
                "is read at {rate:.0} pairs of 150 bases per second, as fast as bwa aligns on about {cores:.0} cores"
            );
            let finding = finding(FindingState::Note, found);
            finding.with_remedy(
                "with more cores, workers wait for reads: compress them with bgzip, which several threads can read",
            )
        }
        Err(problem) => finding(FindingState::Note, format!("could not be measured: {problem}")),
    }
}

/// Simulates a lane in a temporary directory, reads it, and returns the number of read pairs per second.
fn measure_pairs_per_s() -> Result<f64, String> {
    let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-doctor-").tempdir());
    let directory = directory.map_err(|error| format!("scratch space: {error}"))?;
    let failed = |error: &dyn std::error::Error| message_with_causes(error);
    let assembly = Assembly::simulate(&GenomeOptions::default()).map_err(|error| failed(&error))?;
    let sample = Sample::draw(&assembly, &SampleOptions::default());
    let options = ReadOptions { pairs: MEASURED_PAIRS, read_bases: 150, gzip: true, ..ReadOptions::default() };
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
