//! A child process that leaves no orphan and no riddle.
//!
//! It dies with godwit, its last lines on stderr are kept, and its end is turned into an [`EngineError`]. What is said on
//! its stdin and stdout is none of this module's business.

mod chain;
mod minder;
mod system;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use godwit_process::Signal;

use crate::aligner::protocol;
use crate::{EngineError, ExitCause};
pub use chain::{Chain, Link};
use minder::Tail;

/// How long a child that closed its pipes may take to be gone. It only has to give its memory back.
const EXIT_PATIENCE: Duration = Duration::from_secs(30);
/// How often a child is looked at while waiting.
const POLL: Duration = Duration::from_millis(5);
/// Bytes a pipe holds: more than the 64 KiB of Linux means fewer switches between the processes. The most a user without
/// privileges may ask for.
const PIPE_BYTES: i32 = 1 << 20;
/// Exit status of a program that refused its arguments.
const EXIT_USAGE: i32 = protocol::EXIT_USAGE as i32;

/// What everyone who deals with a child shares.
pub(crate) struct ChildState {
    program: PathBuf,
    command_line: String,
    child: Mutex<Child>,
    tail: Arc<Tail>,
    version: OnceLock<String>,
    stopped: AtomicBool,
}

/// A started child and its pipes.
pub(crate) struct Started {
    pub(crate) state: Arc<ChildState>,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// Has the child find that end of a pipe as `/dev/fd/3`.
pub(crate) fn pass_second_input(command: &mut Command, end: std::io::PipeReader) {
    system::widen_pipe(&end, PIPE_BYTES);
    system::pass_as_descriptor_3(command, end);
}

/// Starts a program with pipes on all three standard streams.
pub(crate) fn start(program: PathBuf, mut command: Command) -> Result<Started, EngineError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let state = spawn(program, command)?;
    let (stdin, stdout) = {
        let mut child = state.lock();
        (child.stdin.take(), child.stdout.take())
    };
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(state.io("start", std::io::Error::other("its pipes are missing")));
    };
    system::widen_pipe(&stdin, PIPE_BYTES);
    system::widen_pipe(&stdout, PIPE_BYTES);
    Ok(Started { state: Arc::new(state), stdin, stdout })
}

/// Starts a program whose stdin and stdout are set, in a process group of its own: it is killed with what it starts itself.
fn spawn(program: PathBuf, mut command: Command) -> Result<ChildState, EngineError> {
    command.stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    godwit_process::die_with_parent(&mut command);
    let command_line = command_line(&command);
    let (spawned, tail) = minder::spawn(command);
    let child = match spawned {
        Ok(child) => Mutex::new(child),
        Err(source) => return Err(EngineError::Io { program, action: "start", source }),
    };
    let (version, stopped) = (OnceLock::new(), AtomicBool::new(false));
    Ok(ChildState { program, command_line, child, tail, version, stopped })
}

