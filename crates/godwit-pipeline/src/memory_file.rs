//! Files in memory, by a Linux system call that the standard library does not offer.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Creates an empty file in memory, which is removed when the last process closes it. Other processes of the same user open
/// it as `/proc/PID/fd`.
///
/// # Errors
/// The error of the system, if it has no such files.
pub(crate) fn create_memory_file() -> io::Result<File> {
    // SAFETY: the name is a literal that ends with NUL, and the call keeps nothing of it.
    let descriptor = unsafe { libc::memfd_create(c"godwit-table".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_file_in_memory_is_opened_again_by_its_number() {
        let mut file = create_memory_file().unwrap();
        file.write_all(b"table").unwrap();
        let mut text = String::new();
        let again = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        File::open(again).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "table");
    }
}
