//! Child processes that godwit starts, supervises and stops.
//!
//! A child process ends when godwit ends. The last lines of its stderr are kept, and its failure becomes an
//! [`EngineError`]. This module does not interpret stdin and stdout of the child.

mod descriptors;
mod process_pipeline;
mod supervisor;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use godwit_process::Signal;
use parking_lot::Mutex;

use crate::usage_error::{EXIT_USAGE, error_message};
use crate::{EngineError, ExitCause};
pub use process_pipeline::{PipelineCommand, ProcessPipeline};
use supervisor::StderrTail;

/// Maximum time until a child that closed its output exits. In this time, the child only frees its memory.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval between two checks whether the child has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Capacity of a pipe, bytes. A larger capacity than the default of Linux (64 KiB) means fewer context switches. This
/// value is the maximum for unprivileged users.
const PIPE_BYTES: i32 = 1 << 20;
/// Exit status of an aligner program that rejects its arguments.
const USAGE_EXIT_STATUS: i32 = EXIT_USAGE as i32;

/// The state of a child, shared by its handle, its reader and its writer.
pub(crate) struct ChildState {
    program: PathBuf,
    command_line: String,
    child: Mutex<Child>,
    stderr_tail: Arc<StderrTail>,
    version: OnceLock<String>,
    is_killed_by_godwit: AtomicBool,
}

/// A running child with the pipes to its stdin and from its stdout.
pub(crate) struct PipedChild {
    pub(crate) state: Arc<ChildState>,
    pub(crate) stdin: ChildStdin,
    pub(crate) stdout: ChildStdout,
}

/// Passes the reading end of a pipe to the child, which opens it as `/dev/fd/3`.
pub(crate) fn pass_second_input(command: &mut Command, end: std::io::PipeReader) {
    descriptors::set_pipe_capacity(&end, PIPE_BYTES);
    descriptors::pass_as_descriptor_3(command, end);
}

/// Starts a program whose stdin, stdout and stderr are pipes.
pub(crate) fn start_piped(program: PathBuf, mut command: Command) -> Result<PipedChild, EngineError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let state = spawn_in_group(program, command)?;
    let (stdin, stdout) = {
        let mut child = state.child.lock();
        (child.stdin.take(), child.stdout.take())
    };
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(state.io_error("start", std::io::Error::other("its pipes are missing")));
    };
    descriptors::set_pipe_capacity(&stdin, PIPE_BYTES);
    descriptors::set_pipe_capacity(&stdout, PIPE_BYTES);
    Ok(PipedChild { state: Arc::new(state), stdin, stdout })
}

/// Starts a program whose stdin and stdout are already set. The program gets its own process group, so that its own
/// children can be killed with it.
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

/// Creates `count` pipes that the child opens as files and writes to. Returns the reading end of each pipe and the path
/// that the child opens. Reading ends when the child exits, even if the child never opened the path.
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
    /// Stores the version that the child reported, for use in later error messages.
    pub(crate) fn set_version(&self, version: &str) {
        // If a version is already stored, keep it: a child reports its version only once.
        let _ = self.version.set(version.to_owned());
    }

    /// Returns the path of the program.
    pub(crate) fn program(&self) -> &PathBuf {
        &self.program
    }

    fn exit_status(&self) -> Result<Option<ExitStatus>, EngineError> {
        self.child.lock().try_wait().map_err(|source| self.io_error("wait for", source))
    }

    /// Waits until the child exits, or until `timeout` if that is set. Returns `None` if the child is still running.
    fn wait_for_exit(&self, timeout: Option<Duration>) -> Result<Option<ExitStatus>, EngineError> {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        loop {
            let status = self.exit_status()?;
            if status.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until a child that closed its output in the right state exits, and checks that its exit status is 0.
    pub(crate) fn expect_success(&self) -> Result<(), EngineError> {
        match self.wait_for_exit(Some(EXIT_TIMEOUT))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.exit_error(status)),
            None => Err(self.protocol_error("it closed its output but is still running")),
        }
    }

    /// Returns the cause of a broken pipe: an error about the exit of the child if it exits in time, else `otherwise`.
    pub(crate) fn exit_error_or(&self, otherwise: EngineError) -> EngineError {
        match self.wait_for_exit(Some(EXIT_TIMEOUT)) {
            Ok(Some(status)) => self.exit_error(status),
            Ok(None) => otherwise,
            Err(error) => error,
        }
    }

    /// Returns the error for invalid output of a child. If `ended` is true and the child failed, the error describes
    /// its exit, else `problem`.
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

    /// Returns an error about a protocol violation of this child.
    pub(crate) fn protocol_error(&self, problem: impl ToString) -> EngineError {
        EngineError::Protocol { program: self.program.clone(), problem: problem.to_string(), source: None }
    }

    /// Returns an error about a system call that failed for this child.
    pub(crate) fn io_error(&self, action: &'static str, source: std::io::Error) -> EngineError {
        EngineError::Io { program: self.program.clone(), action, source }
    }

    /// Returns an error about a failed write to this child: if the pipe is broken, the exit of the child explains it.
    pub(crate) fn write_error(&self, error: std::io::Error) -> EngineError {
        let is_broken = error.kind() == std::io::ErrorKind::BrokenPipe;
        let failure = self.io_error("write to", error);
        if is_broken { self.exit_error_or(failure) } else { failure }
    }

    fn exit_error(&self, status: ExitStatus) -> EngineError {
        use std::os::unix::process::ExitStatusExt;
        let mut stderr_tail = self.stderr_tail.wait_for_lines();
        let exit_description = match (status.code(), status.signal()) {
            _ if self.is_killed_by_godwit.load(Ordering::Relaxed) => ExitCause::StoppedByGodwit,
            (Some(USAGE_EXIT_STATUS), _) if self.version.get().is_none() && !stderr_tail.is_empty() => {
                let line = stderr_tail.pop().unwrap_or_default();
                let message = error_message(&line).to_owned();
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
        let mut child = self.child.lock();
        if matches!(child.try_wait(), Ok(None)) {
            self.is_killed_by_godwit.store(true, Ordering::Relaxed);
            // Both calls fail only if the child has already exited.
            godwit_process::signal_group(child.id(), Signal::Kill);
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The handle of a child process, which can wait for the child or kill it. Dropping the handle kills the child.
pub struct ChildHandle {
    state: Arc<ChildState>,
}

impl ChildHandle {
    pub(crate) fn new(state: Arc<ChildState>) -> Self {
        Self { state }
    }

    /// Returns the process id, which is valid until the child has exited and its status was read.
    pub fn id(&self) -> u32 {
        self.state.child.lock().id()
    }

    /// Kills the child and waits until it has exited. The reader and the writer then fail with [`EngineError::Exited`].
    pub fn kill(&self) {
        self.state.kill();
    }

    /// Waits until the child exits by itself, but kills it after `timeout`.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the child exited by itself with a status other than 0.
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

    /// Waits until the child exits by itself. It exits after its input was closed and its output was read completely.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the exit status is not 0.
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
