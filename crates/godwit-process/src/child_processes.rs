//! Linux system calls for child processes that the standard library does not offer.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Makes the kernel send SIGKILL to the child when the thread that starts the child exits (`PR_SET_PDEATHSIG`,
/// prctl(2)). So this thread must run as long as the child is needed. Children of the child are not killed.
pub fn set_parent_death_signal(command: &mut Command) {
    let parent = std::process::id();
    let set_death_signal = move || {
        // SAFETY: prctl and getppid take no pointers and may be called between fork and exec, because both are plain
        // system calls. The closure does not allocate memory.
        let (result, parent_now) =
            unsafe { (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong), libc::getppid()) };
        if result != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // If the parent exited before the call of prctl, the kernel sends no signal, so the child must not start.
        if parent_now as u32 != parent {
            return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec, the closure only makes the system calls prctl and getppid.
    unsafe {
        command.pre_exec(set_death_signal);
    }
}

/// Describes the end of a process by a signal, for messages: `was killed by signal 15`. For SIGKILL it also names the
/// most common cause, which nothing else tells the user.
pub fn describe_signal(signal: i32) -> String {
    let cause = if signal == libc::SIGKILL { " (the system does this when memory is exhausted)" } else { "" };
    format!("was killed by signal {signal}{cause}")
}

/// Describes the end of a process for messages: `exited with status 3`, or by a signal as [`describe_signal`] does.
pub fn describe_exit(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => describe_signal(signal),
        (None, None) => format!("ended with {status}"),
    }
}

/// A signal to send to every process of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM, which requests a process to exit.
    Terminate,
    /// SIGKILL, which ends a process immediately.
    Kill,
}

/// Sends a signal to a process group. `leader` must be the id of a child that was not waited for; otherwise the kernel
/// may have reused the id for another group.
pub fn signal_group(leader: u32, signal: Signal) {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    let Ok(group) = libc::pid_t::try_from(leader) else { return };
    // SAFETY: kill takes no pointers. The call fails only if all processes of the group have exited.
    unsafe {
        libc::kill(-group, number);
    }
}

/// Returns whether the child has exited, without reaping it, so that its id is not reused until it is waited for.
/// # Errors
/// The system error if `child` is not the id of a child of this process, or the child was waited for.
pub fn has_exited(child: u32) -> std::io::Result<bool> {
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: siginfo_t is a plain C struct for which all-zero is a valid value, and waitid writes only to this struct.
    unsafe {
        let mut found: libc::siginfo_t = std::mem::zeroed();
        if libc::waitid(libc::P_PID, child as libc::id_t, &mut found, options) != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(found.si_pid() != 0)
    }
}

/// Waits until the child has exited, without reaping it. Returns immediately if the child was waited for already.
pub fn wait_for_exit(id: u32) {
    loop {
        // SAFETY: siginfo_t is a plain C struct for which all-zero is a valid value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is a local variable that outlives the call.
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
    fn an_exit_is_described_by_its_status_or_its_signal() {
        let describe = |script: &str| describe_exit(Command::new("sh").args(["-c", script]).status().unwrap());
        assert_eq!(describe("exit 3"), "exited with status 3");
        assert_eq!(describe("kill -TERM $$"), "was killed by signal 15");
        assert!(describe("kill -KILL $$").starts_with("was killed by signal 9 (the system does this"));
    }

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
