//! Errors of the metrics.

use std::io;

use crate::interval_list::IntervalListError;

/// An error that ends the computation of metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// The reference cannot be read.
    #[error(transparent)]
    Reference(#[from] io::Error),
    /// An interval list cannot be used.
    #[error(transparent)]
    Intervals(#[from] IntervalListError),
    /// The read groups of the header do not suffice for a metric.
    #[error("{problem}")]
    ReadGroups {
        /// The metric, and what it needs.
        problem: String,
    },
    /// A record belongs to no read group of the header.
    #[error(
        "OxoG needs the library of each read, but the read {read} has no read group of the header; add RG tags, or leave OxoG out of --metrics"
    )]
    NoReadGroup {
        /// Name of the read.
        read: String,
    },
}
