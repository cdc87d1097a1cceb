//! What can go wrong on the wire.

use arrow_schema::ArrowError;

/// Failures of either end.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// No connection could be made.
    #[error("cannot connect to {address}; is a server running there?")]
    Connect {
        /// Where to.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A server could not take its place.
    #[error("cannot listen on {address}; choose another address, or stop what uses it")]
    Listen {
        /// Where.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke, or the other end does not speak HTTP/2.
    #[error("the connection to {peer} broke")]
    Connection {
        /// The other end.
        peer: String,
        /// How.
        #[source]
        source: hyper::Error,
    },
    /// The same, below HTTP/2.
    #[error("the connection to {peer} broke")]
    Broken {
        /// The other end.
        peer: String,
        /// How.
        #[source]
        source: std::io::Error,
    },
    /// The peer ended the call with an error status. The status is not a `source`: its own text repeats code and metadata.
    #[error("{peer} answered: {}", status_text(status))]
    Status {
        /// Address of the peer.
        peer: String,
        /// The status of the call.
        status: Box<tonic::Status>,
    },
    /// A call ended without a status: the peer, or something in between, stopped within the answer.
    #[error("{peer} answered: the answer broke off")]
    MissingStatus {
        /// Address of the peer.
        peer: String,
    },
    /// Bytes that are no Flight message.
    #[error("a message cannot be read: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A message larger than this end takes.
    #[error("a message of {bytes} bytes is over the limit of {limit_bytes}; send smaller batches")]
    TooLarge {
        /// Its bytes.
        bytes: u64,
        /// The most that is taken.
        limit_bytes: u64,
    },
    /// Data that is not what its sender made.
    #[error(
        "what {peer} sent does not have its checksum; the network or the memory of a machine changes data, or the peer is another program"
    )]
    Checksum {
        /// The other end.
        peer: String,
    },
    /// Bytes that are no record batch of the stream's schema.
    #[error("a record batch cannot be read or written")]
    Arrow {
        /// What Arrow found.
        #[source]
        source: ArrowError,
    },
}

/// Returns the message of a status, or what its code means where the message is empty.
fn status_text(status: &tonic::Status) -> &str {
    if status.message().is_empty() { status.code().description() } else { status.message() }
}

impl From<ArrowError> for FlightError {
    fn from(source: ArrowError) -> Self {
        Self::Arrow { source }
    }
}

impl From<FlightError> for tonic::Status {
    fn from(error: FlightError) -> Self {
        match error {
            FlightError::Status { status, .. } => *status,
            FlightError::Malformed { .. } | FlightError::Arrow { .. } => Self::invalid_argument(error.to_string()),
            FlightError::TooLarge { .. } => Self::resource_exhausted(error.to_string()),
            FlightError::Checksum { .. } => Self::data_loss(error.to_string()),
            FlightError::Connect { .. }
            | FlightError::Listen { .. }
            | FlightError::Connection { .. }
            | FlightError::Broken { .. }
            | FlightError::MissingStatus { .. } => Self::unavailable(error.to_string()),
        }
    }
}

impl From<godwit_model::ipc::IpcError> for FlightError {
    fn from(error: godwit_model::ipc::IpcError) -> Self {
        match error {
            godwit_model::ipc::IpcError::Malformed { problem } => Self::Malformed { problem },
            godwit_model::ipc::IpcError::Arrow(error) => error.into(),
        }
    }
}
