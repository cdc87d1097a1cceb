//! Options of every job that ends in a marked BAM.

use std::path::{Path, PathBuf};

use godwit_formats::crypt4gh::PublicKey;

use crate::error::PipelineError;
use crate::marking::MarkingOptions;
use crate::memory::MemoryPlan;
use crate::python_step::{PythonStep, PythonStepOptions};
use crate::reduce::{DuplicatePolicy, ReduceOptions, WritingOptions};

/// Options of `align` and `markdup` alike.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Number of threads.
    pub threads: usize,
    /// Memory limit of this process, bytes.
    pub memory_bytes: Option<u64>,
    /// The directory of scratch files; `None`: the directory of the output.
    pub temp: Option<PathBuf>,
    /// Number of partitions of the genome.
    pub partitions: u32,
    /// The treatment of duplicates in the output.
    pub duplicates: DuplicatePolicy,
    /// Maximum distance of optical duplicates, pixels.
    pub optical_distance: i32,
    /// Further options of duplicate marking.
    pub marking: MarkingOptions,
    /// A Python step between marking and writing; `markdup` has none.
    pub python_step: Option<PythonStepOptions>,
    /// Public keys for which BAM and CRAM are encrypted; empty: no encryption.
    pub recipients: Vec<PublicKey>,
    /// True to collect metrics of the written file and to write the report page.
    pub metrics: bool,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The godwit program, which decodes CRAM in a separate process.
    pub godwit_program: PathBuf,
}

impl JobOptions {
    /// Checks that the options can be combined.
    pub(crate) fn check(&self) -> Result<(), PipelineError> {
        self.marking.check(self.duplicates)
    }

    /// Returns the marking options that change records, as on the command line.
    pub(crate) fn marking_command_line(&self) -> String {
        let (policy, marking) = (self.duplicates.name(), self.marking.command_line());
        format!("--duplicates {policy} --optical-distance {}{marking}", self.optical_distance)
    }

    /// Returns the reference with which metrics compare bases, if metrics are collected.
    pub(crate) fn metrics_reference<'r>(&self, reference: Option<&'r Path>) -> Option<&'r Path> {
        reference.filter(|_| self.metrics)
    }

    /// Returns the options of the reduce phase. `reference`: for metrics. `python_step`: the located Python step.
    pub(crate) fn reduce_options(
        &self,
        memory: MemoryPlan,
        temp: &Path,
        reference: Option<&Path>,
        python_step: Option<PythonStep>,
    ) -> ReduceOptions {
        let metrics = self.metrics.then(|| reference.map(Path::to_owned));
        ReduceOptions {
            writing: WritingOptions { duplicates: self.duplicates, marking: self.marking, metrics, python_step },
            optical_distance: self.optical_distance,
            marking_command_line: self.marking_command_line(),
            partitions: self.partitions,
            threads: self.threads,
            memory,
            temp: temp.to_owned(),
        }
    }
}
