//! Errors of file copies.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use godwit_delta::{DeltaError, DeltaFileError};
use godwit_flight::{Code, ErrorReason, FlightError, Status};

use godwit_transfer_session::copy_events::CopySummary;

/// The error of a copy, or of an operation that a server carries out for it.
///
/// # Examples
///
/// ```
/// use godwit_flight::{Code, Status};
/// use godwit_transfer::TransferError;
///
/// let error = TransferError::NotFound { location: "run7/a.bam".to_owned() };
/// assert!(error.to_string().contains("run7/a.bam"));
/// // A server returns it to the client as this status.
/// assert_eq!(Status::from(error).code(), Code::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// A file or directory does not exist.
    #[error("{location} does not exist; check its spelling (paths on a server are relative to its --root)")]
    NotFound {
        /// Path or URL of the file or directory.
        location: String,
    },
    /// The request is invalid or not permitted.
    #[error("{problem}")]
    Rejected {
        /// The problem and its remedy, for the user.
        problem: String,
    },
    /// The type of an entry is not supported, for example a named pipe.
    #[error("{problem}")]
    Unsupported {
        /// The entry, its type and the remedy, for the user.
        problem: String,
    },
    /// A file on this host cannot be read or written.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation that failed, as a verb, for example `read`.
        operation: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A source file changed after the copy began.
    #[error("{location} changed during the copy; run the same command again, unchanged data are kept")]
    SourceChanged {
        /// Path or URL of the source.
        location: String,
    },
    /// A block of a file was received damaged on every attempt.
    #[error(
        "a block of {location} failed its checksum on every attempt; the network or the memory of a host corrupts data: \
         use TLS (grpc+tls), or find the defect"
    )]
    Damaged {
        /// Path or URL of the file that contains the block.
        location: String,
    },
    /// The checksum of a file differs from the one in a checksum list, or a checksum list is invalid.
    #[error("{problem}")]
    ChecksumMismatch {
        /// The file or the list, and the remedy, for the user.
        problem: String,
    },
    /// The other end of the connection reports a problem with its files.
    #[error("{problem}")]
    RemoteFailure {
        /// The error message of the other end.
        problem: String,
        /// The machine-readable reason, if the other end sent one.
        reason: Option<ErrorReason>,
    },
    /// This server has no upload session of this name: the server was restarted, or the session was idle for too long.
    // Clients of versions before `ErrorReason` search error messages for this text.
    #[error("this session is not known here")]
    UnknownSession,
    /// Another process or another copy is writing the same file.
    #[error("{location} is being written by another copy; wait until it ends, or stop it")]
    Busy {
        /// Path of the file that is being written.
        location: String,
    },
    /// No data arrived within the idle timeout.
    #[error("no data received for {seconds} s; received data are kept, run the same command again to resume")]
    Timeout {
        /// The idle timeout, seconds.
        seconds: u64,
        /// The last error before the timeout, if any.
        #[source]
        source: Option<Box<TransferError>>,
    },
    /// Some entries were not copied, but all others were.
    #[error("{failed_files} of {files} files were not copied; the first error")]
    PartialFailure {
        /// Number of entries that could not be copied.
        failed_files: usize,
        /// Number of files and links, and of directories that were not copied.
        files: usize,
        /// The failure that decides the exit code.
        #[source]
        first_failure: Box<TransferError>,
        /// Counts of the entries that were copied.
        summary: Box<CopySummary>,
    },
    /// A file cannot be packed or unpacked, or a reference cannot be read.
    #[error("{location}")]
    Delta {
        /// Path or URL of the file or reference.
        location: String,
        /// The error of packing, unpacking or reading.
        #[source]
        source: DeltaError,
    },
    /// The connection or the other end of the connection failed.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The copy was cancelled.
    #[error("interrupted; received data are kept, run the same command again to resume")]
    Interrupted,
    /// A bug in godwit.
    #[error("a bug in godwit: {problem}")]
    Internal {
        /// The assumption that was violated.
        problem: String,
    },
}

impl TransferError {
    pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }

    pub(crate) fn busy(path: &Path) -> Self {
        Self::Busy { location: path.display().to_string() }
    }

    pub(crate) fn rejected(problem: impl Into<String>) -> Self {
        Self::Rejected { problem: problem.into() }
    }

    /// Reports whether the error concerns only one file, so that the copy of other files can continue.
    pub(crate) fn concerns_one_file(&self) -> bool {
        match self {
            // A disk that is full or broken, or a lack of file descriptors, affects all files.
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

impl From<DeltaFileError> for TransferError {
    fn from(error: DeltaFileError) -> Self {
        let DeltaFileError { path, source } = error;
        match source {
            DeltaError::Io { path, source } => Self::Io { operation: "read", path, source },
            source => Self::Delta { location: path.display().to_string(), source },
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
            TransferError::Io { source, .. } => match storage_reason(&source) {
                Some(reason) => reason.status(Code::ResourceExhausted, text),
                None => Self::resource_exhausted(text),
            },
            TransferError::RemoteFailure { .. } => Self::resource_exhausted(text),
            TransferError::UnknownSession => ErrorReason::UnknownSession.status(Code::ResourceExhausted, text),
            TransferError::Flight(error) => error.into(),
            TransferError::Timeout { .. } | TransferError::Interrupted => Self::unavailable(text),
            TransferError::PartialFailure { .. } | TransferError::Internal { .. } => Self::internal(text),
        }
    }
}

/// Returns the reason that a server sends for an error of its storage; `None` if clients handle the error like any
/// other.
fn storage_reason(error: &io::Error) -> Option<ErrorReason> {
    match error.kind() {
        ErrorKind::StorageFull => Some(ErrorReason::StorageFull),
        ErrorKind::QuotaExceeded => Some(ErrorReason::QuotaExceeded),
        ErrorKind::AlreadyExists => Some(ErrorReason::FileExists),
        ErrorKind::DirectoryNotEmpty => Some(ErrorReason::DirectoryNotEmpty),
        ErrorKind::NotADirectory => Some(ErrorReason::NotADirectory),
        ErrorKind::IsADirectory => Some(ErrorReason::IsADirectory),
        ErrorKind::InvalidFilename => Some(ErrorReason::InvalidFileName),
        ErrorKind::CrossesDevices => Some(ErrorReason::CrossesDevices),
        ErrorKind::FileTooLarge => Some(ErrorReason::FileTooLarge),
        ErrorKind::ReadOnlyFilesystem => Some(ErrorReason::ReadOnlyStorage),
        ErrorKind::PermissionDenied => Some(ErrorReason::StorageAccessDenied),
        _ => None,
    }
}
