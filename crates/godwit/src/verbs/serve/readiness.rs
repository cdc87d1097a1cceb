//! Notifications to a service manager: that the server is ready, and that it stops (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variable with the path of the manager's socket.
const NOTIFY_SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// The server accepts connections.
pub(super) const READY: &str = "READY=1";
/// The server accepts no new connections.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Sends a state to the service manager, if there is one. Failures are ignored.
pub(super) fn notify(state: &str) {
    if let Some(socket) = std::env::var_os(NOTIFY_SOCKET_VARIABLE) {
        let _ = send_datagram(&socket, state);
    }
}

fn send_datagram(socket: &OsStr, state: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    // An abstract name (unix(7)) is written with an at sign.
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
