//! What can go wrong with an engine, one variant per thing the caller can act on.

use std::path::PathBuf;
use std::process::ExitStatus;

use crate::stream::StreamError;

/// The end of a child before its work was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitCause {
    /// It exited by itself.
    #[error("exited with status {0} before its work was done")]
    Status(i32),
    /// A signal killed it, which godwit did not send.
    #[error("was killed by signal {0}")]
    Signal(i32),
    /// godwit killed it. The reason is another error.
    #[error("was stopped by godwit")]
    StoppedByGodwit,
    /// It ended in another way.
    #[error("ended with {0}")]
    Other(ExitStatus),
}

/// An engine that could not be found, started, understood or kept alive.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program is nowhere.
    #[error("cannot find the program {program} (looked for {}); install it beside godwit or on PATH, or name it in {variable}", list(.tried))]
    NotFound {
        /// Its name.
        program: &'static str,
        /// Paths that were looked at, in order.
        tried: Vec<PathBuf>,
        /// The environment variable that names it.
        variable: &'static str,
    },
    /// The program is there, but not the one this godwit works with.
    #[error("{} is of {component} {found}, but this godwit needs {component} {expected}; install the matching one", .program.display())]
    VersionMismatch {
        /// The program.
        program: PathBuf,
        /// What the versions are versions of: `godwit` or the engine.
        component: &'static str,
        /// The version needed.
        expected: String,
        /// The version found.
        found: String,
    },
    /// The program refused its arguments.
    #[error("{message} (refused by {})", .program.display())]
    Usage {
        /// The program.
        program: PathBuf,
        /// What it said.
        message: String,
    },
    /// The program ended before its work was done.
    #[error("{} (version {version}) {ending}; its command line was: {command_line}{}", .program.display(), last_words(.stderr_tail))]
    Died {
        /// The program.
        program: PathBuf,
        /// Its command line.
        command_line: String,
        /// The end.
        ending: ExitCause,
        /// The engine's version, `unknown` before it told.
        version: String,
        /// Last lines of its stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// A program of somebody else's is not there.
    #[error("cannot find the program {program}; {remedy}")]
    NotInstalled {
        /// Its name or path.
        program: String,
        /// How to install it.
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
        .reference.display(), each(.processes), megabytes(.free_bytes))]
    Memory {
        /// The engine.
        engine: &'static str,
        /// The reference.
        reference: PathBuf,
        /// Processes on this machine that load it.
        processes: u64,
        /// Bytes that all of them need.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// Options or a template that cannot be used.
    #[error("{message}")]
    Arguments {
        /// What is wrong and what is right.
        message: String,
    },
    /// The engine's index is not there.
    #[error("the index {} is missing; {remedy}", .path.display())]
    MissingIndex {
        /// Where it should be.
        path: PathBuf,
        /// The remedy.
        remedy: String,
    },
    /// The engine's index belongs to something else.
    #[error("the index {} cannot be used: {problem}; {remedy}", .path.display())]
    WrongIndex {
        /// The index.
        path: PathBuf,
        /// How it differs.
        problem: String,
        /// The remedy.
        remedy: String,
    },
    /// The reference could not be read.
    #[error("cannot use the reference {}", .path.display())]
    Reference {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: godwit_formats::fasta::FastaError,
    },
    /// A program of somebody else's gave something that is not the alignment of what it was given.
    #[error("{}: {problem}; its command line was: {command_line}{}", .program.display(), last_words(.stderr_tail))]
    Output {
        /// The program.
        program: PathBuf,
        /// Its command line.
        command_line: String,
        /// What is wrong and, where that is known, what to do.
        problem: String,
        /// Last lines of its stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// The program is alive, but what it says makes no sense.
    #[error("{} broke the protocol: {problem}; this is a bug, or the program is not part of this godwit", .program.display())]
    Protocol {
        /// The program.
        program: PathBuf,
        /// What was wrong.
        problem: String,
        /// The bytes that could not be read, where it was that.
        #[source]
        source: Option<StreamError>,
    },
    /// The operating system refused something.
    #[error("cannot {action} {}", .program.display())]
    Io {
        /// The program.
        program: PathBuf,
        /// What was tried: `start`, `write to`, `wait for`.
        action: &'static str,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl EngineError {
    /// Whether it only says that godwit itself ended the engine; the reason is another error then.
    pub fn was_stopped(&self) -> bool {
        matches!(self, Self::Died { ending: ExitCause::StoppedByGodwit, .. })
    }
}

/// Rounded up.
fn megabytes(bytes: &u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn each(processes: &u64) -> String {
    if *processes > 1 { format!(" in {processes} processes") } else { String::new() }
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

fn last_words(lines: &[String]) -> String {
    if lines.is_empty() { "; it said nothing on stderr".into() } else { format!("; it said:\n{}", lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_godwit_stopped_is_recognised_by_the_cause() {
        let died = |ending| EngineError::Died {
            program: PathBuf::from("was stopped by godwit"),
            command_line: "was stopped by godwit".to_owned(),
            ending,
            version: String::new(),
            stderr_tail: vec!["was stopped by godwit".to_owned()],
        };
        assert!(died(ExitCause::StoppedByGodwit).was_stopped());
        for ending in [ExitCause::Signal(9), ExitCause::Status(1)] {
            assert!(!died(ending).was_stopped());
        }
    }
}
