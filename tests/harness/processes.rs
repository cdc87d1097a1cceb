//! Processes of a run that the test did not start itself.
//!
//! What is done to a process shows a moment later: a signal that was sent is not yet an end, and a process that was started does
//! not listen yet. So there is a way to wait for each.

use std::fs;

use crate::patience::{wait_for, wait_until};

/// Numbers of the processes that are there now.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// State and parent of a process or thread, by its `stat` file below `/proc`; nothing once it is gone.
fn state(stat: &str) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{stat}")).ok()?;
    // The name before it is in parentheses and may hold anything (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Whether a process has not ended. One that has and was not waited for by its parent, a zombie, has ended.
pub fn is_running(process: u32) -> bool {
    state(&format!("{process}/stat")).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Waits until all of these have ended.
///
/// # Panics
/// When they do not.
pub fn wait_until_gone(processes: &[u32]) {
    wait_until(&format!("the end of the processes {processes:?}"), || !processes.iter().any(|id| is_running(*id)));
}

/// Process numbers of the children of `parent` whose command line has `word` as one of its words, in ascending order.
pub fn children(parent: u32, word: &str) -> Vec<u32> {
    let mut found: Vec<u32> = all().filter(|number| is_child(*number, parent, word)).collect();
    found.sort_unstable();
    found
}

fn is_child(number: u32, parent: u32, word: &str) -> bool {
    state(&format!("{number}/stat")).is_some_and(|(state, found)| found == parent && state != 'Z')
        && has_words(number, "cmdline", &[word])
}

fn has_words(number: u32, file: &str, wanted: &[&str]) -> bool {
    let found = fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
    wanted.iter().all(|word| found.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
}

/// Process numbers of those that have all these words on their command line and all these settings (`NAME=value`) in their
/// environment.
pub fn with_words(words: &[&str], settings: &[&str]) -> Vec<u32> {
    all().filter(|number| has_words(*number, "cmdline", words) && has_words(*number, "environ", settings)).collect()
}

/// Waits until `parent` has `count` such children.
///
/// # Panics
/// When that takes too long.
pub fn wait_for_children(parent: u32, word: &str, count: usize) -> Vec<u32> {
    wait_for(&format!("{count} processes of {word}"), || {
        Some(children(parent, word)).filter(|found| found.len() >= count)
    })
}

/// Waits until a process has said what it does on SIGTERM, and all its threads wait for something: input, or another process.
///
/// # Panics
/// When that takes too long.
pub fn wait_until_idle(process: u32) {
    wait_until(&format!("process {process} to wait"), || is_idle(process));
}

/// Whether a process handles SIGTERM, and all its threads wait.
pub fn is_idle(process: u32) -> bool {
    handles_sigterm(process) && sleeps(process)
}

/// Whether a process handles SIGTERM.
pub fn handles_sigterm(process: u32) -> bool {
    handles(process, libc::SIGTERM)
}

/// Whether a process handles a signal.
pub fn handles(process: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // A bit for each signal, the first one for signal 1 (proc_pid_status(5)).
    let caught = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> (signal - 1) & 1 == 1)
}

fn sleeps(process: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
    let mut states = threads.map(|thread| state(&format!("{process}/task/{}/stat", thread.file_name().display())));
    states.all(|state| state.is_some_and(|(state, _)| state == 'S'))
}

/// Sends a signal.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: kill takes numbers only. One that has ended is not there to be signalled, which is no failure here.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}
