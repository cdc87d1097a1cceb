//! Errors of BAM files.

use std::path::PathBuf;

use super::record_validation::RecordProblem;
use crate::bgzf::BgzfError;
use crate::sam::FileHeaderError;

/// A reason why a BAM file cannot be read. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum BamError {
    /// The compressed file is damaged, truncated or not BGZF.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// It is BGZF, but not BAM.
    #[error("{} is not a BAM file", path.display())]
    NotBam {
        /// The file.
        path: PathBuf,
    },
    /// The file ends within its header.
    #[error("{} is truncated: it ends within its header; fetch or make it again", path.display())]
    TruncatedHeader {
        /// The file.
        path: PathBuf,
    },
    /// The text of the header is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A number or name of the binary header is invalid.
    #[error("{} has a damaged header: {detail}", path.display())]
    BinaryHeader {
        /// The file.
        path: PathBuf,
        /// The problem.
        detail: &'static str,
    },
    /// The `@SQ` lines and the binary list of contigs differ.
    #[error("the @SQ lines of {} and its binary list of contigs differ at contig {contig}", path.display())]
    ContigLists {
        /// The file.
        path: PathBuf,
        /// 1-based number of the first contig that differs.
        contig: usize,
    },
    /// The file ends within a record.
    #[error("{} is truncated: it ends within record {record}; fetch or make it again", path.display())]
    TruncatedRecord {
        /// The file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
    },
    /// A record is damaged.
    #[error(transparent)]
    Record(#[from] DamagedRecordError),
    /// The file ends within a record whose number is unknown.
    #[error("{} is truncated: it ends within the record at virtual offset {offset}; fetch or make it again", path.display())]
    TruncatedAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
    },
    /// A record whose number is unknown is damaged; or no record starts there, and the index belongs to another file.
    #[error("{} has no sound record at virtual offset {offset}; is its index older than the file? Index it again", path.display())]
    DamagedAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
        /// The problem.
        #[source]
        source: RecordProblem,
    },
}

/// A damaged record of BAM, or one decoded from CRAM.
#[derive(Debug, thiserror::Error)]
#[error("record {record} of {} is damaged", path.display())]
pub struct DamagedRecordError {
    /// The file.
    pub path: PathBuf,
    /// 1-based number of the record.
    pub record: u64,
    /// The problem.
    #[source]
    pub source: RecordProblem,
}
