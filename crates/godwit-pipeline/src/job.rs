//! What every job that ends in a marked BAM is told.

use std::path::{Path, PathBuf};

use crate::memory::MemoryPlan;
use crate::reduce::{DuplicatePolicy, ReduceOptions};

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
    /// The command line, for the report.
    pub command: Vec<String>,
}

impl JobOptions {
    pub(crate) fn reduce_options(&self, memory: MemoryPlan, temp: &Path) -> ReduceOptions {
        ReduceOptions {
            duplicates: self.duplicates,
            optical_distance: self.optical_distance,
            partitions: self.partitions,
            threads: self.threads,
            memory,
            temp: temp.to_owned(),
        }
    }
}
