//! Errors in reading and converting VCF and BCF files.

use std::path::PathBuf;

use arrow_schema::ArrowError;

use godwit_io::bgzf::BgzfError;

/// A reason why a VCF or BCF file cannot be read or converted into columns. Line numbers are 1-based.
#[derive(Debug, thiserror::Error)]
pub enum VcfError {
    /// The file cannot be read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file is neither VCF nor BCF.
    #[error("{} is not VCF: it starts neither with ##fileformat=VCF nor with the magic bytes of BCF", .path.display())]
    NotVcf {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is empty, or is compressed and contains no text.
    #[error("{} is empty; a VCF without records has a header too: create it again", .path.display())]
    Empty {
        /// Path of the file.
        path: PathBuf,
    },
    /// A line of the header is not valid VCF.
    #[error("{}, line {line}: {problem}", .path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem, and what the user can do about it.
        problem: String,
    },
    /// A record of VCF is invalid.
    #[error("{}, line {line}: {problem}", .path.display())]
    Record {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem.
        problem: String,
    },
    /// A record of BCF is invalid.
    #[error("{}, record {record}: {problem}", .path.display())]
    BinaryRecord {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
        /// Description of the problem.
        problem: String,
    },
    /// A record that was read by index is invalid; or no record starts at this offset, because the index belongs to
    /// another file.
    #[error("{}, record at virtual offset {offset}: {problem}; is its index older than the file?", .path.display())]
    RecordAt {
        /// Path of the file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
        /// Description of the problem.
        problem: String,
    },
    /// A line or the whole header is longer than the limit.
    #[error("{}, line {line}: {subject} is longer than {limit_mib} MiB; is it VCF?", .path.display())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// The object that is too long: `the line` or `the header`.
        subject: &'static str,
        /// Maximum length in MiB.
        limit_mib: usize,
    },
    /// The header defines more fields than the maximum number of columns.
    #[error(
        "its header defines {fields} fields, more than {limit}; remove unused ones, for example with `bcftools \
         annotate -x`"
    )]
    TooManyFields {
        /// Number of `INFO` and `FORMAT` fields that the header defines.
        fields: usize,
        /// Maximum number of columns.
        limit: usize,
    },
    /// The columns of a batch do not fit its schema, which is a bug in godwit.
    #[error("a bug in godwit: columns do not fit their schema")]
    Columns(#[source] ArrowError),
}

/// Returns the start of a text with escaped characters, for error messages.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_EXCERPT_CHARS: usize = 40;
    let mut excerpt: String = text.chars().take(MAX_EXCERPT_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_EXCERPT_CHARS).is_some() {
        excerpt += "...";
    }
    excerpt
}
