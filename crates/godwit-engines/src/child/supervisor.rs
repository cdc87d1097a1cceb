//! The thread that starts a child, keeps the last lines of its stderr, and runs until the child exits.
//!
//! Linux sends the parent-death signal when the *thread* that started a child ends, not only its process, so the starting
//! thread must live as long as the child.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Maximum number of lines kept.
const MAX_TAIL_LINES: usize = 20;
/// Maximum length of a line, bytes; the rest of it counts as the next line.
const MAX_LINE_BYTES: u64 = 1000;
/// Prefix of progress messages of bwa and minimap2; bwa 0.7.17 prints some for every batch at any verbosity.
const PROGRESS_PREFIX: &[u8] = b"[M::";
/// Maximum wait for the last lines of a child that has exited: one of its children may hold its stderr open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// The last lines of a child's stderr.
#[derive(Default)]
pub(super) struct StderrTail {
    lines: Mutex<(VecDeque<String>, bool)>,
    closed: Condvar,
}

impl StderrTail {
    /// Returns the lines kept, after the child closed its stderr or one second has passed.
    pub(super) fn wait_for_lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.closed.wait_timeout_while(lines, STDERR_TIMEOUT, |(_, ended)| !*ended);
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lines.0.iter().cloned().collect()
    }

    fn push_line(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.0.len() == MAX_TAIL_LINES {
            lines.0.pop_front();
        }
        lines.0.push_back(line);
    }

    fn mark_closed(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.closed.notify_all();
    }
}

/// Starts the child from a new thread, which then reads its stderr.
pub(super) fn spawn_supervised(mut command: Command) -> (std::io::Result<Child>, Arc<StderrTail>) {
    let tail = Arc::new(StderrTail::default());
    let (sender, receiver) = mpsc::channel();
    let thread_tail = tail.clone();
    let supervise = move || {
        let mut spawned = command.spawn();
        // The descriptors that it holds for the child, such as the other end of a pipe, must not outlive the child here.
        drop(command);
        let stderr = spawned.as_mut().ok().and_then(|child| child.stderr.take());
        let id = spawned.as_ref().ok().map(Child::id);
        // The receiver is missing only if the caller's thread ended meanwhile.
        let _ = sender.send(spawned);
        if let Some(stderr) = stderr {
            read_last_lines(stderr, &thread_tail);
        }
        thread_tail.mark_closed();
        if let Some(id) = id {
            godwit_process::wait_for_exit(id);
        }
    };
    let spawned = match std::thread::Builder::new().name("godwit-stderr".into()).spawn(supervise) {
        Ok(_) => receiver.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it ended"))),
        Err(error) => Err(error),
    };
    (spawned, tail)
}

fn read_last_lines(stderr: ChildStderr, tail: &StderrTail) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.starts_with(PROGRESS_PREFIX) => {}
            Ok(_) => tail.push_line(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
}
