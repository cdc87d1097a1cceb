//! Sets `SO_RCVLOWAT`, which neither tokio nor socket2 does.

use std::io;
use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

/// Has a reader woken only when so many bytes have arrived, or no more will (socket(7); for epoll since Linux 4.19).
pub(crate) fn set_receive_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the descriptor is open as long as `stream` is borrowed; the option's value is one int, whose address and size
    // are passed.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_reader_is_woken_when_enough_is_there_when_less_is_asked_for_and_at_the_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut reader, _) = listener.accept().await.unwrap();
        let mut space = [0; 4096];
        // Tokio assumes that a new socket is readable until the first attempt.
        assert!(reader.try_read(&mut space).is_err());
        set_receive_low_water(&reader, 1000).unwrap();
        sender.write_all(&[1; 999]).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(100), reader.read(&mut space)).await;
        assert!(waiting.is_err(), "999 bytes woke it");
        sender.write_all(&[1]).await.unwrap();
        assert_eq!(reader.read(&mut space).await.unwrap(), 1000);
        sender.write_all(&[1; 10]).await.unwrap();
        let waiting = tokio::time::timeout(Duration::from_millis(100), reader.read(&mut space)).await;
        assert!(waiting.is_err(), "10 bytes woke it");
        set_receive_low_water(&reader, 10).unwrap();
        assert_eq!(reader.read(&mut space).await.unwrap(), 10);
        set_receive_low_water(&reader, 1000).unwrap();
        sender.write_all(&[1; 7]).await.unwrap();
        drop(sender);
        assert_eq!(reader.read(&mut space).await.unwrap(), 7);
    }
}
