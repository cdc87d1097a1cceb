//! Errors of SAM text.

use std::path::PathBuf;

use crate::bgzf::BgzfError;

/// Maximum bytes of a field in a message.
const MAX_EXCERPT_BYTES: usize = 60;

/// Returns a field as shown in messages: printable and short.
pub(super) fn excerpt(field: &[u8]) -> String {
    let head = field.get(..MAX_EXCERPT_BYTES).unwrap_or(field).escape_ascii();
    if field.len() > MAX_EXCERPT_BYTES { format!("{head}...") } else { head.to_string() }
}

/// A reason why a line is not a SAM record of the genome. The caller knows the line's number, the error does not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamError {
    /// The line ends before one of the eleven fields, or the field is empty.
    #[error("SAM field {field} is missing or empty")]
    MissingField {
        /// Name of the field as SAMv1 §1.4 has it.
        field: &'static str,
    },
    /// The line is longer than the limit.
    #[error("SAM line of {bytes} bytes is longer than the limit of {limit}")]
    LineLength {
        /// Bytes of the line.
        bytes: usize,
        /// Maximum bytes of a line.
        limit: usize,
    },
    /// QNAME does not fit a BAM record.
    #[error("read name of {bytes} bytes is longer than the 254 that BAM can hold; shorten it")]
    NameLength {
        /// Bytes of QNAME.
        bytes: usize,
    },
    /// QNAME contains a control character or one outside ASCII.
    #[error("read name {name} contains a byte that is not printable ASCII")]
    NameByte {
        /// QNAME, escaped.
        name: String,
    },
    /// A number is malformed or out of its range.
    #[error("SAM field {field} is {text}, not a whole number from {minimum} to {maximum}")]
    Number {
        /// Name of the field as SAMv1 §1.4 has it.
        field: &'static str,
        /// The field, escaped.
        text: String,
        /// Smallest value accepted.
        minimum: i64,
        /// Largest value accepted.
        maximum: i64,
    },
    /// RNAME or RNEXT is not in the header.
    #[error("SAM field {field} names contig {contig}, which the header does not list")]
    Contig {
        /// `RNAME` or `RNEXT`.
        field: &'static str,
        /// The unknown name, escaped.
        contig: String,
    },
    /// CIGAR is malformed.
    #[error("CIGAR {cigar} is malformed: lengths below 2^28 each followed by one of MIDNSHP=X, or *")]
    Cigar {
        /// CIGAR, escaped.
        cigar: String,
    },
    /// CIGAR and SEQ disagree.
    #[error("CIGAR consumes {cigar_bases} bases, but SEQ has {bases}")]
    CigarBases {
        /// Bases of M, I, S, = and X.
        cigar_bases: u64,
        /// Bases of SEQ.
        bases: usize,
    },
    /// The alignment ends beyond the positions that BAM can hold, or its operations have more bases than that.
    #[error("an alignment of {bases} bases at 1-based position {pos_1based} ends beyond position 2147483647")]
    EndPosition {
        /// Bases of all CIGAR operations.
        bases: u64,
        /// POS.
        pos_1based: i64,
    },
    /// A CIGAR has more than 65,535 operations, over more bases than BAM's placeholder can express.
    #[error("a CIGAR of more than 65535 operations spans {bases} bases; BAM can hold at most 268435455")]
    LongCigar {
        /// Bases of SEQ or of the reference, whichever is too many.
        bases: u64,
    },
    /// A record given by its values has more CIGAR operations than BAM's own field can count.
    #[error("a CIGAR of {operations} operations is longer than the {limit} of a record given by values")]
    Operations {
        /// Operations of the record.
        operations: usize,
        /// Maximum number of operations.
        limit: usize,
    },
    /// SEQ has a byte that is not a base.
    #[error("SEQ contains {byte:#04x}, which is no base; allowed are letters, = and .")]
    Base {
        /// The first wrong byte.
        byte: u8,
    },
    /// QUAL and SEQ differ in length.
    #[error("SEQ has {bases} bases, but QUAL has {qualities} qualities")]
    QualityCount {
        /// Bases of SEQ.
        bases: usize,
        /// Characters of QUAL.
        qualities: usize,
    },
    /// QUAL has a byte outside `!` to `~`.
    #[error("QUAL contains {byte:#04x}, which is no quality; allowed are ! to ~")]
    Quality {
        /// The first wrong byte.
        byte: u8,
    },
    /// A tag is malformed.
    #[error("tag {tag} is malformed: {problem}")]
    Tag {
        /// The tag with its value, escaped.
        tag: String,
        /// The problem.
        problem: &'static str,
    },
}

/// A reason why text is not a usable SAM header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A line is not `@XX`, a tab and tags.
    #[error("header line {line} is malformed: {text}")]
    Line {
        /// 1-based number of the line.
        line: usize,
        /// The line, escaped.
        text: String,
    },
    /// A line lacks a tag it must have.
    #[error("header line {line} has no {tag}: {text}")]
    MissingTag {
        /// 1-based number of the line.
        line: usize,
        /// The tag.
        tag: &'static str,
        /// The line, escaped.
        text: String,
    },
    /// `LN` is not a length.
    #[error("contig {contig} has length {length} in the header; lengths are whole numbers from 1 to 2147483647")]
    ContigLength {
        /// `SN`.
        contig: String,
        /// `LN`, escaped.
        length: String,
    },
    /// Two `@SQ` lines share a name.
    #[error("contig {contig} appears twice in the header; records on it could not be told apart")]
    DuplicateContig {
        /// `SN`.
        contig: String,
    },
    /// Two lines of a kind share an `ID`.
    #[error("@{kind} ID:{id} appears twice in the header; give each its own ID")]
    DuplicateId {
        /// `RG` or `PG`.
        kind: &'static str,
        /// The `ID`.
        id: String,
    },
    /// A line with names is not UTF-8.
    #[error("header line {line} is not UTF-8: {text}")]
    NotUtf8 {
        /// 1-based number of the line.
        line: usize,
        /// The line, escaped.
        text: String,
    },
}

/// An invalid header of a SAM, BAM or CRAM file.
#[derive(Debug, thiserror::Error)]
#[error("{} has a header that cannot be used", path.display())]
pub struct FileHeaderError {
    /// The file.
    pub path: PathBuf,
    /// The problem.
    #[source]
    pub source: HeaderError,
}

/// A reason why a SAM file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SamReadError {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The header is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A line exceeds the limit.
    #[error("line {line} of {} is longer than {limit} bytes; is it a SAM file?", path.display())]
    LineLength {
        /// The file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Maximum bytes of a line.
        limit: usize,
    },
}
