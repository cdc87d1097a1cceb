//! What whoever started a server as a service is told: that it is ready, and that it ends (sd_notify(3)).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where it is told, as systemd and others name it.
const SOCKET: &str = "NOTIFY_SOCKET";
/// All is open by now.
pub(super) const READY: &str = "READY=1";
/// Nobody new is let in.
pub(super) const STOPPING: &str = "STOPPING=1";

/// Tells a state, where somebody wants to know. That nobody hears it is no failure of the server.
pub(super) fn told(state: &str) {
    if let Some(socket) = std::env::var_os(SOCKET) {
        let _ = send(&socket, state);
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let name = socket.as_bytes();
    // A name without a file (unix(7), "abstract") is written with an at sign.
    let address = match name.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
