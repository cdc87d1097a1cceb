//! Files in memory, created with a Linux system call (memfd_create) that the standard library does not offer.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Creates an empty file in memory. The kernel frees it when the last process closes it. Another process of the same
/// user opens it by the path `/proc/PID/fd/NUMBER`.
///
/// # Errors
/// The I/O error of the operating system, for example if it does not support files in memory.
pub(crate) fn create_memory_file() -> io::Result<File> {
    // SAFETY: the name is a literal that ends with NUL, and the kernel does not keep the pointer.
    let descriptor = unsafe { libc::memfd_create(c"godwit-table".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and no other value owns it.
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
