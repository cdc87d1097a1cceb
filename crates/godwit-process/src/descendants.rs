//! The processes that this one started, and those that they started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Between looks at processes that were sent a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time that killed processes have to end.
const KILL_TIMEOUT: Duration = Duration::from_millis(100);

/// A process as `/proc/PID/stat` shows it.
struct ProcessEntry {
    parent: i32,
    group: i32,
    ended: bool,
}

/// Ends all descendants: SIGTERM, once more after half of `patience` for those that clean up on the first one only, and SIGKILL after
/// `patience`. Process groups of descendants are ended as a whole, but for the group of this process. Returns whether there were
/// descendants.
pub fn end_descendants(patience: Duration) -> bool {
    let started = Instant::now();
    let mut family = Family::default();
    if !family.signal(libc::SIGTERM) {
        return false;
    }
    if family.ends_by(started + patience / 2) {
        return true;
    }
    family.signal(libc::SIGTERM);
    if family.ends_by(started + patience) {
        return true;
    }
    let deadline = Instant::now() + KILL_TIMEOUT;
    // Processes that a killed one had just started are found the next time.
    while family.signal(libc::SIGKILL) && Instant::now() < deadline {
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

/// Descendants, also those whose parents have ended: they are in groups that were seen before.
#[derive(Default)]
struct Family {
    groups: BTreeSet<i32>,
}

impl Family {
    /// Sends a signal to all members. Returns whether there are any.
    fn signal(&mut self, signal: i32) -> bool {
        let members = self.members();
        // SAFETY: getpgrp takes nothing and cannot fail.
        let own = unsafe { libc::getpgrp() };
        self.groups.extend(members.values().copied().filter(|group| *group != own && *group > 1));
        let alone = members.iter().filter(|(_, group)| !self.groups.contains(group)).map(|(process, _)| *process);
        for target in self.groups.iter().map(|group| -group).chain(alone) {
            // SAFETY: kill takes no pointers. It fails only where the process has ended.
            unsafe { libc::kill(target, signal) };
        }
        !members.is_empty()
    }

    fn ends_by(&self, deadline: Instant) -> bool {
        loop {
            if self.members().is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Members that have not ended, and their process groups.
    fn members(&self) -> BTreeMap<i32, i32> {
        let all = processes();
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
        let running = all.iter().filter(|(process, entry)| !entry.ended && is_member(process, entry));
        running.map(|(process, entry)| (*process, entry.group)).collect()
    }
}

fn processes() -> BTreeMap<i32, ProcessEntry> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number: i32| Some((number, entry_of(number)?))).collect()
}

/// The entry of a process, while there is one.
fn entry_of(process: i32) -> Option<ProcessEntry> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name before the fields is in parentheses and may hold any character (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(ProcessEntry { parent, group, ended: matches!(state, "Z" | "X") })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;

    /// Runs in a process of its own, so that it ends no child of another test.
    #[test]
    #[ignore = "started by the test below"]
    fn ends_its_descendants() {
        // The shell ends by SIGTERM; what it started ignores it, and has no parent then that is a descendant.
        for script in ["trap '' TERM; sleep 1000 & echo $!; wait", "(trap '' TERM; echo $$; sleep 1000) & wait"] {
            let mut shell = Command::new("sh");
            let mut child = shell.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
            // From its first byte on the signal is ignored, and the processes are there.
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            assert!(end_descendants(Duration::from_millis(20)));
            child.wait().unwrap();
            // The pipe ends when the last process of the group has ended.
            child.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
            assert!(!end_descendants(Duration::from_millis(20)));
        }
    }

    #[test]
    fn descendants_that_ignore_sigterm_are_killed_with_what_they_started() {
        let test = std::env::current_exe().unwrap();
        let words = ["--exact", "--include-ignored", "descendants::tests::ends_its_descendants"];
        let output = Command::new(test).args(words).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
}
