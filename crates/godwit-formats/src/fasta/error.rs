//! Errors of FASTA files.

use std::io;
use std::path::{Path, PathBuf};

use crate::bgzf::BgzfError;

/// A reason why a FASTA file cannot be used as a reference. Lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum FastaError {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file is gzip, but not BGZF, so its bases cannot be read at any position.
    #[error(
        "{0} is compressed with gzip, so its bases cannot be looked up; compress it with bgzip instead \
         (`gunzip -c {0} | bgzip > NEW.fa.gz`), or decompress it",
        path.display()
    )]
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
    /// The text before the first title is not empty.
    #[error("line {line} of {} should start with >; is it a FASTA file?", path.display())]
    NotFasta {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
    },
    /// A title has no usable name.
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
        /// The first line of another length.
        line: u64,
    },
    /// A byte is not a letter.
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

impl FastaError {
    /// Returns the error of a file that cannot be opened.
    pub(super) fn open_error(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| BgzfError::Io { path: path.to_owned(), offset: 0, source }.into()
    }
}
