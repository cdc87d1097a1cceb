//! Detects by the first bytes of a connection whether the client uses HTTP/2 or HTTP/1.1. The caller sets a time limit,
//! because the number of connections is limited and a silent client would occupy one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::transport::Socket;

const HTTP2_PREFACE_BYTES: usize = 24;
/// Time limit for reading the remaining bytes of a client with an unknown protocol before the connection is closed.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
/// The bytes that an HTTP/2 client sends first, the connection preface (RFC 9113 §3.4). No HTTP/1.1 request begins with
/// them.
const HTTP2_PREFACE: &[u8; HTTP2_PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The HTTP version that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    /// HTTP/2, selected by ALPN or used without negotiation ("prior knowledge").
    Http2,
    /// HTTP/1.1.
    Http1,
}

/// A socket of a server whose first bytes were read for detection; reading returns these bytes again.
#[derive(Debug)]
pub(crate) struct RewindSocket {
    socket: Socket,
    prefix: [u8; HTTP2_PREFACE_BYTES],
    /// Range of `prefix` that the reader has not read yet.
    unread: std::ops::Range<usize>,
}

/// Returns whether the first bytes of a connection are an HTTP/1.1 request (RFC 9112 §3): a method, a space, and then a
/// path, `*`, a URI, or the host name of CONNECT. `None` if more bytes are needed to decide.
fn is_http1_request(prefix: &[u8]) -> Option<bool> {
    let method = prefix.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match prefix[method..] {
        [] | [b' '] => (prefix.len() == HTTP2_PREFACE_BYTES).then_some(false),
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(method > 0),
        _ => Some(prefix.starts_with(b"CONNECT ")),
    }
}

/// Closes a connection whose client may still be sending. Reads and discards bytes first: closing a socket with unread
/// bytes causes a TCP reset, and the client would lose data that it has not read yet.
async fn close_gracefully(socket: &mut Socket) {
    let talking = async {
        let mut unheard = [0; 4096];
        let _ = socket.shutdown().await;
        for _ in 0..16 {
            if !matches!(socket.read(&mut unheard).await, Ok(1..)) {
                break;
            }
        }
    };
    // If the client does not stop sending within the time limit, close the connection anyway.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, talking).await;
}

/// Waits for the first bytes of a client. Returns the HTTP version, and a socket from which these bytes can be read
/// again.
///
/// # Errors
/// An error if the socket fails or is closed, or if the first bytes belong to another protocol. Such a client receives
/// no response, because it could not parse one (RFC 9113 §3.4).
pub(crate) async fn detect_protocol(mut socket: Socket) -> io::Result<(RewindSocket, HttpVersion)> {
    let (mut prefix, mut count) = ([0; HTTP2_PREFACE_BYTES], 0);
    let spoken = loop {
        match socket.read(&mut prefix[count..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => count += more,
        }
        if prefix[..count] == HTTP2_PREFACE[..count] {
            if count == HTTP2_PREFACE_BYTES {
                break HttpVersion::Http2;
            }
            continue;
        }
        match is_http1_request(&prefix[..count]) {
            Some(true) => break HttpVersion::Http1,
            Some(false) => {
                close_gracefully(&mut socket).await;
                return Err(io::ErrorKind::InvalidData.into());
            }
            None => {}
        }
    };
    // The preface is complete; all further bytes of HTTP/2 are frames.
    let socket = if spoken == HttpVersion::Http2 { socket.into_framed(Arc::default()) } else { socket };
    Ok((RewindSocket { socket, prefix, unread: 0..count }, spoken))
}

impl AsyncRead for RewindSocket {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, space);
        }
        let count = self.unread.len().min(space.remaining());
        space.put_slice(&self.prefix[self.unread.start..self.unread.start + count]);
        self.unread.start += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RewindSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixStream;

    use super::*;

    /// Sends bytes in these pieces. Returns the detected protocol and all bytes that the server reads after the
    /// detection.
    async fn detect(pieces: &[&[u8]]) -> io::Result<(HttpVersion, Vec<u8>)> {
        let (mut client, server) = UnixStream::pair().unwrap();
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let client = tokio::spawn(async move {
            for piece in pieces {
                client.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let (mut heard, spoken) = detect_protocol(Socket::Unix(server)).await?;
        client.await.unwrap();
        let mut read = Vec::new();
        heard.read_to_end(&mut read).await?;
        Ok((spoken, read))
    }

    #[tokio::test]
    async fn the_first_bytes_determine_the_protocol_in_any_segmentation_and_are_read_again() {
        let whole = [&HTTP2_PREFACE[..], b"frames"].concat();
        for cut in 0..HTTP2_PREFACE_BYTES + 3 {
            assert_eq!(
                detect(&[&whole[..cut], &whole[cut..]]).await.unwrap(),
                (HttpVersion::Http2, whole.clone()),
                "{cut}"
            );
        }
        for text in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"POST /x HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/1.1\r\n\r\nabcdefgh",
            b"OPTIONS * HTTP/1.1\r\n\r\n",
            b"GET http://other/ HTTP/1.1\r\n\r\n",
        ] {
            for cut in 0..text.len() {
                assert_eq!(detect(&[&text[..cut], &text[cut..]]).await.unwrap(), (HttpVersion::Http1, text.to_vec()));
            }
        }
        for short in [&HTTP2_PREFACE[..0], &HTTP2_PREFACE[..5], b"GET", b"GET "] {
            assert_eq!(detect(&[short]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        for other in [
            &b"\x16\x03\x01"[..],
            b"INVALID CONNECTION PREFACE\r\n\r\n",
            b"get / HTTP/1.1",
            b" / HTTP/1.1",
            &[b'A'; 30],
        ] {
            assert_eq!(detect(&[other]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
