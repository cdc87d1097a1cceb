//! The jobs that write marked reads.
//!
//! [`align()`] aligns FASTQ, marks duplicates and writes sorted output, on this host or as a cluster run; [`markdup()`]
//! marks duplicates in reads that are aligned already; [`build_index()`] prepares a reference.

mod align;
mod align_messages;
mod align_worker;
mod aligner_selection;
mod aligner_threads;
mod job_plan;
mod markdup;
mod picard_metrics;
mod record_size_estimator;
mod reference;
mod report_publication;

pub use align::align_plan::{PlannedWorkers, check_align, plan_align};
pub use align::{AlignOptions, ReadsOptions, align, align_with_tail};
pub use align_messages::AlignTask;
pub use align_worker::run_align_worker;
pub use job_plan::{DiskNeed, IndexNeed, JobPlan, LanePlan, MemoryNeed, UncertaintyFactors, format_bytes};
pub use markdup::markdup_plan::plan_markdup;
pub use markdup::{MarkdupOptions, markdup};
pub use picard_metrics::{PicardMetricsOptions, PicardMetricsReport, collect_picard_metrics};
pub use reference::{IndexOptions, build_index, current_index};
