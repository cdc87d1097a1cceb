//! Supervised child processes.
//!
//! A child ends with godwit, the last lines of its stderr are kept, and its exit becomes an [`EngineError`]. This module
//! does not interpret its stdin and stdout.

mod descriptors;
mod process_pipeline;
mod supervisor;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use godwit_process::Signal;

use crate::aligner::stream_metadata;
use crate::{EngineError, ExitCause};
pub use process_pipeline::{PipelineCommand, ProcessPipeline};
use supervisor::StderrTail;

/// Maximum time until a child that closed its pipes exits. It only has to free its memory.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between checks for the child's exit.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Capacity of a pipe, bytes: more than the 64 KiB of Linux means fewer context switches. It is the maximum for users
/// without privileges.
const PIPE_BYTES: i32 = 1 << 20;
/// Exit status of a program that rejected its arguments.
const USAGE_EXIT_STATUS: i32 = stream_metadata::EXIT_USAGE as i32;

/// The state of a child that its handle, reader and writer share.
pub(crate) struct ChildState {
    program: PathBuf,
    command_line: String,
    child: Mutex<Child>,
    stderr_tail: Arc<StderrTail>,
    version: OnceLock<String>,
    is_killed_by_godwit: AtomicBool,
}

/// A started child and its pipes.
pub(crate) struct PipedChild {
    pub(crate) state: Arc<ChildState>,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// Passes the reading end of a pipe to the child as `/dev/fd/3`.
pub(crate) fn pass_second_input(command: &mut Command, end: std::io::PipeReader) {
    descriptors::set_pipe_capacity(&end, PIPE_BYTES);
    descriptors::pass_as_descriptor_3(command, end);
}

/// Starts a program with pipes on all three standard streams.
pub(crate) fn start_piped(program: PathBuf, mut command: Command) -> Result<PipedChild, EngineError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let state = spawn_in_group(program, command)?;
    let (stdin, stdout) = {
        let mut child = state.lock();
        (child.stdin.take(), child.stdout.take())
    };
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(state.io_error("start", std::io::Error::other("its pipes are missing")));
    };
    descriptors::set_pipe_capacity(&stdin, PIPE_BYTES);
    descriptors::set_pipe_capacity(&stdout, PIPE_BYTES);
    Ok(PipedChild { state: Arc::new(state), stdin, stdout })
}

/// Starts a program with its stdin and stdout set, in a new process group: it is killed together with its own children.
fn spawn_in_group(program: PathBuf, mut command: Command) -> Result<ChildState, EngineError> {
    command.stderr(Stdio::piped());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    godwit_process::set_parent_death_signal(&mut command);
    let command_line = format_command_line(&command);
    let (spawned, stderr_tail) = supervisor::spawn_supervised(command);
    let child = match spawned {
        Ok(child) => Mutex::new(child),
        Err(source) => return Err(EngineError::Io { program, action: "start", source }),
    };
    let (version, is_killed_by_godwit) = (OnceLock::new(), AtomicBool::new(false));
    Ok(ChildState { program, command_line, child, stderr_tail, version, is_killed_by_godwit })
}

/// Creates pipes that a child writes to as files; returns the reading end and the child's path of each. The text ends when
/// the child exits, for any reason, even if it never opened the path.
pub(crate) fn create_output_pipes(command: &mut Command, count: usize) -> std::io::Result<Vec<(File, PathBuf)>> {
    let (mut outputs, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (reader, writer) = std::io::pipe()?;
        descriptors::set_pipe_capacity(&reader, PIPE_BYTES);
        let writer = OwnedFd::from(writer);
        outputs.push((File::from(OwnedFd::from(reader)), format!("/dev/fd/{}", writer.as_raw_fd()).into()));
        kept.push(writer);
    }
    descriptors::inherit_descriptors(command, kept);
    Ok(outputs)
}

