//! Errors of engines, one variant for each case that the caller can handle.

use std::path::PathBuf;
use std::process::ExitStatus;

use crate::stream::StreamError;

/// The reason why a child exited before its work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitCause {
    /// It exited by itself.
    #[error("exited with status {0} before its work was done")]
    Status(i32),
    /// A signal killed it that godwit did not send.
    #[error("was killed by signal {0}")]
    Signal(i32),
    /// godwit killed it. The cause is another error.
    #[error("was stopped by godwit")]
    StoppedByGodwit,
    /// It ended in another way.
    #[error("ended with {0}")]
    Other(ExitStatus),
}

/// An engine that could not be found, started or understood, or that exited too early.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program was not found.
    #[error("cannot find the program {program} (looked for {}); install it beside godwit or on PATH, or name it in {variable}", join_paths(.searched_paths))]
    NotFound {
        /// Name of the program.
        program: &'static str,
        /// Searched paths, in order.
        searched_paths: Vec<PathBuf>,
        /// The environment variable that names its path.
        variable: &'static str,
    },
    /// The program exists, but not in the version that this godwit needs.
    #[error("{} is of {component} {found}, but this godwit needs {component} {expected}; install the matching one", .program.display())]
    VersionMismatch {
        /// Path of the program.
        program: PathBuf,
        /// The component that the versions belong to: `godwit` or the engine.
        component: &'static str,
        /// The version needed.
        expected: String,
        /// The version found.
        found: String,
    },
    /// The program rejected its arguments.
    #[error("{message} (refused by {})", .program.display())]
    Usage {
        /// Path of the program.
        program: PathBuf,
        /// Its message.
        message: String,
    },
    /// The program exited before its work was done.
    #[error("{} (version {version}) {exit_description}; its command line was: {command_line}{}", .program.display(), format_stderr_tail(.stderr_tail))]
    Exited {
        /// Path of the program.
        program: PathBuf,
        /// Its command line.
        command_line: String,
        /// The reason of the exit.
        exit_description: ExitCause,
        /// Version of the engine, `unknown` before it reported one.
        version: String,
        /// Last lines of its stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// An external program was not found.
    #[error("cannot find the program {program}; {remedy}")]
    NotInstalled {
        /// Name or path of the program.
        program: String,
        /// Installation instructions.
        remedy: String,
    },
    /// The processor cannot run the engine.
    #[error("{problem}; use --aligner auto or bwa, which give the same records")]
    Processor {
        /// The missing feature.
        problem: &'static str,
    },
    /// The engine's index does not fit into the memory that is free.
    #[error("{engine} needs {} MB of memory for the index of {}{}, but {} MB are free; {remedy}", megabytes(.needed_bytes),
        .reference.display(), process_count_suffix(.processes), megabytes(.free_bytes))]
    Memory {
        /// Name of the engine.
        engine: &'static str,
        /// Path of the reference.
        reference: PathBuf,
        /// Number of processes on this machine that load it.
        processes: u64,
        /// Memory that all of them need, bytes.
        needed_bytes: u64,
        /// Free memory, bytes.
        free_bytes: u64,
        /// Remedy, for the message.
        remedy: &'static str,
    },
    /// Invalid options or an invalid template.
    #[error("{message}")]
    Arguments {
        /// The defect and the correct form.
        message: String,
    },
    /// The engine's index does not exist.
    #[error("the index {} is missing; {remedy}", .path.display())]
    MissingIndex {
        /// The expected path.
        path: PathBuf,
        /// Remedy, for the message.
        remedy: String,
    },
    /// The engine's index does not match the reference or the options.
    #[error("the index {} cannot be used: {problem}; {remedy}", .path.display())]
    WrongIndex {
        /// Path of the index.
        path: PathBuf,
        /// The difference.
        problem: String,
        /// Remedy, for the message.
        remedy: String,
    },
    /// The reference could not be read.
    #[error("cannot use the reference {}", .path.display())]
    Reference {
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        #[source]
        source: godwit_formats::fasta::FastaError,
    },
    /// An external program's output is not the alignment of its input.
    #[error("{}: {problem}; its command line was: {command_line}{}", .program.display(), format_stderr_tail(.stderr_tail))]
    Output {
        /// Path of the program.
        program: PathBuf,
        /// Its command line.
        command_line: String,
        /// The defect and, if known, how to solve it.
        problem: String,
        /// Last lines of its stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// The program runs, but violates the protocol.
    #[error("{} broke the protocol: {problem}; this is a bug, or the program is not part of this godwit", .program.display())]
    Protocol {
        /// Path of the program.
        program: PathBuf,
        /// The violation.
        problem: String,
        /// The error of an unreadable stream, if that was the cause.
        #[source]
        source: Option<StreamError>,
    },
    /// A system call failed.
    #[error("cannot {action} {}", .program.display())]
    Io {
        /// Path of the program.
        program: PathBuf,
        /// The action that failed: `start`, `write to`, `wait for`.
        action: &'static str,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
}

impl EngineError {
    /// Reports whether the error only means that godwit itself stopped the engine; the cause is then another error.
    pub fn is_stopped_by_godwit(&self) -> bool {
        matches!(self, Self::Exited { exit_description: ExitCause::StoppedByGodwit, .. })
    }
}

/// Returns megabytes, rounded up.
fn megabytes(bytes: &u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn process_count_suffix(processes: &u64) -> String {
    if *processes > 1 { format!(" in {processes} processes") } else { String::new() }
}

fn join_paths(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

fn format_stderr_tail(lines: &[String]) -> String {
    if lines.is_empty() { "; it said nothing on stderr".into() } else { format!("; it said:\n{}", lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_godwit_stopped_is_recognised_by_the_cause() {
        let died = |exit_description| EngineError::Exited {
            program: PathBuf::from("was stopped by godwit"),
            command_line: "was stopped by godwit".to_owned(),
            exit_description,
            version: String::new(),
            stderr_tail: vec!["was stopped by godwit".to_owned()],
        };
        assert!(died(ExitCause::StoppedByGodwit).is_stopped_by_godwit());
        for ending in [ExitCause::Signal(9), ExitCause::Status(1)] {
            assert!(!died(ending).is_stopped_by_godwit());
        }
    }
}
