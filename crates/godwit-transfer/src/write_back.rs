//! Has the system write what was written to a file, long before anybody waits for it.

use std::fs::File;
use std::os::fd::AsRawFd as _;

/// Begins to write bytes `[start, end)` of a file to where they stay, and does not wait for it (sync_file_range(2)). A large file of
/// which nothing was written so takes a twentieth of its transfer to be made durable at the end. What cannot be begun is left to that.
pub(crate) fn begin(file: &File, start: u64, end: u64) {
    let (Ok(start), Ok(bytes)) = (i64::try_from(start), i64::try_from(end.saturating_sub(start))) else { return };
    // SAFETY: the descriptor is open as long as the file is borrowed; nothing of this process is read or written.
    unsafe { libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE) };
}
