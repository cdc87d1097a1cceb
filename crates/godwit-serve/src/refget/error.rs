//! Errors of refget.

use godwit_flight::DatasetError;
use godwit_formats::message_with_causes;
use http::StatusCode;

use crate::http_service::TaskPanic;

/// An error response (refget 2.0, "Errors").
#[derive(Debug, thiserror::Error)]
pub(super) enum RefgetError {
    /// The request is not authenticated.
    #[error("{problem}")]
    Unauthenticated {
        /// Reason, and how to fix it.
        problem: String,
    },
    /// The principal is not authorized.
    #[error("{problem}")]
    Forbidden {
        /// Reason.
        problem: String,
    },
    /// No sequence has the digest, or none that the principal may see.
    #[error("no sequence here has the digest {id:?}")]
    NotFound {
        /// Requested digest.
        id: String,
    },
    /// The parameters are invalid.
    #[error("{problem}")]
    BadRequest {
        /// Description of the error.
        problem: String,
    },
    /// The method is neither `GET` nor `HEAD`.
    #[error("sequences are read with GET")]
    MethodNotAllowed,
    /// The client accepts no available media type.
    #[error("answers are of the type {media_type}")]
    NotAcceptable {
        /// Available media type.
        media_type: &'static str,
    },
    /// The requested bases are beyond the end of the sequence.
    #[error("the sequence has {bases} letters, and not those")]
    RangeNotSatisfiable {
        /// Length of the sequence in bases.
        bases: u64,
    },
    /// The requested bases wrap around the end of a circular sequence.
    #[error("the start is behind the end: which sequences are circles is not known here")]
    CircularNotSupported,
    /// The server, or a server that it needs, cannot read the file.
    #[error("{problem}")]
    Unavailable {
        /// Description of the failure.
        problem: String,
    },
}

impl RefgetError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAcceptable { .. } => StatusCode::NOT_ACCEPTABLE,
            Self::RangeNotSatisfiable { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::CircularNotSupported => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<DatasetError> for RefgetError {
    fn from(error: DatasetError) -> Self {
        Self::Unavailable { problem: message_with_causes(&error) }
    }
}

impl From<TaskPanic> for RefgetError {
    fn from(error: TaskPanic) -> Self {
        Self::Unavailable { problem: error.to_string() }
    }
}
