//! Errors of statements that other processes run, and of writing their rows.

use godwit_flight::Status;

/// An error while a statement runs, or while its rows are written.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// The statement failed. The code and the [`ErrorReason`](godwit_flight::ErrorReason) of the status tell why.
    #[error("{}", .0.message())]
    Failed(Box<Status>),
    /// Rows could not be written to the output.
    #[error("the rows cannot be written: {problem}")]
    Output {
        /// Description of the error.
        problem: String,
    },
}

impl From<Status> for StatementError {
    fn from(status: Status) -> Self {
        Self::Failed(Box::new(status))
    }
}
