//! Errors of the Python step.

use godwit_engines::EngineError;
use serde::{Deserialize, Serialize};

use super::ErrorKind;

/// The reason why Python cannot call the function of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonStepRefusal {
    /// The module, or a library that it imports, is missing.
    Missing,
    /// The function does not exist or does not accept a table.
    Usage,
    /// The module raised an exception while it was imported.
    Failed,
}

/// An error of a Python step that ends a job.
#[derive(Debug, thiserror::Error)]
pub enum PythonStepError {
    /// Python found a reason why the function cannot be called.
    #[error("--step {function}: {problem}")]
    Refused {
        /// The Python function, as `MODULE:FUNCTION`.
        function: String,
        /// The class of the reason, which decides the exit code.
        kind: PythonStepRefusal,
        /// The reason, for the error message.
        problem: String,
    },
    /// Python did not start, or ended before it reported the properties of the function.
    #[error("cannot run --step {function}")]
    Python {
        /// The Python function, as `MODULE:FUNCTION`.
        function: String,
        /// The exit status or error of the Python process.
        #[source]
        source: Box<EngineError>,
    },
    /// The function raised an exception.
    #[error("--step {function} failed on partition {partition}: {problem}")]
    Failed {
        /// The Python function, as `MODULE:FUNCTION`.
        function: String,
        /// Number and region of the partition.
        partition: String,
        /// The exception and the line that raised it.
        problem: String,
    },
    /// The function returned a value that cannot be written.
    #[error("--step {function} on partition {partition}: {problem}")]
    Returned {
        /// The Python function, as `MODULE:FUNCTION`.
        function: String,
        /// Number and region of the partition.
        partition: String,
        /// The problem of the returned value.
        problem: String,
    },
    /// The Python process ended while the function ran.
    #[error("--step {function} ended on partition {partition}")]
    Ended {
        /// The Python function, as `MODULE:FUNCTION`.
        function: String,
        /// Number and region of the partition.
        partition: String,
        /// The exit status or error of the Python process.
        #[source]
        source: Box<EngineError>,
    },
}

impl PythonStepError {
    /// Returns the kind of the error, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { kind: PythonStepRefusal::Missing, .. } => ErrorKind::Machine,
            Self::Refused { kind: PythonStepRefusal::Usage, .. } => ErrorKind::Usage,
            Self::Python { source, .. } if matches!(**source, EngineError::NotInstalled { .. }) => ErrorKind::Machine,
            _ => ErrorKind::Engine,
        }
    }

    /// Reports whether every worker of a cluster job would fail with this error.
    pub(crate) fn affects_all_workers(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Returned { .. })
    }
}
