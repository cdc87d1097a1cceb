//! Errors of the htsget service, with the error names of the specification.

use godwit_dataset::DatasetError;
use godwit_model::message_with_causes;
use http::StatusCode;

use crate::http_request::TaskPanic;

/// An error of the htsget service (htsget 1.3, "Error Response").
#[derive(Debug, thiserror::Error)]
pub(super) enum HtsgetError {
    /// The client is not authenticated.
    #[error("{problem}")]
    InvalidAuthentication {
        /// Description of the reason, and of the remedy.
        problem: String,
    },
    /// The principal has no access to the dataset.
    #[error("{problem}")]
    PermissionDenied {
        /// Description of the reason, and of the remedy.
        problem: String,
    },
    /// The dataset does not exist, or is hidden from the principal.
    #[error("{problem}")]
    NotFound {
        /// Description of the missing dataset, contig or endpoint.
        problem: String,
    },
    /// The request exceeds a limit.
    #[error("{problem}")]
    PayloadTooLarge {
        /// Description of the limit that was exceeded.
        problem: String,
    },
    /// The dataset does not exist in the requested format.
    #[error("{problem}")]
    UnsupportedFormat {
        /// Description of the problem, with the actual format.
        problem: String,
    },
    /// A parameter of the request is invalid.
    #[error("{problem}")]
    InvalidInput {
        /// Description of the invalid parameter.
        problem: String,
    },
    /// A requested range is invalid.
    #[error("{problem}")]
    InvalidRange {
        /// Description of the invalid range.
        problem: String,
    },
    /// The file is damaged.
    #[error("{problem}")]
    CorruptFile {
        /// Name of the file and description of the damage.
        problem: String,
    },
    /// The server, or an object store that it needs, cannot read the file.
    #[error("{problem}")]
    Unavailable {
        /// Description of the failure.
        problem: String,
    },
}

impl HtsgetError {
    /// Returns the error name in the response, and the HTTP status. The specification defines no name for failures of
    /// the server.
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
