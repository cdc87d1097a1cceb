//! Errors of Flight connections and calls.

use arrow_schema::ArrowError;
use godwit_dataset::{AuthError, DatasetError};
use godwit_model::message_with_causes;
use tonic::{Code, Status};

use crate::error_reason::ErrorReason;

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
    /// The client does not trust the certificate of the server: no authority that it knows signed the certificate, or
    /// the certificate has another name or has expired.
    #[error("the certificate of {address} is not trusted; name the certificate of its authority with --ca")]
    UntrustedCertificate {
        /// Address of the server.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The server accepts only TLS, and the client connected without it.
    #[error("the server at {address} accepts only TLS; name it as grpc+tls:// in place of grpc+tcp://")]
    TlsRequired {
        /// Address of the server.
        address: String,
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
        status: Box<Status>,
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
    /// A value of the client does not fit the parameters of the statement.
    #[error("{problem}")]
    Parameter {
        /// The reason why the value does not fit.
        problem: String,
    },
    /// A record batch or schema could not be encoded, or received bytes are not a record batch of the announced schema.
    #[error("a record batch cannot be decoded or encoded")]
    Arrow {
        /// The error that the Arrow library returned.
        #[source]
        source: ArrowError,
    },
}

impl FlightError {
    /// Returns whether the server is lost or stopping, and did not reject the client.
    pub(crate) fn is_server_lost(&self) -> bool {
        match self {
            // `InvalidData` means that the peer does not use TLS, for which another attempt would not help.
            Self::Connect { source, .. } => source.kind() != std::io::ErrorKind::InvalidData,
            Self::Connection { .. } | Self::Io { .. } | Self::MissingStatus { .. } => true,
            Self::Status { status, .. } => status.code() == Code::Unavailable,
            _ => false,
        }
    }
}

/// Returns the message of a status, or the description of its code if the message is empty.
fn status_message(status: &Status) -> &str {
    if status.message().is_empty() { status.code().description() } else { status.message() }
}

impl From<ArrowError> for FlightError {
    fn from(source: ArrowError) -> Self {
        Self::Arrow { source }
    }
}

impl From<FlightError> for Status {
    fn from(error: FlightError) -> Self {
        match error {
            FlightError::Status { status, .. } => *status,
            FlightError::Malformed { .. } | FlightError::Arrow { .. } | FlightError::Parameter { .. } => {
                Self::invalid_argument(error.to_string())
            }
            FlightError::TooLarge { .. } => Self::resource_exhausted(error.to_string()),
            FlightError::Checksum { .. } => Self::data_loss(error.to_string()),
            FlightError::Connect { .. }
            | FlightError::UntrustedCertificate { .. }
            | FlightError::TlsRequired { .. }
            | FlightError::Listen { .. }
            | FlightError::Connection { .. }
            | FlightError::Io { .. }
            | FlightError::MissingStatus { .. } => Self::unavailable(error.to_string()),
        }
    }
}

/// Returns the status that a client receives for an error of a dataset.
///
/// # Examples
///
/// ```
/// use godwit_dataset::DatasetError;
/// use godwit_flight::{Code, ErrorReason, dataset_status};
///
/// let status = dataset_status(DatasetError::NotFound { name: "a.bam".to_owned() });
/// assert_eq!(status.code(), Code::NotFound);
/// assert_eq!(ErrorReason::of(&status), Some(ErrorReason::DatasetNotFound));
/// ```
pub fn dataset_status(error: DatasetError) -> Status {
    let text = message_with_causes(&error);
    match error {
        DatasetError::NotFound { .. } => ErrorReason::DatasetNotFound.status(Code::NotFound, text),
        DatasetError::InvalidRequest { .. } => Status::invalid_argument(text),
        DatasetError::Forbidden { .. } => Status::permission_denied(text),
        DatasetError::AlreadyExists { .. } => Status::already_exists(text),
        DatasetError::Changed { .. } => ErrorReason::DatasetChanged.status(Code::FailedPrecondition, text),
        DatasetError::Data(_) => Status::data_loss(text),
        DatasetError::Remote(_) => ErrorReason::SourceUnavailable.status(Code::Unavailable, text),
        DatasetError::Local(_) => Status::unavailable(text),
    }
}

/// Returns the status that a client receives for a call that is not authenticated.
pub(crate) fn auth_status(error: AuthError) -> Status {
    match error {
        AuthError::Unauthenticated { problem } => Status::unauthenticated(problem),
        AuthError::Forbidden { problem } => Status::permission_denied(problem),
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
