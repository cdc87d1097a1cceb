//! Sets the socket option `SO_RCVLOWAT`, which neither tokio nor socket2 supports.

use std::io;
use std::os::fd::AsRawFd;

use tokio::net::TcpStream;

/// Sets the number of received bytes at which the kernel wakes a reader. The end of the stream wakes the reader too
/// (`SO_RCVLOWAT` in socket(7); with epoll since Linux 4.19).
pub(crate) fn set_receive_low_water(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the file descriptor is open as long as `stream` is borrowed. The value of the option is one C int, and
    // the call passes the address and the size of `value`, which is a C int.
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
        // Tokio treats a new socket as readable until a first read fails.
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
