//! What can be wrong with the files of a lane.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::record::Records;
use crate::bgzf::Fault;
use crate::crypt4gh::Crypt4ghError;
use crate::unaligned::UnalignedError;

/// Bytes of a name shown in a message; damaged files have names of megabytes.
const SHOWN_NAME_BYTES: usize = 80;

/// Where in a file of reads: shown as `record 12 (line 45) of reads.fq.gz`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file as it was named to the reader.
    pub file: PathBuf,
    /// 1-based number of the record in the file.
    pub record: u64,
    /// 1-based number of the line in the decompressed text.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} (line {}) of {}", self.record, self.line, self.file.display())
    }
}

/// A lane that cannot be read. Record and line numbers are 1-based; byte offsets count from 0 in the file on disk.
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
        /// Why.
        source: io::Error,
    },
    /// A file cannot be read on.
    #[error("cannot read {} near record {record}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// First record that is not whole.
        record: u64,
        /// Why.
        source: io::Error,
    },
    /// The system refused a thread to decompress with.
    #[error("cannot start a thread to read {}: {source}; raise the process limit or lower the threads", file.display())]
    Thread {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A thread that decompressed ended without a word: a bug here, never the file's fault.
    #[error("the thread that decompresses {} stopped near record {record}", file.display())]
    ThreadLost {
        /// The file.
        file: PathBuf,
        /// First record that is not whole.
        record: u64,
    },
    /// The file is not what it was when a place in it was noted to begin at. Nothing was read of it.
    #[error("{} has changed since it was read before", file.display())]
    Changed {
        /// The file.
        file: PathBuf,
    },
    /// Compressed in a way that is not read here.
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
        /// First record that is not whole.
        record: u64,
        /// Bytes of the file.
        offset: u64,
    },
    /// Compressed data that does not decode, or decodes to another checksum or length.
    #[error("{} is damaged near byte {offset}, in or after record {record}: {detail}; copy it again", file.display())]
    CorruptGzip {
        /// The file.
        file: PathBuf,
        /// First record that is not whole.
        record: u64,
        /// Where in the file: start of the BGZF block, else as far as gzip data was decoded.
        offset: u64,
        /// What the decoder said.
        detail: String,
    },
    /// Bytes after a gzip member that are neither another member nor zero padding.
    #[error("{} has bytes that are not gzip data at byte {offset}, after record {}", file.display(), record - 1)]
    TrailingGarbage {
        /// The file.
        file: PathBuf,
        /// First record that is not whole.
        record: u64,
        /// Where in the file.
        offset: u64,
    },
    /// A BGZF file without the empty block that ends every whole one.
    #[error(
        "{} has no BGZF end-of-file block after {records} records: it is truncated; copy it again, \
         or accept it as it is with --lenient", file.display()
    )]
    MissingBgzfEof {
        /// The file.
        file: PathBuf,
        /// Whole records before the end.
        records: u64,
    },
    /// No record at all.
    #[error("{} has no reads", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A record does not start with `@` (FASTQ) or `>` (FASTA), or not with that of the records before it.
    #[error("{place} starts with {}, not with '{}'", shown_byte(*found), char::from(*expected))]
    NoTitle {
        /// Where.
        place: Place,
        /// What the first record of the file starts with.
        expected: u8,
        /// What stands there.
        found: u8,
    },
    /// An empty line within or between records.
    #[error("{place} has an empty line where a record goes on or the next one should start")]
    BlankLine {
        /// Where.
        place: Place,
    },
    /// The text ends within a record.
    #[error("{} is truncated: {place} has no {missing}", place.file.display())]
    TruncatedRecord {
        /// Where the missing line would be.
        place: Place,
        /// What is missing.
        missing: &'static str,
    },
    /// A title where the `+` line should be: a FASTQ record without qualities.
    #[error("{place} has a title line where its '+' line should be: the record has no qualities")]
    MissingPlus {
        /// Where.
        place: Place,
    },
    /// A `+` line that repeats another title.
    #[error("the '+' line of {place} repeats another title than that of read {name}; accept it with --lenient")]
    PlusLineDiffers {
        /// Where.
        place: Place,
        /// Name of the read.
        name: String,
    },
    /// Bases and qualities differ in number.
    #[error("{place} has {bases} bases but {qualities} qualities (read {name})")]
    LengthMismatch {
        /// Where.
        place: Place,
        /// Name of the read.
        name: String,
        /// Bases of the record.
        bases: usize,
        /// Qualities of the record, as far as they were read.
        qualities: usize,
    },
    /// A title line without a name.
    #[error("{place} has no name")]
    NoName {
        /// Where.
        place: Place,
    },
    /// A name with bytes outside `!` to `~`.
    #[error("the name of {place} contains {}", shown_byte(*found))]
    InvalidName {
        /// Where.
        place: Place,
        /// The first such byte.
        found: u8,
    },
    /// A name longer than a BAM record holds.
    #[error("{place} has a name of {name_bytes} bytes; SAM allows 254 (it starts {name})")]
    NameTooLong {
        /// Where.
        place: Place,
        /// Length of the name.
        name_bytes: usize,
        /// Its start.
        name: String,
    },
    /// A comment with control characters other than the tab.
    #[error("the comment of {place} contains {} (read {name})", shown_byte(*found))]
    InvalidComment {
        /// Where.
        place: Place,
        /// Name of the read.
        name: String,
        /// The first such byte.
        found: u8,
    },
    /// A base that is no letter, `.` or `*`.
    #[error("base {base} of {place} is {} (read {name})", shown_byte(*found))]
    InvalidBase {
        /// Where the sequence starts.
        place: Place,
        /// Name of the read.
        name: String,
        /// 1-based number of the base in the read.
        base: usize,
        /// What stands there.
        found: u8,
    },
    /// A quality outside `!` to `~`.
    #[error("quality {quality} of {place} is {} (read {name})", shown_byte(*found))]
    InvalidQuality {
        /// Where the qualities start.
        place: Place,
        /// Name of the read.
        name: String,
        /// 1-based number of the quality in the read.
        quality: usize,
        /// What stands there.
        found: u8,
    },
    /// A record beyond [`super::MAX_RECORD_BYTES`].
    #[error("{place} is longer than {limit_bytes} bytes; is this a file of reads?")]
    RecordTooLong {
        /// Where the record starts.
        place: Place,
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
    /// Neighbours of an interleaved file that are no mates.
    #[error(
        "{place} should be the mate of the one before it, but they are reads {name2} and {name1}: \
         the file is not interleaved, or a read is missing"
    )]
    InterleavedOutOfStep {
        /// Where the second of them starts.
        place: Place,
        /// Name of the first, without `/1`.
        name1: String,
        /// Name of the second, without `/2`.
        name2: String,
    },
    /// An interleaved file that ends after the first read of a pair.
    #[error("{} has {records} records, and the last, read {name}, has no mate: is the file truncated?", file.display())]
    InterleavedOdd {
        /// The file.
        file: PathBuf,
        /// Its records.
        records: u64,
        /// Name of the last.
        name: String,
    },
    /// A file that is encrypted, and is not opened.
    #[error("cannot decrypt {}, in or before record {record}", file.display())]
    Encrypted {
        /// The file.
        file: PathBuf,
        /// First record that is not whole.
        record: u64,
        /// Why.
        #[source]
        source: Crypt4ghError,
    },
    /// A SAM or BAM file of reads.
    #[error(transparent)]
    Unaligned(#[from] UnalignedError),
    /// One file of a pair ends before the other.
    #[error("{} ends after {records} records but {} goes on: is one of them truncated?", ended.display(), longer.display())]
    UnequalCounts {
        /// The file that ended.
        ended: PathBuf,
        /// Its records.
        records: u64,
        /// The file that goes on.
        longer: PathBuf,
    },
}