/// A pipe that a child writes to as a file: what it reads from, and the path under which the child opens it. The text
/// ends when the child does, however it ends, and whether or not it ever opened the path.
pub(crate) fn output_pipes(command: &mut Command, count: usize) -> std::io::Result<Vec<(File, PathBuf)>> {
    let (mut outputs, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (reader, writer) = std::io::pipe()?;
        system::widen_pipe(&reader, PIPE_BYTES);
        let writer = OwnedFd::from(writer);
        outputs.push((File::from(OwnedFd::from(reader)), format!("/dev/fd/{}", writer.as_raw_fd()).into()));
        kept.push(writer);
    }
    system::inherit(command, kept);
    Ok(outputs)
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        if word.is_empty() || word.contains([' ', '\t', '"', '\'', '\\', '\n']) {
            format!("{word:?}")
        } else {
            word.into_owned()
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

impl ChildState {
    /// Remembers the engine's version for later messages.
    pub(crate) fn set_version(&self, version: &str) {
        // The first one stays: a child says hello once.
        let _ = self.version.set(version.to_owned());
    }

    /// The program's path.
    pub(crate) fn program(&self) -> &PathBuf {
        &self.program
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn status(&self) -> Result<Option<ExitStatus>, EngineError> {
        self.lock().try_wait().map_err(|source| self.io("wait for", source))
    }

    /// Waits until the child is gone, at most `patience` where given.
    fn await_end(&self, patience: Option<Duration>) -> Result<Option<ExitStatus>, EngineError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        loop {
            let status = self.status()?;
            if status.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits for a child that closed its output at the right moment: it has to exit with status 0 now.
    pub(crate) fn expect_success(&self) -> Result<(), EngineError> {
        match self.await_end(Some(EXIT_PATIENCE))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.died(status)),
            None => Err(self.protocol("it closed its output but goes on running")),
        }
    }

    /// The error behind a pipe that broke: the child's death where it died, else `otherwise`.
    pub(crate) fn explain(&self, otherwise: EngineError) -> EngineError {
        match self.await_end(Some(EXIT_PATIENCE)) {
            Ok(Some(status)) => self.died(status),
            Ok(None) => otherwise,
            Err(error) => error,
        }
    }

    /// The error of a child whose output is not what it should be: its failure where it failed, else what is wrong.
    pub(crate) fn explain_output(&self, problem: String, ended: bool) -> EngineError {
        let status = if ended { self.await_end(Some(EXIT_PATIENCE)) } else { Ok(None) };
        match status {
            Ok(Some(status)) if !status.success() => self.died(status),
            _ => EngineError::Output {
                program: self.program.clone(),
                command_line: self.command_line.clone(),
                problem,
                stderr_tail: self.tail.wait_and_take(),
            },
        }
    }

    /// A protocol error of this child.
    pub(crate) fn protocol(&self, problem: impl ToString) -> EngineError {
        EngineError::Protocol { program: self.program.clone(), problem: problem.to_string(), source: None }
    }

    /// A failed system call about this child.
    pub(crate) fn io(&self, action: &'static str, source: std::io::Error) -> EngineError {
        EngineError::Io { program: self.program.clone(), action, source }
    }

    fn died(&self, status: ExitStatus) -> EngineError {
        use std::os::unix::process::ExitStatusExt;
        let mut stderr_tail = self.tail.wait_and_take();
        let ending = match (status.code(), status.signal()) {
            _ if self.stopped.load(Ordering::Relaxed) => ExitCause::StoppedByGodwit,
            (Some(EXIT_USAGE), _) if self.version.get().is_none() && !stderr_tail.is_empty() => {
                let line = stderr_tail.pop().unwrap_or_default();
                let message = protocol::error_message(&line).to_owned();
                return EngineError::Usage { program: self.program.clone(), message };
            }
            (Some(code), _) => ExitCause::Status(code),
            (None, Some(signal)) => ExitCause::Signal(signal),
            (None, None) => ExitCause::Other(status),
        };
        EngineError::Died {
            program: self.program.clone(),
            command_line: self.command_line.clone(),
            ending,
            version: self.version.get().cloned().unwrap_or_else(|| "unknown".to_owned()),
            stderr_tail,
        }
    }

    fn kill(&self) {
        let mut child = self.lock();
        if matches!(child.try_wait(), Ok(None)) {
            self.stopped.store(true, Ordering::Relaxed);
            // Both fail only for a child that is gone already.
            godwit_process::signal_group(child.id(), Signal::Kill);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The life of a child: waits for it, or ends it. Dropping it kills a child that still runs.
pub struct ChildHandle {
    state: Arc<ChildState>,
}

impl ChildHandle {
    pub(crate) fn new(state: Arc<ChildState>) -> Self {
        Self { state }
    }

    /// Process id, until the child was waited for.
    pub fn id(&self) -> u32 {
        self.state.lock().id()
    }

    /// Kills the child and waits until it is gone. Reader and writer then fail with [`EngineError::Died`].
    pub fn kill(&self) {
        self.state.kill();
    }

    /// Gives the child that long to end by itself, then kills it.
    ///
    /// # Errors
    /// [`EngineError::Died`] where it had failed by itself.
    pub fn end_within(&self, patience: Duration) -> Result<(), EngineError> {
        match self.state.await_end(Some(patience))? {
            Some(status) if !status.success() => Err(self.state.died(status)),
            Some(_) => Ok(()),
            None => {
                self.kill();
                Ok(())
            }
        }
    }

    /// Waits until the child has ended by itself, which it does once its input ended and its output was taken.
    ///
    /// # Errors
    /// [`EngineError::Died`] unless it exited with status 0.
    pub fn wait(&self) -> Result<(), EngineError> {
        match self.state.await_end(None)? {
            Some(status) if !status.success() => Err(self.state.died(status)),
            _ => Ok(()),
        }
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        self.state.kill();
    }
}
