//! The thread that starts a child, keeps the last lines of its stderr, and stays until it is gone.
//!
//! Linux sends the parent-death signal when the *thread* that started a child ends, not only its process, so the
//! starting thread has to live as long as the child.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Lines kept.
const TAIL_LINES: usize = 20;
/// Bytes of a line kept; the rest of it counts as the next line.
const LINE_BYTES: u64 = 1000;
/// How progress messages of bwa and minimap2 start; bwa 0.7.17 prints some for every batch, however quiet it is told to be.
const PROGRESS: &[u8] = b"[M::";
/// How long the last lines of a child that is gone may take: something it started may hold its stderr open.
const PATIENCE: Duration = Duration::from_secs(1);

/// The last lines of a child's stderr.
#[derive(Default)]
pub(super) struct Tail {
    lines: Mutex<(VecDeque<String>, bool)>,
    ended: Condvar,
}

impl Tail {
    /// The lines kept, once the child closed its stderr or a second has passed.
    pub(super) fn wait_and_take(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ended.wait_timeout_while(lines, PATIENCE, |(_, ended)| !*ended);
        let (lines, _) = waited.unwrap_or_else(PoisonError::into_inner);
        lines.0.iter().cloned().collect()
    }

    fn push(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.0.len() == TAIL_LINES {
            lines.0.pop_front();
        }
        lines.0.push_back(line);
    }

    fn end(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.ended.notify_all();
    }
}

/// Starts the child from a thread of its own, which goes on reading its stderr.
pub(super) fn spawn(mut command: Command) -> (std::io::Result<Child>, Arc<Tail>) {
    let tail = Arc::new(Tail::default());
    let (sender, receiver) = mpsc::channel();
    let thread_tail = tail.clone();
    let mind = move || {
        let mut spawned = command.spawn();
        // What it holds for the child, the far end of a pipe perhaps, must not outlive the child on this side.
        drop(command);
        let stderr = spawned.as_mut().ok().and_then(|child| child.stderr.take());
        let id = spawned.as_ref().ok().map(Child::id);
        // The other side is gone only if the caller's thread was torn down meanwhile.
        let _ = sender.send(spawned);
        if let Some(stderr) = stderr {
            keep_last_lines(stderr, &thread_tail);
        }
        thread_tail.end();
        if let Some(id) = id {
            godwit_process::await_exit(id);
        }
    };
    let spawned = match std::thread::Builder::new().name("godwit-stderr".into()).spawn(mind) {
        Ok(_) => receiver.recv().unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it ended"))),
        Err(error) => Err(error),
    };
    (spawned, tail)
}

fn keep_last_lines(stderr: ChildStderr, tail: &Tail) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.starts_with(PROGRESS) => {}
            Ok(_) => tail.push(String::from_utf8_lossy(&line).trim_end().to_owned()),
        }
    }
}
