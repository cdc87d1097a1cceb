//! Errors of file copies.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::copy::CopySummary;
use crate::delta::DeltaError;
use godwit_flight::{Code, ErrorReason, FlightError, Status};

/// The error of a copy.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A file or directory does not exist.
    #[error("there is no {location}; look at its spelling, and at what the server's root is")]
    NotFound {
        /// Path or URL of the file.
        location: String,
    },
    /// The request cannot be carried out.
    #[error("{problem}")]
    Rejected {
        /// The problem and the remedy.
        problem: String,
    },
    /// The type of the source is not supported.
    #[error("{problem}")]
    Unsupported {
        /// The type and the remedy.
        problem: String,
    },
    /// A file on this host cannot be read or written.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation that failed, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A source changed after the copy began.
    #[error("{location} changed while it was copied; run the same command again, what did not change is kept")]
    SourceChanged {
        /// Path or URL of the source.
        location: String,
    },
    /// Every copy of a block that was received was damaged.
    #[error(
        "{location} came damaged again and again; the network or the memory of a machine changes data: encrypt (grpc+tls), or look for it"
    )]
    Damaged {
        /// Path or URL of the file.
        location: String,
    },
    /// The checksum of a file differs from the listed one, or a checksum list is invalid.
    #[error("{problem}")]
    ChecksumMismatch {
        /// The file or list and the remedy.
        problem: String,
    },
    /// The other end reports a problem with its files.
    #[error("{problem}")]
    RemoteFailure {
        /// The message of the other end.
        problem: String,
    },
    /// This server has no upload session of that name: the server was restarted, or the session was idle for too long.
    // Clients of versions before `ErrorReason` look for this text.
    #[error("this session is not known here")]
    UnknownSession,
    /// Another process or another copy writes to the same file.
    #[error("{location} is being written by another copy; wait for it, or end it")]
    Busy {
        /// Path of the file.
        location: String,
    },
    /// No data arrived within the idle timeout.
    #[error("nothing arrived for {seconds} s; what is here is kept, run the same command again to go on")]
    Timeout {
        /// The idle timeout, s.
        seconds: u64,
        /// The last error.
        #[source]
        source: Option<Box<TransferError>>,
    },
    /// Some entries were not copied; all others were.
    #[error("{failed_files} of {files} files were not copied; the first of them")]
    PartialFailure {
        /// Number of entries that were not copied.
        failed_files: usize,
        /// Number of all entries that are not directories, and of directories that were not copied.
        files: usize,
        /// The first failure.
        #[source]
        first_failure: Box<TransferError>,
        /// Counts of the copy.
        summary: Box<CopySummary>,
    },
    /// A file cannot be packed or unpacked, or a reference cannot be read.
    #[error("{location}")]
    Delta {
        /// Path or URL of the file.
        location: String,
        /// The cause.
        #[source]
        source: DeltaError,
    },
    /// The connection or the other end failed.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The copy was cancelled.
    #[error("interrupted; what is here is kept, run the same command again to go on")]
    Interrupted,
    /// A bug in godwit.
    #[error("a bug in godwit: {problem}")]
    Internal {
        /// The violated assumption.
        problem: String,
    },
}

impl TransferError {
    pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    pub(crate) fn rejected(problem: impl Into<String>) -> Self {
        Self::Rejected { problem: problem.into() }
    }

    /// Reports whether the error concerns one file only.
    pub(crate) fn concerns_one_file(&self) -> bool {
        match self {
            // A disk that is full or broken affects all files.
            Self::Io { source, .. } => {
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
            | Self::Rejected { .. }
            | Self::Unsupported { .. }
            | Self::SourceChanged { .. }
            | Self::Damaged { .. }
            | Self::ChecksumMismatch { .. }
            | Self::RemoteFailure { .. }
            | Self::UnknownSession
            | Self::Busy { .. }
            | Self::Delta { .. } => true,
            Self::Timeout { .. }
            | Self::PartialFailure { .. }
            | Self::Flight(_)
            | Self::Interrupted
            | Self::Internal { .. } => false,
        }
    }
}

impl From<TransferError> for Status {
    fn from(error: TransferError) -> Self {
        let text = godwit_model::message_with_causes(&error);
        match error {
            TransferError::NotFound { .. } => Self::not_found(text),
            TransferError::Rejected { .. } | TransferError::Unsupported { .. } => Self::permission_denied(text),
            TransferError::SourceChanged { .. } => Self::failed_precondition(text),
            TransferError::Busy { .. } => Self::aborted(text),
            TransferError::Damaged { .. } | TransferError::ChecksumMismatch { .. } => Self::data_loss(text),
            TransferError::Delta { .. } => Self::failed_precondition(text),
            TransferError::Io { .. } | TransferError::RemoteFailure { .. } => Self::resource_exhausted(text),
            TransferError::UnknownSession => ErrorReason::UnknownSession.status(Code::ResourceExhausted, text),
            TransferError::Flight(error) => error.into(),
            TransferError::Timeout { .. } | TransferError::Interrupted => Self::unavailable(text),
            TransferError::PartialFailure { .. } | TransferError::Internal { .. } => Self::internal(text),
        }
    }
}
