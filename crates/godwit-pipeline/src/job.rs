//! What every job that ends in a marked BAM is told.

use std::path::{Path, PathBuf};

use godwit_formats::crypt4gh::PublicKey;

use crate::error::PipelineError;
use crate::marking::MarkingOptions;
use crate::memory::MemoryPlan;
use crate::reduce::{DuplicatePolicy, ReduceOptions, WritingOptions};
use crate::step::{Step, StepOptions};

/// Options of `align` and `markdup` alike.
#[derive(Clone, Debug)]
pub struct JobOptions {
    /// Threads.
    pub threads: usize,
    /// Limit for this process, bytes.
    pub memory_bytes: Option<u64>,
    /// Where scratch files go; the output's directory where `None`.
    pub temp: Option<PathBuf>,
    /// Partitions of the genome.
    pub partitions: u32,
    /// What becomes of duplicates.
    pub duplicates: DuplicatePolicy,
    /// Greatest distance of optical duplicates, pixels.
    pub optical_distance: i32,
    /// How duplicates are marked, beyond that.
    pub marking: MarkingOptions,
    /// A function between marking and writing; `markdup` has none.
    pub step: Option<StepOptions>,
    /// Who may read BAM and CRAM; they are not encrypted where there is nobody.
    pub recipients: Vec<PublicKey>,
    /// Take the metrics of the file that is written, and make the report page.
    pub metrics: bool,
    /// The command line, for the report.
    pub command: Vec<String>,
    /// The godwit program, which decodes CRAM in a process of its own.
    pub program: PathBuf,
}

impl JobOptions {
    /// Checks that the options go together.
    pub(crate) fn check(&self) -> Result<(), PipelineError> {
        self.marking.check(self.duplicates)
    }

    /// The options of marking that change records, as on the command line.
    pub(crate) fn marking_command_line(&self) -> String {
        let (policy, marking) = (self.duplicates.name(), self.marking.command_line());
        format!("--duplicates {policy} --optical-distance {}{marking}", self.optical_distance)
    }

    /// The reference that metrics compare bases with, where they are taken.
    pub(crate) fn compared_with<'r>(&self, reference: Option<&'r Path>) -> Option<&'r Path> {
        reference.filter(|_| self.metrics)
    }

    /// `reference`: what metrics compare bases with. `step`: that of the options, found.
    pub(crate) fn reduce_options(
        &self,
        memory: MemoryPlan,
        temp: &Path,
        reference: Option<&Path>,
        step: Option<Step>,
    ) -> ReduceOptions {
        let metrics = self.metrics.then(|| reference.map(Path::to_owned));
        ReduceOptions {
            writing: WritingOptions { duplicates: self.duplicates, marking: self.marking, metrics, step },
            optical_distance: self.optical_distance,
            marking_command_line: self.marking_command_line(),
            partitions: self.partitions,
            threads: self.threads,
            memory,
            temp: temp.to_owned(),
        }
    }
}
