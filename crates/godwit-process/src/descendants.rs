//! The descendants of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Interval between checks of signalled processes.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time for killed processes to exit.
const KILL_TIMEOUT: Duration = Duration::from_millis(100);

/// A process as `/proc/PID/stat` shows it.
struct ProcessEntry {
    parent: i32,
    group: i32,
    has_exited: bool,
}

/// Terminates all descendants: SIGTERM, once more after half of `timeout` for those that clean up on the first one only, and
/// SIGKILL after `timeout`. Process groups of descendants are signalled as a whole, except the group of this process.
/// Returns whether there were descendants.
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
    // Processes that a killed one had just started are found in the next round.
    while family.signal(libc::SIGKILL) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// All descendants, including those whose parents have exited: they are in groups that were seen before.
#[derive(Default)]
struct DescendantProcesses {
    groups: BTreeSet<i32>,
}

impl DescendantProcesses {
    /// Sends a signal to all members. Returns whether there are any.
    fn signal(&mut self, signal: i32) -> bool {
        let members = self.running_processes();
        // SAFETY: getpgrp takes nothing and cannot fail.
        let own_group = unsafe { libc::getpgrp() };
        self.groups.extend(members.values().copied().filter(|group| *group != own_group && *group > 1));
        let outside_groups =
            members.iter().filter(|(_, group)| !self.groups.contains(group)).map(|(process, _)| *process);
        for target in self.groups.iter().map(|group| -group).chain(outside_groups) {
            // SAFETY: kill takes no pointers. It fails only if the process has exited.
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

    /// Returns the members that have not exited, and their process groups.
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

/// Returns the entry of a process, if it exists.
fn read_process_entry(process: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before the fields is in parentheses and may contain any character (proc_pid_stat(5)).
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

    /// Runs in its own process, so that it terminates no child of another test.
    #[test]
    #[ignore = "started by the test below"]
    fn terminates_its_descendants() {
        // The shell ends by SIGTERM; its child ignores it, and then has no parent that is a descendant.
        for script in ["trap '' TERM; sleep 1000 & echo $!; wait", "(trap '' TERM; echo $$; sleep 1000) & wait"] {
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
            // Once the first byte is read, the signal is ignored and the processes exist.
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            assert!(terminate_descendants(Duration::from_millis(20)));
            child.wait().unwrap();
            // The pipe ends when the last process of the group has exited.
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
