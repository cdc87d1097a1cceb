//! Options of TCP sockets that neither tokio nor socket2 has.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// What the kernel knows of a connection, of `struct tcp_info` (linux/tcp.h, 5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// The least that was seen in a while, microseconds; 0 where nothing was.
    pub min_rtt_us: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Segments under way, at most.
    pub window_segments: u32,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// Bytes that the other end has.
    pub acknowledged_bytes: u64,
    /// Bytes a second that arrived lately.
    pub delivery_bytes_per_s: u64,
}

/// Sets an option whose value is bytes.
fn set(socket: BorrowedFd<'_>, level: i32, option: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed; address and length are those of `value`, which is only read.
    let done = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Fills `value`; returns how many bytes of it.
fn get(socket: BorrowedFd<'_>, level: i32, option: i32, value: &mut [u8]) -> io::Result<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed; the kernel writes at most `length` bytes, which `value` has, and
    // then says in `length` how many.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, value.as_mut_ptr().cast(), &raw mut length) };
    if done == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

/// Chooses the congestion control, where the kernel has it and lets this user.
///
/// # Errors
/// `NotFound` where it does not have it, `PermissionDenied` where it does not let.
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// The congestion control that really runs.
///
/// # Errors
/// Where the socket is none of TCP.
pub fn congestion_control(socket: BorrowedFd<'_>) -> io::Result<String> {
    let mut name = [0; 16];
    let length = get(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name)?;
    let name = name.get(..length).unwrap_or_default();
    Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
}

/// Limits the rate that the kernel sends with; `u64::MAX` for none. Without root.
///
/// # Errors
/// Where the kernel does not pace.
pub fn set_pacing_rate(socket: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())
}

/// Sets the bytes that may wait to be sent; the kernel doubles them for its own bookkeeping, and stops adapting them.
///
/// # Errors
/// Where the socket is closed.
pub fn set_send_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes.to_ne_bytes())
}

/// What the kernel knows of a connection.
///
/// # Errors
/// Where the socket is none of TCP.
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // An older kernel fills less: zeros stand for what it does not know.
    let mut bytes = [0; 232];
    get(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    let four = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_ne_bytes(*chunk));
    let eight = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from_ne_bytes(*chunk));
    Ok(TcpInfo {
        segment_bytes: four(16),
        rtt_us: four(68),
        window_segments: four(80),
        retransmits: four(100),
        acknowledged_bytes: eight(120),
        min_rtt_us: four(148),
        delivery_bytes_per_s: eight(160),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_connection_tells_what_went_over_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        set_pacing_rate(sender.as_fd(), 1 << 30).unwrap();
        set_send_buffer(sender.as_fd(), 1 << 20).unwrap();
        let mut heard = vec![0; 100_000];
        sender.write_all(&vec![7; 100_000]).unwrap();
        receiver.read_exact(&mut heard).unwrap();
        receiver.write_all(b"!").unwrap();
        sender.read_exact(&mut heard[..1]).unwrap();
        let info = tcp_info(sender.as_fd()).unwrap();
        assert!(info.acknowledged_bytes >= 100_000 && info.rtt_us > 0 && info.segment_bytes > 500, "{info:?}");
        let runs = congestion_control(sender.as_fd()).unwrap();
        set_congestion_control(sender.as_fd(), "reno").unwrap();
        assert!(!runs.is_empty() && congestion_control(sender.as_fd()).unwrap() == "reno");
        assert!(set_congestion_control(sender.as_fd(), "nonesuch").is_err());
    }
}
