//! A child that is asked and answers, a line each.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::EngineError;
use crate::child::{self, ChildHandle};

/// Longest answer that is taken. Answers name things; what is large goes through files.
const ANSWER_BYTES: u64 = 1 << 20;
/// How often it is looked whether nobody waits for the answer any more.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A program that reads lines from its stdin and answers each with a line on its stdout. Dropping it kills the program.
pub struct Dialogue {
    child: ChildHandle,
    lines: Lines,
}

struct Lines {
    state: std::sync::Arc<child::ChildState>,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Dialogue {
    /// Starts a program, by its path or its name on PATH. `remedy`: what to do where it is not there.
    ///
    /// # Errors
    /// [`EngineError::NotInstalled`], [`EngineError::Io`].
    pub fn start(command: Command, remedy: &str) -> Result<Self, EngineError> {
        let program = command.get_program().to_owned();
        let started = child::start(program.clone().into(), command).map_err(|error| match error {
            EngineError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                let program = program.to_string_lossy().into_owned();
                EngineError::NotInstalled { program, remedy: remedy.to_owned() }
            }
            other => other,
        })?;
        let child::Started { state, stdin, stdout } = started;
        let child = ChildHandle::new(state.clone());
        Ok(Self { child, lines: Lines { state, stdin, stdout: BufReader::new(stdout) } })
    }

    /// Says which version the program is of, for later messages.
    pub fn set_version(&self, version: &str) {
        self.lines.state.set_version(version);
    }

    /// Writes `words` and waits for an answer. When `cancelled` is set, the program is killed.
    ///
    /// # Errors
    /// [`EngineError::Died`] where the program ends, also because of `cancelled`; [`EngineError::Protocol`] where it goes on
    /// without an answer, or with one that is no line of text.
    pub fn ask(&mut self, words: &[u8], cancelled: &AtomicBool) -> Result<String, EngineError> {
        let Self { child, lines } = self;
        let answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watching = scope.spawn(|| {
                while !answered.load(Ordering::Acquire) {
                    if cancelled.load(Ordering::Relaxed) {
                        return child.kill();
                    }
                    std::thread::park_timeout(LOOK_AGAIN);
                }
            });
            let answer = lines.ask(words);
            answered.store(true, Ordering::Release);
            watching.thread().unpark();
            answer
        })
    }
}

impl Lines {
    fn ask(&mut self, words: &[u8]) -> Result<String, EngineError> {
        let Self { state, stdin, stdout } = self;
        let said = stdin.write_all(words).and_then(|()| stdin.flush());
        said.map_err(|source| state.explain(state.io("write to", source)))?;
        let mut answer = String::new();
        let read = stdout.take(ANSWER_BYTES).read_line(&mut answer);
        match read {
            Ok(_) if answer.ends_with('\n') => Ok(answer),
            Ok(bytes) if bytes as u64 == ANSWER_BYTES => Err(state.protocol("an answer has more than a megabyte")),
            Ok(_) => Err(state.explain(state.protocol("it closed its output but goes on running"))),
            Err(source) if source.kind() == std::io::ErrorKind::InvalidData => {
                Err(state.protocol("an answer is no text"))
            }
            Err(source) => Err(state.explain(state.io("read from", source))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Dialogue {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Dialogue::start(command, "install a shell").unwrap()
    }

    #[test]
    fn each_question_has_its_answer() {
        let mut echo = shell("while read line; do echo \"you said $line\"; done");
        for word in ["one", "two"] {
            let answer = echo.ask(format!("{word}\n").as_bytes(), &AtomicBool::new(false)).unwrap();
            assert_eq!(answer, format!("you said {word}\n"));
        }
    }

    #[test]
    fn a_program_that_dies_is_told_with_its_last_words() {
        let error = shell("read line; echo sorry >&2; exit 7").ask(b"go\n", &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("status 7") && error.to_string().contains("sorry"), "{error}");
    }

    #[test]
    fn nobody_waits_for_an_answer_once_cancelled() {
        let cancelled = AtomicBool::new(true);
        let error = shell("exec sleep 1000").ask(b"go\n", &cancelled).unwrap_err();
        assert!(error.was_stopped(), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_what_to_do() {
        let error = Dialogue::start(Command::new("godwit-no-such-program"), "make one").err().unwrap();
        assert!(matches!(error, EngineError::NotInstalled { .. }) && error.to_string().contains("make one"), "{error}");
    }
}
