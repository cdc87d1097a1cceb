//! Metrics of a sorted, marked file, equal to those of established tools: Picard 3.4.0 (insert sizes, alignment summary),
//! samtools 1.16 (`stats`) and mosdepth 0.3.3 (coverage).
//!
//! Records are read once, in the order of the file, partition by partition, each partition on any thread. A [`RecordCounts`]
//! per thread counts what does not depend on order and is merged by addition. A [`PartitionDepth`] per partition counts
//! depth; [`DepthMerger`] receives them in the order of the file and corrects their borders. All counts are whole numbers,
//! so nothing depends on threads or on partition borders. [`ReferenceBases`] provides reference bases; nothing here opens a
//! file.

mod adapters;
mod alignment_summary;
mod cycle_counts;
mod depth;
mod depth_merge;
mod histogram;
mod insert_size;
mod mate_overlap;
mod mosdepth;
mod record_counts;
mod samtools_stats;

pub use alignment_summary::{AlignmentSummary, ReferenceBases};
pub use cycle_counts::CycleCounts;
pub use depth::{PartitionCoverage, PartitionDepth};
pub use depth_merge::{DepthMerger, GenomeCoverage};
pub use histogram::Histogram;
pub use insert_size::{InsertSizeCounts, InsertSizeRow};
pub use mosdepth::{ContigDepth, MosdepthReport};
pub use record_counts::RecordCounts;
pub use samtools_stats::SamtoolsStats;

/// Returns the comment lines at the start of a Picard metrics file.
fn picard_header(comment: &str) -> String {
    format!("## htsjdk.samtools.metrics.StringHeader\n# {comment}\n\n")
}
