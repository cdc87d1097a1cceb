//! Processes of a run that the test did not start itself.
//!
//! Effects on a process are delayed: a signal that was sent has not ended it yet, and a process that was started does
//! not listen yet. So this module has functions that wait for each of these effects.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use crate::wait::{wait_for, wait_until};

/// Returns the ids of the processes that exist now.
fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").expect("/proc is there").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns state and parent of a process or thread, from its `stat` file below `/proc`; `None` if it does not exist.
fn process_state(stat: &str) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{stat}")).ok()?;
    // Split after the last parenthesis, because the process name before it may contain any character
    // (proc_pid_stat(5)).
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// Reports whether a process is running. A zombie process does not count as running.
pub fn is_running(process: u32) -> bool {
    process_state(&format!("{process}/stat")).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// Waits until all of these processes have ended.
///
/// # Panics
/// When they do not.
pub fn wait_until_exited(processes: &[u32]) {
    wait_until(&format!("the end of the processes {processes:?}"), || !processes.iter().any(|id| is_running(*id)));
}

/// Returns the ids of the children of `parent` whose command line has the argument `word`, in ascending order.
pub fn child_processes(parent: u32, word: &str) -> Vec<u32> {
    let mut found: Vec<u32> = process_ids().filter(|number| is_child(*number, parent, word)).collect();
    found.sort_unstable();
    found
}

fn is_child(number: u32, parent: u32, word: &str) -> bool {
    process_state(&format!("{number}/stat")).is_some_and(|(state, found)| found == parent && state != 'Z')
        && has_arguments(number, "cmdline", &[word])
}

fn has_arguments(number: u32, file: &str, wanted: &[&str]) -> bool {
    let found = fs::read(format!("/proc/{number}/{file}")).unwrap_or_default();
    wanted.iter().all(|word| found.split(|byte| *byte == 0).any(|found| found == word.as_bytes()))
}

/// Returns the ids of the processes that have all these arguments on their command line and all these settings
/// (`NAME=value`) in their environment.
pub fn find_processes(words: &[&str], settings: &[&str]) -> Vec<u32> {
    process_ids()
        .filter(|number| has_arguments(*number, "cmdline", words) && has_arguments(*number, "environ", settings))
        .collect()
}

/// Waits until `parent` has `count` children whose command line contains the argument `word`.
///
/// # Panics
/// When that takes too long.
pub fn wait_for_children(parent: u32, word: &str, count: usize) -> Vec<u32> {
    wait_for(&format!("{count} processes of {word}"), || {
        Some(child_processes(parent, word)).filter(|found| found.len() >= count)
    })
}

/// Waits until a process has installed its handler of SIGTERM and all its threads are blocked: on input, or on another
/// process.
///
/// # Panics
/// When that takes too long.
pub fn wait_until_idle(process: u32) {
    wait_until(&format!("process {process} to wait"), || is_idle(process));
}

/// Reports whether a process handles SIGTERM and all its threads are blocked.
pub fn is_idle(process: u32) -> bool {
    handles_sigterm(process) && is_sleeping(process)
}

/// Reports whether a process handles SIGTERM.
pub fn handles_sigterm(process: u32) -> bool {
    handles_signal(process, libc::SIGTERM)
}

/// Reports whether a process handles a signal.
pub fn handles_signal(process: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    // The mask has one bit for each signal; the lowest bit stands for signal 1 (proc_pid_status(5)).
    let caught = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> (signal - 1) & 1 == 1)
}

fn is_sleeping(process: u32) -> bool {
    thread_states(process).all(|state| state == Some('S'))
}

/// Returns the state of each thread of a process; `None` for a thread that has ended meanwhile.
fn thread_states(process: u32) -> impl Iterator<Item = Option<char>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    threads.map(move |thread| {
        let stat = format!("{process}/task/{}/stat", thread.file_name().display());
        process_state(&stat).map(|(state, _)| state)
    })
}

/// Makes the kernel send SIGTERM to the process of a command line when the thread that starts it ends, also if the tests are
/// killed (prctl(2)).
pub fn end_with_this_thread(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// Sends a signal.
pub fn send_signal(process: u32, signal: i32) {
    // SAFETY: kill takes numbers only. A process that has ended cannot be signalled, which is not a failure here.
    unsafe { libc::kill(process as libc::pid_t, signal) };
}

/// Runs a process in steps of a few milliseconds until `done` returns true or the process has ended, and leaves it stopped.
/// Returns whether it was stopped. `done` is called while the process is stopped, so the process cannot get past the
/// condition while the test waits for a processor. SIGKILL ends the stopped process; SIGCONT lets it run again.
///
/// # Panics
/// With `what`, when neither happens for too long.
pub fn stop_when(process: u32, what: &str, mut done: impl FnMut() -> bool) -> bool {
    const STEP: Duration = Duration::from_millis(2);
    wait_for(what, || {
        send_signal(process, libc::SIGSTOP);
        wait_until("the process to stop", || !is_running(process) || is_stopped(process));
        if !is_running(process) {
            return Some(false);
        }
        if done() {
            return Some(true);
        }
        send_signal(process, libc::SIGCONT);
        std::thread::sleep(STEP);
        None
    })
}

/// Reports whether all threads of a process are stopped.
fn is_stopped(process: u32) -> bool {
    thread_states(process).all(|state| state.is_none_or(|state| state == 'T'))
}
