//! The jobs of godwit: alignment, duplicate marking, variant calling, filtering, comparison, verification, and
//! workflows that combine them.
//!
//! [`align()`] aligns FASTQ, marks duplicates and writes sorted output; [`markdup()`] marks duplicates in reads that
//! are already aligned. A job reports its progress to
//! an [`Observer`] and stops when its cancel flag is set. This crate contains no terminal or command-line code.

mod align;
mod align_and_call;
mod align_messages;
mod aligner_selection;
mod aligner_threads;
mod call;
mod cluster_worker;
mod compare;
mod encryption;
mod error;
mod filtering;
mod fingerprint;
#[doc(hidden)]
pub mod fuzz_targets;
pub mod host_resources;
mod job;
mod job_directory;
mod job_plan;
mod job_report;
mod journal;
mod key_numbers;
mod manifest;
mod markdup;
mod marking;
mod memory;
mod memory_file;
mod memory_hints;
mod observer;
mod partitioned_file;
mod python_step;
mod read_groups;
mod record_size_estimator;
mod reduce;
mod reference;
mod report_page;
mod report_publication;
mod runs;
mod scratch;
mod unfinished_job;
mod variant_table;
mod verify;
mod workflow;

pub use godwit_cram::{DecodeRequest, run_decoder};
pub use godwit_engines::aligner::AlignerChoice;
pub use godwit_engines::caller::CallerChoice;
pub use godwit_haplotypes as haplotypes;
pub use godwit_kernels::markdup::{BarcodeTags, DuplicateMode};
pub use godwit_model as model;

pub use align::align_plan::{PlannedWorkers, plan_align};
pub use align::{AlignOptions, ReadsOptions, align};
pub use align_and_call::{AlignAndCallReport, align_and_call, check_calling};
pub use align_messages::AlignTask;
pub use call::{
    CallOptions, CallReport, CallTask, CallWorkerReport, GridReport, RecalibrateOptions, RecalibrationReport,
    RegionReport, SLICE_RECORDS, ScannedReference, call, is_call_running, recalibrate, run_call_worker,
};
pub use cluster_worker::run_align_worker;
pub use compare::{
    Accuracy, BaselineChanges, CallSetAccuracy, CompareOptions, ComparedFile, Comparison, PerVariantType,
    VcfRecordCounts, compare, compare_by_haplotypes,
};
pub use error::{ErrorKind, PipelineError, PythonStepError, PythonStepRefusal};
pub use filtering::{FilterOptions, FilterReport, filter};
pub use godwit_engines::variant_filter::TrainingResource;
pub use job::JobOptions;
pub use job_directory::has_unfinished_job;
pub use job_plan::{DiskNeed, IndexNeed, JobPlan, LanePlan, MemoryNeed, UncertaintyFactors, format_bytes};
pub use job_report::{
    AlignerReport, ExchangeReport, InputFile, JobReport, OutputFile, PythonStepReport, ResumedWork, Stage,
};
pub use journal::FingerprintEntry;
pub use key_numbers::KeyNumbers;
pub use manifest::{MANIFEST_SUFFIX, Manifest, ManifestFile, Segment, checksummed_entry};
pub use markdup::markdup_plan::plan_markdup;
pub use markdup::{MarkdupOptions, markdup};
pub use marking::{DuplicatePolicy, MarkingOptions, TaggingPolicy};
pub use memory::{MemoryPlan, MemoryTooSmall};
pub use observer::{ALL_SAMPLES, Event, NullObserver, Observer, SampleState, WorkflowStep};
pub use python_step::{PythonStep, PythonStepOptions};
pub use reduce::Format;
pub use reference::{IndexOptions, build_index, current_index};
pub use unfinished_job::{UnfinishedJob, UnfinishedJobError, unfinished_output_name};
pub use variant_table::write_variants;
pub use verify::{FileCheck, VerifyOutcome, verify};
pub use workflow::{
    FailedAttempt, JobExit, PRIVATE_FILE_PATTERN, RemoteFiles, SampleHosts, SampleJob, SampleOutcome, StepTime,
    StorageMonitor, StoragePoolMember, StorageSnapshot, Workflow, WorkflowOptions, WorkflowReport, run_sample,
    run_workflow, sample_name_problem,
};