impl FastqError {
    /// The error for a fault that came after `records` whole records of `file`.
    pub(super) fn after(records: u64, file: &Path, fault: Fault) -> Self {
        let (file, record) = (file.to_path_buf(), records + 1);
        match fault {
            Fault::Open(source) => Self::Open { file, source },
            Fault::Read { source, .. } => Self::Read { file, record, source },
            Fault::Thread(source) => Self::Thread { file, source },
            Fault::Unsupported { format } => Self::UnsupportedCompression { file, format },
            Fault::Truncated { offset } => Self::TruncatedGzip { file, record, offset },
            Fault::Corrupt { offset, detail } => Self::CorruptGzip { file, record, offset, detail },
            Fault::Garbage { offset } => Self::TrailingGarbage { file, record, offset },
            Fault::MissingEof { .. } => Self::MissingBgzfEof { file, records },
            Fault::Changed => Self::Changed { file },
            Fault::Encrypted(source) => Self::Encrypted { file, record, source },
            Fault::Lost | Fault::Stopped => Self::ThreadLost { file, record },
        }
    }

    pub(super) fn unequal_counts(ended: &Records, longer: &Records) -> Self {
        let (ended, records) = (ended.file().to_path_buf(), ended.records());
        Self::UnequalCounts { ended, records, longer: longer.file().to_path_buf() }
    }

    pub(super) fn interleaved_odd(records: &Records, last: &[u8]) -> Self {
        Self::InterleavedOdd { file: records.file().to_path_buf(), records: records.records(), name: shown_name(last) }
    }

    pub(super) fn interleaved_out_of_step(records: &Records, before: &[u8]) -> Self {
        let (name1, name2) = (shown_name(before), shown_name(records.record().name));
        Self::InterleavedOutOfStep { place: records.here(), name1, name2 }
    }

    pub(super) fn mates_out_of_step(first: &Records, second: &Records) -> Self {
        Self::MatesOutOfStep {
            record: first.records(),
            file1: first.file().to_path_buf(),
            name1: shown_name(first.record().name),
            file2: second.file().to_path_buf(),
            name2: shown_name(second.record().name),
        }
    }
}

/// The start of a name as text.
pub(super) fn shown_name(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_NAME_BYTES)]).into_owned()
}

fn shown_byte(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("'{}'", char::from(byte)) } else { format!("byte 0x{byte:02x}") }
}
