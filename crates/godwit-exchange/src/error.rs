//! Errors of the communication between the head of a run and its workers.

use std::io;

use godwit_flight::{FlightError, TlsError};

/// An error of the communication between head and workers.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
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
