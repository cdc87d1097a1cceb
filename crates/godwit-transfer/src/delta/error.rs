//! Errors of packed files, references, and input and output files.

use std::io;
use std::path::PathBuf;

use godwit_formats::bgzf::BgzfError;
use godwit_formats::fasta::FastaError;

/// The error of packing or unpacking.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {source}; check the path, its permissions and the space left")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A stream cannot be read or written; it is not a file, or its caller knows the path.
    #[error("cannot {operation}: {source}; check the space left and the other end")]
    Stream {
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The reference is not a valid FASTA file.
    #[error("the reference cannot be used: {0}")]
    Reference(#[from] FastaError),
    /// Compressed input is damaged.
    #[error("the input cannot be read: {0}")]
    Input(#[from] BgzfError),
    /// The reference has more bases than positions can express.
    #[error("the reference has {bases} bases, more than can be told apart; cut it in pieces")]
    ReferenceTooLarge {
        /// Number of its bases.
        bases: u64,
    },
    /// The file does not start as a packed genome.
    #[error("this is no packed genome: it does not begin as one; give the file that godwit pack wrote")]
    NotGwp,
    /// The file has a later version of the format.
    #[error(
        "this was packed in version {found_version} of the format, and version 1 is known here; use a newer godwit"
    )]
    UnsupportedVersion {
        /// Its version.
        found_version: u8,
    },
    /// Bytes of the packed file changed.
    #[error("the packed file is damaged at byte {offset}: {problem}; fetch it again")]
    Damaged {
        /// Offset of the damage in the file, bytes.
        offset: u64,
        /// The defect.
        problem: &'static str,
    },
    /// The packed file is truncated.
    #[error("the packed file is cut off after {offset} bytes; fetch it again")]
    Truncated {
        /// Its length, bytes.
        offset: u64,
    },
    /// The reference is not the one that the file was packed with.
    #[error(
        "this was packed against the reference {expected_digest}, and {path} is {actual_digest}: it has no sequence {missing_sequence}; give the \
         reference it was packed with, under any name"
    )]
    WrongReference {
        /// Digest of the required reference.
        expected_digest: String,
        /// The reference that was given.
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
    /// The reference has the right sequences in other case.
    #[error(
        "{path} has the sequences this was packed against, but other letters of it are lower case (soft-masked); give the \
         very file it was packed with"
    )]
    CaseMismatch {
        /// The reference that was given.
        path: PathBuf,
    },
    /// A region starts after the end of its sequence.
    #[error("{region} starts behind the end of the sequence, which has {bases} bases; ask for a place in it")]
    BeyondEnd {
        /// The requested region.
        region: String,
        /// Number of bases of the sequence.
        bases: u64,
    },
    /// The packed file lacks a sequence.
    #[error("there is no sequence {contig} in the packed file; its names are those of the packed FASTA")]
    ContigNotFound {
        /// Name of the sequence.
        contig: String,
    },
    /// An encoded segment does not decode to the same text: a bug, detected before the output was kept.
    #[error("what was packed does not unpack to the same bytes; nothing was kept: please report this")]
    RoundTripMismatch,
    /// A collection does not permit the request.
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
    #[error("interrupted; nothing was kept")]
    Cancelled,
}

impl DeltaError {
    /// Returns a conversion of an I/O error that adds the path.
    pub(super) fn io_error(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
