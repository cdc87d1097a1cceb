//! Errors in reading FASTA files.

use std::io;
use std::path::{Path, PathBuf};

use godwit_io::bgzf::BgzfError;

/// A reason why a FASTA file cannot be used as a reference. Lines are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum FastaError {
    /// The file cannot be opened, read or decompressed.
    #[error(transparent)]
    Bgzf(#[from] BgzfError),
    /// The file is gzip but not BGZF, so bases cannot be read at arbitrary positions.
    #[error(
        "{0} is compressed with gzip, so its bases cannot be looked up; compress it with bgzip instead \
         (`gunzip -c {0} | bgzip > NEW.fa.gz`), or decompress it",
        path.display()
    )]
    Compressed {
        /// Path of the FASTA file.
        path: PathBuf,
    },
    /// The file contains no contig.
    #[error("{} contains no contig; is it a FASTA file?", path.display())]
    Empty {
        /// Path of the FASTA file.
        path: PathBuf,
    },
    /// The file has text before the first title line.
    #[error("line {line} of {} should start with >; is it a FASTA file?", path.display())]
    NotFasta {
        /// Path of the FASTA file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
    },
    /// The title line of a contig has no name, or its name is not printable.
    #[error("the title in line {line} of {} has no name right after >, or one that is not printable", path.display())]
    Name {
        /// Path of the FASTA file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
    },
    /// SAM and BAM do not permit the name of a contig (SAMv1 §1.2.1).
    #[error(
        "contig {number} of {} is named {name:?}, which is not a name of a reference sequence in SAM and BAM: only \
         letters, digits and !#$%&*+./:;=?@^_|~- are permitted, and neither * nor = at the start; rename it, and index \
         the file again",
        path.display()
    )]
    NotSamName {
        /// Path of the FASTA file.
        path: PathBuf,
        /// Number of the contig in the file, from 1.
        number: usize,
        /// Name of the contig.
        name: String,
    },
    /// Two contigs of the file have the same name.
    #[error("line {line} of {} names contig {name} a second time; rename one of them", path.display())]
    DuplicateName {
        /// Path of the FASTA file.
        path: PathBuf,
        /// 1-based number of the line with the second occurrence of the name.
        line: u64,
        /// The name that two contigs share.
        name: String,
    },
    /// A contig has no bases.
    #[error("contig {name} of {} has no bases; remove it", path.display())]
    EmptyContig {
        /// Path of the FASTA file.
        path: PathBuf,
        /// Name of the contig.
        name: String,
    },
    /// Lines of a contig, other than the last, differ in length.
    #[error(
        "contig {name} of {} has lines of different length around line {line}; wrap it at one length",
        path.display()
    )]
    RaggedLines {
        /// Path of the FASTA file.
        path: PathBuf,
        /// Name of the contig.
        name: String,
        /// 1-based number of the first line whose length differs.
        line: u64,
    },
    /// A line of bases contains a byte that is not a letter.
    #[error("line {line} of {} contains {byte:#04x}; only letters are bases", path.display())]
    Base {
        /// Path of the FASTA file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// The first byte that is not a letter.
        byte: u8,
    },
}

impl FastaError {
    /// Returns a function that converts an I/O error into the error for a file that cannot be opened.
    pub(super) fn open_error(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| BgzfError::Io { path: path.to_owned(), offset: 0, source }.into()
    }
}
