//! What can be wrong with a VCF file.

use std::path::PathBuf;

use arrow_schema::ArrowError;

use crate::bgzf::BgzfError;

/// Why a VCF file cannot be read, or become columns. Lines are 1-based.
#[derive(Debug, thiserror::Error)]
pub enum VcfError {
    /// The file, or its compression.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// Something else.
    #[error("{} is no VCF: it starts neither with ##fileformat=VCF nor as BCF does", .path.display())]
    NotVcf {
        /// The file.
        path: PathBuf,
    },
    /// A file without a byte, or compressed without a byte of text.
    #[error("{} is empty; a VCF has a header even where it has no records: make it again", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line of the header.
    #[error("{}, line {line}: {problem}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A record.
    #[error("{}, line {line}: {problem}", .path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A record of BCF.
    #[error("{}, record {record}: {problem}", .path.display())]
    BinaryRecord {
        /// The file.
        path: PathBuf,
        /// Its 1-based number.
        record: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A record whose line's number is not known; or none is there, and the index is of another file.
    #[error("{}, record at virtual offset {offset}: {problem}; is its index older than the file?", .path.display())]
    RecordAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of its line.
        offset: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A line, or a header, of a length that no file of variants needs.
    #[error("{}, line {line}: {what} is longer than {limit_mib} MiB; is it VCF?", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// `the line` or `the header`.
        what: &'static str,
        /// The most that is taken.
        limit_mib: usize,
    },
    /// More columns than readers of them would bear.
    #[error(
        "its header defines {fields} fields, more than {limit}; remove those not needed, as with `bcftools annotate -x`"
    )]
    TooManyFields {
        /// `INFO` and `FORMAT` lines.
        fields: usize,
        /// The most that become columns.
        limit: usize,
    },
    /// A batch does not fit its schema: a bug.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[source] ArrowError),
    /// A Parquet file could not be written.
    #[error("the Parquet writer failed")]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// The start of a text, for messages.
pub(super) fn shown(text: &str) -> String {
    const SHOWN_CHARACTERS: usize = 40;
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARACTERS).is_some() {
        shown += "...";
    }
    shown
}
