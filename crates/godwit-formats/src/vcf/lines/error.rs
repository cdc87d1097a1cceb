//! Errors in reading and merging VCF text.

/// Maximum bytes of a VCF line that an error message shows.
const MAX_EXCERPT_BYTES: usize = 60;

/// A reason why text is not valid VCF, or why VCF headers cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum VcfLinesError {
    /// The text cannot be read from its source.
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// The text is empty.
    #[error("is empty; a VCF without calls has a header too")]
    Empty,
    /// The first line does not name the VCF format.
    #[error("is not VCF: it starts with {text:?}")]
    NotVcf {
        /// Start of the first line.
        text: String,
    },
    /// The header has no `#CHROM` line.
    #[error("has no #CHROM line before line {line}")]
    NoColumns {
        /// 1-based number of the line that should be the `#CHROM` line.
        line: u64,
    },
    /// The last line has no line feed, so the text is truncated.
    #[error("is truncated: line {line} has no line end")]
    Truncated {
        /// 1-based number of the line.
        line: u64,
    },
    /// A line is longer than the limit.
    #[error("has more than {max_bytes} bytes on line {line}")]
    LineTooLong {
        /// 1-based number of the line.
        line: u64,
        /// Maximum length of a line in bytes.
        max_bytes: usize,
    },
    /// A line is not a valid VCF record.
    #[error("has an invalid record on line {line}: {problem}: {text:?}")]
    Record {
        /// 1-based number of the line.
        line: u64,
        /// Description of the problem.
        problem: &'static str,
        /// Start of the line.
        text: String,
    },
    /// Two headers to be merged define the same name differently.
    #[error("has the header line {second:?} where another region has {first:?}")]
    Conflict {
        /// Line of the first header.
        first: String,
        /// Line of the second header.
        second: String,
    },
}

/// Returns the start of a line for error messages.
pub(super) fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(MAX_EXCERPT_BYTES)]).into_owned()
}
