//! Linux system calls that the standard library does not offer.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the kernel kill the child, by SIGKILL, when the thread that starts it ends (`PR_SET_PDEATHSIG`, prctl(2)): that
/// thread must live as long as the child is needed. It does not affect the child's own children.
pub fn set_parent_death_signal(command: &mut Command) {
    let parent = std::process::id();
    let set_death_signal = move || {
        // SAFETY: prctl and getppid take no pointers and may be called between fork and exec (both are plain system
        // calls); nothing here allocates.
        let (result, parent_now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid()) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // If the parent ended before the call above, no signal will be sent.
        if parent_now as u32 != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: the closure only makes the two system calls above.
    unsafe {
        command.pre_exec(set_death_signal);
    }
}

/// A signal for every process of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: a request to exit.
    Terminate,
    /// SIGKILL: immediate end.
    Kill,
}

/// Sends the signal. The group's leader must be a child that was not waited for; otherwise the id may belong to another group.
pub fn signal_group(leader: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    let Ok(group) = libc::pid_t::try_from(leader) else { return };
    // SAFETY: kill takes no pointers. It fails only if the group has no process any more.
    unsafe {
        libc::kill(-group, number);
    }
}

/// Reports whether the child has exited, without reaping it: until a later wait its id is not reused.
/// # Errors
/// The system error if it is not a child of this process, or was waited for.
pub fn has_exited(child: u32) -> std::io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: an all-zero siginfo_t is a valid value of that plain C struct, and waitid writes to nothing else.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_PID, child as libc::id_t, &mut found, options) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(found.si_pid() != 0)
    }
}

/// Waits until the child has exited, without reaping it; returns at once if it was waited for already.
pub fn wait_for_exit(id: u32) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exited_child_is_detected_and_can_still_be_waited_for() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        assert!(!has_exited(child.id()).unwrap());
        signal_group(child.id(), Signal::Kill);
        while !has_exited(child.id()).unwrap() {
            std::thread::yield_now();
        }
        assert!(!child.wait().unwrap().success());
        assert!(has_exited(child.id()).is_err());
    }
}
