//! Whether a connection has said anything: one that has not holds a place that others want.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frames::PREFACE_BYTES;
use crate::transport::Socket;

/// A socket of a server, that knows whether its client has said the words that every connection begins with (RFC 9113 §3.4). From
/// then on HTTP/2's pings tell who is silent.
#[derive(Debug)]
pub(crate) struct Listened {
    socket: Socket,
    missing_bytes: usize,
    heard: Heard,
}

/// Set once they are said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Returns after some time if nothing was said by then, and never if it was.
    pub(crate) async fn nothing_within(&self, time: Duration) {
        tokio::time::sleep(time).await;
        if self.0.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl Listened {
    pub(crate) fn new(socket: Socket, heard: Heard) -> Self {
        Self { socket, missing_bytes: PREFACE_BYTES, heard }
    }
}

impl AsyncRead for Listened {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, space);
        if self.missing_bytes > 0 {
            self.missing_bytes = self.missing_bytes.saturating_sub(space.filled().len() - before);
            self.heard.0.store(self.missing_bytes == 0, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Listened {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
