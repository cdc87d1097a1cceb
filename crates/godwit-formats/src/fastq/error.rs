//! Errors in reading the files of a lane.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use godwit_io::bgzf::InputError;
use godwit_io::crypt4gh::Crypt4ghError;

use super::record_reader::RecordReader;
use crate::unaligned::UnalignedError;

/// Maximum bytes of a read name that an error message shows. Damaged files may contain names of megabytes.
const MAX_NAME_EXCERPT_BYTES: usize = 80;

/// The location of a record for error messages, displayed as `record 12 (line 45) of reads.fq.gz`.
///
/// # Examples
///
/// ```
/// use godwit_formats::fastq::RecordLocation;
///
/// let location = RecordLocation { file: "reads.fq.gz".into(), record: 12, line: 45 };
/// assert_eq!(location.to_string(), "record 12 (line 45) of reads.fq.gz");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// Path of the file as the caller passed it.
    pub file: PathBuf,
    /// 1-based number of the record in the file.
    pub record: u64,
    /// 1-based number of the line in the decompressed text.
    pub line: u64,
}

impl fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} (line {}) of {}", self.record, self.line, self.file.display())
    }
}

/// An error in reading a lane. Record and line numbers are 1-based; byte offsets are 0-based offsets in the file on
/// disk.
#[derive(Debug, thiserror::Error)]
pub enum FastqError {
    /// The lane has not one or two files.
    #[error("a lane has one or two files of reads, not {count}; pass further lanes separately")]
    FileCount {
        /// Number of files given.
        count: usize,
    },
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", file.display())]
    Open {
        /// Path of the file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system failed to read a file.
    #[error("cannot read {} near record {record}: {source}", file.display())]
    Read {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system could not start a thread for decompression.
    #[error("cannot start a thread to read {}: {source}; raise the process limit or lower the threads", file.display())]
    Thread {
        /// Path of the file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A decompression thread ended without a result. This is a bug in godwit, not an error in the file.
    #[error("the thread that decompresses {} stopped near record {record}; this is a bug in godwit, please report it", file.display())]
    ThreadLost {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
    },
    /// The file has changed since the resume point from which it is read was recorded. No text of the file was
    /// returned.
    #[error("{} has changed since it was read before", file.display())]
    Changed {
        /// Path of the file.
        file: PathBuf,
    },
    /// The file has a compression format that is not supported.
    #[error("{} is {format} data; use plain text, gzip or BGZF", file.display())]
    UnsupportedCompression {
        /// Path of the file.
        file: PathBuf,
        /// Name of the compression format.
        format: &'static str,
    },
    /// The file ends inside a gzip member or BGZF block.
    #[error("{} is truncated: its compressed data ends at byte {offset}, in record {record}; copy it again", file.display())]
    TruncatedGzip {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
        /// Length of the file in bytes.
        offset: u64,
    },
    /// The compressed data cannot be decompressed, or its checksum or length is wrong.
    #[error("{} is damaged near byte {offset}, in or after record {record}: {detail}; copy it again", file.display())]
    CorruptGzip {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
        /// For BGZF, the byte offset of the damaged block; for gzip, the byte offset up to which data was decompressed.
        offset: u64,
        /// Description of the damage by the decoder.
        detail: String,
    },
    /// The bytes after a gzip member are neither another member nor zero padding.
    #[error("{} has bytes that are not gzip data at byte {offset}, after record {}", file.display(), record - 1)]
    TrailingGarbage {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
        /// Offset of these bytes in the file.
        offset: u64,
    },
    /// The end-of-file block, which ends every complete BGZF file, is missing.
    #[error(
        "{} has no BGZF end-of-file block after {records} records: it is truncated; copy it again, \
         or accept it as it is with --lenient", file.display()
    )]
    MissingBgzfEof {
        /// Path of the file.
        file: PathBuf,
        /// Number of complete records before the end of the file.
        records: u64,
    },
    /// The file contains no record.
    #[error("{} has no reads", file.display())]
    Empty {
        /// Path of the file.
        file: PathBuf,
    },
    /// A record does not start with `@` (FASTQ) or `>` (FASTA), or starts with another of these than the records
    /// before.
    #[error("{location} starts with {}, not with '{}'", format_byte(*found), char::from(*expected))]
    NoTitle {
        /// Location of the record.
        location: RecordLocation,
        /// First byte of the first record of the file, with which all records must start.
        expected: u8,
        /// The byte with which the record starts.
        found: u8,
    },
    /// There is an empty line within a record or between two records.
    #[error("{location} has an empty line within a record or before the next one")]
    BlankLine {
        /// Location of the empty line.
        location: RecordLocation,
    },
    /// The decompressed text ends within a record.
    #[error("{} is truncated: {location} has no {missing}", location.file.display())]
    TruncatedRecord {
        /// Location of the missing line.
        location: RecordLocation,
        /// Name of the missing line.
        missing: &'static str,
    },
    /// There is a title line in place of the `+` line, so the FASTQ record has no qualities.
    #[error("{location} has a title line where its '+' line should be: the record has no qualities")]
    MissingPlus {
        /// Location of the line that should be the `+` line.
        location: RecordLocation,
    },
    /// The title in a `+` line differs from the title of the record.
    #[error("the title in the '+' line of {location} differs from that of read {name}; accept it with --lenient")]
    PlusLineDiffers {
        /// Location of the `+` line.
        location: RecordLocation,
        /// Name of the read.
        name: String,
    },
    /// A record has different numbers of bases and qualities.
    #[error("{location} has {bases} bases but {qualities} qualities (read {name})")]
    LengthMismatch {
        /// Location of the record.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// Number of bases of the record.
        bases: usize,
        /// Number of qualities of the record that were read.
        qualities: usize,
    },
    /// A title line has no name.
    #[error("{location} has no name")]
    NoName {
        /// Location of the record.
        location: RecordLocation,
    },
    /// A read name contains a byte outside the range `!` to `~`.
    #[error("the name of {location} contains {}; names are printable ASCII characters without spaces", format_byte(*found))]
    InvalidName {
        /// Location of the record.
        location: RecordLocation,
        /// The first byte outside the range.
        found: u8,
    },
    /// A read name is longer than BAM records allow.
    #[error("{location} has a name of {name_bytes} bytes; SAM allows 254 (it starts {name})")]
    NameTooLong {
        /// Location of the record.
        location: RecordLocation,
        /// Length of the name in bytes.
        name_bytes: usize,
        /// Start of the name.
        name: String,
    },
    /// A comment contains a control character other than the tab.
    #[error("the comment of {location} contains {} (read {name})", format_byte(*found))]
    InvalidComment {
        /// Location of the record.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// The first control character other than the tab.
        found: u8,
    },
    /// A base is not a letter, `.` or `*`.
    #[error("base {base} of {location} is {}, not a letter, '.' or '*' (read {name})", format_byte(*found))]
    InvalidBase {
        /// Location of the start of the sequence.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// 1-based position of the base in the read.
        base: usize,
        /// The invalid byte.
        found: u8,
    },
    /// A quality is outside the range `!` to `~`.
    #[error("quality {quality} of {location} is {}, not between '!' and '~' (read {name})", format_byte(*found))]
    InvalidQuality {
        /// Location of the start of the qualities.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// 1-based position of the quality in the read.
        quality: usize,
        /// The invalid byte.
        found: u8,
    },
    /// A record is longer than [`super::MAX_RECORD_BYTES`].
    #[error("{location} is longer than {limit_bytes} bytes; is this a file of reads?")]
    RecordTooLong {
        /// Location of the start of the record.
        location: RecordLocation,
        /// Maximum length of a record in bytes.
        limit_bytes: usize,
    },
    /// The reads at the same position in the two files of a pair have different names.
    #[error(
        "record {record}: {} has read {name1} but {} has read {name2}; \
         the files do not match: use both files of the same run, unsorted and filtered together",
        file1.display(), file2.display()
    )]
    MatesOutOfStep {
        /// 1-based number of the record in both files.
        record: u64,
        /// Path of the file with the reads 1.
        file1: PathBuf,
        /// Name of the read in the first file, without `/1`.
        name1: String,
        /// Path of the file with the reads 2.
        file2: PathBuf,
        /// Name of the read in the second file, without `/2`.
        name2: String,
    },
    /// Two consecutive reads of an interleaved file, which should be mates, have different names.
    #[error(
        "{location} should be the mate of the one before it, but they are reads {name2} and {name1}: \
         the file is not interleaved, or a read is missing"
    )]
    InterleavedOutOfStep {
        /// Location of the second of the two reads.
        location: RecordLocation,
        /// Name of the first read, without `/1`.
        name1: String,
        /// Name of the second read, without `/2`.
        name2: String,
    },
    /// An interleaved file ends after the first read of a pair.
    #[error("{} has {records} records, and the last, read {name}, has no mate: is the file truncated?", file.display())]
    InterleavedOdd {
        /// Path of the file.
        file: PathBuf,
        /// Number of records of the file.
        records: u64,
        /// Name of the last read.
        name: String,
    },
    /// The file is encrypted with Crypt4GH and cannot be decrypted.
    #[error("cannot decrypt {}, in or before record {record}", file.display())]
    Encrypted {
        /// Path of the file.
        file: PathBuf,
        /// 1-based number of the first record that could not be read completely.
        record: u64,
        /// The reason why decryption failed.
        #[source]
        source: Crypt4ghError,
    },
    /// A SAM, BAM or CRAM file of reads cannot be read or used.
    #[error(transparent)]
    Unaligned(#[from] UnalignedError),
    /// One file of a pair ends before the other.
    #[error(
        "{} ends after {records} records, but {} has more: is one of them truncated?",
        shorter.display(), longer.display()
    )]
    UnequalCounts {
        /// Path of the file that ended first.
        shorter: PathBuf,
        /// Number of records of the file that ended first.
        records: u64,
        /// Path of the file with more records.
        longer: PathBuf,
    },
}

