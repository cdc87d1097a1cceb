//! Handles of Tokio tasks that abort their task when they are dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

/// The handle of a Tokio task; dropping the handle aborts the task.
#[derive(Debug)]
pub(crate) struct AbortOnDropTask<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDropTask<T> {
    /// Spawns the future as a task on the current Tokio runtime.
    pub(crate) fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for AbortOnDropTask<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDropTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
