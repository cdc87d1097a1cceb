//! What the jobs of godwit share: sorted runs, marking and merging of partitions, output files with many writers, run
//! directories that a later process resumes, manifests and reports.
//!
//! A job reports its progress to an [`Observer`](observer::Observer) and stops when its cancel flag is set. The jobs
//! themselves are in `godwit-align`, `godwit-call`, `godwit-compare` and `godwit-workflow`. This crate contains no
//! terminal or command-line code.

pub mod encryption;
mod error;
pub mod fingerprint;
#[doc(hidden)]
pub mod fuzz_targets;
pub mod host_resources;
mod job;
pub mod job_directory;
pub mod job_report;
mod journal;
mod key_numbers;
pub mod manifest;
mod marking;
mod memory;
mod memory_file;
pub mod memory_hints;
pub mod observer;
pub mod partitioned_file;
pub mod python_step;
pub mod read_groups;
pub mod reduce;
pub mod report_page;
pub mod runs;
pub mod scanned_reference;
pub mod scratch;
mod unfinished_job;
mod verify;

pub use error::{AlignmentsError, PipelineError, PythonStepError, PythonStepRefusal};
pub use job::JobOptions;
pub use journal::{ClusterRun, FingerprintEntry};
pub use key_numbers::KeyNumbers;
pub use marking::{DuplicatePolicy, MarkingOptions, TaggingPolicy};
pub use memory::{MemoryPlan, MemoryTooSmall};
pub use unfinished_job::{UnfinishedJob, UnfinishedJobError, unfinished_output_name};
pub use verify::{FileCheck, VerifyOutcome, verify};