impl FastqError {
    /// Converts an input error that occurred after `records` complete records of `file`.
    pub(super) fn from_input_error(records: u64, file: &Path, error: InputError) -> Self {
        let (file, record) = (file.to_path_buf(), records + 1);
        match error {
            InputError::Open(source) => Self::Open { file, source },
            InputError::Read { source, .. } => Self::Read { file, record, source },
            InputError::ThreadSpawn(source) => Self::Thread { file, source },
            InputError::Unsupported { format } => Self::UnsupportedCompression { file, format },
            InputError::Truncated { offset } => Self::TruncatedGzip { file, record, offset },
            InputError::Corrupt { offset, detail } => Self::CorruptGzip { file, record, offset, detail },
            InputError::NotCompressed { offset } => Self::TrailingGarbage { file, record, offset },
            InputError::MissingEof { .. } => Self::MissingBgzfEof { file, records },
            InputError::Changed => Self::Changed { file },
            InputError::Encrypted(source) => Self::Encrypted { file, record, source },
            InputError::ThreadLost | InputError::Stopped => Self::ThreadLost { file, record },
        }
    }

    pub(super) fn unequal_counts(ended: &RecordReader, longer: &RecordReader) -> Self {
        let (shorter, records) = (ended.file().to_path_buf(), ended.record_count());
        Self::UnequalCounts { shorter, records, longer: longer.file().to_path_buf() }
    }

    pub(super) fn interleaved_odd(records: &RecordReader, last: &[u8]) -> Self {
        Self::InterleavedOdd {
            file: records.file().to_path_buf(),
            records: records.record_count(),
            name: name_excerpt(last),
        }
    }

    pub(super) fn interleaved_out_of_step(records: &RecordReader, before: &[u8]) -> Self {
        let (name1, name2) = (name_excerpt(before), name_excerpt(records.record().name));
        Self::InterleavedOutOfStep { location: records.record_location(), name1, name2 }
    }

    pub(super) fn mates_out_of_step(first: &RecordReader, second: &RecordReader) -> Self {
        Self::MatesOutOfStep {
            record: first.record_count(),
            file1: first.file().to_path_buf(),
            name1: name_excerpt(first.record().name),
            file2: second.file().to_path_buf(),
            name2: name_excerpt(second.record().name),
        }
    }
}

/// Returns the start of a read name as text, for error messages.
pub(super) fn name_excerpt(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(MAX_NAME_EXCERPT_BYTES)]).into_owned()
}

fn format_byte(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}
