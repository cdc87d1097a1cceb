//! Errors of VCF text.

/// Maximum bytes of a line in a message.
const MAX_EXCERPT_BYTES: usize = 60;

/// A reason why text is not VCF, or VCFs cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum VcfLinesError {
    /// The text cannot be read.
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// The text is empty.
    #[error("is empty; a VCF has a header even where nothing is called")]
    Empty,
    /// The first line is not that of a VCF.
    #[error("is no VCF: it starts with {text:?}")]
    NotVcf {
        /// The start of the first line.
        text: String,
    },
    /// The header has no line of columns.
    #[error("has no #CHROM line before line {line}")]
    NoColumns {
        /// 1-based number of the line.
        line: u64,
    },
    /// The text ends within a line.
    #[error("is cut short: line {line} has no end")]
    Truncated {
        /// 1-based number of the line.
        line: u64,
    },
    /// A line exceeds the limit.
    #[error("has a line, {line}, of more than {max_bytes} bytes")]
    LineTooLong {
        /// 1-based number of the line.
        line: u64,
        /// The limit.
        max_bytes: usize,
    },
    /// A record is invalid.
    #[error("has a wrong record on line {line}: {problem}: {text:?}")]
    Record {
        /// 1-based number of the line.
        line: u64,
        /// The problem.
        problem: &'static str,
        /// The start of the line.
        text: String,
    },
    /// Two headers define one name differently.
    #[error("has a header that says {second:?} where that of another region says {first:?}")]
    Conflict {
        /// The line of the first header.
        first: String,
        /// The line of the second header.
        second: String,
    },
}

/// Returns the start of a line as shown in messages.
pub(super) fn excerpt(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(MAX_EXCERPT_BYTES)]).into_owned()
}
