//! The calls to Linux that the standard library does not offer.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel kill the child, by SIGKILL, when the thread that starts it ends (`PR_SET_PDEATHSIG`, prctl(2)): that thread has to
/// live as long as the child is wanted. What the child starts itself is not reached.
pub fn die_with_parent(command: &mut Command) {
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

/// A signal for every process of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: please end.
    Terminate,
    /// SIGKILL: end.
    Kill,
}

/// Sends it. The group's leader must be a child that was not waited for, or the number may be another group's by now.
pub fn signal_group(leader: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    let Ok(group) = libc::pid_t::try_from(leader) else { return };
    // SAFETY: kill takes no pointers. It fails only where nobody is left.
    unsafe {
        libc::kill(-group, number);
    }
}

/// Whether the child has ended, which is left for a later wait to take note of: until then its number is its own.
///
/// # Errors
/// When it is no child of this process, or was waited for.
pub fn has_ended(child: u32) -> std::io::Result<bool> {
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

/// Returns once that child has ended, which is left for a later wait to take note of; at once where it was waited for already.
pub fn await_exit(id: u32) {
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
    fn an_ended_child_is_seen_and_still_waited_for() {
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        assert!(!has_ended(child.id()).unwrap());
        signal_group(child.id(), Signal::Kill);
        while !has_ended(child.id()).unwrap() {
            std::thread::yield_now();
        }
        assert!(!child.wait().unwrap().success());
        assert!(has_ended(child.id()).is_err());
    }
}
