//! Terminates all descendants of this process: its children, their children, and so on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Interval between checks whether the signalled processes have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum time to wait for the exit of processes after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_millis(100);

/// Fields of `/proc/PID/stat` for a process.
struct ProcessEntry {
    parent: i32,
    group: i32,
    has_exited: bool,
}

/// Terminates all descendants of this process. Sends SIGTERM, and again after half of `timeout`, because some programs
/// only clean up on the first SIGTERM. Sends SIGKILL after `timeout`. Signals go to the whole process groups of the
/// descendants, except the group of this process. Returns false if there were no descendants.
pub fn terminate_descendants(timeout: Duration) -> bool {
    let started = Instant::now();
    let mut family = DescendantProcesses::default();
    if !family.signal(libc::SIGTERM) {
        return false;
    }
    if family.wait_for_exit(started + timeout / 2) {
        return true;
    }
    family.signal(libc::SIGTERM);
    if family.wait_for_exit(started + timeout) {
        return true;
    }
    let deadline = Instant::now() + KILL_TIMEOUT;
    // Repeat: a process may have started children after they were listed and before it was killed.
    while family.signal(libc::SIGKILL) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// The descendants of this process. A process whose parent has exited still counts as a descendant if its process group
/// is in `groups`.
#[derive(Default)]
struct DescendantProcesses {
    groups: BTreeSet<i32>,
}

impl DescendantProcesses {
    /// Sends a signal to all running descendants and their process groups. Returns false if there are none.
    fn signal(&mut self, signal: i32) -> bool {
        let members = self.running_processes();
        // SAFETY: getpgrp has no arguments and cannot fail.
        let own_group = unsafe { libc::getpgrp() };
        self.groups.extend(members.values().copied().filter(|group| *group != own_group && *group > 1));
        let outside_groups =
            members.iter().filter(|(_, group)| !self.groups.contains(group)).map(|(process, _)| *process);
        for target in self.groups.iter().map(|group| -group).chain(outside_groups) {
            // SAFETY: kill takes no pointers. The call fails only if the process has exited.
            unsafe { libc::kill(target, signal) };
        }
        !members.is_empty()
    }

    fn wait_for_exit(&self, deadline: Instant) -> bool {
        loop {
            if self.running_processes().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the ids of the descendants that have not exited, each with its process group.
    fn running_processes(&self) -> BTreeMap<i32, i32> {
        let all = list_processes();
        let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (process, entry) in &all {
            children.entry(entry.parent).or_default().push(*process);
        }
        let mut found: BTreeSet<i32> = BTreeSet::new();
        let mut parents = vec![std::process::id() as i32];
        while let Some(parent) = parents.pop() {
            parents.extend(children.get(&parent).into_iter().flatten().filter(|child| found.insert(**child)));
        }
        let is_member =
            |process: &i32, entry: &ProcessEntry| found.contains(process) || self.groups.contains(&entry.group);
        let running = all.iter().filter(|(process, entry)| !entry.has_exited && is_member(process, entry));
        running.map(|(process, entry)| (*process, entry.group)).collect()
    }
}

fn list_processes() -> BTreeMap<i32, ProcessEntry> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number: i32| Some((number, read_process_entry(number)?))).collect()
}

/// Returns the fields of `/proc/PID/stat` for a process, or `None` if the process does not exist.
fn read_process_entry(process: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Split after the last parenthesis: the process name in parentheses may contain any character (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(ProcessEntry { parent, group, has_exited: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// The next test runs this test in a separate process, so that it does not terminate children of other tests.
    #[test]
    #[ignore = "started by the test below"]
    fn terminates_its_descendants() {
        // In the first script, all processes ignore SIGTERM. In the second, the shell exits on SIGTERM, but its
        // subshell ignores SIGTERM and loses its parent.
        for script in ["trap '' TERM; sleep 1000 & echo $!; wait", "(trap '' TERM; echo $$; sleep 1000) & wait"] {
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
            // When the first byte arrives, the trap is set, and the process that ignores SIGTERM exists.
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            assert!(terminate_descendants(Duration::from_millis(20)));
            child.wait().unwrap();
            // Reading to the end returns when the last process that holds the pipe has exited.
            child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
            assert!(!terminate_descendants(Duration::from_millis(20)));
        }
    }

    #[test]
    fn descendants_that_ignore_sigterm_are_killed_with_what_they_started() {
        let test = std::env::current_exe().unwrap();
        let words = ["--exact", "--include-ignored", "descendants::tests::terminates_its_descendants"];
        let output = Command::new(test).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
