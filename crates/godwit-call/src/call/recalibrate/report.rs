//! The report of a recalibration, which is written as `OUT.run.json`.

use godwit_files::AtomicSet;
use godwit_pipeline::job_report::{InputFile, OutputFile, Stage};
use godwit_pipeline::observer::rounded_seconds;
use serde::Serialize;

use super::{RecalibrateJob, SliceEngine};

/// The report of a `recalibrate`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecalibrationReport {
    /// Version of godwit.
    pub godwit: String,
    /// The subcommand.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// Version of GATK; `None` if godwit counted and changed the qualities itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gatk_version: Option<String>,
    /// Maximum number of slices that were processed at the same time.
    #[serde(rename = "workers")]
    pub concurrent_slices: usize,
    /// Files read.
    pub inputs: Vec<InputFile>,
    /// Files written.
    pub outputs: Vec<OutputFile>,
    /// Time of each stage; `rows` is the number of slices for the stages that count and change qualities.
    pub stages: Vec<Stage>,
    /// Number of slices into which the input was divided.
    pub slices: usize,
    /// Number of records written.
    pub records: u64,
    /// Wall time, seconds.
    pub seconds: f64,
    /// True if the outputs existed already, so that nothing was computed.
    #[serde(skip)]
    pub already_complete: bool,
}

impl RecalibrationReport {
    /// Returns the report of a job whose files are written.
    pub(super) fn new(
        job: &RecalibrateJob,
        stages: Vec<Stage>,
        slices: usize,
        records: u64,
        staged: &AtomicSet,
    ) -> Self {
        Self {
            godwit: env!("CARGO_PKG_VERSION").into(),
            verb: "recalibrate",
            command: job.options.command.clone(),
            gatk_version: match &job.engine {
                SliceEngine::Own(_) => None,
                SliceEngine::Gatk(gatk) => Some(gatk.version().to_owned()),
            },
            concurrent_slices: job.concurrent_slices(),
            inputs: job.inputs.clone(),
            outputs: OutputFile::from_files(staged),
            stages,
            slices,
            records,
            seconds: rounded_seconds(job.started_at.elapsed()),
            already_complete: false,
        }
    }
}
