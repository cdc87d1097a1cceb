//! A child process that receives requests on stdin and writes one line per response to stdout.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::EngineError;
use crate::child::{self, ChildHandle};

/// Maximum length of a response, bytes. Responses contain only names; large data is exchanged through files.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// Interval between two checks whether the request was cancelled.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running program that reads requests from stdin and writes one line per response to stdout. Dropping it kills the
/// program.
pub struct LineProtocolChild {
    child: ChildHandle,
    pipes: LinePipes,
}

struct LinePipes {
    state: std::sync::Arc<child::ChildState>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl LineProtocolChild {
    /// Starts a program, given by its path or by its name on PATH. `remedy`: instructions for installing it.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`] if the program does not exist, [`EngineError::Io`] if it does not start.
    pub fn start(command: Command, remedy: &str) -> Result<Self, EngineError> {
        let program = command.get_program().to_owned();
        let started = child::start_piped(program.clone().into(), command).map_err(|error| match error {
            EngineError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                let program = program.to_string_lossy().into_owned();
                EngineError::NotInstalled { program, remedy: remedy.to_owned() }
            }
            other => other,
        })?;
        let child::PipedChild { state, stdin, stdout } = started;
        let child = ChildHandle::new(state.clone());
        Ok(Self { child, pipes: LinePipes { state, stdin, stdout: BufReader::new(stdout) } })
    }

    /// Stores the version of the program, for use in later error messages.
    pub fn set_version(&self, version: &str) {
        self.pipes.state.set_version(version);
    }

    /// Sends the request `words` and waits for the response. As soon as `cancelled` is true, the program is killed.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the program exits or is killed because of `cancelled`; [`EngineError::Protocol`] if
    /// it closes its output without a response, or if the response is not a line of text.
    pub fn request(&mut self, words: &[u8], cancelled: &AtomicBool) -> Result<String, EngineError> {
        let Self { child, pipes } = self;
        let answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !answered.load(Ordering::Acquire) {
                    if cancelled.load(Ordering::Relaxed) {
                        return child.kill();
                    }
                    std::thread::park_timeout(CANCEL_POLL_INTERVAL);
                }
            });
            let answer = pipes.request(words);
            answered.store(true, Ordering::Release);
            watching.thread().unpark();
            answer
        })
    }
}

impl LinePipes {
    fn request(&mut self, words: &[u8]) -> Result<String, EngineError> {
        let Self { state, stdin, stdout } = self;
        let written = stdin.write_all(words).and_then(|()| stdin.flush());
        written.map_err(|source| state.exit_error_or(state.io_error("write to", source)))?;
        let mut answer = String::new();
        let read = stdout.take(MAX_RESPONSE_BYTES).read_line(&mut answer);
        match read {
            Ok(_) if answer.ends_with('\n') => Ok(answer),
            Ok(bytes) if bytes as u64 == MAX_RESPONSE_BYTES => {
                Err(state.protocol_error("a response is longer than 1 MiB"))
            }
            Ok(_) => Err(state.exit_error_or(state.protocol_error("it closed its output but is still running"))),
            Err(source) if source.kind() == std::io::ErrorKind::InvalidData => {
                Err(state.protocol_error("a response is not a line of UTF-8 text"))
            }
            Err(source) => Err(state.exit_error_or(state.io_error("read from", source))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> LineProtocolChild {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        LineProtocolChild::start(command, "install a shell").unwrap()
    }

    #[test]
    fn each_request_has_its_response() {
        let mut echo = shell("while read line; do echo \"you said $line\"; done");
        for word in ["one", "two"] {
            let answer = echo.request(format!("{word}\n").as_bytes(), &AtomicBool::new(false)).unwrap();
            assert_eq!(answer, format!("you said {word}\n"));
        }
    }

    #[test]
    fn a_program_that_exits_is_reported_with_its_last_lines() {
        let error = shell("read line; echo sorry >&2; exit 7").request(b"go\n", &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("status 7") && error.to_string().contains("sorry"), "{error}");
    }

    #[test]
    fn cancelling_ends_the_wait_for_a_response() {
        let cancelled = AtomicBool::new(true);
        let error = shell("exec sleep 1000").request(b"go\n", &cancelled).unwrap_err();
        assert!(error.is_stopped_by_godwit(), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let error = LineProtocolChild::start(Command::new("godwit-no-such-program"), "make one").err().unwrap();
        assert!(matches!(error, EngineError::NotInstalled { .. }) && error.to_string().contains("make one"), "{error}");
    }
}
