//! The thread that starts a child process, keeps the last lines of its stderr and the first error message of htslib,
//! and runs until the child has exited.
//!
//! Linux sends the parent-death signal when the *thread* that started a child ends, not when its process ends. The
//! thread that starts the child must therefore live as long as the child.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Maximum number of stderr lines that are kept.
const MAX_TAIL_LINES: usize = 20;
/// Maximum length of a stderr line, bytes. The rest of a longer line counts as the next line.
const MAX_LINE_BYTES: u64 = 1000;
/// Prefix of the progress messages of bwa and minimap2. bwa 0.7.17 prints such messages for every batch at any
/// verbosity.
const PROGRESS_PREFIX: &[u8] = b"[M::";
/// Prefix of the error messages of htslib, as in `[E::bgzf_read_block] Invalid BGZF header at offset 40105`.
const HTSLIB_ERROR_PREFIX: &[u8] = b"[E::";
/// Prefixes of error messages of htslib after which programs read their input to the end nevertheless.
const HARMLESS_ERROR_PREFIXES: [&[u8]; 2] = [
    // A file has no index. Programs also print this for files that they read without one (htslib 1.16, pysam).
    b"[E::idx_find_and_load]",
    // A FASTA does not have a contig. bcftools 1.16 then takes N for its bases.
    b"[E::faidx_adjust_position]",
];
/// Maximum time to wait for the last stderr lines of a child that has exited. Its own lines are in the pipe by then, but
/// a process that the child started may keep its stderr open.
const STDERR_TIMEOUT: Duration = Duration::from_secs(1);

/// The last lines of a child's stderr, and the first error message of htslib.
#[derive(Default)]
pub(super) struct StderrTail {
    content: Mutex<StderrContent>,
    closed: Condvar,
}

#[derive(Default)]
struct StderrContent {
    last_lines: VecDeque<String>,
    first_htslib_error: Option<String>,
    is_closed: bool,
}

impl StderrTail {
    /// Waits until stderr is closed, but at most one second, and returns the lines that are kept.
    pub(super) fn wait_for_lines(&self) -> Vec<String> {
        self.wait_until_closed().last_lines.iter().cloned().collect()
    }

    /// Waits until stderr is closed, but at most one second, and returns the first error message of htslib.
    pub(super) fn wait_for_htslib_error(&self) -> Option<String> {
        self.wait_until_closed().first_htslib_error.clone()
    }

    fn wait_until_closed(&self) -> MutexGuard<'_, StderrContent> {
        let mut content = self.content.lock();
        self.closed.wait_while_for(&mut content, |content| !content.is_closed, STDERR_TIMEOUT);
        content
    }

    fn push_line(&self, line: &[u8]) {
        let text = String::from_utf8_lossy(line).trim_end().to_owned();
        let mut content = self.content.lock();
        let is_harmless = HARMLESS_ERROR_PREFIXES.iter().any(|prefix| line.starts_with(prefix));
        let is_htslib_error = line.starts_with(HTSLIB_ERROR_PREFIX) && !is_harmless;
        if is_htslib_error && content.first_htslib_error.is_none() {
            content.first_htslib_error = Some(text.clone());
        }
        if content.last_lines.len() == MAX_TAIL_LINES {
            content.last_lines.pop_front();
        }
        content.last_lines.push_back(text);
    }

    fn mark_closed(&self) {
        self.content.lock().is_closed = true;
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
            read_lines(stderr, &thread_tail);
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

fn read_lines(stderr: ChildStderr, tail: &StderrTail) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match stderr.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if line.starts_with(PROGRESS_PREFIX) => {}
            Ok(_) => tail.push_line(&line),
        }
    }
}
