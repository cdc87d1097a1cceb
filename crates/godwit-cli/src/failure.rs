//! Failures of verbs, with a message and an exit code, and results on stdout.

use std::io::{self, Write};

use godwit_pipeline::ErrorKind;

/// Exit codes; `docs/reference/exit-codes.md` documents them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// There is a bug in godwit.
    Bug = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The input data is invalid.
    Input = 3,
    /// Something is missing or denied on this host.
    Machine = 4,
    /// An engine failed, such as the aligner or the variant caller.
    Engine = 5,
    /// A server or the network failed.
    Remote = 6,
    /// A signal stopped the process.
    Interrupted = 130,
}

impl Exit {
    /// Returns the variant for the exit code of another godwit process.
    pub fn from_code(code: Option<i32>) -> Self {
        ErrorKind::of_exit_code(code).into()
    }
}

impl From<ErrorKind> for Exit {
    fn from(blame: ErrorKind) -> Self {
        match blame {
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Input => Self::Input,
            ErrorKind::Machine => Self::Machine,
            ErrorKind::Engine => Self::Engine,
            ErrorKind::Remote => Self::Remote,
            ErrorKind::Interrupted => Self::Interrupted,
            ErrorKind::Bug => Self::Bug,
        }
    }
}

impl From<Exit> for ErrorKind {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Usage => Self::Usage,
            Exit::Input => Self::Input,
            Exit::Machine => Self::Machine,
            Exit::Engine => Self::Engine,
            Exit::Remote => Self::Remote,
            Exit::Interrupted => Self::Interrupted,
            Exit::Bug => Self::Bug,
        }
    }
}

/// The failure of a verb.
#[derive(Debug)]
pub struct Failure {
    /// The exit code of the process.
    pub exit: Exit,
    /// The error message, with the problem, its location and a remedy.
    pub message: String,
}

impl Failure {
    /// Creates a failure with an exit code and an error message.
    pub fn new(exit: Exit, message: String) -> Self {
        Self { exit, message }
    }

    /// Returns the message as a single line; line breaks become ` | `.
    pub fn single_line(&self) -> String {
        self.message.trim().replace('\n', " | ")
    }
}

/// Prints a result on stdout as JSON.
pub fn print_json(result: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| Failure::new(Exit::Bug, format!("a bug in godwit: no JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Prints text on stdout. It is not a failure if the process that reads the pipe exits early (`| head`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Machine, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_that_other_processes_are_understood_by() {
        for exit in [Exit::Bug, Exit::Usage, Exit::Input, Exit::Machine, Exit::Engine, Exit::Remote, Exit::Interrupted]
        {
            assert_eq!((ErrorKind::from(exit).exit_code(), Exit::from_code(Some(exit as i32))), (exit as i32, exit));
        }
        assert_eq!(Exit::from_code(None), Exit::Remote);
    }
}
