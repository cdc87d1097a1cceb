//! Errors of connections and calls.

use arrow_schema::ArrowError;

/// Failures of either end.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The connection could not be established.
    #[error("cannot connect to {address}; is a server running there?")]
    Connect {
        /// Address of the server.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A server could not bind its address.
    #[error("cannot listen on {address}; choose another address, or stop what uses it")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection failed, or the peer does not speak HTTP/2.
    #[error("the connection to {peer} broke")]
    Connection {
        /// Address of the peer.
        peer: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// The connection failed below HTTP/2.
    #[error("the connection to {peer} broke")]
    Io {
        /// Address of the peer.
        peer: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The peer ended the call with an error status. The status is not a `source`: its own text repeats code and metadata.
    #[error("{peer} answered: {}", status_message(status))]
    Status {
        /// Address of the peer.
        peer: String,
        /// The status of the call.
        status: Box<tonic::Status>,
    },
    /// A call ended without a status: the peer, or a proxy, stopped within the response.
    #[error("{peer} answered: the answer broke off")]
    MissingStatus {
        /// Address of the peer.
        peer: String,
    },
    /// Bytes that are not a Flight message.
    #[error("a message cannot be read: {problem}")]
    Malformed {
        /// The defect.
        problem: &'static str,
    },
    /// A message larger than this end accepts.
    #[error("a message of {bytes} bytes is over the limit of {limit_bytes}; send smaller batches")]
    TooLarge {
        /// Size of the message, bytes.
        bytes: u64,
        /// The limit, bytes.
        limit_bytes: u64,
    },
    /// Data whose checksum differs from that of the sender.
    #[error(
        "what {peer} sent does not have its checksum; the network or the memory of a machine changes data, or the peer is another program"
    )]
    Checksum {
        /// Address of the peer.
        peer: String,
    },
    /// Bytes that are not a record batch of the stream's schema.
    #[error("a record batch cannot be read or written")]
    Arrow {
        /// The error of Arrow.
        #[source]
        source: ArrowError,
    },
}

/// Returns the message of a status, or what its code means where the message is empty.
fn status_message(status: &tonic::Status) -> &str {
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
            | FlightError::Io { .. }
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
