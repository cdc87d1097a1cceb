//! What can be wrong with a BAM file.

use std::path::PathBuf;

use super::check::RecordProblem;
use crate::bgzf::BgzfError;
use crate::sam::UnusableHeader;

/// Why a BAM file cannot be read. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum BamError {
    /// The compressed file is damaged, cut short or no BGZF.
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
    /// The text of the header is not one.
    #[error(transparent)]
    Header(#[from] UnusableHeader),
    /// A number or name of the binary header is impossible.
    #[error("{} has a damaged header: {detail}", path.display())]
    BinaryHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
    Record(#[from] DamagedRecord),
    /// The file ends within a record whose number is not known.
    #[error("{} is truncated: it ends within the record at virtual offset {offset}; fetch or make it again", path.display())]
    TruncatedAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
    },
    /// A record is damaged whose number is not known; or no record is there, and the index is of another file.
    #[error("{} has no sound record at virtual offset {offset}; is its index older than the file? Index it again", path.display())]
    DamagedAt {
        /// The file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
        /// What is wrong.
        #[source]
        source: RecordProblem,
    },
}

/// A record of BAM, or one decoded from CRAM, that is not one.
#[derive(Debug, thiserror::Error)]
#[error("record {record} of {} is damaged", path.display())]
pub struct DamagedRecord {
    /// The file.
    pub path: PathBuf,
    /// 1-based number of the record.
    pub record: u64,
    /// What is wrong.
    #[source]
    pub source: RecordProblem,
}
