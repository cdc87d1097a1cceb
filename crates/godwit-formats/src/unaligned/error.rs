//! Errors of SAM, BAM and CRAM files of reads.

use std::path::PathBuf;

use crate::bam::BamError;
use crate::sam::{SamError, SamReadError};

/// A reason why the reads of a file cannot be used. Records and lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum UnalignedError {
    /// A SAM file cannot be read.
    #[error(transparent)]
    Sam(#[from] SamReadError),
    /// A BAM file cannot be read.
    #[error(transparent)]
    Bam(#[from] BamError),
    /// A file of another [`RecordSource`](super::RecordSource) cannot be read.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A line of SAM is not a valid record.
    #[error("line {line} of {} is wrong: {source}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its line.
        line: u64,
        /// The problem.
        source: SamError,
    },
    /// No record is a read.
    #[error("{} has no reads", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A record is not a valid read, or lacks its mate.
    #[error("record {record} of {}, read {name}: {problem}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// Its record.
        record: u64,
        /// The read's name.
        name: String,
        /// The problem.
        problem: ReadProblem,
    },
}

/// A reason why a record cannot be used as a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    /// The mate of a read is not its neighbour.
    #[error("its mate does not follow it; bring mates together with `samtools collate`")]
    NoMate,
    /// Mates are not one read 1 and one read 2.
    #[error("it and its mate have FLAG {first:#x} and {second:#x}, which is not one read 1 and one read 2")]
    NotReadOneAndTwo {
        /// FLAG of the first of them in the file.
        first: u16,
        /// FLAG of the other.
        second: u16,
    },
    /// A single read is among pairs, or the reverse.
    #[error("it is {}, but the reads before it are not; split the file into two", if *.paired { "paired" } else { "not paired" })]
    Mixed {
        /// True if this record is paired.
        paired: bool,
    },
    /// The header does not list the read group, or the record has none.
    #[error("its read group is {}, which the header does not name; name one for all with --read-group", read_group_or_missing(.found))]
    ReadGroup {
        /// The value of its `RG` tag.
        found: Option<String>,
    },
    /// A name has bytes outside `!` to `~`.
    #[error("its name contains byte {found:#04x}")]
    Name {
        /// The first such byte.
        found: u8,
    },
    /// A base is `=`, that of a reference.
    #[error("its base {base} is '=', which stands for that of a reference")]
    Base {
        /// 1-based number in SEQ.
        base: usize,
    },
    /// A quality exceeds the range of FASTQ.
    #[error("its quality {quality} is {found}; FASTQ has qualities up to 93")]
    Quality {
        /// 1-based number in QUAL.
        quality: usize,
        /// The quality.
        found: u8,
    },
    /// A requested tag is neither text nor a whole number, or has bytes that SAM lines cannot contain.
    #[error("its tag {tag} cannot be carried along: it is neither text nor a whole number")]
    Tag {
        /// The tag.
        tag: String,
    },
}

fn read_group_or_missing(group: &Option<String>) -> &str {
    group.as_deref().unwrap_or("missing")
}
