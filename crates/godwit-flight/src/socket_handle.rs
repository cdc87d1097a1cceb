//! The TCP socket below a connection, for measurements and send options.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use socket2::SockRef;
use tokio::sync::{Mutex, OwnedMutexGuard};

#[derive(Debug)]
struct SharedSocket {
    descriptor: OwnedFd,
    /// True if a controller has claimed the socket.
    is_control_claimed: AtomicBool,
    /// Held by the sender, among those that take turns.
    send_lock: Arc<Mutex<()>>,
}

/// The owner of the descriptor, for the lifetime of the connection.
#[derive(Debug)]
pub(crate) struct SocketOwner(Option<Arc<SharedSocket>>);

impl SocketOwner {
    /// Duplicates the descriptor of a TCP socket; holds none where the system has none left, since no call depends on it.
    pub(crate) fn new(socket: Option<BorrowedFd<'_>>) -> Self {
        let descriptor = socket.and_then(|socket| socket.try_clone_to_owned().ok());
        let socket = |descriptor| SharedSocket {
            descriptor,
            is_control_claimed: AtomicBool::new(false),
            send_lock: Arc::default(),
        };
        Self(descriptor.map(|descriptor| Arc::new(socket(descriptor))))
    }

    /// Shuts the connection down in both directions; pending reads and writes end at once.
    pub(crate) fn shut_down(&self) {
        if let Some(socket) = &self.0 {
            // A socket that is not connected any more has ended already.
            let _ = SockRef::from(&socket.descriptor).shutdown(std::net::Shutdown::Both);
        }
    }

    pub(crate) fn handle(&self) -> SocketHandle {
        SocketHandle(self.0.as_ref().map(Arc::downgrade))
    }
}

/// A weak handle to the TCP socket of a connection. It does not keep the connection open.
#[derive(Clone, Debug, Default)]
pub struct SocketHandle(Option<Weak<SharedSocket>>);

impl SocketHandle {
    /// Returns the result of `work` on the socket; `None` where the connection is closed, or not TCP.
    pub fn with_fd<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let socket = self.0.as_ref()?.upgrade()?;
        Some(work(socket.descriptor.as_fd()))
    }

    /// Waits until no other sender that takes turns uses this connection; `None` where it is closed, or not TCP.
    pub async fn lock_send(&self) -> Option<OwnedMutexGuard<()>> {
        let turn = self.0.as_ref().and_then(Weak::upgrade)?.send_lock.clone();
        Some(turn.lock_owned().await)
    }

    /// Claims control of how this connection sends; returns `true` to the first caller only.
    pub fn claim_control(&self) -> bool {
        let socket = self.0.as_ref().and_then(Weak::upgrade);
        socket.is_some_and(|socket| !socket.is_control_claimed.swap(true, Ordering::Relaxed))
    }
}
