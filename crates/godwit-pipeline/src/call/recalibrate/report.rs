//! `OUT.run.json` of a recalibration.

use serde::Serialize;

use super::Job;
use crate::observer::seconds;
use crate::run_report::{InputFile, OutputFile, Stage};
use crate::staging::Staged;

/// The report of a `recalibrate`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecalibrationReport {
    /// Version of godwit.
    pub godwit: String,
    /// The verb.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Version of GATK.
    pub gatk_version: String,
    /// GATKs that ran at a time, at most.
    pub workers: usize,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// What took how long; `rows` of counting and changing are slices.
    pub stages: Vec<Stage>,
    /// Slices that the file was cut into.
    pub slices: usize,
    /// Records written.
    pub records: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// The outputs were there already; nothing ran.
    #[serde(skip)]
    pub already_complete: bool,
}

impl RecalibrationReport {
    /// The report of a job whose files are written.
    pub(super) fn new(job: &Job, stages: Vec<Stage>, slices: usize, records: u64, staged: &Staged) -> Self {
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "recalibrate",
            command: job.options.command.clone(),
            gatk_version: job.toolkit.version().to_owned(),
            workers: job.workers.count,
            inputs: job.inputs.clone(),
            outputs: OutputFile::of(staged),
            stages,
            slices,
            records,
            seconds: seconds(job.started.elapsed()),
            already_complete: false,
        }
    }
}
