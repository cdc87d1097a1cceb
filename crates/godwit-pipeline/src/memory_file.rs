//! Files that lie in memory: the call to Linux that the standard library does not offer.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// An empty file in memory, which is gone when the last process closes it. Other processes of the same user open it under
/// `/proc/PID/fd`.
///
/// # Errors
/// The system's, where it has no such files.
pub(crate) fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a literal that ends with NUL, and the call keeps nothing of it.
    let descriptor = unsafe { libc::memfd_create(c"godwit-table".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_in_memory_is_opened_again_by_its_number() {
        let mut file = memory_file().unwrap();
        file.write_all(b"table").unwrap();
        let mut text = String::new();
        let again = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        File::open(again).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "table");
    }
}
