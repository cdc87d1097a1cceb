//! Errors of a search, one variant for each case that the caller can handle.

use std::path::{Path, PathBuf};

use godwit_cluster::{ClusterError, ConnectionError, FailureReport, WorkerError};
use godwit_columnar::ColumnarError;
use godwit_engines::EngineError;
use godwit_model::{ErrorKind, message_with_causes};
use godwit_process::RESUME_ADVICE;

/// Error of a search that is not possible, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The command line of the search is not supported.
    #[error("{option} is not supported: {problem}")]
    Unsupported {
        /// The option or program that is not supported.
        option: String,
        /// The reason why it is not supported, and what to use instead.
        problem: &'static str,
    },
    /// The search program, or the parser of its command line, rejects the options.
    #[error("{program} does not accept its options: {message}")]
    Options {
        /// Name of the search program.
        program: &'static str,
        /// The error message about the options.
        message: String,
    },
    /// The queries cannot be read.
    #[error("the queries of {program} cannot be searched: {message}")]
    Queries {
        /// Name of the search program.
        program: &'static str,
        /// The error message of the program about the queries.
        message: String,
    },
    /// The database cannot be read, or is not a database.
    #[error("the database cannot be searched: {message}")]
    Database {
        /// The error message of the search engine.
        message: String,
    },
    /// A file of the database changed during the search.
    #[error(
        "{} changed during the search, so the results would mix two versions of it; run the search again",
        .path.display()
    )]
    DatabaseChanged {
        /// Path of the first changed file of the database.
        path: PathBuf,
    },
    /// Two workers have opened different databases or queries.
    #[error(
        "workers found different databases or queries at the same path; all hosts must have the same files, and the \
         files may not change during the search"
    )]
    DatabaseMismatch,
    /// The cluster run failed, for example because workers cannot be started on their hosts.
    #[error(transparent)]
    WorkersUnavailable(Box<ClusterError>),
    /// The engine is not installed, or has the wrong version.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A worker exited, and the processes started in its place exited too.
    #[error(
        "a search worker {exit_description} {attempts} times while it searched {work}; the end of its stderr: \
         {stderr_tail}"
    )]
    WorkerFailed {
        /// Description of the last exit, such as `was killed by signal 9`.
        exit_description: String,
        /// Number of processes that exited on the same work.
        attempts: u32,
        /// Description of the work during which they exited.
        work: String,
        /// The last lines of the worker's stderr.
        stderr_tail: String,
    },
    /// The engine reported a failure.
    #[error("the search engine failed: {message}")]
    EngineFailed {
        /// The error message of the search engine.
        message: String,
    },
    /// A worker sent an unexpected response.
    #[error("a search worker sent an invalid message: {problem}; this is a bug in godwit")]
    Protocol {
        /// Description of the violation of the protocol.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// The action that failed, such as `read` or `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The table of hits cannot be written.
    #[error("cannot write the table of hits")]
    HitsTable(#[from] ColumnarError),
    /// The checkpoint of a stopped search belongs to another search.
    #[error(
        "cannot resume: {difference}; the finished work of the stopped search is in {}; omit --resume to start over",
        .directory.display()
    )]
    Resume {
        /// Path of the checkpoint directory.
        directory: PathBuf,
        /// Description of the first difference between the two searches.
        difference: String,
    },
    /// The user interrupted the search.
    #[error(
        "interrupted; {}",
        if *.is_resumable { RESUME_ADVICE } else { "no checkpoint was stored, so the search cannot be resumed" }
    )]
    Interrupted {
        /// True if finished work is in the checkpoint, so that a later search can resume.
        is_resumable: bool,
    },
}

impl From<ClusterError> for SearchError {
    fn from(error: ClusterError) -> Self {
        Self::WorkersUnavailable(Box::new(error))
    }
}

impl From<ConnectionError> for SearchError {
    fn from(error: ConnectionError) -> Self {
        ClusterError::from(error).into()
    }
}

impl WorkerError for SearchError {
    fn connection_error(&self) -> Option<&ConnectionError> {
        match self {
            Self::WorkersUnavailable(error) => match &**error {
                ClusterError::Connection(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }

    fn failure_report(&self) -> FailureReport {
        // A cluster worker that searches fails only for reasons of its host, such as a missing program.
        FailureReport { message: message_with_causes(self), fatal_exit_code: None }
    }
}

/// Returns a function that adds an action and a path to an I/O error.
pub(crate) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> SearchError {
    let path = path.to_owned();
    move |source| SearchError::File { action, path, source }
}

impl SearchError {
    /// Returns whether a later run of the same search may succeed if it resumes from the checkpoint. Even an error of the
    /// database may be temporary, for example while its file server is down.
    pub(crate) fn is_resumable(&self) -> bool {
        !matches!(self, Self::DatabaseChanged { .. })
    }

    /// Reports whether the database is not found on this host. Other hosts may have it.
    pub fn is_missing_database(&self) -> bool {
        // BLAST+ reports all errors of a database with one class, so its message has to be read.
        matches!(self, Self::Database { message } if message.contains("No alias or index file found"))
    }

    /// Returns the kind of this error, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Unsupported { .. } | Self::Options { .. } | Self::Resume { .. } => ErrorKind::Usage,
            Self::Queries { .. } | Self::Database { .. } => ErrorKind::Input,
            Self::DatabaseChanged { .. }
            | Self::DatabaseMismatch
            | Self::File { .. }
            | Self::Engine(_)
            | Self::HitsTable(_) => ErrorKind::Machine,
            Self::WorkerFailed { .. } | Self::EngineFailed { .. } => ErrorKind::Engine,
            Self::WorkersUnavailable(_) => ErrorKind::Remote,
            Self::Protocol { .. } => ErrorKind::Bug,
            Self::Interrupted { .. } => ErrorKind::Interrupted,
        }
    }
}
