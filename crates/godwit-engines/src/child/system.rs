//! The calls to Linux for the pipes of children, which the standard library does not offer.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Leaves these descriptors open in the child, under their numbers.
pub(super) fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep = move || {
        for descriptor in &descriptors {
            // SAFETY: the descriptor is open, for the closure owns it; the call takes no pointer and may be made between
            // fork and exec. It changes the child's table of descriptors only.
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

/// Gives the child that end of a pipe as its descriptor 3. The command holds it until it is dropped.
pub(super) fn pass_as_descriptor_3(command: &mut Command, end: std::io::PipeReader) {
    let arrange = move || {
        let number = end.as_raw_fd();
        // SAFETY: dup2 and fcntl take no pointers and may be called between fork and exec; `end` is open, being owned here.
        // Where it is 3 already, dup2 would leave it to be closed by exec.
        let result = unsafe { if number == 3 { libc::fcntl(3, libc::F_SETFD, 0) } else { libc::dup2(number, 3) } };
        if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure only makes one of the two system calls above.
    unsafe {
        command.pre_exec(arrange);
    }
}

/// Makes a pipe hold that many bytes, or leaves it as it is where the system does not allow it: only speed is at stake.
pub(super) fn widen_pipe(pipe: &impl AsFd, pipe_bytes: i32) {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the call takes no pointer.
    unsafe {
        libc::fcntl(pipe.as_fd().as_raw_fd(), libc::F_SETPIPE_SZ, pipe_bytes);
    }
}
