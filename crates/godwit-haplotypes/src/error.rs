//! Errors of a comparison by haplotypes.

use std::io;
use std::path::PathBuf;

use godwit_formats::fasta::FastaError;
use godwit_formats::intervals::IntervalError;
use godwit_formats::vcf::VcfError;
use godwit_model::is_system_failure;

/// An error that ends a comparison.
#[derive(Debug, thiserror::Error)]
pub enum HaplotypeError {
    /// The reference cannot be read.
    #[error(transparent)]
    Fasta(#[from] FastaError),
    /// The bases of a contig cannot be read.
    #[error("cannot read {}", .path.display())]
    Reference {
        /// Path of the FASTA file.
        path: PathBuf,
        /// The error of the file system, or the error that the file does not match its index.
        #[source]
        source: io::Error,
    },
    /// A BED file of regions is invalid.
    #[error(transparent)]
    Bed(#[from] IntervalError),
    /// The file of the strata cannot be read.
    #[error("cannot read {}", .path.display())]
    Stratification {
        /// Path of the file.
        path: PathBuf,
        /// The error of the file system, or text that is not UTF-8.
        #[source]
        source: io::Error,
    },
    /// A line of the file of the strata is invalid.
    #[error("{}, line {line}: {problem}", .path.display())]
    StratificationLine {
        /// Path of the file.
        path: PathBuf,
        /// 1-based number of the line.
        line: usize,
        /// The error in the line.
        problem: String,
    },
    /// A VCF file is invalid.
    #[error(transparent)]
    Vcf(#[from] VcfError),
    /// A record of a VCF file is invalid.
    #[error("{}, record at {position}: {problem}", .path.display())]
    Record {
        /// Path of the VCF file.
        path: PathBuf,
        /// Contig and 1-based position of the record.
        position: String,
        /// The error in the record.
        problem: String,
    },
    /// The files cannot be compared: they have no contig in common, or no regions.
    #[error("{problem}")]
    Incomparable {
        /// The files, and the difference between them.
        problem: String,
    },
    /// Options that contradict each other or the files.
    #[error("{problem}")]
    Options {
        /// The options, and the remedy.
        problem: String,
    },
    /// An output file cannot be written.
    #[error("cannot write {}", .path.display())]
    Write {
        /// Path of the output file.
        path: PathBuf,
        /// The error of the file system.
        #[source]
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread {
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The search ended without a path, which is a bug in godwit.
    #[error("a bug in godwit: no pair of haplotypes remains on contig {contig:?}; please report it with the two files")]
    NoPath {
        /// Name of the contig.
        contig: String,
    },
    /// The caller cancelled the comparison.
    #[error("cancelled")]
    Cancelled,
}

impl HaplotypeError {
    /// Returns whether this machine is the cause, for example a missing file or a full disk, and not the input.
    pub fn is_system_failure(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Thread { .. }) || is_system_failure(self)
    }
}
