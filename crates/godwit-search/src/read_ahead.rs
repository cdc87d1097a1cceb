//! Reads the next range of a database into the page cache while workers search the current one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use crate::database_volumes::DatabaseExtent;

/// Size of a read, bytes: large enough for a network file system to reach its full rate.
const READ_BYTES: u64 = 1 << 20;

/// A thread that reads extents of files in the order in which they are requested, so that they are in the page cache
/// when workers need them. The bytes themselves are not used. The thread ends after its current read when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    sender: Sender<Vec<DatabaseExtent>>,
    is_stopped: Arc<AtomicBool>,
}

impl ReadAhead {
    pub(crate) fn start() -> Self {
        let (sender, receiver) = channel();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let stop = is_stopped.clone();
        std::thread::spawn(move || read_requests(&receiver, &stop));
        Self { sender, is_stopped }
    }

    /// Requests that extents be read. Returns at once.
    pub(crate) fn request(&self, extents: Vec<DatabaseExtent>) {
        // Ignore the error: a thread that has ended reads nothing ahead, which costs only time.
        let _ = self.sender.send(extents);
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

fn read_requests(receiver: &Receiver<Vec<DatabaseExtent>>, is_stopped: &AtomicBool) {
    while let Ok(extents) = receiver.recv() {
        // A worker that needs bytes that cannot be read reports the failure.
        let _ = read_extents(&extents, u64::MAX, is_stopped);
    }
}

/// Reads the extents, at most `max_bytes` bytes of them. Returns the number of bytes.
fn read_extents(extents: &[DatabaseExtent], max_bytes: u64, is_stopped: &AtomicBool) -> std::io::Result<u64> {
    let mut buffer = vec![0; READ_BYTES as usize];
    let mut total = 0;
    for extent in extents {
        let file = File::open(&extent.path)?;
        let (mut at, end) = (extent.offset, extent.offset + extent.bytes);
        while at < end && total < max_bytes && !is_stopped.load(Ordering::Relaxed) {
            let bytes = READ_BYTES.min(end - at);
            let read = file.read_at(&mut buffer[..bytes as usize], at)? as u64;
            if read == 0 {
                break;
            }
            at += read;
            total += read;
        }
    }
    Ok(total)
}

/// Measures the rate at which extents are read, bytes/s, on their first `max_bytes` bytes. Returns `None` if nothing can
/// be read.
pub(crate) fn measure_read_rate(extents: &[DatabaseExtent], max_bytes: u64) -> Option<f64> {
    let started = Instant::now();
    let bytes = read_extents(extents, max_bytes, &AtomicBool::new(false)).ok().filter(|bytes| *bytes > 0)?;
    Some(bytes as f64 / started.elapsed().as_secs_f64().max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_are_read_up_to_the_limit_and_to_the_end_of_the_file() {
        let directory = tempfile::tempdir().expect("scratch");
        let path = directory.path().join("letters");
        std::fs::write(&path, vec![7; 3 << 20]).expect("scratch can be written");
        let extent = |offset, bytes| DatabaseExtent { path: path.clone(), offset, bytes };
        let read = |extents: &[DatabaseExtent], limit| {
            read_extents(extents, limit, &AtomicBool::new(false)).expect("the file is there")
        };
        assert_eq!(read(&[extent(5, 10), extent(100, 2 << 20)], u64::MAX), 10 + (2 << 20));
        assert_eq!(read(&[extent(0, 3 << 20)], 1), READ_BYTES);
        assert_eq!(read(&[extent((3 << 20) - 7, 1000)], u64::MAX), 7);
        assert!(measure_read_rate(&[extent(0, 100)], 100) > Some(0.0));
        assert_eq!(measure_read_rate(&[extent(0, 0)], 100), None);
        let ahead = ReadAhead::start();
        ahead.request(vec![extent(0, 3 << 20), DatabaseExtent { path: "no-such-file".into(), ..extent(0, 1) }]);
    }
}
