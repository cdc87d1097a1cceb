//! Errors of Flight connections and calls.

use arrow_schema::ArrowError;

/// An error of a client or a server.
///
/// # Examples
///
/// The status with which a server reports an error:
///
/// ```
/// use godwit_flight::{Code, FlightError, Status};
///
/// let error = FlightError::TooLarge { bytes: 2048, limit_bytes: 1024 };
/// let status = Status::from(error);
/// assert_eq!(status.code(), Code::ResourceExhausted);
/// assert!(status.message().contains("2048 bytes"));
/// ```
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The client could not connect to a server.
    #[error("cannot connect to {address}; check the address, and that a server is running")]
    Connect {
        /// Address of the server.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The server could not bind its address.
    #[error("cannot listen on {address}; choose another address, or stop the process that uses it")]
    Listen {
        /// The address that the server could not bind.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// An established connection failed, or the peer does not support HTTP/2.
    #[error("the connection to {peer} failed")]
    Connection {
        /// Address of the peer.
        peer: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// Reading from or writing to the socket failed.
    #[error("the connection to {peer} failed")]
    Io {
        /// Address of the peer.
        peer: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The peer ended the call with an error status. The status is not marked as `source` because its display text
    /// would repeat the message with code and metadata.
    #[error("{peer} rejected the call: {}", status_message(status))]
    Status {
        /// Address of the peer.
        peer: String,
        /// The status of the call.
        status: Box<tonic::Status>,
    },
    /// The response ended without a gRPC status: the server, or a proxy, stopped before the end of the response.
    #[error("the response of {peer} ended without a gRPC status")]
    MissingStatus {
        /// Address of the peer.
        peer: String,
    },
    /// The peer sent bytes that are not a valid Flight message.
    #[error("invalid message: {problem}")]
    Malformed {
        /// The reason why the message is invalid.
        problem: &'static str,
    },
    /// The peer sent a message that is larger than the limit of this process.
    #[error("a message of {bytes} bytes is over the limit of {limit_bytes}; send smaller batches")]
    TooLarge {
        /// Size of the message, bytes.
        bytes: u64,
        /// Largest accepted message, bytes.
        limit_bytes: u64,
    },
    /// The checksum of received data differs from the checksum that the sender computed.
    #[error(
        "data from {peer} do not match their checksum; the network or the memory of a host corrupts data, or the peer \
         is not a godwit server"
    )]
    Checksum {
        /// Address of the peer.
        peer: String,
    },
    /// A record batch or schema could not be encoded, or received bytes are not a record batch of the announced schema.
    #[error("a record batch cannot be decoded or encoded")]
    Arrow {
        /// The error that the Arrow library returned.
        #[source]
        source: ArrowError,
    },
}

/// Returns the message of a status, or the description of its code if the message is empty.
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
