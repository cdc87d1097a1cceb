//! What can go wrong between nodes.

use std::io;

use godwit_flight::{FlightError, TlsError};

/// Failures of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The network, or the other end.
    #[error(transparent)]
    Flight(#[from] FlightError),
    /// The head does not want this node.
    #[error("the run does not take this node: {why}")]
    Refused {
        /// Why.
        why: String,
    },
    /// Something came that makes no sense.
    #[error("{peer} said something that cannot be understood: {problem}")]
    Malformed {
        /// Who.
        peer: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The head is gone.
    #[error("the connection to the head of the run ended")]
    HeadLost,
    /// The certificate of the run.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Threads or sockets cannot be had.
    #[error("cannot start the network of this process")]
    Start(#[source] io::Error),
}
