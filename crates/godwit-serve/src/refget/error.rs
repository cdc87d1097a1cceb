//! Errors of the refget service.

use godwit_dataset::DatasetError;
use godwit_model::message_with_causes;
use http::StatusCode;

use crate::http_request::TaskPanic;

/// An error of the refget service (refget 2.0, "Errors").
#[derive(Debug, thiserror::Error)]
pub(super) enum RefgetError {
    /// The client is not authenticated.
    #[error("{problem}")]
    Unauthenticated {
        /// Description of the reason, and of the remedy.
        problem: String,
    },
    /// The principal has no access to the server.
    #[error("{problem}")]
    Forbidden {
        /// Description of the reason.
        problem: String,
    },
    /// No sequence that the principal may read has the requested digest.
    #[error("no sequence has the digest {id:?}")]
    NotFound {
        /// The requested digest, as the client wrote it.
        id: String,
    },
    /// A parameter of the request is invalid.
    #[error("{problem}")]
    BadRequest {
        /// Description of the invalid parameter.
        problem: String,
    },
    /// The method is neither `GET` nor `HEAD`.
    #[error("only GET is supported for sequences")]
    MethodNotAllowed,
    /// The client accepts none of the media types in which the response is available.
    #[error("the Accept header excludes {media_type}, the media type of responses")]
    NotAcceptable {
        /// The media type in which the response is available.
        media_type: &'static str,
    },
    /// The requested range begins or ends after the end of the sequence.
    #[error("the range is outside the sequence of {bases} bases")]
    RangeNotSatisfiable {
        /// Length of the sequence, bases.
        bases: u64,
    },
    /// The requested range starts after its end, which is valid only for circular sequences. They are not supported.
    #[error("start is greater than end: circular sequences are not supported")]
    CircularNotSupported,
    /// The server cannot read the file that contains the sequence.
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
