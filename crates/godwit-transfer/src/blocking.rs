//! Blocking work of asynchronous code.

use crate::error::TransferError;

/// Runs blocking work on a thread where it does not block the async runtime.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TransferError> + Send + 'static,
) -> Result<T, TransferError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(TransferError::Internal { problem: error.to_string() }))
}
