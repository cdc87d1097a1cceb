//! Notifies a service manager such as systemd when the server is ready and when it stops (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Environment variable with the path of the service manager's socket.
const NOTIFY_SOCKET_VARIABLE: &str = "NOTIFY_SOCKET";
/// State to send when the server accepts connections.
pub const READY: &str = "READY=1";
/// State to send when the server no longer accepts connections.
pub const STOPPING: &str = "STOPPING=1";

/// Sends a state to the service manager, if there is one. Errors are ignored.
pub fn notify(state: &str) {
    if let Some(socket) = std::env::var_os(NOTIFY_SOCKET_VARIABLE) {
        let _ = send_datagram(&socket, state);
    }
}

fn send_datagram(socket: &OsStr, state: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    // A name that starts with `@` stands for an abstract socket address (unix(7)).
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
