//! What can be wrong with packed files, references, and the files in between.

use std::io;
use std::path::PathBuf;

use godwit_formats::bgzf::BgzfError;
use godwit_formats::fasta::FastaError;

/// Why packing or unpacking stopped.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// The file system refused.
    #[error("cannot read or write {path}: {source}; check the path, its permissions and the space left")]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// What is read or written is no file, or its caller knows which.
    #[error("cannot {what}: {source}; check the space left and the other end")]
    Stream {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The reference is no FASTA of bases.
    #[error("the reference cannot be used: {0}")]
    Reference(#[from] FastaError),
    /// Compressed input is damaged.
    #[error("the input cannot be read: {0}")]
    Input(#[from] BgzfError),
    /// The reference has more bases than positions can say.
    #[error("the reference has {bases} bases, more than can be told apart; cut it in pieces")]
    TooLarge {
        /// Its bases.
        bases: u64,
    },
    /// Not written by `godwit pack`.
    #[error("this is no packed genome: it does not begin as one; give the file that godwit pack wrote")]
    NotPacked,
    /// Packed by a later version.
    #[error("this was packed in version {version} of the format, and version 1 is known here; use a newer godwit")]
    Version {
        /// That version.
        version: u8,
    },
    /// Bytes changed since they were written.
    #[error("the packed file is damaged at byte {offset}: {what}; fetch it again")]
    Damaged {
        /// Where, from the start of the file.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The packed file ends too early.
    #[error("the packed file is cut off after {offset} bytes; fetch it again")]
    Truncated {
        /// Its length.
        offset: u64,
    },
    /// Another reference than the one it was packed with.
    #[error(
        "this was packed against the reference {wanted}, and {path} is {given}: it has no sequence {missing}; give the \
         reference it was packed with, under any name"
    )]
    WrongReference {
        /// Digest of the reference it was packed with.
        wanted: String,
        /// The reference given.
        path: PathBuf,
        /// Its digest.
        given: String,
        /// Digest of a sequence that it lacks.
        missing: String,
    },
    /// Packed without need of a reference that is not there, or packed with one and none is given.
    #[error("this was packed against the reference {wanted}; give it with --reference")]
    NoReference {
        /// Its digest.
        wanted: String,
    },
    /// The right sequences in other case.
    #[error(
        "{path} has the sequences this was packed against, but other letters of it are lower case (soft-masked); give the \
         very file it was packed with"
    )]
    WrongCase {
        /// The reference given.
        path: PathBuf,
    },
    /// A region that starts behind the end of its sequence.
    #[error("{region} starts behind the end of the sequence, which has {bases} bases; ask for a place in it")]
    BeyondEnd {
        /// What was asked for.
        region: String,
        /// Bases of the sequence.
        bases: u64,
    },
    /// A contig that the packed file lacks.
    #[error("there is no sequence {contig} in the packed file; its names are those of the packed FASTA")]
    NoSuchContig {
        /// The name.
        contig: String,
    },
    /// What was just encoded does not decode to the same text. A bug, found before anything was kept.
    #[error("what was packed does not unpack to the same bytes; nothing was kept: please report this")]
    NotExact,
    /// A collection and what is asked of it do not go together.
    #[error("{collection}: {what}")]
    Collection {
        /// Its directory.
        collection: PathBuf,
        /// What is wrong, and what to do.
        what: String,
    },
    /// A thread could not be started.
    #[error("cannot start a thread: {0}; check ulimit -u")]
    Thread(#[source] io::Error),
    /// Stopped from outside.
    #[error("interrupted; nothing was kept")]
    Cancelled,
}

impl DeltaError {
    /// With the file that it is about.
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
