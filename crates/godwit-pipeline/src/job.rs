//! Options that `align` and `markdup` share.

use std::path::{Path, PathBuf};

use godwit_io::crypt4gh::PublicKey;

use crate::error::PipelineError;
use crate::marking::{DuplicatePolicy, MarkingOptions};
use crate::memory::MemoryPlan;
use crate::python_step::{PythonStep, PythonStepOptions};
use crate::reduce::{PicardMetricsRequest, RecalibrationOptions, ReduceOptions, WritingOptions};

/// Options that `align` and `markdup` share.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Number of threads.
    pub threads: usize,
    /// Memory limit of this process, bytes; `None`: a default that depends on the subcommand.
    pub memory_bytes: Option<u64>,
    /// Directory of the scratch files; `None`: the directory of the output files.
    pub temp: Option<PathBuf>,
    /// Number of partitions into which the genome is divided.
    pub partitions: u32,
    /// The treatment of duplicates in the output.
    pub duplicates: DuplicatePolicy,
    /// Maximum distance between two clusters on the flow cell that count as optical duplicates, pixels.
    pub optical_distance: i32,
    /// Further options of duplicate marking.
    pub marking: MarkingOptions,
    /// A Python function that is applied between duplicate marking and writing; `None` for `markdup`.
    pub python_step: Option<PythonStepOptions>,
    /// Recalibration of base qualities; `None` to keep the qualities of the reads.
    pub recalibration: Option<RecalibrationOptions>,
    /// Public keys of the recipients of encrypted BAM and CRAM; empty: no encryption.
    pub recipients: Vec<PublicKey>,
    /// True to collect metrics of the written file and to write the report page.
    pub metrics: bool,
    /// The requested metrics of Picard, which need a reference and `metrics`; `None`: none.
    pub picard_metrics: Option<PicardMetricsRequest>,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// Path of the godwit program, which is started as a separate process to decode CRAM.
    pub godwit_program: PathBuf,
}

impl JobOptions {
    /// Checks that the options do not contradict each other.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if they do, or if an interval list of the metrics is missing.
    pub fn check(&self) -> Result<(), PipelineError> {
        if self.recalibration.is_some() && self.python_step.is_some() {
            let problem = "--recalibrate and --step exclude each other; omit one of them, or run `godwit recalibrate` on \
                           the output";
            return Err(PipelineError::Options { problem: problem.to_owned() });
        }
        self.picard_metrics.as_ref().map_or(Ok(()), PicardMetricsRequest::check)?;
        self.marking.check(self.duplicates)
    }

    /// Returns the options of duplicate marking that change records, in the form of a command line.
    pub fn marking_command_line(&self) -> String {
        let (policy, marking) = (self.duplicates.name(), self.marking.command_line());
        format!("--duplicates {policy} --optical-distance {}{marking}", self.optical_distance)
    }

    /// Returns the reference with which the bases of reads are compared for the metrics; `None` if no metrics are
    /// collected.
    pub fn metrics_reference<'r>(&self, reference: Option<&'r Path>) -> Option<&'r Path> {
        reference.filter(|_| self.metrics)
    }

    /// Returns the options of the reduce phase. `reference`: the reference for the metrics. `python_step`: the Python
    /// step to apply.
    pub fn reduce_options(
        &self,
        memory: MemoryPlan,
        temp: &Path,
        reference: Option<&Path>,
        python_step: Option<PythonStep>,
    ) -> ReduceOptions {
        let metrics = self.metrics.then(|| reference.map(Path::to_owned));
        ReduceOptions {
            writing: WritingOptions {
                duplicates: self.duplicates,
                marking: self.marking,
                metrics,
                picard_metrics: self.picard_metrics.clone(),
                python_step,
                recalibration: self.recalibration.clone(),
            },
            optical_distance: self.optical_distance,
            marking_command_line: self.marking_command_line(),
            partitions: self.partitions,
            threads: self.threads,
            memory,
            temp: temp.to_owned(),
        }
    }
}
