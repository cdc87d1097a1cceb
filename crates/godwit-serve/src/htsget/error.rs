//! What keeps somebody from getting a ticket, as the specification names it.

use godwit_flight::DatasetError;
use godwit_formats::with_causes;
use http::StatusCode;

use crate::pages::BrokenWork;

/// Why there is no answer (htsget 1.3, "Error Response").
#[derive(Debug, thiserror::Error)]
pub(super) enum HtsgetError {
    /// Nobody is known who asks so.
    #[error("{problem}")]
    InvalidAuthentication {
        /// Why, and what to do.
        problem: String,
    },
    /// Whoever asks may not have it.
    #[error("{problem}")]
    PermissionDenied {
        /// Why, and what to do.
        problem: String,
    },
    /// There is nothing of that name, or nothing that may be seen.
    #[error("{problem}")]
    NotFound {
        /// What.
        problem: String,
    },
    /// More is asked for than is taken at a time.
    #[error("{problem}")]
    PayloadTooLarge {
        /// How much may be asked for.
        problem: String,
    },
    /// It is not had in that format.
    #[error("{problem}")]
    UnsupportedFormat {
        /// In which it is.
        problem: String,
    },
    /// The question is none.
    #[error("{problem}")]
    InvalidInput {
        /// What is wrong.
        problem: String,
    },
    /// The range is none.
    #[error("{problem}")]
    InvalidRange {
        /// What is wrong.
        problem: String,
    },
    /// The file is damaged.
    #[error("{problem}")]
    Damaged {
        /// Which, and how.
        problem: String,
    },
    /// This machine, or one that it needs, keeps it from being read.
    #[error("{problem}")]
    Unavailable {
        /// What.
        problem: String,
    },
}

impl HtsgetError {
    /// Its name and code. The specification has none for what is wrong with a server.
    pub(super) fn kind(&self) -> (&'static str, StatusCode) {
        match self {
            Self::InvalidAuthentication { .. } => ("InvalidAuthentication", StatusCode::UNAUTHORIZED),
            Self::PermissionDenied { .. } => ("PermissionDenied", StatusCode::FORBIDDEN),
            Self::NotFound { .. } => ("NotFound", StatusCode::NOT_FOUND),
            Self::PayloadTooLarge { .. } => ("PayloadTooLarge", StatusCode::PAYLOAD_TOO_LARGE),
            Self::UnsupportedFormat { .. } => ("UnsupportedFormat", StatusCode::BAD_REQUEST),
            Self::InvalidInput { .. } => ("InvalidInput", StatusCode::BAD_REQUEST),
            Self::InvalidRange { .. } => ("InvalidRange", StatusCode::BAD_REQUEST),
            Self::Damaged { .. } => ("InternalError", StatusCode::INTERNAL_SERVER_ERROR),
            Self::Unavailable { .. } => ("Unavailable", StatusCode::SERVICE_UNAVAILABLE),
        }
    }

    pub(super) fn input(problem: impl Into<String>) -> Self {
        Self::InvalidInput { problem: problem.into() }
    }
}

impl From<DatasetError> for HtsgetError {
    fn from(error: DatasetError) -> Self {
        let problem = with_causes(&error);
        match error {
            DatasetError::NotFound { .. } => Self::NotFound { problem },
            DatasetError::Refused { .. } | DatasetError::AlreadyThere { .. } => Self::InvalidInput { problem },
            DatasetError::Forbidden { .. } | DatasetError::Changed { .. } => Self::PermissionDenied { problem },
            DatasetError::Data(_) => Self::Damaged { problem },
            DatasetError::Remote(_) | DatasetError::Machine(_) => Self::Unavailable { problem },
        }
    }
}

impl From<BrokenWork> for HtsgetError {
    fn from(error: BrokenWork) -> Self {
        Self::Damaged { problem: error.to_string() }
    }
}
