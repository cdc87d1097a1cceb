//! Quality metrics of a coordinate-sorted, duplicate-marked file. The values equal those of Picard 3.4.0 (insert sizes,
//! alignment summary), samtools 1.16 (`stats`) and mosdepth 0.3.3 (coverage). The metrics of duplicates are in
//! [`crate::markdup`], and all other metrics of Picard in the crate `godwit-metrics`.
//!
//! Records are read once, in file order within each partition; different threads may process different partitions. Each
//! thread has a [`RecordCounts`] for counts that do not depend on the record order; these are merged by addition. Each
//! partition has a [`PartitionDepth`] that counts depth. [`DepthMerger`] receives these depths in file order and
//! corrects them at partition borders.
//!
//! All counts are integers, so the results do not depend on the number of threads or on partition borders. The caller
//! provides reference bases through [`ReferenceBases`], because this module does not open files.

mod adapters;
mod alignment;
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

pub use adapters::starts_with_adapter;
pub use alignment::{Alignment, AlignmentBlock, AlignmentBuffer, RecordTags};
pub use alignment_summary::{AlignmentSummary, ReferenceBases};
pub use cycle_counts::CycleCounts;
pub use depth::{PartitionCoverage, PartitionDepth};
pub use depth_merge::{DepthMerger, GenomeCoverage};
pub use histogram::Histogram;
pub use insert_size::{InsertSizeCounts, InsertSizeRow};
pub use mosdepth::{ContigDepth, MosdepthReport};
pub use record_counts::{RecordCounts, count_byte_pairs};
pub use samtools_stats::SamtoolsStats;
