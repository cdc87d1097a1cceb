//! What keeps somebody from getting a sequence.

use godwit_flight::DatasetError;
use godwit_formats::with_causes;
use http::StatusCode;

use crate::pages::BrokenWork;

/// Why there is no sequence (refget 2.0, "Errors").
#[derive(Debug, thiserror::Error)]
pub(super) enum RefgetError {
    /// Nobody is known who asks so.
    #[error("{problem}")]
    Unknown {
        /// Why, and what to do.
        problem: String,
    },
    /// Whoever asks may not ask here.
    #[error("{problem}")]
    Forbidden {
        /// Why.
        problem: String,
    },
    /// There is none of that digest, or none that may be seen.
    #[error("no sequence here has the digest {id:?}")]
    NotFound {
        /// The digest.
        id: String,
    },
    /// The question is none.
    #[error("{problem}")]
    Request {
        /// What is wrong.
        problem: String,
    },
    /// Nothing is written with it.
    #[error("sequences are read with GET")]
    Method,
    /// It is not had in that format.
    #[error("answers are of the type {kind}")]
    Medium {
        /// In which it is had.
        kind: &'static str,
    },
    /// Letters that it does not have.
    #[error("the sequence has {bases} letters, and not those")]
    Range {
        /// How many.
        bases: u64,
    },
    /// Letters around the end of a circle.
    #[error("the start is behind the end: which sequences are circles is not known here")]
    Circular,
    /// This machine, or one that it needs, keeps it from being read.
    #[error("{problem}")]
    Unavailable {
        /// What.
        problem: String,
    },
}

impl RefgetError {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Unknown { .. } => StatusCode::UNAUTHORIZED,
            Self::Forbidden { .. } => StatusCode::FORBIDDEN,
            Self::NotFound { .. } => StatusCode::NOT_FOUND,
            Self::Request { .. } => StatusCode::BAD_REQUEST,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Medium { .. } => StatusCode::NOT_ACCEPTABLE,
            Self::Range { .. } => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::Circular => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<DatasetError> for RefgetError {
    fn from(error: DatasetError) -> Self {
        Self::Unavailable { problem: with_causes(&error) }
    }
}

impl From<BrokenWork> for RefgetError {
    fn from(error: BrokenWork) -> Self {
        Self::Unavailable { problem: error.to_string() }
    }
}
