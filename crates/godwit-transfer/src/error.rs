//! What can go wrong when files are copied.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::copy::CopySummary;
use crate::delta::DeltaError;
use godwit_flight::{Code, ErrorReason, FlightError, Status};

/// Failures of a copy.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A file or directory is not there.
    #[error("there is no {place}; look at its spelling, and at what the server's root is")]
    NotFound {
        /// Which.
        place: String,
    },
    /// What was asked for cannot be done in this way.
    #[error("{problem}")]
    Refused {
        /// The kind, and the remedy.
        problem: String,
    },
    /// The source is of a kind that is not copied.
    #[error("{problem}")]
    Unsupported {
        /// The kind, and the remedy.
        problem: String,
    },
    /// A file of this machine cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A source is not what it was when the copy began.
    #[error("{place} changed while it was copied; run the same command again, what did not change is kept")]
    Changed {
        /// Which.
        place: String,
    },
    /// A file came damaged each time.
    #[error(
        "{place} came damaged again and again; the network or the memory of a machine changes data: encrypt (grpc+tls), or look for it"
    )]
    Damaged {
        /// Which.
        place: String,
    },
    /// A file has another checksum than a list says, or the list is none.
    #[error("{problem}")]
    Unlike {
        /// Which, and what to do.
        problem: String,
    },
    /// The other end has a problem with its files.
    #[error("{problem}")]
    Elsewhere {
        /// Which, in its words.
        problem: String,
    },
    /// This server has no upload session of that name: it was restarted, or the session was idle for too long.
    // Clients of versions before `ErrorReason` look for this text.
    #[error("this session is not known here")]
    UnknownSession,
    /// Another process or another copy writes to the same place.
    #[error("{place} is being written by another copy; wait for it, or end it")]
    Busy {
        /// Where.
        place: String,
    },
    /// Nothing arrived for too long.
    #[error("nothing arrived for {seconds} s; what is here is kept, run the same command again to go on")]
    Silent {
        /// For how long.
        seconds: u64,
        /// The last thing that went wrong.
        #[source]
        source: Option<Box<TransferError>>,
    },
    /// Some files could not be copied. All others are.
    #[error("{failed} of {files} files were not copied; the first of them")]
    Some {
        /// Number of entries that were not copied.
        failed: usize,
        /// Number of all entries that are not directories, and of directories that were not copied.
        files: usize,
        /// The reason of the first of them.
        #[source]
        first: Box<TransferError>,
        /// The work done.
        summary: Box<CopySummary>,
    },
    /// Packing, unpacking, or reading a reference.
    #[error("{place}")]
    Packing {
        /// The file.
        place: String,
        /// What is wrong with it.
        #[source]
        source: DeltaError,
    },
    /// The other end, or the way there.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// Somebody wants it to end.
    #[error("interrupted; what is here is kept, run the same command again to go on")]
    Interrupted,
    /// A bug.
    #[error("a bug in godwit: {problem}")]
    Bug {
        /// What.
        problem: String,
    },
}

impl TransferError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    pub(crate) fn refused(problem: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into() }
    }

    /// Returns whether the error concerns one file and no others.
    pub(crate) fn is_of_one_file(&self) -> bool {
        match self {
            // A disk that is full, or that fails, is so for all files.
            Self::File { source, .. } => {
                let is_full = matches!(
                    source.kind(),
                    ErrorKind::StorageFull
                        | ErrorKind::QuotaExceeded
                        | ErrorKind::FileTooLarge
                        | ErrorKind::ReadOnlyFilesystem
                );
                let fails = [libc::EIO, libc::ENFILE, libc::EMFILE].map(Some).contains(&source.raw_os_error());
                !is_full && !fails
            }
            Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::Unsupported { .. }
            | Self::Changed { .. }
            | Self::Damaged { .. }
            | Self::Unlike { .. }
            | Self::Elsewhere { .. }
            | Self::UnknownSession
            | Self::Busy { .. }
            | Self::Packing { .. } => true,
            Self::Silent { .. } | Self::Some { .. } | Self::Flight(_) | Self::Interrupted | Self::Bug { .. } => false,
        }
    }
}

impl From<TransferError> for Status {
    fn from(error: TransferError) -> Self {
        let text = godwit_model::with_causes(&error);
        match error {
            TransferError::NotFound { .. } => Self::not_found(text),
            TransferError::Refused { .. } | TransferError::Unsupported { .. } => Self::permission_denied(text),
            TransferError::Changed { .. } => Self::failed_precondition(text),
            TransferError::Busy { .. } => Self::aborted(text),
            TransferError::Damaged { .. } | TransferError::Unlike { .. } => Self::data_loss(text),
            TransferError::Packing { .. } => Self::failed_precondition(text),
            TransferError::File { .. } | TransferError::Elsewhere { .. } => Self::resource_exhausted(text),
            TransferError::UnknownSession => ErrorReason::UnknownSession.status(Code::ResourceExhausted, text),
            TransferError::Flight(error) => error.into(),
            TransferError::Silent { .. } | TransferError::Interrupted => Self::unavailable(text),
            TransferError::Some { .. } | TransferError::Bug { .. } => Self::internal(text),
        }
    }
}
