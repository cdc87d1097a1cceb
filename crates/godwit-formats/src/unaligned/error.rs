//! Errors in reading unaligned reads from SAM, BAM and CRAM files.

use std::path::PathBuf;

use crate::bam::BamError;
use crate::sam::{SamError, SamReadError};

/// A reason why the reads of a file cannot be used. Records and lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum UnalignedError {
    /// The SAM file cannot be read.
    #[error(transparent)]
    Sam(#[from] SamReadError),
    /// The BAM file cannot be read.
    #[error(transparent)]
    Bam(#[from] BamError),
    /// The file of another [`RecordSource`](super::RecordSource) cannot be read.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A line of SAM is not a valid record.
    #[error("line {line} of {} is invalid: {source}", file.display())]
    Line {
        /// Path of the file with the reads.
        file: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// The reason why the line is invalid.
        source: SamError,
    },
    /// The file contains no primary record, so it has no reads.
    #[error("{} has no reads", file.display())]
    Empty {
        /// Path of the file with the reads.
        file: PathBuf,
    },
    /// A record is not a valid read, or its mate is missing.
    #[error("record {record} of {}, read {name}: {problem}", file.display())]
    Record {
        /// Path of the file with the reads.
        file: PathBuf,
        /// 1-based number of the record.
        record: u64,
        /// Name of the read.
        name: String,
        /// The reason why the record cannot be used.
        problem: ReadProblem,
    },
}

/// A reason why a record cannot be used as a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    /// The record of the mate is not adjacent to the record of the read.
    #[error("its mate does not follow it; put mates next to each other with `samtools collate`")]
    NoMate,
    /// Two mates are not one read 1 and one read 2.
    #[error("it and its mate have FLAG {first:#x} and {second:#x}, which is not one read 1 and one read 2")]
    NotReadOneAndTwo {
        /// FLAG of the mate that is first in the file.
        first: u16,
        /// FLAG of the mate that is second in the file.
        second: u16,
    },
    /// An unpaired read follows paired reads, or a paired read follows unpaired reads.
    #[error("it is {}, but the reads before it are not; split the file into two", if *.paired { "paired" } else { "not paired" })]
    Mixed {
        /// True if FLAG marks this record as paired.
        paired: bool,
    },
    /// The header does not list the read group of the record, or the record has no read group.
    #[error(
        "its read group is {}, which the header does not list; set one for all reads with --read-group",
        read_group_or_missing(.found)
    )]
    ReadGroup {
        /// Value of the `RG` tag of the record, if present.
        found: Option<String>,
    },
    /// The read name contains a byte outside the range `!` to `~`.
    #[error("its name contains byte {found:#04x}; names are printable ASCII characters without spaces")]
    Name {
        /// The first byte outside the range.
        found: u8,
    },
    /// A base is `=`, which means the base of a reference sequence.
    #[error("its base {base} is '=', which means the base of a reference")]
    Base {
        /// 1-based position of the base in SEQ.
        base: usize,
    },
    /// A base quality exceeds 93, the highest that FASTQ can express.
    #[error("its quality {quality} is {found}; FASTQ has qualities up to 93")]
    Quality {
        /// 1-based position of the quality in QUAL.
        quality: usize,
        /// The value of the quality.
        found: u8,
    },
    /// A requested tag is neither text nor an integer, or contains bytes that SAM lines cannot contain.
    #[error("its tag {tag} cannot be copied: it is neither text nor a whole number")]
    Tag {
        /// Name of the tag.
        tag: String,
    },
}

fn read_group_or_missing(group: &Option<String>) -> &str {
    group.as_deref().unwrap_or("missing")
}
