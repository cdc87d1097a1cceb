//! The transport below Flight for clients and servers: addresses, sockets, HTTP/2 options, keep-alive, and the token.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use godwit_auth::Token;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::error::FlightError;
use crate::frame_tracker::FrameTracker;
use crate::low_water::set_receive_low_water;
use crate::tls::{ClientTls, ServerTls, TlsSocket};

/// The address of a server.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_flight::Address;
///
/// let tcp = Address::Tcp("127.0.0.1:8815".parse()?);
/// assert_eq!(tcp.to_string(), "127.0.0.1:8815");
/// let unix = Address::Unix("/run/godwit/socket".into());
/// assert_eq!(unix.to_string(), "unix:/run/godwit/socket");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A TCP address, as IP address and port.
    Tcp(SocketAddr),
    /// The path of a Unix socket, for processes of one host.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Limits that a server applies to each principal separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallLimits {
    /// Maximum number of concurrent calls; `None`: no limit.
    pub concurrent_calls: Option<u32>,
    /// Maximum bytes of responses per second, over all calls of the principal; `None`: no limit.
    pub bytes_per_s: Option<u64>,
}

/// Sizes and timeouts of connections.
///
/// The defaults gave the highest throughput in measurements on loopback. Frames of 16 KiB, the default of HTTP/2, wake
/// the receiver 64 times per MiB. Windows over 16 MiB and Unix buffers over 1 MiB exceed the CPU cache; smaller windows
/// and buffers make the sender wait.
///
/// # Examples
///
/// A client that rejects large messages:
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::measure::WorkloadDataPlane;
/// # use godwit_flight::{Address, Client, ConnectionSecurity, Routes, Server};
/// use godwit_flight::{FlightError, TransportOptions};
///
/// # let (data, security) = (WorkloadDataPlane::default(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
/// let options = TransportOptions { message_limit_bytes: 10_000, ..TransportOptions::default() };
/// let client = Client::connect(&address, ConnectionSecurity::default(), options).await?;
/// // A batch of 80,000 bytes.
/// let mut batches = client.download("fixed/1/10000/80000/0/1").await?;
/// assert!(matches!(batches.next().await, Err(FlightError::TooLarge { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Maximum size of an HTTP/2 frame, bytes.
    pub frame_bytes: u32,
    /// HTTP/2 flow control window of one stream (call), bytes.
    pub stream_window_bytes: u32,
    /// HTTP/2 flow control window of all calls of a connection together, bytes.
    pub connection_window_bytes: u32,
    /// Send buffer of a Unix socket, bytes. The kernel adapts the buffers of TCP sockets itself.
    pub unix_buffer_bytes: usize,
    /// Largest accepted gRPC message, bytes.
    pub message_limit_bytes: u64,
    /// Time without received data after which an HTTP/2 ping is sent.
    pub keep_alive_interval: Duration,
    /// Time limit for the response to a ping, after which the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Time limit for establishing a connection; at a server, for the TLS handshake and the first bytes of a client.
    pub connect_timeout: Duration,
    /// Maximum number of open connections of a server; further connections are closed at once.
    pub max_connections: usize,
    /// Maximum number of concurrent calls on a connection of a server; the client delays further calls (HTTP/2
    /// streams).
    pub max_calls_per_connection: u32,
    /// Limits that a server applies to the calls of each principal.
    pub call_limits: CallLimits,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            frame_bytes: 1 << 20,
            stream_window_bytes: 8 << 20,
            connection_window_bytes: 16 << 20,
            unix_buffer_bytes: 1 << 20,
            message_limit_bytes: 1 << 30,
            keep_alive_interval: Duration::from_secs(2),
            keep_alive_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(10),
            max_connections: usize::MAX,
            max_calls_per_connection: 256,
            call_limits: CallLimits::default(),
        }
    }
}

/// Configures hyper's HTTP/2 builder of a client or a server. This is a macro because the builders are two types
/// without a common trait.
macro_rules! configure_http2 {
    ($builder:expr, $tuning:expr) => {{
        let (mut builder, tuning) = ($builder, &$tuning);
        builder
            .timer(hyper_util::rt::TokioTimer::new())
            .max_frame_size(tuning.frame_bytes)
            .initial_stream_window_size(tuning.stream_window_bytes)
            .initial_connection_window_size(tuning.connection_window_bytes)
            .max_send_buf_size(2 * tuning.frame_bytes as usize)
            .keep_alive_interval(tuning.keep_alive_interval)
            .keep_alive_timeout(tuning.keep_alive_timeout);
        builder
    }};
}
pub(crate) use configure_http2;

