//! Errors of cluster runs: of a connection, and of a run as a whole.

use std::io;
use std::path::PathBuf;

use godwit_fleet::FleetError;
use godwit_flight::{FlightError, TlsError};

/// An error of the communication between head and workers.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The connection failed, or the peer returned an error.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The head rejected this worker.
    #[error("the head rejected this worker: {reason}")]
    WorkerRejected {
        /// The reason for the rejection.
        reason: String,
    },
    /// A message from the peer is invalid.
    #[error("invalid message from {peer}: {problem}")]
    InvalidMessage {
        /// The process that sent the message, such as "the head".
        peer: &'static str,
        /// The reason why the message is invalid.
        problem: String,
    },
    /// The connection of a worker to its head was lost.
    #[error("the connection to the head of the run was lost")]
    HeadLost,
    /// The TLS certificate of the run cannot be created, stored or loaded.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The threads that serve the network cannot be started.
    #[error("cannot start the network of this process")]
    StartNetwork(#[source] io::Error),
}

impl ConnectionError {
    /// Returns the error for an invalid message of the head.
    pub fn invalid_head_message(problem: impl Into<String>) -> Self {
        Self::InvalidMessage { peer: "the head", problem: problem.into() }
    }
}

/// An error that ends a cluster run, or the work of a worker.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The connection between head and worker failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The workers could not be started, or did not find the head.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// A task or command contains a path that is not UTF-8.
    #[error(
        "the task cannot be sent to workers: {problem}; in a cluster run the paths of all files and directories must \
         be UTF-8: rename the one that is not"
    )]
    UnsendableMessage {
        /// The error of the conversion to JSON.
        problem: serde_json::Error,
    },
    /// The directory of the rendezvous file cannot be used.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The verb of the error message, such as `find`.
        action: &'static str,
        /// Path of the directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// All workers are lost.
    #[error("no worker is left: {last_error}")]
    NoWorkers {
        /// The last error that a worker reported; if no worker reported an error, the first loss of a worker.
        last_error: String,
    },
    /// A worker stopped with an error that every other worker would also have.
    #[error("{message} (on {worker})")]
    WorkerFailed {
        /// Name of the worker.
        worker: String,
        /// The problem, the file or record that has it, and the remedy.
        message: String,
        /// Exit code of godwit for the error.
        exit_code: i32,
    },
    /// A worker sent a message that does not fit the state of the job.
    #[error("{problem} (on {worker})")]
    UnexpectedMessage {
        /// Name of the worker.
        worker: String,
        /// The message or the problem with it.
        problem: String,
    },
    /// The job was cancelled.
    #[error("interrupted")]
    Interrupted,
}
