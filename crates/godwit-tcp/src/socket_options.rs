//! Options of TCP sockets that neither tokio nor socket2 supports.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use socket2::SockRef;

/// Statistics of a TCP connection, from `struct tcp_info` (linux/tcp.h, 5.15).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time, microseconds.
    pub rtt_us: u32,
    /// Mean deviation of the round-trip time, microseconds.
    pub rtt_deviation_us: u32,
    /// Minimum of the round-trip time over the last minutes, microseconds; 0 if it is unknown.
    pub min_rtt_us: u32,
    /// Number of segments that this host has retransmitted.
    pub retransmits: u32,
    /// Congestion window, segments.
    pub congestion_window_segments: u32,
    /// Size of a segment, bytes.
    pub max_segment_bytes: u32,
    /// Number of sent bytes that the other end has acknowledged.
    pub acknowledged_bytes: u64,
    /// Number of bytes received.
    pub received_bytes: u64,
    /// Delivery rate that the kernel measured last, bytes per second.
    pub delivery_bytes_per_s: u64,
}

/// Returns the name of the congestion control that a socket uses.
///
/// # Errors
/// [`io::Error`] if `socket` is not a TCP socket.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::net::{TcpListener, TcpStream};
/// use std::os::fd::AsFd as _;
///
/// use godwit_tcp::socket_options::congestion_control;
/// use socket2::SockRef;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// SockRef::from(&stream).set_tcp_congestion(b"reno")?;
/// assert_eq!(congestion_control(stream.as_fd())?, "reno");
/// # Ok(())
/// # }
/// ```
pub fn congestion_control(socket: BorrowedFd<'_>) -> io::Result<String> {
    let name = SockRef::from(&socket).tcp_congestion()?;
    Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned())
}

/// Limits the rate at which the kernel sends data; `u64::MAX` removes the limit. Does not require root.
///
/// # Errors
/// [`io::Error`] if the kernel does not support the pacing of this socket.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::net::{TcpListener, TcpStream};
/// use std::os::fd::AsFd as _;
///
/// use godwit_tcp::socket_options::set_pacing_rate;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// // 100 Mbit/s
/// assert!(set_pacing_rate(stream.as_fd(), 12_500_000).is_ok());
/// # Ok(())
/// # }
/// ```
pub fn set_pacing_rate(socket: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    let value = bytes_per_s.to_ne_bytes();
    // SAFETY: the descriptor is open as long as it is borrowed. The call only reads the bytes of `value`, whose address
    // and length it receives.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the statistics that the kernel keeps of a connection.
///
/// # Errors
/// [`io::Error`] if `socket` is not a TCP socket.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::net::{TcpListener, TcpStream, UdpSocket};
/// use std::os::fd::AsFd as _;
///
/// use godwit_tcp::socket_options::tcp_info;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
/// let info = tcp_info(stream.as_fd())?;
/// assert!(info.max_segment_bytes > 0);
/// assert_eq!(info.received_bytes, 0);
///
/// assert!(tcp_info(UdpSocket::bind("127.0.0.1:0")?.as_fd()).is_err());
/// # Ok(())
/// # }
/// ```
pub fn tcp_info(socket: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    // An older kernel fills fewer bytes; the values that it does not know stay zero.
    let mut bytes = [0_u8; 232];
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the descriptor is open as long as it is borrowed. The kernel writes at most `length` bytes, which is the
    // size of `bytes`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let four = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_ne_bytes(*chunk));
    let eight = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u64::from_ne_bytes(*chunk));
    Ok(TcpInfo {
        max_segment_bytes: four(16),
        rtt_us: four(68),
        rtt_deviation_us: four(72),
        congestion_window_segments: four(80),
        retransmits: four(100),
        acknowledged_bytes: eight(120),
        received_bytes: eight(128),
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
    fn tcp_info_reports_what_a_connection_carried() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        set_pacing_rate(sender.as_fd(), 1 << 30).unwrap();
        SockRef::from(&sender).set_send_buffer_size(1 << 20).unwrap();
        let mut received = vec![0; 100_000];
        sender.write_all(&vec![7; 100_000]).unwrap();
        receiver.read_exact(&mut received).unwrap();
        receiver.write_all(b"!").unwrap();
        sender.read_exact(&mut received[..1]).unwrap();
        let info = tcp_info(sender.as_fd()).unwrap();
        assert!(info.acknowledged_bytes >= 100_000 && info.rtt_us > 0 && info.max_segment_bytes > 500, "{info:?}");
        let runs = congestion_control(sender.as_fd()).unwrap();
        SockRef::from(&sender).set_tcp_congestion(b"reno").unwrap();
        assert_eq!(info.received_bytes, 1);
        assert!(!runs.is_empty() && congestion_control(sender.as_fd()).unwrap() == "reno");
        assert!(SockRef::from(&sender).set_tcp_congestion(b"nonesuch").is_err());
    }
}
