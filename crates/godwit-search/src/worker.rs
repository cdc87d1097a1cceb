//! A worker: a process that searches, asked over its standard input, answering over its standard output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use godwit_engines::EngineError;
use godwit_engines::searcher::blast;
use serde::{Deserialize, Serialize};

use crate::bulk::BulkSearch;
use crate::protocol;

/// Lines of stderr that are kept.
const LAST_WORDS: usize = 20;

/// What a worker's process is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Engine {
    /// Name of the program that it is to be: `blastp`.
    pub program: String,
    /// Options for the engine.
    pub arguments: Vec<String>,
    /// The file of the queries.
    pub query: PathBuf,
    /// Where pieces of the queries are searched by a tool of their own.
    pub bulk: Option<BulkSearch>,
}

impl Engine {
    /// The program that workers are, and what searches in them with its version, such as `BLAST 2.17.0+`.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`].
    pub fn find(&self) -> Result<(PathBuf, String), EngineError> {
        let Some(bulk) = &self.bulk else {
            let worker = blast::find_worker()?;
            let version = blast::worker_version(&worker)?;
            return Ok((worker, format!("BLAST {version}")));
        };
        let (_, version) = bulk.find()?;
        let own = std::env::current_exe();
        let own = own.map_err(|source| EngineError::Io { program: "godwit".into(), action: "find", source })?;
        Ok((own, format!("{} {version}", bulk.tool.title())))
    }

    /// The command that starts a worker, which is a process of that program.
    pub fn command(&self, worker: &Path) -> Command {
        let mut command = Command::new(worker);
        match &self.bulk {
            Some(bulk) => {
                let told = serde_json::to_string(bulk).expect("words and numbers are JSON");
                command.args(["search-worker", &told]).arg(&self.query);
            }
            None => {
                command.arg(&self.program).args(&self.arguments).arg("-query").arg(&self.query);
                // NCBI's programs report their use to NCBI; a worker does not.
                command.env("BLAST_USAGE_REPORT", "false");
            }
        }
        command
    }
}

/// How a worker ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// `was killed by signal 9`.
    pub how: String,
    /// The end of its stderr, on one line.
    pub last_words: String,
}

/// A running worker of this machine. Dropping it kills it.
pub struct WorkerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl WorkerProcess {
    /// Starts it. Each frame that it says goes to `heard`, on a thread of its own, and `None` when it has ended; that thread ends
    /// where `heard` returns false. What the worker complains of is passed on to stderr where `tells`.
    ///
    /// # Errors
    /// What the system says where it cannot be started.
    pub fn start(
        mut command: Command,
        mut heard: impl FnMut(Option<Vec<u8>>) -> bool + Send + 'static,
        tells: bool,
    ) -> std::io::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        godwit_process::die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::with_capacity(1 << 16, child.stdout.take().expect("it is a pipe"));
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let last_words = Arc::new(Mutex::new(VecDeque::new()));
        let listener = std::thread::spawn(move || {
            loop {
                let frame = protocol::read_frame(&mut stdout);
                let ends = frame.is_none();
                if !heard(frame) || ends {
                    return;
                }
            }
        });
        let kept = last_words.clone();
        let complaints = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if tells {
                    eprintln!("{line}");
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > LAST_WORDS {
                    kept.pop_front();
                }
            }
        });
        Ok(Self { child, stdin, last_words, readers: vec![listener, complaints] })
    }

    /// Asks. That nobody listens any more is heard from the other end.
    pub fn ask(&mut self, frame: &[u8]) {
        let told = self.stdin.as_mut().map(|stdin| stdin.write_all(frame).and_then(|()| stdin.flush()));
        if let Some(Err(_)) = told {
            self.stdin = None;
        }
    }

    /// Waits for its end, which it was asked for or which was heard of.
    pub fn end(mut self) -> Ending {
        self.stdin = None;
        let how = match self.child.wait() {
            Ok(status) => {
                use std::os::unix::process::ExitStatusExt;
                match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exited with status {code}"),
                    (None, signal) => format!("was killed by signal {}", signal.unwrap_or(0)),
                }
            }
            Err(error) => format!("is lost ({error})"),
        };
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Ending { how, last_words: if words.is_empty() { "none".into() } else { words.join(" | ") } }
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}
