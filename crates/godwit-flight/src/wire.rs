//! The socket below a connection, for whoever measures it or sets how it sends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use socket2::SockRef;
use tokio::sync::{Mutex, OwnedMutexGuard};

#[derive(Debug)]
struct Socket {
    descriptor: OwnedFd,
    /// Whether somebody has begun to steer it.
    is_steered: AtomicBool,
    /// Held by who sends, of those who take turns.
    turn: Arc<Mutex<()>>,
}

/// Owns the descriptor as long as the connection lives.
#[derive(Debug)]
pub(crate) struct WireOwner(Option<Arc<Socket>>);

impl WireOwner {
    /// Of a TCP socket; nothing where the system has no descriptor left, since no call depends on it.
    pub(crate) fn of(socket: Option<BorrowedFd<'_>>) -> Self {
        let descriptor = socket.and_then(|socket| socket.try_clone_to_owned().ok());
        let socket = |descriptor| Socket { descriptor, is_steered: AtomicBool::new(false), turn: Arc::default() };
        Self(descriptor.map(|descriptor| Arc::new(socket(descriptor))))
    }

    /// Ends the connection in both directions, whatever the other end does: who reads or writes is told at once.
    pub(crate) fn shut_down(&self) {
        if let Some(socket) = &self.0 {
            // One that is not connected any more has ended already.
            let _ = SockRef::from(&socket.descriptor).shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn wire(&self) -> Wire {
        Wire(self.0.as_ref().map(Arc::downgrade))
    }
}

/// A TCP connection as its kernel sees it. It does not keep the connection open.
#[derive(Clone, Debug, Default)]
pub struct Wire(Option<Weak<Socket>>);

impl Wire {
    /// What `look` finds on the socket; `None` where the connection is closed, or is none of TCP.
    pub fn with<T>(&self, look: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let socket = self.0.as_ref()?.upgrade()?;
        Some(look(socket.descriptor.as_fd()))
    }

    /// Waits until no other of those who take turns sends on this connection; nobody does where it is closed, or none of TCP.
    pub async fn turn(&self) -> Option<OwnedMutexGuard<()>> {
        let turn = self.0.as_ref().and_then(Weak::upgrade)?.turn.clone();
        Some(turn.lock_owned().await)
    }

    /// Whether nobody has begun to steer this connection, which whoever asks does from now on: `true` once.
    pub fn take_helm(&self) -> bool {
        let socket = self.0.as_ref().and_then(Weak::upgrade);
        socket.is_some_and(|socket| !socket.is_steered.swap(true, Ordering::Relaxed))
    }
}
