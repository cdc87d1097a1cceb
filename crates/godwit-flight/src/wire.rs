//! The socket below a connection, for whoever measures it or sets how it sends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use socket2::SockRef;

/// Owns the descriptor as long as the connection lives.
#[derive(Debug)]
pub(crate) struct WireOwner(Option<Arc<OwnedFd>>);

impl WireOwner {
    /// Of a TCP socket; nothing where the system has no descriptor left, since no call depends on it.
    pub(crate) fn of(socket: Option<BorrowedFd<'_>>) -> Self {
        Self(socket.and_then(|socket| socket.try_clone_to_owned().ok()).map(Arc::new))
    }

    /// Ends the connection in both directions, whatever the other end does: who reads or writes is told at once.
    pub(crate) fn shut_down(&self) {
        if let Some(socket) = &self.0 {
            // One that is not connected any more has ended already.
            let _ = SockRef::from(&**socket).shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire(self.0.as_ref().map(Arc::downgrade))
    }
}

/// A TCP connection as its kernel sees it. It does not keep the connection open.
#[derive(Clone, Debug, Default)]
pub struct Wire(Option<Weak<OwnedFd>>);

impl Wire {
    /// What `look` finds on the socket; `None` where the connection is closed, or is none of TCP.
    pub fn with<T>(&self, look: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let socket = self.0.as_ref()?.upgrade()?;
        Some(look(socket.as_fd()))
    }
}
