//! Handles to the TCP socket of a connection, for measuring the network and for setting socket options.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use godwit_dataset::Principal;
use socket2::SockRef;
use tokio::sync::{Mutex, OwnedMutexGuard};

#[derive(Debug)]
struct SharedSocket {
    descriptor: OwnedFd,
    /// True if [`SocketHandle::claim_control`] was called.
    is_control_claimed: AtomicBool,
    /// Lock of [`SocketHandle::lock_send`], which one of several senders holds while it sends.
    send_lock: Arc<Mutex<()>>,
}

/// The owner of a duplicated file descriptor of the socket, for the lifetime of the connection.
#[derive(Debug)]
pub(crate) struct SocketOwner(Option<Arc<SharedSocket>>);

impl SocketOwner {
    /// Duplicates the file descriptor of a TCP socket. If the system has no free file descriptor, continues without
    /// one, because calls do not depend on it.
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
            // An error means that the socket is not connected any more.
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
    /// Returns the handle to the socket on which the call of a principal arrived.
    pub fn of_call(principal: &Principal) -> Self {
        principal.extension().cloned().unwrap_or_default()
    }

    /// Calls `work` with the file descriptor of the socket and returns its result; `None` if the connection is closed
    /// or does not use TCP.
    pub fn with_fd<T>(&self, work: impl FnOnce(BorrowedFd<'_>) -> T) -> Option<T> {
        let socket = self.0.as_ref()?.upgrade()?;
        Some(work(socket.descriptor.as_fd()))
    }

    /// Waits until no other caller of this method sends on the connection, and locks it for sending. `None` if the
    /// connection is closed or does not use TCP.
    pub async fn lock_send(&self) -> Option<OwnedMutexGuard<()>> {
        let turn = self.0.as_ref().and_then(Weak::upgrade)?.send_lock.clone();
        Some(turn.lock_owned().await)
    }

    /// Claims the right to set the send options of this connection. Returns `true` only to the first caller.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use godwit_flight::measure::WorkloadDataPlane;
    /// # use godwit_flight::{Address, ConnectionSecurity, Routes, Server, TransportOptions};
    /// # use godwit_flight::{Client, SocketHandle};
    /// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
    /// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
    /// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
    /// # let address = server.address().clone();
    /// # tokio::spawn(server.serve());
    /// let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
    /// assert!(client.socket_handle().claim_control());
    /// assert!(!client.socket_handle().claim_control());
    /// // Without a connection, there is nothing to control.
    /// assert!(!SocketHandle::default().claim_control());
    /// # Ok(())
    /// # }
    /// ```
    pub fn claim_control(&self) -> bool {
        let socket = self.0.as_ref().and_then(Weak::upgrade);
        socket.is_some_and(|socket| !socket.is_control_claimed.swap(true, Ordering::Relaxed))
    }
}
