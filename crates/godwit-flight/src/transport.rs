//! What both ends agree on below Flight: addresses, sockets, HTTP/2's windows and frames, keep-alive, and the token.

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
use crate::frames::FrameEnds;
use crate::low_water::wake_at;
use crate::server::CallerLimits;
use crate::sql::random_bytes;
use crate::tls::{ClientTls, Encrypted, ServerTls};

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket, for processes of one machine.
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

/// Sizes and times of connections.
///
/// The defaults are the best of a sweep on loopback: frames of 16 KiB, HTTP/2's own default, wake the receiver 64 times
/// per MiB, and windows over 16 MiB fall out of the cache, as Unix buffers over 1 MiB do; smaller ones make the sender wait.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Bytes of an HTTP/2 frame, at most.
    pub frame_bytes: u32,
    /// Bytes under way per stream.
    pub stream_window_bytes: u32,
    /// Bytes under way per connection.
    pub connection_window_bytes: u32,
    /// Bytes that a Unix socket takes before its reader has read them; TCP finds its own.
    pub unix_buffer_bytes: usize,
    /// Most bytes of a message that is taken.
    pub message_limit_bytes: u64,
    /// How long a connection may be silent before it is asked for a sign of life.
    pub keep_alive_interval: Duration,
    /// How long the answer may take before the other end counts as dead.
    pub keep_alive_timeout: Duration,
    /// How long a connection may take to be made, and to say its first words.
    pub connect_timeout: Duration,
    /// Connections of a server at a time; it closes others at once.
    pub connections: usize,
    /// Calls of a connection at a time; HTTP/2 has others wait.
    pub calls_per_connection: u32,
    /// What an identity may take of a server.
    pub callers: CallerLimits,
}

impl Default for Tuning {
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
            connections: usize::MAX,
            calls_per_connection: 256,
            callers: CallerLimits::default(),
        }
    }
}

/// hyper's builder of an end of an HTTP/2 connection, with our settings. Each end has a type of its own there, and the same names.
macro_rules! tuned {
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
pub(crate) use tuned;

/// What a caller must know to be let in, sent as `authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A token of visible ASCII characters; `None` where there are others, or none.
    pub fn new(text: &str) -> Option<Self> {
        let fine = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fine.then(|| Self(text.to_owned()))
    }

    /// A token that nobody can guess.
    pub fn random() -> Self {
        Self(blake3::Hash::from_bytes(random_bytes()).to_hex().to_string())
    }

    /// The token itself.
    pub fn text(&self) -> &str {
        &self.0
    }

    pub(crate) fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// True for the value of a header that has this token. Takes as long for any value of the right length.
    pub(crate) fn is_in(&self, header: &[u8]) -> bool {
        let expected = self.header();
        let differing = expected.bytes().zip(header).fold(0, |differing, (one, other)| differing | (one ^ other));
        expected.len() == header.len() && differing == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What lets a caller in, or is asked of one: `T` is [`ServerTls`] or [`ClientTls`].
#[derive(Clone)]
pub struct Access<T> {
    /// The token; `None`: nobody is asked for one.
    pub token: Option<Token>,
    /// Encryption; `None`: there is none. Unix sockets never have it.
    pub tls: Option<T>,
}

impl<T> Default for Access<T> {
    /// Neither.
    fn default() -> Self {
        Self { token: None, tls: None }
    }
}

/// Most bytes that a reader sleeps for: a frame of ours. Woken once a frame instead of for every 64 KiB, both ends together
/// took a fifth less CPU time per byte on loopback; 256 and 512 KiB gave half of that.
const WAKE_BYTES: usize = 1 << 20;

/// Connections that may wait to be accepted; a system may allow fewer. A client that finds no room tries again a second later,
/// and then later still: with the usual 128 a crowd that came at once kept others out for as long.
const WAITING_CONNECTIONS: i32 = 4096;

/// Most bytes that a server's socket takes before they can be sent. The rest waits where flow control sees it: what a
/// thousand clients that do not read left in sockets, up to 4 MiB of each, was all that a system gives to TCP, and then every
/// connection is slow.
const UNSENT_BYTES: u32 = 256 << 10;

/// A server's place.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Takes a place, and says which: port 0 takes any.
    pub(crate) async fn bind(wanted: &Address) -> Result<(Self, Address), FlightError> {
        let failed = |source| FlightError::Listen { address: wanted.to_string(), source };
        match wanted {
            Address::Tcp(address) => {
                let listener = TcpListener::bind(address).await.map_err(failed)?;
                SockRef::from(&listener).listen(WAITING_CONNECTIONS).map_err(failed)?;
                let taken = listener.local_addr().map_err(failed)?;
                Ok((Self::Tcp(listener), Address::Tcp(taken)))
            }
            Address::Unix(path) => Ok((Self::Unix(UnixListener::bind(path).map_err(failed)?), wanted.clone())),
        }
    }

    /// The next connection; `None` where it could not be had: ask again.
    pub(crate) async fn accept(&self, tuning: &Tuning) -> Option<Socket> {
        let accepted = match self {
            Self::Tcp(listener) => listener.accept().await.and_then(|(stream, _)| {
                stream.set_nodelay(true)?;
                SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES)?;
                Ok(Socket::Tcp(stream))
            }),
            Self::Unix(listener) => listener.accept().await.and_then(|(stream, _)| Socket::unix(stream, tuning)),
        };
        if accepted.is_err() {
            // A client that went away at once, or no more descriptors: others may still be served, a little later.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        accepted.ok()
    }
}

/// How long a connection may take before another attempt is made beside it (RFC 8305 has the same for the next address).
const DIAL_AGAIN: Duration = Duration::from_millis(250);

/// Connects. Where the first packet is lost, TCP sends another one after a second (RFC 6298): a second attempt that begins sooner is not kept
/// waiting by that, and costs little where the way is just long.
async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let mut first = std::pin::pin!(TcpStream::connect(address));
    if let Ok(connected) = tokio::time::timeout(DIAL_AGAIN, &mut first).await {
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
    /// One that speaks HTTP/2.
    Framed(Framed),
    Tls(Box<Encrypted>),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) async fn connect(address: &Address, tls: Option<&ClientTls>, tuning: &Tuning) -> io::Result<Self> {
        match address {
            Address::Tcp(address) => {
                let dialled = Instant::now();
                let stream = dial(*address).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Ok(Self::Tcp(stream)),
                    Some(tls) => Ok(Self::Tls(Box::new(tls.connect(stream, dialled.elapsed()).await?))),
                }
            }
            Address::Unix(path) => Self::unix(UnixStream::connect(path).await?, tuning),
        }
    }

    /// A Unix socket with room for more than the system gives it, which is less than one batch.
    fn unix(stream: UnixStream, tuning: &Tuning) -> io::Result<Self> {
        SockRef::from(&stream).set_send_buffer_size(tuning.unix_buffer_bytes)?;
        Ok(Self::Unix(stream))
    }

    /// The server's side of the handshake.
    pub(crate) async fn accept(self, tls: Option<&ServerTls>) -> io::Result<Self> {
        match (self, tls) {
            (Self::Tcp(stream), Some(tls)) => Ok(Self::Tls(Box::new(tls.accept(stream).await?))),
            (socket, _) => Ok(socket),
        }
    }
}

