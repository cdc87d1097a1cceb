//! Metrics of aligned reads with the values and the text of Picard 3.4.0. Of these, the counts and texts of alignment
//! summaries and insert sizes are in [`godwit_kernels::qc`], because every job computes them, and those of duplicates in
//! [`godwit_kernels::markdup`]; this crate has all others.
//!
//! Flows in: packed records of a BAM, and the bases of its reference. Flows out: the texts of metrics files. Counts that
//! do not depend on the order of records are in a [`RecordMetrics`] for each thread, which are merged by addition; those
//! that need the order of coordinates are in one [`OrderedMetrics`]. All options have Picard's defaults, and all counts
//! are integers, so the results do not depend on the number of threads. A job that writes a file in partitions has a
//! [`PartitionMetrics`] for each, and a [`PartitionJoiner`] of their counts. The texts differ from those of Picard only in
//! their header lines. This crate does not read BAM files and writes no files.

mod base_codes;
mod bin_statistics;
mod collector;
mod count_array;
mod count_scope;
mod cycle_totals;
mod error;
mod gc_bias;
mod het_sensitivity;
mod interval_list;
mod java_hash;
mod metric;
mod metrics_text;
mod oxidation;
mod partition_metrics;
mod phred;
mod quality_distribution;
mod reference_scan;
mod target_text;
mod targets;
mod wgs;

pub use collector::{MetricsFile, OrderedMetrics, RecordMetrics, TargetLists};
pub use error::MetricsError;
pub use interval_list::{IntervalList, IntervalListError};
pub use metric::Metric;
pub use partition_metrics::{JoinedMetrics, PartitionCounts, PartitionJoiner, PartitionMetrics};
pub use reference_scan::ReferenceCounts;
