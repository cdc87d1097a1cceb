//! What can be wrong with a FASTA file.

use std::path::PathBuf;

use crate::bgzf::BgzfError;

/// Why a FASTA file cannot be used as a reference. Lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum FastaError {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// No index of a compressed file.
    #[error("{} is compressed; decompress it to index it", path.display())]
    Compressed {
        /// The file.
        path: PathBuf,
    },
    /// The file has no contig.
    #[error("{} holds no contig; is it a FASTA file?", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Something stands before the first title.
    #[error("line {line} of {} should start with >; is it a FASTA file?", path.display())]
    NotFasta {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
    },
    /// A title without a usable name.
    #[error("the title in line {line} of {} has no name right after >, or one that is not printable", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
    },
    /// Two contigs share a name.
    #[error("line {line} of {} names contig {name} a second time; rename one of them", path.display())]
    DuplicateName {
        /// The file.
        path: PathBuf,
        /// The line of the second title.
        line: u64,
        /// The name.
        name: String,
    },
    /// A contig has no bases.
    #[error("contig {name} of {} has no bases; remove it", path.display())]
    EmptyContig {
        /// The file.
        path: PathBuf,
        /// Its name.
        name: String,
    },
    /// Lines of a contig differ in length before its last one.
    #[error("contig {name} of {} has lines of different length around line {line}; wrap it evenly", path.display())]
    RaggedLines {
        /// The file.
        path: PathBuf,
        /// The contig.
        name: String,
        /// The line that does not fit.
        line: u64,
    },
    /// A byte that is no letter.
    #[error("line {line} of {} contains {byte:#04x}; only letters are bases", path.display())]
    Base {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The first such byte.
        byte: u8,
    },
}