/// Token and encryption of a connection: `T` is [`ServerTls`] or [`ClientTls`].
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use godwit_flight::measure::WorkloadDataPlane;
/// # use godwit_flight::{Address, Client, Code, FlightError, Routes, Server, TransportOptions};
/// use godwit_auth::Token;
/// use godwit_flight::ConnectionSecurity;
///
/// # let (data, any_port) = (WorkloadDataPlane::default(), Address::Tcp("127.0.0.1:0".parse()?));
/// let token = Token::random();
/// let security = ConnectionSecurity { token: Some(token.clone()), tls: None };
/// let server = Server::bind(&any_port, data, Routes::default(), security, TransportOptions::default()).await?;
/// # let address = server.address().clone();
/// # tokio::spawn(server.serve());
///
/// let security = ConnectionSecurity { token: Some(token), tls: None };
/// let client = Client::connect(&address, security, TransportOptions::default()).await?;
/// assert!(client.download("fixed/1/100/800/0/1").await.is_ok());
///
/// let client = Client::connect(&address, ConnectionSecurity::default(), TransportOptions::default()).await?;
/// let rejected = client.download("fixed/1/100/800/0/1").await;
/// assert!(matches!(rejected, Err(FlightError::Status { status, .. }) if status.code() == Code::Unauthenticated));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConnectionSecurity<T> {
    /// The token that a server requires or a client sends; `None`: no authentication.
    pub token: Option<Token>,
    /// TLS certificates and keys; `None`: no encryption. Connections over Unix sockets are never encrypted.
    pub tls: Option<T>,
}

impl<T> Default for ConnectionSecurity<T> {
    /// Returns the settings without token and encryption.
    fn default() -> Self {
        Self { token: None, tls: None }
    }
}

/// Maximum number of received bytes for which the kernel delays waking a reader: one frame of the default size. Waking
/// once per frame instead of every 64 KiB saved 20 % of the CPU time of client and server on loopback; 256 and 512 KiB
/// saved 10 %.
const MAX_WAKE_BYTES: usize = 1 << 20;

/// Maximum number of connections that wait to be accepted; the kernel may limit it further. If the queue is full, the
/// kernel of a client retries after one second and then at growing intervals. The common value 128 delayed clients that
/// long during bursts of connections.
const LISTEN_BACKLOG: i32 = 4096;

/// Maximum number of unsent bytes in a TCP socket of a server; more data stay in the queues of HTTP/2. Without this
/// limit, 1000 clients that did not read left up to 4 MiB each in sockets, which exhausted the TCP memory of the kernel
/// and slowed down every connection.
const TCP_NOTSENT_LOWAT_BYTES: u32 = 256 << 10;

/// The listening socket of a server.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds an address; port 0 selects a free port. Returns the listener and its actual address.
    pub(crate) async fn bind(bind_address: &Address) -> Result<(Self, Address), FlightError> {
        let failed = |source| FlightError::Listen { address: bind_address.to_string(), source };
        match bind_address {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                SockRef::from(&listener).listen(LISTEN_BACKLOG).map_err(failed)?;
                let taken = listener.local_addr().map_err(failed)?;
                Ok((Self::Tcp(listener), Address::Tcp(taken)))
            }
            Address::Unix(path) => Ok((Self::Unix(UnixListener::bind(path).map_err(failed)?), bind_address.clone())),
        }
    }

    /// Accepts the next connection. After a failure, waits 10 ms and returns `None`; the caller should try again.
    pub(crate) async fn accept(&self, options: &TransportOptions) -> Option<Socket> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().await.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_notsent_lowat(TCP_NOTSENT_LOWAT_BYTES)?;
                Ok(Socket::Tcp(stream))
            }),
            Self::Unix(listener) => listener.accept().await.and_then(|(stream, _)| Socket::from_unix(stream, options)),
        };
        if accepted.is_err() {
            // The client has disconnected already, or this process has no free file descriptors. Either may be over
            // soon.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        accepted.ok()
    }
}

/// Delay before a second, parallel connection attempt to the same address. RFC 8305 recommends the same delay before an
/// attempt to the next address.
const SECOND_CONNECT_DELAY: Duration = Duration::from_millis(250);

/// Connects to an address. If the first packet is lost, TCP repeats it only after one second (RFC 6298). A second
/// attempt after [`SECOND_CONNECT_DELAY`] avoids this delay; if the round trip is just long, the attempt costs little.
async fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let mut first = std::pin::pin!(TcpStream::connect(address));
    if let Ok(connected) = tokio::time::timeout(SECOND_CONNECT_DELAY, &mut first).await {
        return connected;
    }
    tokio::select! {
        connected = &mut first => connected,
        Ok(connected) = TcpStream::connect(address) => Ok(connected),
    }
}

/// A connection over TCP, TLS or a Unix socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// TCP with HTTP/2, where the reader wakes once per HTTP/2 frame.
    TcpFramed(FramedTcpStream),
    Tls(Box<TlsSocket>),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) async fn connect(
        address: &Address,
        tls: Option<&ClientTls>,
        options: &TransportOptions,
    ) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let dialled = Instant::now();
                let stream = connect_tcp(*address).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Ok(Self::Tcp(stream)),
                    Some(tls) => Ok(Self::Tls(Box::new(tls.connect(stream, dialled.elapsed()).await?))),
                }
            }
            Address::Unix(path) => Self::from_unix(UnixStream::connect(path).await?, options),
        }
    }

    /// Enlarges the send buffer of a Unix socket; the default of the kernel is smaller than one batch.
    fn from_unix(stream: UnixStream, options: &TransportOptions) -> io::Result<Self> {
        SockRef::from(&stream).set_send_buffer_size(options.unix_buffer_bytes)?;
        Ok(Self::Unix(stream))
    }

    /// Performs the server's side of the TLS handshake if the server has a certificate and the connection uses TCP.
    pub(crate) async fn accept(self, tls: Option<&ServerTls>) -> io::Result<Self> {
        match (self, tls) {
            (Self::Tcp(stream), Some(tls)) => Ok(Self::Tls(Box::new(tls.accept(stream).await?))),
            (socket, _) => Ok(socket),
        }
    }
}

