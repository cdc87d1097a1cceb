//! The thread that starts a child process, keeps the last lines of its stderr, and runs until the child has exited.
//!
//! Linux sends the parent-death signal when the *thread* that started a child ends, not when its process ends. The
//! thread that starts the child must therefore live as long as the child.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Maximum number of stderr lines that are kept.
const MAX_TAIL_LINES: usize = 20;
/// Maximum length of a stderr line, bytes. The rest of a longer line counts as the next line.
const MAX_LINE_BYTES: u64 = 1000;
/// Prefix of the progress messages of bwa and minimap2. bwa 0.7.17 prints such messages for every batch at any
/// verbosity.
const PROGRESS_PREFIX: &[u8] = b"[M::";
/// Maximum time to wait for the last stderr lines of a child that has exited. A process that the child started may keep
/// its stderr open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// The last lines of a child's stderr.
#[derive(Default)]
pub(super) struct StderrTail {
    lines: Mutex<(VecDeque<String>, bool)>,
    closed: Condvar,
}

impl StderrTail {
    /// Waits until stderr is closed, but at most one second, and returns the lines that are kept.
    pub(super) fn wait_for_lines(&self) -> Vec<String> {
        let mut lines = self.lines.lock();
        self.closed.wait_while_for(&mut lines, |(_, ended)| !*ended, STDERR_TIMEOUT);
        lines.0.iter().cloned().collect()
    }

    fn push_line(&self, line: String) {
        let mut lines = self.lines.lock();
        if lines.0.len() == MAX_TAIL_LINES {
            lines.0.pop_front();
        }
        lines.0.push_back(line);
    }

    fn mark_closed(&self) {
        self.lines.lock().1 = true;
        self.closed.notify_all();
    }
}

/// Starts a child from a new thread, which then reads the stderr of the child.
pub(super) fn spawn_supervised(mut command: Command) -> (std::io::Result<Child>, Arc<StderrTail>) {
    let tail = Arc::new(StderrTail::default());
    let (sender, receiver) = mpsc::channel();
    let thread_tail = tail.clone();
    let supervise = move || {
        let mut spawned = command.spawn();
        // Close the descriptors that `command` holds for the child, such as its ends of pipes. Otherwise the pipes stay
        // open after the child exits.
        drop(command);
        let stderr = spawned.as_mut().ok().and_then(|child| child.stderr.take());
        let id = spawned.as_ref().ok().map(Child::id);
        // Ignore the error: the receiver is missing only if the thread of the caller has ended.
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
        Ok(_) => receiver
            .recv()
            .unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts child processes has stopped"))),
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
