//! `OUT.run.json`: what was called with what, how long each region took, and what came out.

use serde::Serialize;

use super::CallJob;
use super::kept::KeptRegion;
use crate::observer::seconds;
use crate::run_report::{InputFile, OutputFile, Stage};
use crate::staging::Staged;

/// The report of a `call`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CallReport {
    /// Version of godwit.
    pub godwit: String,
    /// The verb.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Name of the caller.
    pub caller: String,
    /// Its version; empty where it tells none.
    pub caller_version: String,
    /// Callers that ran at a time, at most.
    pub workers: usize,
    /// How the genome was cut.
    pub grid: Cutting,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// What took how long.
    pub stages: Vec<Stage>,
    /// Regions in the order of the genome.
    pub regions: Vec<CalledRegionReport>,
    /// Regions that an earlier, stopped process had called.
    pub resumed_regions: usize,
    /// Records written.
    pub records: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// The outputs were there already; nothing ran.
    #[serde(skip)]
    pub already_complete: bool,
}

/// How the genome was cut.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cutting {
    /// Most bases of a region.
    pub window_bases: u32,
    /// Bases shown to the caller on either side.
    pub padding_bases: u32,
}

/// One region.
#[derive(Clone, Debug, Serialize)]
pub struct CalledRegionReport {
    /// From its first to its last base, as `chr1:1-1000`, 1-based.
    pub region: String,
    /// Bases called.
    pub bases: u64,
    /// Copies, where that was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ploidy: Option<u8>,
    /// Records.
    pub records: u64,
    /// Wall time of the caller, seconds.
    pub seconds: f64,
    /// How often the caller was started.
    pub attempts: u32,
}

impl CallReport {
    /// The report of a job whose files are written.
    pub(super) fn new(
        job: &CallJob,
        kept: &[KeptRegion],
        records: u64,
        mut stages: Vec<Stage>,
        staged: &Staged,
    ) -> Self {
        stages.iter_mut().for_each(|stage| stage.seconds = (stage.seconds * 1000.0).round() / 1000.0);
        let grid = super::plan::grid_options(job.options, &job.caller.habits());
        let regions = job.regions.iter().zip(kept).map(|(planned, kept)| CalledRegionReport {
            region: planned.name.clone(),
            bases: planned.region.bases(),
            ploidy: planned.ploidy,
            records: kept.records,
            seconds: kept.seconds,
            attempts: kept.attempts,
        });
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "call",
            command: job.options.command.clone(),
            caller: job.caller.name().to_owned(),
            caller_version: job.caller.version().to_owned(),
            workers: job.workers.count,
            grid: Cutting { window_bases: grid.window_bases, padding_bases: grid.padding_bases },
            inputs: job.inputs.clone(),
            outputs: OutputFile::of(staged),
            stages,
            regions: regions.collect(),
            resumed_regions: job.resumed,
            records,
            seconds: seconds(job.started.elapsed()),
            already_complete: false,
        }
    }
}
