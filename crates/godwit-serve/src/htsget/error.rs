//! Errors of htsget, with the names of the specification.

use godwit_flight::DatasetError;
use godwit_formats::message_with_causes;
use http::StatusCode;

use crate::http_service::TaskPanic;

/// An error response (htsget 1.3, "Error Response").
#[derive(Debug, thiserror::Error)]
pub(super) enum HtsgetError {
    /// The request is not authenticated.
    #[error("{problem}")]
    InvalidAuthentication {
        /// Reason, and how to fix it.
        problem: String,
    },
    /// The principal is not authorized.
    #[error("{problem}")]
    PermissionDenied {
        /// Reason, and how to fix it.
        problem: String,
    },
    /// The dataset does not exist, or is hidden from the principal.
    #[error("{problem}")]
    NotFound {
        /// Description of what is missing.
        problem: String,
    },
    /// The request exceeds a limit.
    #[error("{problem}")]
    PayloadTooLarge {
        /// Description with the limit.
        problem: String,
    },
    /// The dataset is not available in that format.
    #[error("{problem}")]
    UnsupportedFormat {
        /// Description with its format.
        problem: String,
    },
    /// The parameters are invalid.
    #[error("{problem}")]
    InvalidInput {
        /// Description of the error.
        problem: String,
    },
    /// The range is invalid.
    #[error("{problem}")]
    InvalidRange {
        /// Description of the error.
        problem: String,
    },
    /// The file is damaged.
    #[error("{problem}")]
    CorruptFile {
        /// The file, and the damage.
        problem: String,
    },
    /// The server, or a server that it needs, cannot read the file.
    #[error("{problem}")]
    Unavailable {
        /// Description of the failure.
        problem: String,
    },
}

impl HtsgetError {
    /// Returns error name and HTTP status. The specification has no name for errors of the server.
    pub(super) fn name_and_status(&self) -> (&'static str, StatusCode) {
        match self {
            Self::InvalidAuthentication { .. } => ("InvalidAuthentication", StatusCode::UNAUTHORIZED),
            Self::PermissionDenied { .. } => ("PermissionDenied", StatusCode::FORBIDDEN),
            Self::NotFound { .. } => ("NotFound", StatusCode::NOT_FOUND),
            Self::PayloadTooLarge { .. } => ("PayloadTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
            Self::UnsupportedFormat { .. } => ("UnsupportedFormat", StatusCode::BAD_REQUEST),
            Self::InvalidInput { .. } => ("InvalidInput", StatusCode::BAD_REQUEST),
            Self::InvalidRange { .. } => ("InvalidRange", StatusCode::BAD_REQUEST),
            Self::CorruptFile { .. } => ("InternalError", StatusCode::INTERNAL_SERVER_ERROR),
            Self::Unavailable { .. } => ("Unavailable", StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    pub(super) fn invalid_input(problem: impl Into<String>) -> Self {
        Self::InvalidInput { problem: problem.into() }
    }
}

impl From<DatasetError> for HtsgetError {
    fn from(error: DatasetError) -> Self {
        let problem = message_with_causes(&error);
        match error {
            DatasetError::NotFound { .. } => Self::NotFound { problem },
            DatasetError::InvalidRequest { .. } | DatasetError::AlreadyExists { .. } => Self::InvalidInput { problem },
            DatasetError::Forbidden { .. } | DatasetError::Changed { .. } => Self::PermissionDenied { problem },
            DatasetError::Data(_) => Self::CorruptFile { problem },
            DatasetError::Remote(_) | DatasetError::Local(_) => Self::Unavailable { problem },
        }
    }
}

impl From<TaskPanic> for HtsgetError {
    fn from(error: TaskPanic) -> Self {
        Self::CorruptFile { problem: error.to_string() }
    }
}
