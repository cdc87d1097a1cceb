//! Errors of the files of a lane.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::record_reader::RecordReader;
use crate::bgzf::InputError;
use crate::crypt4gh::Crypt4ghError;
use crate::unaligned::UnalignedError;

/// Maximum bytes of a name in a message; damaged files have names of megabytes.
const MAX_NAME_EXCERPT_BYTES: usize = 80;

/// The location of a record: shown as `record 12 (line 45) of reads.fq.gz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLocation {
    /// Path of the file, as given to the reader.
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

/// An error of a lane. Record and line numbers are 1-based; byte offsets count from 0 in the file on disk.
#[derive(Debug, thiserror::Error)]
pub enum FastqError {
    /// Neither one file nor two.
    #[error("a lane has one file of reads or two, not {count}; name further lanes separately")]
    FileCount {
        /// Files named.
        count: usize,
    },
    /// A file cannot be opened.
    #[error("cannot open {}: {source}", file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Reading a file failed.
    #[error("cannot read {} near record {record}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
        /// The reason.
        source: io::Error,
    },
    /// The system could not start a thread for decompression.
    #[error("cannot start a thread to read {}: {source}; raise the process limit or lower the threads", file.display())]
    Thread {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A decompression thread ended without a result: a bug in godwit, never the file's fault.
    #[error("the thread that decompresses {} stopped near record {record}", file.display())]
    ThreadLost {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
    },
    /// The file has changed since a resume point in it was recorded. None of its text was returned.
    #[error("{} has changed since it was read before", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// The compression is not supported.
    #[error("{} is {format} data; give plain text, gzip or BGZF", file.display())]
    UnsupportedCompression {
        /// The file.
        file: PathBuf,
        /// Name of the format.
        format: &'static str,
    },
    /// The file ends inside a gzip member or BGZF block.
    #[error("{} is truncated: its compressed data ends at byte {offset}, in record {record}; copy it again", file.display())]
    TruncatedGzip {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
        /// Bytes of the file.
        offset: u64,
    },
    /// Compressed data cannot be decoded, or its checksum or length is wrong.
    #[error("{} is damaged near byte {offset}, in or after record {record}: {detail}; copy it again", file.display())]
    CorruptGzip {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
        /// Start of the BGZF block, else the position up to which gzip data was decoded.
        offset: u64,
        /// The decoder's message.
        detail: String,
    },
    /// Bytes after a gzip member that are neither another member nor zero padding.
    #[error("{} has bytes that are not gzip data at byte {offset}, after record {}", file.display(), record - 1)]
    TrailingGarbage {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
        /// Offset of the bytes in the file.
        offset: u64,
    },
    /// A BGZF file lacks the empty block that ends every whole one.
    #[error(
        "{} has no BGZF end-of-file block after {records} records: it is truncated; copy it again, \
         or accept it as it is with --lenient", file.display()
    )]
    MissingBgzfEof {
        /// The file.
        file: PathBuf,
        /// Complete records before the end.
        records: u64,
    },
    /// The file has no record.
    #[error("{} has no reads", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A record does not start with `@` (FASTQ) or `>` (FASTA), or not with that of the records before it.
    #[error("{location} starts with {}, not with '{}'", format_byte(*found), char::from(*expected))]
    NoTitle {
        /// Location of the record.
        location: RecordLocation,
        /// First byte of the first record of the file.
        expected: u8,
        /// The byte found.
        found: u8,
    },
    /// An empty line within or between records.
    #[error("{location} has an empty line where a record goes on or the next one should start")]
    BlankLine {
        /// Location of the line.
        location: RecordLocation,
    },
    /// The text ends within a record.
    #[error("{} is truncated: {location} has no {missing}", location.file.display())]
    TruncatedRecord {
        /// Location of the missing line.
        location: RecordLocation,
        /// The missing part.
        missing: &'static str,
    },
    /// A title where the `+` line should be: a FASTQ record without qualities.
    #[error("{location} has a title line where its '+' line should be: the record has no qualities")]
    MissingPlus {
        /// Location of the line.
        location: RecordLocation,
    },
    /// A `+` line repeats another title.
    #[error("the '+' line of {location} repeats another title than that of read {name}; accept it with --lenient")]
    PlusLineDiffers {
        /// Location of the line.
        location: RecordLocation,
        /// Name of the read.
        name: String,
    },
    /// Bases and qualities differ in number.
    #[error("{location} has {bases} bases but {qualities} qualities (read {name})")]
    LengthMismatch {
        /// Location of the record.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// Bases of the record.
        bases: usize,
        /// Qualities of the record, as far as they were read.
        qualities: usize,
    },
    /// A title line has no name.
    #[error("{location} has no name")]
    NoName {
        /// Location of the record.
        location: RecordLocation,
    },
    /// A name has bytes outside `!` to `~`.
    #[error("the name of {location} contains {}", format_byte(*found))]
    InvalidName {
        /// Location of the record.
        location: RecordLocation,
        /// The first such byte.
        found: u8,
    },
    /// A name is longer than the limit of BAM records.
    #[error("{location} has a name of {name_bytes} bytes; SAM allows 254 (it starts {name})")]
    NameTooLong {
        /// Location of the record.
        location: RecordLocation,
        /// Length of the name.
        name_bytes: usize,
        /// Its start.
        name: String,
    },
    /// A comment has control characters other than the tab.
    #[error("the comment of {location} contains {} (read {name})", format_byte(*found))]
    InvalidComment {
        /// Location of the record.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// The first such byte.
        found: u8,
    },
    /// A base is not a letter, `.` or `*`.
    #[error("base {base} of {location} is {} (read {name})", format_byte(*found))]
    InvalidBase {
        /// Location of the start of the sequence.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// 1-based number of the base in the read.
        base: usize,
        /// The byte found.
        found: u8,
    },
    /// A quality outside `!` to `~`.
    #[error("quality {quality} of {location} is {} (read {name})", format_byte(*found))]
    InvalidQuality {
        /// Location of the start of the qualities.
        location: RecordLocation,
        /// Name of the read.
        name: String,
        /// 1-based number of the quality in the read.
        quality: usize,
        /// The byte found.
        found: u8,
    },
    /// A record exceeds [`super::MAX_RECORD_BYTES`].
    #[error("{location} is longer than {limit_bytes} bytes; is this a file of reads?")]
    RecordTooLong {
        /// Location of the start of the record.
        location: RecordLocation,
        /// The limit.
        limit_bytes: usize,
    },
    /// Mates have different names.
    #[error(
        "record {record}: {} has read {name1} but {} has read {name2}; \
         the files are out of step: give both files of the same run, unsorted and filtered together",
        file1.display(), file2.display()
    )]
    MatesOutOfStep {
        /// 1-based number of the record in both files.
        record: u64,
        /// File of read 1.
        file1: PathBuf,
        /// Name there, without `/1`.
        name1: String,
        /// File of read 2.
        file2: PathBuf,
        /// Name there, without `/2`.
        name2: String,
    },
    /// Neighbours of an interleaved file are not mates.
    #[error(
        "{location} should be the mate of the one before it, but they are reads {name2} and {name1}: \
         the file is not interleaved, or a read is missing"
    )]
    InterleavedOutOfStep {
        /// Location of the second of them.
        location: RecordLocation,
        /// Name of the first, without `/1`.
        name1: String,
        /// Name of the second, without `/2`.
        name2: String,
    },
    /// An interleaved file ends after the first read of a pair.
    #[error("{} has {records} records, and the last, read {name}, has no mate: is the file truncated?", file.display())]
    InterleavedOdd {
        /// The file.
        file: PathBuf,
        /// Its records.
        records: u64,
        /// Name of the last.
        name: String,
    },
    /// A file is encrypted and cannot be decrypted.
    #[error("cannot decrypt {}, in or before record {record}", file.display())]
    Encrypted {
        /// The file.
        file: PathBuf,
        /// First incomplete record.
        record: u64,
        /// The reason.
        #[source]
        source: Crypt4ghError,
    },
    /// A SAM or BAM file of reads has an error.
    #[error(transparent)]
    Unaligned(#[from] UnalignedError),
    /// One file of a pair ends before the other.
    #[error("{} ends after {records} records but {} goes on: is one of them truncated?", shorter.display(), longer.display())]
    UnequalCounts {
        /// The file that ended.
        shorter: PathBuf,
        /// Its records.
        records: u64,
        /// The file with more records.
        longer: PathBuf,
    },
}

impl FastqError {
    /// Returns the error for an input error after `records` complete records of `file`.
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

/// Returns the start of a name as text.
pub(super) fn name_excerpt(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(MAX_NAME_EXCERPT_BYTES)]).into_owned()
}

fn format_byte(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}