fn format_command_line(command: &Command) -> String {
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
    /// Stores the engine's version for later messages.
    pub(crate) fn set_version(&self, version: &str) {
        // The first value stays: a child sends its info once.
        let _ = self.version.set(version.to_owned());
    }

    /// Returns the program's path.
    pub(crate) fn program(&self) -> &PathBuf {
        &self.program
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exit_status(&self) -> Result<Option<ExitStatus>, EngineError> {
        self.lock().try_wait().map_err(|source| self.io_error("wait for", source))
    }

    /// Waits until the child exits, at most `timeout` if given.
    fn wait_for_exit(&self, timeout: Option<Duration>) -> Result<Option<ExitStatus>, EngineError> {
        let deadline = timeout.map(|patience| Instant::now() + patience);
        loop {
            let status = self.exit_status()?;
            if status.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for a child that closed its output at the right time: it must exit with status 0.
    pub(crate) fn expect_success(&self) -> Result<(), EngineError> {
        match self.wait_for_exit(Some(EXIT_TIMEOUT))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.exit_error(status)),
            None => Err(self.protocol_error("it closed its output but goes on running")),
        }
    }

    /// Returns the error behind a broken pipe: the child's exit if it exited, else `otherwise`.
    pub(crate) fn exit_error_or(&self, otherwise: EngineError) -> EngineError {
        match self.wait_for_exit(Some(EXIT_TIMEOUT)) {
            Ok(Some(status)) => self.exit_error(status),
            Ok(None) => otherwise,
            Err(error) => error,
        }
    }

    /// Returns the error for invalid output of a child: its exit if it failed, else `problem`.
    pub(crate) fn output_error(&self, problem: String, ended: bool) -> EngineError {
        let status = if ended { self.wait_for_exit(Some(EXIT_TIMEOUT)) } else { Ok(None) };
        match status {
            Ok(Some(status)) if !status.success() => self.exit_error(status),
            _ => EngineError::Output {
                program: self.program.clone(),
                command_line: self.command_line.clone(),
                problem,
                stderr_tail: self.stderr_tail.wait_for_lines(),
            },
        }
    }

    /// Returns a protocol error of this child.
    pub(crate) fn protocol_error(&self, problem: impl ToString) -> EngineError {
        EngineError::Protocol { program: self.program.clone(), problem: problem.to_string(), source: None }
    }

    /// Returns the error of a system call on this child.
    pub(crate) fn io_error(&self, action: &'static str, source: std::io::Error) -> EngineError {
        EngineError::Io { program: self.program.clone(), action, source }
    }

    fn exit_error(&self, status: ExitStatus) -> EngineError {
        use std::os::unix::process::ExitStatusExt;
        let mut stderr_tail = self.stderr_tail.wait_for_lines();
        let exit_description = match (status.code(), status.signal()) {
            _ if self.is_killed_by_godwit.load(Ordering::Relaxed) => ExitCause::StoppedByGodwit,
            (Some(USAGE_EXIT_STATUS), _) if self.version.get().is_none() && !stderr_tail.is_empty() => {
                let line = stderr_tail.pop().unwrap_or_default();
                let message = stream_metadata::error_message(&line).to_owned();
                return EngineError::Usage { program: self.program.clone(), message };
            }
            (Some(code), _) => ExitCause::Status(code),
            (None, Some(signal)) => ExitCause::Signal(signal),
            (None, None) => ExitCause::Other(status),
        };
        EngineError::Exited {
            program: self.program.clone(),
            command_line: self.command_line.clone(),
            exit_description,
            version: self.version.get().cloned().unwrap_or_else(|| "unknown".to_owned()),
            stderr_tail,
        }
    }

    fn kill(&self) {
        let mut child = self.lock();
        if matches!(child.try_wait(), Ok(None)) {
            self.is_killed_by_godwit.store(true, Ordering::Relaxed);
            // Both fail only for a child that has exited already.
            godwit_process::signal_group(child.id(), Signal::Kill);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The handle of a child: waits for it or kills it. Dropping it kills a running child.
pub struct ChildHandle {
    state: Arc<ChildState>,
}

impl ChildHandle {
    pub(crate) fn new(state: Arc<ChildState>) -> Self {
        Self { state }
    }

    /// Returns the process id, valid until the child was waited for.
    pub fn id(&self) -> u32 {
        self.state.lock().id()
    }

    /// Kills the child and waits for its exit. Reader and writer then fail with [`EngineError::Exited`].
    pub fn kill(&self) {
        self.state.kill();
    }

    /// Waits for the child to exit by itself, then kills it after `timeout`.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if it failed by itself.
    pub fn wait_or_kill(&self, timeout: Duration) -> Result<(), EngineError> {
        match self.state.wait_for_exit(Some(timeout))? {
            Some(status) if !status.success() => Err(self.state.exit_error(status)),
            Some(_) => Ok(()),
            None => {
                self.kill();
                Ok(())
            }
        }
    }

    /// Waits until the child exits by itself, which it does after its input ended and its output was read.
    ///
    /// # Errors
    /// [`EngineError::Exited`] unless it exited with status 0.
    pub fn wait(&self) -> Result<(), EngineError> {
        match self.state.wait_for_exit(None)? {
            Some(status) if !status.success() => Err(self.state.exit_error(status)),
            _ => Ok(()),
        }
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        self.state.kill();
    }
}
