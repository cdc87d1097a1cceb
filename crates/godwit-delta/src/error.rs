//! Errors of delta compression: damaged packed files, wrong references, and failed input or output.

use std::io;
use std::path::PathBuf;

use godwit_formats::fasta::FastaError;
use godwit_io::bgzf::BgzfError;

/// The error of packing or unpacking a genome, or of reading a reference or a collection.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {source}; check the path, its permissions and the free disk space")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An input or output without a known path cannot be read or written.
    #[error("cannot {operation}: {source}; check the free disk space and the connection")]
    Stream {
        /// The operation that failed, as a verb with its object.
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The reference is not a valid FASTA file.
    #[error("the reference cannot be used: {0}")]
    Reference(#[from] FastaError),
    /// The BGZF-compressed input is damaged.
    #[error("the input cannot be read: {0}")]
    Input(#[from] BgzfError),
    /// The reference has more bases than the positions of the format can express.
    #[error("the reference has {bases} bases, more than the format supports; split it")]
    ReferenceTooLarge {
        /// Number of bases of the reference.
        bases: u64,
    },
    /// The file does not start with the signature of a packed genome.
    #[error("this is not a packed genome; give a file that godwit pack wrote")]
    NotGwp,
    /// The file has a later version of the format.
    #[error("this file has version {found_version} of the format, but only version 1 is supported; use a newer godwit")]
    UnsupportedVersion {
        /// Format version of the file.
        found_version: u8,
    },
    /// Bytes of the packed file were changed.
    #[error("the packed file is damaged at byte {offset}: {problem}; fetch it again")]
    Damaged {
        /// Offset of the damage in the file, bytes.
        offset: u64,
        /// The defect that was found.
        problem: &'static str,
    },
    /// The packed file is truncated.
    #[error("the packed file is truncated after {offset} bytes; fetch it again")]
    Truncated {
        /// Length of the packed file, bytes.
        offset: u64,
    },
    /// The given reference differs from the reference with which the file was packed.
    #[error(
        "this was packed against the reference {expected_digest}, but {path} is {actual_digest}: it lacks the sequence \
         {missing_sequence}; give the reference it was packed with, under any name"
    )]
    WrongReference {
        /// Digest of the required reference.
        expected_digest: String,
        /// Path of the given reference.
        path: PathBuf,
        /// Digest of the given reference.
        actual_digest: String,
        /// Digest of a sequence that the given reference lacks.
        missing_sequence: String,
    },
    /// The file needs a reference, and none was given.
    #[error("this was packed against the reference {expected_digest}; give it with --reference")]
    MissingReference {
        /// Digest of the required reference.
        expected_digest: String,
    },
    /// The given reference has the right sequences, but differs in which letters are lower case.
    #[error(
        "{path} has the sequences this was packed against, but other letters are lower case (soft mask); give the file \
         it was packed with"
    )]
    CaseMismatch {
        /// Path of the given reference.
        path: PathBuf,
    },
    /// A region starts after the end of its sequence.
    #[error("{region} starts after the end of the sequence, which has {bases} bases; choose a region within it")]
    BeyondEnd {
        /// The requested region, as text.
        region: String,
        /// Number of bases of the sequence.
        bases: u64,
    },
    /// The packed file does not contain the requested sequence.
    #[error("the packed file has no sequence {contig}; its names are those of the packed FASTA")]
    ContigNotFound {
        /// Name of the requested sequence.
        contig: String,
    },
    /// The packed text does not unpack to the same text. This is a bug in godwit, which was detected before the output
    /// was kept.
    #[error("the packed text does not unpack to the same bytes; the output was removed; please report this bug")]
    RoundTripMismatch,
    /// The manifest of a collection is invalid, or the collection cannot fulfil the request.
    #[error("{collection}: {problem}")]
    Collection {
        /// Directory of the collection.
        collection: PathBuf,
        /// The problem and the remedy.
        problem: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; check ulimit -u")]
    Thread(#[source] io::Error),
    /// The operation was cancelled.
    #[error("interrupted; the output was removed")]
    Cancelled,
}

/// The error of a packed file or a reference that is given by its path.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub struct DeltaFileError {
    /// Path of the packed file or of the reference.
    pub path: PathBuf,
    /// The error of reading it.
    pub source: DeltaError,
}

impl DeltaError {
    /// Returns a function that converts an I/O error to [`DeltaError::Io`] with this path.
    pub(super) fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
