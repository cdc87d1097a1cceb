//! A worker: a process with the NCBI engine, asked over its standard input, answering over its standard output.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use godwit_fleet::leases::Attempt;

use crate::SearchError;
use crate::protocol::{self, Answer, Request};

/// Lines of stderr that are kept.
const LAST_WORDS: usize = 20;

/// What is heard of a worker.
pub(crate) struct Heard {
    /// Its number.
    pub(crate) worker: usize,
    /// Which start of it.
    pub(crate) attempt: Attempt,
    /// What it says; `None`: it has ended.
    pub(crate) answer: Result<Option<Answer>, SearchError>,
}

/// A running worker. Dropping it kills it.
pub(crate) struct Worker {
    /// Which start of it.
    pub(crate) attempt: Attempt,
    child: Child,
    stdin: Option<ChildStdin>,
    last_words: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Worker {
    /// Starts it. What it says goes to `heard`; what it complains of is passed on where `tells`, for one of all workers.
    pub(crate) fn start(
        mut command: Command,
        number: usize,
        attempt: Attempt,
        heard: Sender<Heard>,
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
                let answer = protocol::read(&mut stdout);
                let ends = !matches!(answer, Ok(Some(_)));
                if heard.send(Heard { worker: number, attempt, answer }).is_err() || ends {
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
        Ok(Self { attempt, child, stdin, last_words, readers: vec![listener, complaints] })
    }

    /// Asks. That nobody listens any more is heard from the other end.
    pub(crate) fn ask(&mut self, request: &Request) {
        let told = self.stdin.as_mut().map(|stdin| request.write(stdin));
        if let Some(Err(_)) = told {
            self.stdin = None;
        }
    }

    /// Waits for its end, which it was asked for or which was heard of. Returns how it ended, and its last words.
    pub(crate) fn end(mut self) -> (String, String) {
        self.stdin = None;
        let ending = match self.child.wait() {
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
        (ending, if words.is_empty() { "none".into() } else { words.join(" | ") })
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}
