//! What can be wrong with VCF.

/// Bytes of a line shown in a message.
const SHOWN_BYTES: usize = 60;

/// Why text is no VCF, or VCFs cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum VcfLinesError {
    /// It cannot be read.
    #[error("cannot be read")]
    Io(#[from] std::io::Error),
    /// There is nothing.
    #[error("is empty; a VCF has a header even where nothing is called")]
    Empty,
    /// The first line is something else.
    #[error("is no VCF: it starts with {text:?}")]
    NotVcf {
        /// The start of the first line.
        text: String,
    },
    /// The header has no line of columns.
    #[error("has no #CHROM line before line {line}")]
    NoColumns {
        /// 1-based.
        line: u64,
    },
    /// The text ends within a line.
    #[error("is cut short: line {line} has no end")]
    CutShort {
        /// 1-based.
        line: u64,
    },
    /// A line that is longer than any should be.
    #[error("has a line, {line}, of more than {most_bytes} bytes")]
    Long {
        /// 1-based.
        line: u64,
        /// The limit.
        most_bytes: usize,
    },
    /// A record that is none.
    #[error("has a wrong record on line {line}: {problem}: {text:?}")]
    Record {
        /// 1-based.
        line: u64,
        /// What is wrong.
        problem: &'static str,
        /// The start of the line.
        text: String,
    },
    /// Two headers say different things of one name.
    #[error("has a header that says {second:?} where that of another region says {first:?}")]
    Conflict {
        /// The line of the first.
        first: String,
        /// The line of the second.
        second: String,
    },
}

/// The start of a line as messages show it.
pub(super) fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(SHOWN_BYTES)]).into_owned()
}
