//! The transport below Flight, at both ends: addresses, sockets, HTTP/2's windows and frames, keep-alive, and the token.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::error::FlightError;
use crate::frame_tracker::FrameTracker;
use crate::low_water::set_receive_low_water;
use crate::server::CallLimits;
use crate::sql::random_bytes;
use crate::tls::{ClientTls, ServerTls, TlsSocket};

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket, for processes of one host.
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

/// Sizes and timeouts of connections.
///
/// The defaults are the best of a sweep on loopback: frames of 16 KiB, HTTP/2's own default, wake the receiver 64 times
/// per MiB, and windows over 16 MiB fall out of the cache, as Unix buffers over 1 MiB do; smaller ones make the sender wait.
#[derive(Clone, Debug)]
pub struct TransportOptions {
    /// Most bytes of an HTTP/2 frame.
    pub frame_bytes: u32,
    /// Flow control window of a stream, bytes.
    pub stream_window_bytes: u32,
    /// Flow control window of a connection, bytes.
    pub connection_window_bytes: u32,
    /// Send buffer of a Unix socket, bytes; TCP adapts its own.
    pub unix_buffer_bytes: usize,
    /// Largest accepted message, bytes.
    pub message_limit_bytes: u64,
    /// Silence of a connection before a ping is sent.
    pub keep_alive_interval: Duration,
    /// Time limit for the answer to a ping; then the connection counts as lost.
    pub keep_alive_timeout: Duration,
    /// Time limit for establishing a connection, and for its first bytes.
    pub connect_timeout: Duration,
    /// Most connections of a server; further ones are closed at once.
    pub max_connections: usize,
    /// Most concurrent calls of a connection; HTTP/2 delays others.
    pub max_calls_per_connection: u32,
    /// Limits of each principal at a server.
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

/// Configures hyper's builder of either end of an HTTP/2 connection: two types with methods of the same names.
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

/// The secret of a client, sent as `authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a token of visible ASCII characters; `None` where there are others, or none.
    pub fn new(text: &str) -> Option<Self> {
        let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fine.then(|| Self(text.to_owned()))
    }

    /// Creates a random token.
    pub fn random() -> Self {
        Self(blake3::Hash::from_bytes(random_bytes()).to_hex().to_string())
    }

    /// Returns its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn authorization_header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Reports whether a header value contains this token. Takes the same time for any value of the right length.
    pub(crate) fn matches_header(&self, header: &[u8]) -> bool {
        let expected = self.authorization_header();
        let differing = expected.bytes().zip(header).fold(0, |differing, (one, other)| differing | (one ^ other));
        expected.len() == header.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Token and encryption of a connection: `T` is [`ServerTls`] or [`ClientTls`].
#[derive(Clone)]
pub struct ConnectionSecurity<T> {
    /// The token; `None`: no authentication.
    pub token: Option<Token>,
    /// Encryption; `None`: plain text. Unix sockets are never encrypted.
    pub tls: Option<T>,
}

impl<T> Default for ConnectionSecurity<T> {
    /// Neither token nor encryption.
    fn default() -> Self {
        Self { token: None, tls: None }
    }
}

/// Most bytes that a reader sleeps for: one of our frames. Waking once a frame instead of every 64 KiB saved both ends
/// together a fifth of the CPU time per byte on loopback; 256 and 512 KiB saved half of that.
const MAX_WAKE_BYTES: usize = 1 << 20;

/// Connections that may wait to be accepted; a system may allow fewer. A client that finds the queue full retries a second
/// later, and then at growing intervals: with the usual 128 a burst of connections locked others out for as long.
const LISTEN_BACKLOG: i32 = 4096;

/// Most unsent bytes in a server's socket. The rest waits where flow control sees it: a thousand clients that did not read
/// left up to 4 MiB each in sockets, which used up the system's TCP memory and made every connection slow.
const TCP_NOTSENT_LOWAT_BYTES: u32 = 256 << 10;

/// The listening socket of a server.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds an address and returns the actual one: port 0 is any free port.
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

    /// Accepts the next connection; `None` where that failed: call again.
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
            // The client disconnected at once, or no descriptors are left: others may still be served a little later.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        accepted.ok()
    }
}

/// Delay before a second connection attempt is made in parallel (RFC 8305 uses the same for the next address).
const SECOND_CONNECT_DELAY: Duration = Duration::from_millis(250);

/// Connects. TCP repeats a lost first packet after a second (RFC 6298); a second attempt that starts sooner avoids that
/// delay, and costs little where the round trip is just long.
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

/// A connection of any kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// A connection with HTTP/2.
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

    /// Enlarges the buffer of a Unix socket, whose default is less than one batch.
    fn from_unix(stream: UnixStream, options: &TransportOptions) -> io::Result<Self> {
        SockRef::from(&stream).set_send_buffer_size(options.unix_buffer_bytes)?;
        Ok(Self::Unix(stream))
    }

    /// Performs the server's side of the handshake.
    pub(crate) async fn accept(self, tls: Option<&ServerTls>) -> io::Result<Self> {
        match (self, tls) {
            (Self::Tcp(stream), Some(tls)) => Ok(Self::Tls(Box::new(tls.accept(stream).await?))),
            (socket, _) => Ok(socket),
        }
    }
}

impl Socket {
    /// Returns the descriptor of the TCP socket.
    pub(crate) fn tcp_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => Some(stream.as_fd()),
            Self::Tls(stream) => Some(stream.tcp_fd()),
            Self::Unix(_) => None,
        }
    }

    /// Wakes its reader by whole HTTP/2 frames; the next byte must start a frame. Frames of an encrypted connection are not
    /// visible here, and Unix sockets have no such option.
    pub(crate) fn into_framed(self) -> Self {
        match self {
            Self::Tcp(stream) => {
                Self::TcpFramed(FramedTcpStream { stream, frame_tracker: FrameTracker::default(), wake_bytes: 1 })
            }
            other => other,
        }
    }
}

/// A TCP connection whose reader sleeps until a frame is complete.
#[derive(Debug)]
pub(crate) struct FramedTcpStream {
    stream: TcpStream,
    frame_tracker: FrameTracker,
    /// Bytes that wake the reader.
    wake_bytes: usize,
}

impl FramedTcpStream {
    fn poll_read(&mut self, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, space);
        self.frame_tracker.advance(&space.filled()[before..]);
        if polled.is_pending() {
            let wanted = self.frame_tracker.missing_bytes().clamp(1, MAX_WAKE_BYTES);
            if wanted != self.wake_bytes {
                // The kernel checks the received bytes again: those received since the read above wake the reader too.
                set_receive_low_water(&self.stream, wanted)?;
                self.wake_bytes = wanted;
            }
        }
        polled
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
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => {
                Pin::new(stream).poll_write(context, bytes)
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
            Self::Tcp(stream) | Self::TcpFramed(FramedTcpStream { stream, .. }) => {
                Pin::new(stream).poll_write_vectored(context, pieces)
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
        // A listener without backlog whose only connection is not accepted yet drops further packets.
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

    #[test]
    fn only_the_whole_token_matches() {
        let token = Token::new("secret").unwrap();
        assert!(token.matches_header(b"Bearer secret"));
        for wrong in [&b"Bearer secre"[..], b"Bearer secrets", b"Bearer Secret", b"secret", b""] {
            assert!(!token.matches_header(wrong));
        }
        assert!(Token::new("").is_none() && Token::new("a b").is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
