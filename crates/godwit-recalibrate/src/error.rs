//! Errors of recalibration.

use std::io;

/// A read that cannot be counted or recalibrated.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The read has more bases than there are cycles.
    #[error("the read {name} has {bases} bases; recalibration supports at most {max}")]
    TooLong {
        /// Name of the read.
        name: String,
        /// Number of bases of the read.
        bases: usize,
        /// Maximum number of bases.
        max: usize,
    },
    /// A base quality is higher than a FASTQ file can express.
    #[error("the read {name} has a base quality of {quality}; the maximum is 93")]
    QualityTooHigh {
        /// Name of the read.
        name: String,
        /// The quality (Phred).
        quality: u8,
    },
    /// The header lacks the read group of the read.
    #[error("the read {name} has the read group {group}, which the header lacks")]
    UnknownReadGroup {
        /// Name of the read.
        name: String,
        /// Identifier of the read group.
        group: String,
    },
    /// The alignment covers no base of the reference.
    #[error("the read {name} is mapped, but its CIGAR aligns no base in a valid order")]
    InvalidCigar {
        /// Name of the read.
        name: String,
    },
    /// The alignment extends beyond the end of the contig.
    #[error("the alignment of the read {name} extends beyond the end of its contig")]
    BeyondContig {
        /// Name of the read.
        name: String,
    },
    /// The tag of the original qualities has another length than the read.
    #[error("the tag OQ of the read {name} does not have one quality for each base")]
    InvalidOriginalQualities {
        /// Name of the read.
        name: String,
    },
    /// The reference could not be read.
    #[error("the reference could not be read")]
    Reference(#[source] io::Error),
}

/// An invalid report of BaseRecalibrator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// A table is missing.
    #[error("it has no table {name}, so it is not a report of BaseRecalibrator")]
    MissingTable {
        /// Name of the table.
        name: &'static str,
    },
    /// A table lacks a column.
    #[error("its table {table} has no column {column}")]
    MissingColumn {
        /// Name of the table.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
    },
    /// The value of a cell is invalid.
    #[error("row {row} of its table {table} has the invalid value {value:?} in the column {column}")]
    InvalidValue {
        /// Name of the table.
        table: &'static str,
        /// 1-based number of the row.
        row: usize,
        /// Name of the column.
        column: &'static str,
        /// The value.
        value: String,
    },
}
