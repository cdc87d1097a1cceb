//! Errors between head and workers.

use std::io;

use godwit_flight::{FlightError, TlsError};

/// An error of the exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The network or the peer failed.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The head rejected this worker.
    #[error("the run does not take this node: {reason}")]
    WorkerRejected {
        /// The reason.
        reason: String,
    },
    /// A message that is not valid.
    #[error("{peer} said something that cannot be understood: {problem}")]
    InvalidMessage {
        /// The sender.
        peer: &'static str,
        /// The defect.
        problem: String,
    },
    /// The head is lost.
    #[error("the connection to the head of the run ended")]
    HeadLost,
    /// The certificate of the run cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Threads or sockets cannot be created.
    #[error("cannot start the network of this process")]
    StartNetwork(#[source] io::Error),
}
