//! Errors in reading BAM files.

use std::path::PathBuf;

use godwit_io::bgzf::BgzfError;

use super::record_validation::RecordProblem;
use crate::sam::FileHeaderError;

/// A reason why a BAM file cannot be read. Records are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum BamError {
    /// The compressed file is damaged, truncated or not BGZF.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file is BGZF, but does not contain BAM.
    #[error("{} is not a BAM file", path.display())]
    NotBam {
        /// Path of the BAM file.
        path: PathBuf,
    },
    /// The file is truncated within its header.
    #[error("{} is truncated: it ends within its header; fetch or create it again", path.display())]
    TruncatedHeader {
        /// Path of the BAM file.
        path: PathBuf,
    },
    /// The text of the header is invalid.
    #[error(transparent)]
    Header(#[from] FileHeaderError),
    /// A number or a name in the binary part of the header is invalid.
    #[error("{} has a damaged header: {detail}", path.display())]
    BinaryHeader {
        /// Path of the BAM file.
        path: PathBuf,
        /// Description of the problem.
        detail: &'static str,
    },
    /// The `@SQ` lines of the header text and the binary list of contigs differ.
    #[error("the @SQ lines of {} and its binary list of contigs differ at contig {contig}", path.display())]
    ContigLists {
        /// Path of the BAM file.
        path: PathBuf,
        /// 1-based number of the first contig that differs.
        contig: usize,
    },
    /// The file is truncated within a record.
    #[error("{} is truncated: it ends within record {record}; fetch or create it again", path.display())]
    TruncatedRecord {
        /// Path of the BAM file.
        path: PathBuf,
        /// 1-based number of the record.
        record: u64,
    },
    /// A record, whose number in the file is known, is damaged.
    #[error(transparent)]
    Record(#[from] DamagedRecordError),
    /// The file ends within a record that was read by index, so that its number in the file is unknown.
    #[error("{} is truncated: it ends within the record at virtual offset {offset}; fetch or create it again", path.display())]
    TruncatedAt {
        /// Path of the BAM file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
    },
    /// A record that was read by index is damaged; or no record starts at this offset, because the index belongs to
    /// another file.
    #[error(
        "{} has no valid record at virtual offset {offset}; is its index older than the file? Index it again",
        path.display()
    )]
    DamagedAt {
        /// Path of the BAM file.
        path: PathBuf,
        /// Virtual offset of the record.
        offset: u64,
        /// The reason why the record is invalid.
        #[source]
        source: RecordProblem,
    },
}

/// A damaged record of a BAM file, or a damaged record that was decoded from CRAM.
#[derive(Debug, thiserror::Error)]
#[error("record {record} of {} is damaged", path.display())]
pub struct DamagedRecordError {
    /// Path of the BAM file.
    pub path: PathBuf,
    /// 1-based number of the record.
    pub record: u64,
    /// The reason why the record is invalid.
    #[source]
    pub source: RecordProblem,
}
