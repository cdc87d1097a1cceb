//! What a connection begins with: which protocol it speaks, and whether it speaks at all. One that does not holds a place that
//! others want.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use crate::transport::Socket;

const PREFACE_BYTES: usize = 24;
/// How long a client that speaks no protocol of ours is listened to after it was hung up on.
const HANG_UP: std::time::Duration = std::time::Duration::from_secs(1);
/// What a client of HTTP/2 says first (RFC 9113 §3.4). No request of HTTP/1.1 begins so.
const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// HTTP/2, by prior knowledge or as TLS agreed on.
    Http2,
    /// HTTP/1.1.
    Http1,
}

/// A socket of a server whose client has said its first words, which are read again.
#[derive(Debug)]
pub(crate) struct Heard {
    socket: Socket,
    words: [u8; PREFACE_BYTES],
    /// What is still to be read of them.
    left: std::ops::Range<usize>,
}

/// Whether a connection begins as a request of HTTP/1.1 does (RFC 9112 §3): a method, a space, and a path, `*`, an address, or
/// the name of a host for CONNECT. `None` where too little of it is there.
fn is_request(words: &[u8]) -> Option<bool> {
    let method = words.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match words[method..] {
        [] | [b' '] => (words.len() == PREFACE_BYTES).then_some(false),
        [b' ', b'/' | b'*' | b'h' | b'H', ..] => Some(method > 0),
        _ => Some(words.starts_with(b"CONNECT ")),
    }
}

/// Ends a connection whose client is still talking: what lies unread when it is closed would make that a reset, by which the client
/// loses what it was told, which is the end.
async fn hang_up(socket: &mut Socket) {
    let talking = async {
        let mut unheard = [0; 4096];
        let _ = socket.shutdown().await;
        for _ in 0..16 {
            if !matches!(socket.read(&mut unheard).await, Ok(1..)) {
                break;
            }
        }
    };
    // Who does not end has had its time.
    let _ = tokio::time::timeout(HANG_UP, talking).await;
}

/// Waits for the first words of a client.
///
/// # Errors
/// Those of the socket, its end, and words of no protocol that is spoken here: who speaks another one, or none, understands no answer
/// (RFC 9113 §3.4).
pub(crate) async fn listen(mut socket: Socket) -> io::Result<(Heard, Spoken)> {
    let (mut words, mut count) = ([0; PREFACE_BYTES], 0);
    let spoken = loop {
        match socket.read(&mut words[count..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => count += more,
        }
        if words[..count] == PREFACE[..count] {
            if count == PREFACE_BYTES {
                break Spoken::Http2;
            }
            continue;
        }
        match is_request(&words[..count]) {
            Some(true) => break Spoken::Http1,
            Some(false) => {
                hang_up(&mut socket).await;
                return Err(io::ErrorKind::InvalidData.into());
            }
            None => {}
        }
    };
    // From here on HTTP/2 comes in frames.
    let socket = if spoken == Spoken::Http2 { socket.framed() } else { socket };
    Ok((Heard { socket, words, left: 0..count }, spoken))
}

impl AsyncRead for Heard {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, space);
        }
        let count = self.left.len().min(space.remaining());
        space.put_slice(&self.words[self.left.start..self.left.start + count]);
        self.left.start += count;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Heard {
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

    /// What is made of words that come in pieces, and what is read behind that.
    async fn heard(pieces: &[&[u8]]) -> io::Result<(Spoken, Vec<u8>)> {
        let (mut client, server) = UnixStream::pair().unwrap();
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let client = tokio::spawn(async move {
            for piece in pieces {
                client.write_all(&piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let (mut heard, spoken) = listen(Socket::Unix(server)).await?;
        client.await.unwrap();
        let mut read = Vec::new();
        heard.read_to_end(&mut read).await?;
        Ok((spoken, read))
    }

    #[tokio::test]
    async fn first_words_tell_the_protocol_however_they_come_and_nothing_of_them_is_lost() {
        let whole = [&PREFACE[..], b"frames"].concat();
        for cut in 0..PREFACE_BYTES + 3 {
            assert_eq!(heard(&[&whole[..cut], &whole[cut..]]).await.unwrap(), (Spoken::Http2, whole.clone()), "{cut}");
        }
        for text in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            b"POST /x HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/1.1\r\n\r\nabcdefgh",
            b"OPTIONS * HTTP/1.1\r\n\r\n",
            b"GET http://other/ HTTP/1.1\r\n\r\n",
        ] {
            for cut in 0..text.len() {
                assert_eq!(heard(&[&text[..cut], &text[cut..]]).await.unwrap(), (Spoken::Http1, text.to_vec()));
            }
        }
        for short in [&PREFACE[..0], &PREFACE[..5], b"GET", b"GET "] {
            assert_eq!(heard(&[short]).await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
        for other in [
            &b"\x16\x03\x01"[..],
            b"INVALID CONNECTION PREFACE\r\n\r\n",
            b"get / HTTP/1.1",
            b" / HTTP/1.1",
            &[b'A'; 30],
        ] {
            assert_eq!(heard(&[other]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
