//! Metrics of a sorted, marked file, equal to those of the tools people know: Picard 3.4.0 (insert sizes, alignment
//! summary), samtools 1.16 (`stats`) and mosdepth 0.3.3 (coverage).
//!
//! Records flow in once, in the order of the file, partition by partition, each partition on any thread. A
//! [`RecordCounts`] per thread counts what has no order and is merged by addition. A [`PartitionDepth`] per partition
//! counts depth; [`DepthMerger`] takes them in the order of the file and mends their borders. All counts are whole
//! numbers, so nothing depends on threads or on where partitions were cut. Reference bases come through
//! [`ReferenceBases`]; nothing here opens a file.

mod adapters;
mod alignment_summary;
mod cycles;
mod depth;
mod depth_merge;
mod histogram;
mod insert_size;
mod mosdepth;
mod overlap;
mod record_counts;
mod samtools_stats;

pub use alignment_summary::{AlignmentSummary, ReferenceBases};
pub use cycles::Cycles;
pub use depth::{FinishedDepth, PartitionDepth};
pub use depth_merge::{Coverage, DepthMerger};
pub use histogram::Histogram;
pub use insert_size::{InsertSizeRow, InsertSizes};
pub use mosdepth::{ContigDepth, Mosdepth};
pub use record_counts::RecordCounts;
pub use samtools_stats::SamtoolsStats;

/// The comment lines that head a Picard metrics file.
fn picard_header(comment: &str) -> String {
    format!("## htsjdk.samtools.metrics.StringHeader\n# {comment}\n\n")
}
