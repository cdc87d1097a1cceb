//! Errors of a search, one variant for each case that the caller can handle.

use std::path::PathBuf;

use godwit_engines::EngineError;
use godwit_formats::columnar::ColumnarError;

/// A search that is not possible, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// A command line that is not supported or not meaningful.
    #[error("{option} is not supported: {problem}")]
    Unsupported {
        /// The option or program.
        option: String,
        /// The reason and the alternative.
        problem: &'static str,
    },
    /// The program itself rejects its options.
    #[error("{program} does not accept its options: {message}")]
    Options {
        /// Name of the program.
        program: &'static str,
        /// Its message.
        message: String,
    },
    /// The queries cannot be read.
    #[error("the queries of {program} cannot be searched: {message}")]
    Queries {
        /// Name of the program.
        program: &'static str,
        /// Its message.
        message: String,
    },
    /// The database cannot be read, or is not a database.
    #[error("the database cannot be searched: {message}")]
    Database {
        /// Message of the engine.
        message: String,
    },
    /// The database was written to while it was searched.
    #[error("{} changed while it was searched, so the results would be of no one database; run the search again", .path.display())]
    DatabaseChanged {
        /// Path of the first changed file.
        path: PathBuf,
    },
    /// Workers do not have the same database, or the same queries.
    #[error(
        "workers see different databases or queries under the same name; all nodes have to see the same files, none of which may \
         change while they are searched"
    )]
    DatabaseMismatch,
    /// Workers cannot be started on their hosts.
    #[error(transparent)]
    WorkersUnavailable(Box<dyn std::error::Error + Send + Sync>),
    /// The engine is not installed, or has the wrong version.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A worker exited, and so did its replacements.
    #[error(
        "the worker {exit_description} {attempts} times over the same work ({work}); its last words were: {stderr_tail}"
    )]
    WorkerFailed {
        /// The reason of the exit: `was killed by signal 9`.
        exit_description: String,
        /// Number of attempts.
        attempts: u32,
        /// The work item.
        work: String,
        /// The last lines of its stderr.
        stderr_tail: String,
    },
    /// The engine reported a failure.
    #[error("the search engine failed: {message}")]
    EngineFailed {
        /// Its message.
        message: String,
    },
    /// A worker sent an unexpected response.
    #[error("a worker broke the protocol: {problem}; this is a bug in godwit")]
    Protocol {
        /// The violation.
        problem: String,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        /// The action that failed: `read`, `write`.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// Hits cannot be written as columns.
    #[error("cannot write the table of hits")]
    HitsTable(#[from] ColumnarError),
    /// The checkpoint of a stopped search belongs to another search.
    #[error(
        "cannot resume: {difference}; what the stopped search has finished is in {}; leave out --resume to begin anew",
        .directory.display()
    )]
    Resume {
        /// Path of the checkpoint.
        directory: PathBuf,
        /// The difference.
        difference: String,
    },
    /// The user interrupted the search.
    #[error("interrupted; {}", if *.is_resumable { "add --resume to the same command to go on" } else { "nothing was kept" })]
    Interrupted {
        /// True if a later search can resume.
        is_resumable: bool,
    },
}

/// The cause of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line.
    Usage,
    /// The input.
    Input,
    /// The machine.
    Machine,
    /// The engine.
    Engine,
    /// Other hosts.
    Remote,
    /// None: the search was stopped.
    Interrupted,
    /// A bug in godwit.
    Bug,
}

impl SearchError {
    /// Reports whether the same search may succeed later, from what this one has finished.
    pub(crate) fn is_resumable(&self) -> bool {
        matches!(
            self,
            Self::Interrupted { .. }
                | Self::WorkersUnavailable(_)
                | Self::WorkerFailed { .. }
                | Self::EngineFailed { .. }
                | Self::Engine(_)
                | Self::File { .. }
                | Self::HitsTable(_)
        )
    }

    /// Returns the kind, which decides the exit code.
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
