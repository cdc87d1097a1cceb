//! Starts a worker process of a search, which receives requests on standard input and responds on standard output.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use godwit_engines::EngineError;
use godwit_engines::searcher::blast;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::tool_search::ToolSearch;
use crate::worker_protocol;

/// Maximum number of lines that are kept from the end of a worker's stderr.
const MAX_STDERR_LINES: usize = 20;

/// The start parameters of a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Name of the search program, such as `blastp`.
    pub program: String,
    /// Command-line options for the search engine.
    pub arguments: Vec<String>,
    /// Path of the FASTA file of the queries.
    #[serde(rename = "query")]
    pub query_path: PathBuf,
    /// The search that the worker runs with an installed DIAMOND, MMseqs2 or BLAST+; `None` if it uses the NCBI engine
    /// itself.
    #[serde(rename = "bulk")]
    pub tool_search: Option<ToolSearch>,
}

impl WorkerSpec {
    /// Finds the program that workers run. Returns its path, and the name and version of the engine, such as `BLAST
    /// 2.17.0+`.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if the program is not installed.
    pub(crate) fn find_worker_program(&self) -> Result<(PathBuf, String), EngineError> {
        let Some(bulk) = &self.tool_search else {
            let worker = blast::find_worker()?;
            let version = blast::query_worker_version(&worker)?;
            return Ok((worker, format!("BLAST {version}")));
        };
        let (_, version) = bulk.find_program_version()?;
        let own = std::env::current_exe();
        let own = own.map_err(|source| EngineError::Io { program: "godwit".into(), action: "find", source })?;
        Ok((own, format!("{} {version}", bulk.tool.display_name())))
    }

    /// Returns the command that starts a worker process.
    pub(crate) fn worker_command(&self, worker: &Path) -> Command {
        let mut command = Command::new(worker);
        match &self.tool_search {
            Some(bulk) => {
                let json = serde_json::to_string(bulk).expect("words and numbers are JSON");
                command.args(["search-worker", &json]).arg(&self.query_path);
            }
            None => {
                command.arg(&self.program).args(&self.arguments).arg("-query").arg(&self.query_path);
                // Disable the usage reports that NCBI's libraries send to NCBI.
                command.env("BLAST_USAGE_REPORT", "false");
            }
        }
        command
    }
}

/// The exit of a worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerExit {
    /// Description of the exit, such as `was killed by signal 9`.
    #[serde(rename = "how")]
    pub description: String,
    /// The last lines of the worker's stderr, joined into one line.
    #[serde(rename = "last_words")]
    pub stderr_tail: String,
}

/// Prints the warnings of all workers of a search to stderr. Workers read the same queries, search them in several ranges and
/// are restarted, so each line is printed once.
#[derive(Clone, Default)]
pub struct WarningPrinter {
    /// Hashes of the lines that were printed.
    printed: Arc<Mutex<HashSet<u64>>>,
}

impl WarningPrinter {
    fn print(&self, line: &str) {
        if self.is_new(line) {
            eprintln!("{line}");
        }
    }

    /// Returns whether this is the first call with this line.
    fn is_new(&self, line: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        line.hash(&mut hasher);
        self.printed.lock().insert(hasher.finish())
    }
}

/// A running worker process on this machine. Dropping this value kills the process.
pub struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stderr_tail: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl WorkerProcess {
    /// Starts the process. A thread passes each frame from the worker to `on_frame`, and `None` after the exit. The
    /// thread ends when `on_frame` returns false. `warnings` prints the worker's stderr; `None` if it is not printed.
    ///
    /// # Errors
    /// The I/O error if the process cannot be started.
    pub fn start(
        mut command: Command,
        mut on_frame: impl FnMut(Option<Vec<u8>>) -> bool + Send + 'static,
        warnings: Option<WarningPrinter>,
    ) -> std::io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        godwit_process::set_parent_death_signal(&mut command);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::with_capacity(1 << 16, child.stdout.take().expect("it is a pipe"));
        let mut stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let stderr_tail = Arc::new(Mutex::new(VecDeque::new()));
        let listener = std::thread::spawn(move || {
            loop {
                let frame = worker_protocol::read_frame_bytes(&mut stdout);
                let ends = frame.is_none();
                if !on_frame(frame) || ends {
                    return;
                }
            }
        });
        let kept = stderr_tail.clone();
        let complaints = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A warning contains the title of a query, which may have any bytes.
            while stderr.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\r', '\n']).to_owned();
                bytes.clear();
                if let Some(printer) = &warnings {
                    printer.print(&line);
                }
                let mut kept = kept.lock();
                kept.push_back(line);
                if kept.len() > MAX_STDERR_LINES {
                    kept.pop_front();
                }
            }
        });
        Ok(Self { child, stdin, stderr_tail, readers: vec![listener, complaints] })
    }

    /// Sends a request to the worker. If the worker has exited, the request is dropped; `on_frame` receives `None`.
    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        let written = self.stdin.as_mut().map(|stdin| stdin.write_all(frame).and_then(|()| stdin.flush()));
        if let Some(Err(_)) = written {
            self.stdin = None;
        }
    }

    /// Closes the worker's standard input, waits until the process exits, and describes the exit.
    pub fn wait_for_exit(mut self) -> WorkerExit {
        self.stdin = None;
        let description = match self.child.wait() {
            Ok(status) => godwit_process::describe_exit(status),
            Err(error) => format!("cannot be waited for ({error})"),
        };
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let words = self.stderr_tail.lock();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        WorkerExit { description, stderr_tail: if words.is_empty() { "none".into() } else { words.join(" | ") } }
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        // Ignore the error: the process may have exited already.
        let _ = self.child.kill();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
        // Wait until the last warnings are printed.
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_several_workers_is_printed_once() {
        let printer = WarningPrinter::default();
        let other_worker = printer.clone();
        let lines = ["Warning: one", "Warning: two", "Warning: one"];
        assert_eq!(lines.map(|line| printer.is_new(line)), [true, true, false]);
        assert_eq!(lines.map(|line| other_worker.is_new(line)), [false; 3]);
        assert!(other_worker.is_new("Warning: three"));
    }
}
