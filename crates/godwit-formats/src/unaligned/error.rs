//! What can be wrong with a SAM, BAM or CRAM file of reads.

use std::path::PathBuf;

use crate::bam::BamError;
use crate::sam::{ReadError, SamError};

/// A file whose reads cannot be taken. Records and lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum UnalignedError {
    /// A SAM file that cannot be read.
    #[error(transparent)]
    Sam(#[from] ReadError),
    /// A BAM file that cannot be read.
    #[error(transparent)]
    Bam(#[from] BamError),
    /// A file of a format that somebody else reads.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A line of SAM that is no record.
    #[error("line {line} of {} is wrong: {source}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its line.
        line: u64,
        /// What is wrong with it.
        source: SamError,
    },
    /// No record that is a read.
    #[error("{} has no reads", file.display())]
    Empty {
        /// The file.
        file: PathBuf,
    },
    /// A record that is none of a read, or of a read without its mate.
    #[error("record {record} of {}, read {name}: {problem}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// Its record.
        record: u64,
        /// The read's name.
        name: String,
        /// What is wrong.
        problem: ReadProblem,
    },
}

/// Why a record cannot be taken as a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadProblem {
    /// A read of a pair that does not stand beside its mate.
    #[error("its mate does not follow it; bring mates together with `samtools collate`")]
    NoMate,
    /// Mates that are not one read 1 and one read 2.
    #[error("it and its mate have FLAG {first:#x} and {second:#x}, which is not one read 1 and one read 2")]
    NotReadOneAndTwo {
        /// FLAG of the first of them in the file.
        first: u16,
        /// FLAG of the other.
        second: u16,
    },
    /// Single reads among pairs, or the reverse.
    #[error("it is {}, but the reads before it are not; split the file into two", if *.paired { "paired" } else { "not paired" })]
    Mixed {
        /// Whether this record is paired.
        paired: bool,
    },
    /// A read group that the header does not name, or none.
    #[error("its read group is {}, which the header does not name; name one for all with --read-group", shown(.found))]
    ReadGroup {
        /// The value of its `RG` tag.
        found: Option<String>,
    },
    /// A name with bytes outside `!` to `~`.
    #[error("its name contains byte {found:#04x}")]
    Name {
        /// The first such byte.
        found: u8,
    },
    /// A base that stands for that of a reference.
    #[error("its base {base} is '=', which stands for that of a reference")]
    Base {
        /// 1-based number in SEQ.
        base: usize,
    },
    /// A quality beyond what FASTQ can say.
    #[error("its quality {quality} is {found}; FASTQ has qualities up to 93")]
    Quality {
        /// 1-based number in QUAL.
        quality: usize,
        /// The quality.
        found: u8,
    },
    /// A tag that was asked for and is neither text nor a whole number, or holds bytes that no SAM line does.
    #[error("its tag {tag} cannot be carried along: it is neither text nor a whole number")]
    Tag {
        /// The tag.
        tag: String,
    },
}

fn shown(group: &Option<String>) -> &str {
    group.as_deref().unwrap_or("missing")
}
