//! Linux system calls for the pipes of child processes that the standard library does not offer.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Keeps these file descriptors open in the child, under the same numbers.
pub(super) fn inherit_descriptors(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            // SAFETY: the descriptor is open, because the closure owns it. The call takes no pointer and is allowed
            // between fork and exec. It changes only the table of file descriptors in the child.
            if unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, 0) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes the system call above.
    unsafe {
        command.pre_exec(keep);
    }
}

/// Passes the reading end of a pipe to the child as file descriptor 3. `command` keeps the pipe open until it is
/// dropped.
pub(super) fn pass_as_descriptor_3(command: &mut Command, end: std::io::PipeReader) {
    let arrange = move || {
        let number = end.as_raw_fd();
        // SAFETY: dup2 and fcntl take no pointers and are allowed between fork and exec. `end` is open, because the
        // closure owns it. If its number is already 3, dup2 would leave its close-on-exec flag set, so fcntl clears the
        // flag.
        let result = unsafe { if number == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(number, 3) } };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure only makes one of the two system calls above.
    unsafe {
        command.pre_exec(arrange);
    }
}

/// Sets the capacity of a pipe, in bytes. If the system rejects this capacity, it stays unchanged, which affects only
/// the speed.
pub(super) fn set_pipe_capacity(pipe: &impl AsFd, pipe_bytes: i32) {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the call takes no pointer.
    unsafe {
        libc::fcntl(pipe.as_fd().as_raw_fd(), libc::F_SETPIPE_SZ, pipe_bytes);
    }
}
