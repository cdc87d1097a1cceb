//! The main job on one node: FASTQ to blocks, blocks through an aligner, records sorted and marked, written in any formats.
//!
//! [`align()`] is the whole of it; [`markdup()`] is its second half on reads aligned elsewhere; [`simulate`] makes reads
//! whose truth is known. Jobs tell an [`Observer`] how they go on and stop when their flag is set. Nothing here knows a
//! terminal or a command line.

mod align;
mod align_and_call;
mod aligner_selection;
mod call;
mod compare;
mod error;
mod filtering;
mod fingerprint;
mod job;
mod journal;
mod key_numbers;
mod live_run;
pub mod machine;
mod manifest;
mod markdup;
mod marking;
mod memory;
mod memory_file;
mod memory_hints;
mod node;
mod observer;
#[doc(hidden)]
pub mod outside_bytes;
mod partitioned_file;
mod read_groups;
mod record_bytes;
mod reduce;
mod reference;
mod report_page;
mod run_directory;
mod run_plan;
mod run_report;
mod runs;
mod scratch;
mod search;
pub mod simulate;
mod spread;
mod staging;
mod step;
mod variants;
mod verify;
mod workflow;

pub use godwit_cram::{DecodeRequest, decode};
pub use godwit_engines::aligner::AlignerChoice;
pub use godwit_engines::caller::CallerChoice;
pub use godwit_kernels::markdup::{BarcodeTags, DuplicateMode};
pub use godwit_model as model;

pub use align::plan::{PlannedNodes, plan_align};
pub use align::{AlignOptions, ExchangeReport, ReadsOptions, align};
pub use align_and_call::{AlignedAndCalled, align_and_call, check_calling};
pub use call::{
    CallOptions, CallReport, CalledRegionReport, CallingNode, Cutting, RecalibrateOptions, RecalibrationReport,
    SLICE_RECORDS, ScannedReference, call, is_call_busy, recalibrate,
};
pub use compare::{Accuracy, Changes, Classes, CompareOptions, Comparison, Judged, Records, Source, compare};
pub use error::{Blame, PipelineError};
pub use filtering::{FilterOptions, FilterReport, filter};
pub use godwit_engines::variant_filter::Resource;
pub use job::JobOptions;
pub use journal::Fact;
pub use key_numbers::KeyNumbers;
pub use live_run::{LiveRun, LiveRunError, live_name};
pub use manifest::{Manifest, ManifestFile};
pub use markdup::plan::plan_markdup;
pub use markdup::{MarkdupOptions, markdup};
pub use marking::{MarkingOptions, TaggingPolicy};
pub use memory::{MemoryPlan, MemoryTooSmall};
pub use node::{NodeOptions, work};
pub use observer::{ALL_SAMPLES, Event, Observer, SampleState, Silent, WorkflowStep};
pub use reduce::{DuplicatePolicy, Format, Segment};
pub use reference::{IndexOptions, build_index, current_index};
pub use run_directory::has_stopped_run;
pub use run_plan::{Certainty, DiskNeed, IndexNeed, LanePlan, MemoryNeed, RunPlan, show_bytes};
pub use run_report::{AlignerReport, InputFile, OutputFile, ResumedWork, RunReport, Stage, StepReport};
pub use search::search_on_nodes;
pub use spread::{Launch, Spread};
pub use step::{Refusal, Step, StepError, StepOptions};
pub use variants::write_variants;
pub use verify::{Check, Verdict, verify};
pub use workflow::{
    FetchReads, JobEnd, PRIVATE, SampleJob, SampleNodes, SampleOutcome, StepTime, StorageMoment, StorageNode, Try,
    WatchStorage, Workflow, WorkflowOptions, WorkflowReport, run_sample, run_workflow, sample_name_problem,
};
