//! The calls to Linux that the standard library does not offer.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the child when the thread that starts it ends.
pub(super) fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    let arrange = move || {
        // SAFETY: prctl and getppid take no pointers and may be called between fork and exec (both are plain system
        // calls); nothing here allocates.
        let (result, parent_now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid()) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // The parent may have died before the call above: nobody would send the signal any more.
        if parent_now as u32 != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure only makes the two system calls above.
    unsafe {
        command.pre_exec(arrange);
    }
}

/// Kills all processes of the group that this child leads. The child must not have been waited for.
pub(super) fn kill_group(leader: u32) {
    // SAFETY: kill takes numbers only. The number is the leader's as long as nobody waited for it, so the group is no other.
    unsafe {
        libc::kill(-(leader as libc::pid_t), libc::SIGKILL);
    }
}

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

/// Returns once that child is gone, without reaping it; at once where somebody else has reaped it.
pub(super) fn await_exit(id: u32) {
    loop {
        // SAFETY: siginfo_t is plain old data for which zeros are a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` lives on this stack frame for the whole call.
        let result = unsafe { libc::waitid(libc::P_PID, id, &mut info, libc::WEXITED | libc::WNOWAIT) };
        let interrupted = std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted;
        if result == 0 || !interrupted {
            return;
        }
    }
}