impl Socket {
    /// Returns the file descriptor of the TCP socket; `None` for a Unix socket.
    pub(crate) fn tcp_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => Some(stream.as_fd()),
            Self::Tls(stream) => Some(stream.tcp_fd()),
            Self::Unix(_) => None,
        }
    }

    /// Makes an unencrypted TCP connection wake its reader once per HTTP/2 frame; the next received byte must start a
    /// frame. Leaves TLS connections unchanged, whose frames are encrypted, and Unix sockets, which do not support
    /// this. Sets `tls_alert` if the first received bytes are an alert of TLS.
    pub(crate) fn into_framed(self, tls_alert: Arc<AtomicBool>) -> Self {
        match self {
            Self::Tcp(stream) => Self::TcpFramed(FramedTcpStream {
                stream,
                frame_tracker: FrameTracker::default(),
                wake_bytes: 1,
                has_received: false,
                tls_alert,
            }),
            other => other,
        }
    }
}

/// The beginning of an alert of TLS: its record type and the major version (RFC 8446 §5.1). As a frame of HTTP/2 it would
/// be longer than any server sends.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// A TCP connection whose reader sleeps until a frame is complete.
#[derive(Debug)]
pub(crate) struct FramedTcpStream {
    stream: TcpStream,
    frame_tracker: FrameTracker,
    /// Number of received bytes at which the kernel wakes the reader.
    wake_bytes: usize,
    has_received: bool,
    /// Set if the first received bytes are an alert of TLS.
    tls_alert: Arc<AtomicBool>,
}

impl FramedTcpStream {
    fn poll_read(&mut self, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, space);
        let received = &space.filled()[before..];
        if !self.has_received && !received.is_empty() {
            self.has_received = true;
            self.tls_alert.store(received.starts_with(&TLS_ALERT), Ordering::Relaxed);
        }
        self.frame_tracker.advance(received);
        if polled.is_pending() {
            let wanted = self.frame_tracker.missing_bytes().clamp(1, MAX_WAKE_BYTES);
            if wanted != self.wake_bytes {
                // The kernel compares bytes that arrived since the read above with the new value, so no wake-up is
                // lost.
                set_receive_low_water(&self.stream, wanted)?;
                self.wake_bytes = wanted;
            }
        }
        polled
    }

    /// Passes on the result of a write. If the peer closed the connection before anything was read, looks for an alert
    /// of TLS among the received bytes, which the writer would not read any more.
    fn checked_write(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if !self.has_received && matches!(written, Poll::Ready(Err(_))) {
            let mut received = [MaybeUninit::new(0); TLS_ALERT.len()];
            let count = SockRef::from(&self.stream).peek(&mut received).unwrap_or(0);
            // SAFETY: all bytes are initialized above.
            let received = received.map(|byte| unsafe { byte.assume_init() });
            self.tls_alert.store(received[..count] == TLS_ALERT, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::TcpFramed(framed) => framed.poll_read(context, space),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, space),
            Self::Tls(stream) => stream.poll_read(context, space),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, space),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::TcpFramed(framed) => {
                let written = Pin::new(&mut framed.stream).poll_write(context, bytes);
                framed.checked_write(written)
            }
            Self::Tls(stream) => stream.stream_mut().poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::TcpFramed(framed) => {
                let written = Pin::new(&mut framed.stream).poll_write_vectored(context, pieces);
                framed.checked_write(written)
            }
            Self::Tls(stream) => stream.stream_mut().poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => stream.stream_mut().poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => {
                Pin::new(stream).poll_shutdown(context)
            }
            Self::Tls(stream) => stream.stream_mut().poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Type};

    use super::*;

    #[tokio::test]
    async fn a_lost_first_packet_does_not_keep_a_connection_waiting() {
        // The kernel drops the first packet of a second connection: the backlog is 0 and one connection waits to be
        // accepted.
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let server = std::net::TcpListener::from(socket);
        let address = server.local_addr().unwrap();
        let _waits = std::net::TcpStream::connect(address).unwrap();
        let takes_it = std::thread::spawn(move || {
            std::thread::sleep(SECOND_CONNECT_DELAY / 2);
            (server.accept().unwrap(), server)
        });
        let sooner = tokio::select! {
            dialled = connect_tcp(address) => dialled.is_ok(),
            _ = TcpStream::connect(address) => false,
        };
        assert!(sooner, "it waited as long as TCP alone does");
        drop(takes_it.join());
    }
}
