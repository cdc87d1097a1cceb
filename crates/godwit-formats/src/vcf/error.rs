//! Errors of VCF files.

use std::path::PathBuf;

use arrow_schema::ArrowError;

use crate::bgzf::BgzfError;

/// A reason why a VCF file cannot be read or converted to columns. Lines are 1-based.
#[derive(Debug, thiserror::Error)]
pub enum VcfError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file has another format.
    #[error("{} is no VCF: it starts neither with ##fileformat=VCF nor as BCF does", .path.display())]
    NotVcf {
        /// The file.
        path: PathBuf,
    },
    /// The file is empty, or compressed without a byte of text.
    #[error("{} is empty; a VCF has a header even where it has no records: make it again", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line of the header is invalid.
    #[error("{}, line {line}: {problem}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The problem and its remedy.
        problem: String,
    },
    /// A record is invalid.
    #[error("{}, line {line}: {problem}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// A record of BCF is invalid.
    #[error("{}, record {record}: {problem}", .path.display())]
    BinaryRecord {
        /// The file.
        path: PathBuf,
        /// Its 1-based number.
        record: u64,
        /// The problem.
        problem: String,
    },
    /// A record whose line number is unknown is invalid; or no record starts there, and the index belongs to another file.
    #[error("{}, record at virtual offset {offset}: {problem}; is its index older than the file?", .path.display())]
    RecordAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of its line.
        offset: u64,
        /// The problem.
        problem: String,
    },
    /// A line, or a header, exceeds the limit.
    #[error("{}, line {line}: {subject} is longer than {limit_mib} MiB; is it VCF?", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// `the line` or `the header`.
        subject: &'static str,
        /// The limit.
        limit_mib: usize,
    },
    /// The header defines more columns than the limit.
    #[error(
        "its header defines {fields} fields, more than {limit}; remove those not needed, as with `bcftools annotate -x`"
    )]
    TooManyFields {
        /// `INFO` and `FORMAT` lines.
        fields: usize,
        /// Maximum number of columns.
        limit: usize,
    },
    /// A batch does not fit its schema: a bug.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[source] ArrowError),
    /// A Parquet file could not be written.
    #[error("the Parquet writer failed")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// Returns the start of a text, for messages.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 40;
    let mut excerpt: String = text.chars().take(MAX_EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        excerpt += "...";
    }
    excerpt
}
