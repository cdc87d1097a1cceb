//! Errors in parsing SAM text and reading SAM files.

use std::path::PathBuf;

use godwit_io::bgzf::BgzfError;

/// Maximum bytes of a SAM field that an error message shows.
const MAX_EXCERPT_BYTES: usize = 60;

/// Returns the form of a field for error messages: printable, and truncated if it is long.
pub(super) fn excerpt(field: &[u8]) -> String {
    let head = field.get(..MAX_EXCERPT_BYTES).unwrap_or(field).escape_ascii();
    if field.len() > MAX_EXCERPT_BYTES { format!("{head}...") } else { head.to_string() }
}

/// A reason why a line is not a valid SAM record for the contigs of the header. The error does not contain the number
/// of the line, which the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SamError {
    /// The line ends before one of the eleven mandatory fields, or the field is empty.
    #[error("SAM field {field} is missing or empty")]
    MissingField {
        /// Name of the field in SAMv1 §1.4.
        field: &'static str,
    },
    /// A SAM line is longer than the limit.
    #[error("SAM line of {bytes} bytes is longer than the limit of {limit}")]
    LineLength {
        /// Length of the line in bytes.
        bytes: usize,
        /// Maximum length of a line in bytes.
        limit: usize,
    },
    /// The read name (QNAME) is too long for a BAM record.
    #[error("read name of {bytes} bytes is longer than the 254 that BAM can hold; shorten it")]
    NameLength {
        /// Length of the read name in bytes.
        bytes: usize,
    },
    /// The read name (QNAME) contains a control character or a byte outside ASCII.
    #[error("read name {name} contains a byte that is not printable ASCII")]
    NameByte {
        /// The read name, with unprintable bytes escaped.
        name: String,
    },
    /// A numeric field is malformed or out of its range.
    #[error("SAM field {field} is {text}, not a whole number from {minimum} to {maximum}")]
    Number {
        /// Name of the field in SAMv1 §1.4.
        field: &'static str,
        /// Text of the field, with unprintable bytes escaped.
        text: String,
        /// Smallest value that the field may have.
        minimum: i64,
        /// Largest value that the field may have.
        maximum: i64,
    },
    /// A contig named by RNAME or RNEXT is not in the header.
    #[error("SAM field {field} names contig {contig}, which the header does not list")]
    Contig {
        /// Name of the field: `RNAME` or `RNEXT`.
        field: &'static str,
        /// The unknown contig name, with unprintable bytes escaped.
        contig: String,
    },
    /// The CIGAR is malformed.
    #[error("CIGAR {cigar} is malformed: lengths below 2^28 each followed by one of MIDNSHP=X, or *")]
    Cigar {
        /// Text of the CIGAR, with unprintable bytes escaped.
        cigar: String,
    },
    /// The number of bases that the CIGAR consumes differs from the length of SEQ.
    #[error("CIGAR consumes {cigar_bases} bases, but SEQ has {bases}")]
    CigarBases {
        /// Number of bases of the CIGAR operations M, I, S, = and X.
        cigar_bases: u64,
        /// Length of SEQ in bases.
        bases: usize,
    },
    /// The alignment ends beyond the last position that BAM can express, or the operations of the CIGAR have more bases
    /// than that.
    #[error("an alignment of {bases} bases at 1-based position {pos_1based} ends beyond position 2147483647")]
    EndPosition {
        /// Number of bases of all CIGAR operations.
        bases: u64,
        /// 1-based position of the record (POS).
        pos_1based: i64,
    },
    /// A CIGAR has more than 65,535 operations, and covers more bases than the placeholder that BAM uses for such a
    /// CIGAR can express.
    #[error("a CIGAR of more than 65535 operations spans {bases} bases; BAM can hold at most 268435455")]
    LongCigar {
        /// Number of bases of SEQ or of the reference, whichever exceeds the limit.
        bases: u64,
    },
    /// A record given as [`RecordValues`](super::RecordValues) has more CIGAR operations than the CIGAR field of BAM
    /// can contain.
    #[error("a CIGAR of {operations} operations exceeds the {limit} of a record given by its values")]
    Operations {
        /// Number of CIGAR operations of the record.
        operations: usize,
        /// Maximum number of CIGAR operations.
        limit: usize,
    },
    /// SEQ contains a byte that is not a base.
    #[error("SEQ contains {byte:#04x}, which is not a base; allowed are letters, = and .")]
    Base {
        /// The first invalid byte.
        byte: u8,
    },
    /// QUAL and SEQ differ in length.
    #[error("SEQ has {bases} bases, but QUAL has {qualities} qualities")]
    QualityCount {
        /// Length of SEQ in bases.
        bases: usize,
        /// Length of QUAL in characters.
        qualities: usize,
    },
    /// QUAL contains a byte outside the range `!` to `~`.
    #[error("QUAL contains {byte:#04x}, which is not a quality; allowed are ! to ~")]
    Quality {
        /// The first invalid byte.
        byte: u8,
    },
    /// A tag is malformed.
    #[error("tag {tag} is malformed: {problem}")]
    Tag {
        /// Text of the tag, with unprintable bytes escaped.
        tag: String,
        /// Description of the problem.
        problem: &'static str,
    },
}

/// A reason why the text of a SAM header cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A header line does not consist of `@`, two characters, a tab, and tags.
    #[error("header line {line} is malformed: {text}")]
    Line {
        /// 1-based number of the line.
        line: usize,
        /// Text of the line, with unprintable bytes escaped.
        text: String,
    },
    /// A header line does not have a tag that is required.
    #[error("header line {line} has no {tag}: {text}")]
    MissingTag {
        /// 1-based number of the line.
        line: usize,
        /// Name of the tag.
        tag: &'static str,
        /// Text of the line, with unprintable bytes escaped.
        text: String,
    },
    /// The tag `LN` of an `@SQ` line is not a valid contig length.
    #[error("contig {contig} has length {length} in the header; lengths are whole numbers from 1 to 2147483647")]
    ContigLength {
        /// Name of the contig (`SN`).
        contig: String,
        /// Value of `LN`, with unprintable bytes escaped.
        length: String,
    },
    /// Two `@SQ` lines have the same contig name.
    #[error("contig {contig} appears twice in the header; its records would be ambiguous")]
    DuplicateContig {
        /// Name of the contig (`SN`).
        contig: String,
    },
    /// Two `@RG` lines, or two `@PG` lines, have the same `ID`.
    #[error("@{kind} ID:{id} appears twice in the header; give each its own ID")]
    DuplicateId {
        /// Type of the lines: `RG` or `PG`.
        kind: &'static str,
        /// The `ID` that occurs twice.
        id: String,
    },
    /// A header line whose tags are used is not UTF-8.
    #[error("header line {line} is not UTF-8: {text}")]
    NotUtf8 {
        /// 1-based number of the line.
        line: usize,
        /// Text of the line, with unprintable bytes escaped.
        text: String,
    },
}

/// An invalid header of a SAM, BAM or CRAM file.
#[derive(Debug, thiserror::Error)]
#[error("{} has a header that cannot be used", path.display())]
pub struct FileHeaderError {
    /// Path of the file.
    pub path: PathBuf,
    /// The reason why the header is invalid.
    #[source]
    pub source: HeaderError,
}

/// A reason why a SAM file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SamReadError {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The header of the file is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A line is longer than the limit.
    #[error("line {line} of {} is longer than {limit} bytes; is it a SAM file?", path.display())]
    LineLength {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// Maximum length of a line in bytes.
        limit: usize,
    },
}
