//! Tasks that are aborted when their handle is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

/// A task that is aborted when this handle is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDropTask<T>(JoinHandle<T>);

impl<T: Send + 'static> AbortOnDropTask<T> {
    /// Spawns the task on the current runtime.
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
