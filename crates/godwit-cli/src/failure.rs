//! Failures of verbs, with a message and an exit code, and results on stdout.

use std::io::{self, Write};

use godwit_model::ErrorKind;

/// The failure of a verb.
#[derive(Debug)]
pub struct Failure {
    /// The class of the error, which decides the exit code of the process (`docs/reference/exit-codes.md`).
    pub kind: ErrorKind,
    /// The error message, with the problem, its location and a remedy.
    pub message: String,
}

impl Failure {
    /// Creates a failure of a kind with an error message.
    pub fn new(kind: ErrorKind, message: String) -> Self {
        Self { kind, message }
    }

    /// Returns the message as a single line; line breaks become ` | `.
    pub fn single_line(&self) -> String {
        self.message.trim().replace('\n', " | ")
    }
}

/// Prints a result on stdout as JSON.
pub fn print_json(result: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(result);
    let text = text.map_err(|error| Failure::new(ErrorKind::Bug, format!("a bug in godwit: no JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Prints text on stdout. It is not a failure if the process that reads the pipe exits early (`| head`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorKind::Machine, format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}