impl Socket {
    /// The TCP socket below.
    pub(crate) fn tcp(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(stream) | Self::Framed(Framed { stream, .. }) => Some(stream.as_fd()),
            Self::Tls(stream) => Some(stream.tcp()),
            Self::Unix(_) => None,
        }
    }

    /// Wakes its reader by frames of HTTP/2, of which the next byte is the first. Those of an encrypted connection cannot be
    /// seen here, and a Unix socket wakes its reader as it likes.
    pub(crate) fn framed(self) -> Self {
        match self {
            Self::Tcp(stream) => Self::Framed(Framed { stream, ends: FrameEnds::default(), wanted: 1 }),
            other => other,
        }
    }
}

/// A TCP connection whose reader sleeps until a frame is whole.
#[derive(Debug)]
pub(crate) struct Framed {
    stream: TcpStream,
    ends: FrameEnds,
    /// How many bytes wake the reader.
    wanted: usize,
}

impl Framed {
    fn poll_read(&mut self, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = space.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, space);
        self.ends.pass(&space.filled()[before..]);
        if polled.is_pending() {
            let wanted = self.ends.missing().clamp(1, WAKE_BYTES);
            if wanted != self.wanted {
                // The kernel looks again at what is there: what came since the read above wakes the reader too.
                wake_at(&self.stream, wanted)?;
                self.wanted = wanted;
            }
        }
        polled
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Framed(framed) => framed.poll_read(context, space),
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, space),
            Self::Tls(stream) => stream.poll_read(context, space),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, space),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::Framed(Framed { stream, .. }) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => stream.writer().poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::Framed(Framed { stream, .. }) => {
                Pin::new(stream).poll_write_vectored(context, pieces)
            }
            Self::Tls(stream) => stream.writer().poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::Framed(Framed { stream, .. }) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => stream.writer().poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) | Self::Framed(Framed { stream, .. }) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => stream.writer().poll_shutdown(context),
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
        // A server that has one connection that it has not taken yet drops what others send.
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let server = std::net::TcpListener::from(socket);
        let address = server.local_addr().unwrap();
        let _waits = std::net::TcpStream::connect(address).unwrap();
        let takes_it = std::thread::spawn(move || {
            std::thread::sleep(DIAL_AGAIN / 2);
            (server.accept().unwrap(), server)
        });
        let sooner = tokio::select! {
            dialled = dial(address) => dialled.is_ok(),
            _ = TcpStream::connect(address) => false,
        };
        assert!(sooner, "it waited as long as TCP alone does");
        drop(takes_it.join());
    }

    #[test]
    fn only_the_whole_token_is_let_in() {
        let token = Token::new("secret").unwrap();
        assert!(token.is_in(b"Bearer secret"));
        for wrong in [&b"Bearer secre"[..], b"Bearer secrets", b"Bearer Secret", b"secret", b""] {
            assert!(!token.is_in(wrong));
        }
        assert!(Token::new("").is_none() && Token::new("a b").is_none());
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
