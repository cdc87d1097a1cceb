//! Errors of external programs, with one variant for each case that a user of this crate can handle.

use std::path::PathBuf;
use std::process::ExitStatus;

use crate::stream::StreamError;

/// The reason why a child process exited before it had finished its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitCause {
    /// The child exited by itself with this status.
    #[error("exited with status {0} before it finished its work")]
    Status(i32),
    /// The child was killed by this signal, which godwit did not send.
    #[error("{}", godwit_process::describe_signal(*.0))]
    Signal(i32),
    /// The child was killed by godwit because of another error, which a user of this crate should report instead.
    #[error("was stopped by godwit")]
    StoppedByGodwit,
    /// The child ended in a way that has neither an exit code nor a signal number.
    #[error("ended with {0}")]
    Other(ExitStatus),
}

/// An input file that a program could not read to the end. The program printed an error message of htslib but exited
/// with status 0, so its output may be incomplete.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot read {} to the end: {} (version {version}) printed `{message}` and exited with status 0; its command line \
     was: {command_line}; {}",
    describe_inputs(.inputs), .program.display(), input_remedy(.inputs)
)]
pub struct UnreadableInput {
    /// Path of the program.
    pub program: PathBuf,
    /// Version of the program.
    pub version: String,
    /// Command line with which the program was started.
    pub command_line: String,
    /// Paths of the input files, one of which cannot be read.
    pub inputs: Vec<PathBuf>,
    /// First error message of htslib in the program's stderr.
    pub message: String,
}

/// An error of an external program: godwit cannot find or start it, it exits too early, or its output is invalid.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The program was not found.
    #[error("cannot find the program {program} (looked for {}); install it beside godwit or on PATH, or name it in {variable}", join_paths(.searched_paths))]
    NotFound {
        /// Name of the program.
        program: &'static str,
        /// Paths that were searched, in this order.
        searched_paths: Vec<PathBuf>,
        /// The environment variable that can contain the path of the program.
        variable: &'static str,
    },
    /// The program exists, but its version is not the one that this godwit needs.
    #[error(
        "{} has {component} {found}, but this godwit needs {component} {expected}; install the matching version",
        .program.display()
    )]
    VersionMismatch {
        /// Path of the program.
        program: PathBuf,
        /// The component whose version differs: `godwit`, or the library in the program.
        component: &'static str,
        /// The version that this godwit needs.
        expected: String,
        /// The version that the program reports.
        found: String,
    },
    /// The program rejected its arguments.
    #[error("{message} (rejected by {})", .program.display())]
    Usage {
        /// Path of the program.
        program: PathBuf,
        /// The error message that the program printed.
        message: String,
    },
    /// The program exited before it had finished its work.
    #[error("{} (version {version}) {exit_description}; its command line was: {command_line}{}", .program.display(), format_stderr_tail(.stderr_tail))]
    Exited {
        /// Path of the program.
        program: PathBuf,
        /// Command line with which the program was started.
        command_line: String,
        /// The reason why the program exited.
        exit_description: ExitCause,
        /// Version of the program; `unknown` if the program had not reported it yet.
        version: String,
        /// Last lines of the program's stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// An external program is not installed.
    #[error("cannot find the program {program}; {remedy}")]
    NotInstalled {
        /// Name or path of the program.
        program: String,
        /// Instructions for installing the program.
        remedy: String,
    },
    /// The processor of this machine cannot run the program.
    #[error("{problem}; use --aligner auto or bwa, which write the same records")]
    Processor {
        /// Description of the missing processor feature.
        problem: &'static str,
    },
    /// The aligner's index does not fit into the free memory.
    #[error("{engine} needs {} MB of memory for the index of {}{}, but {} MB are free; {remedy}", megabytes(.needed_bytes),
        .reference.display(), process_count_suffix(.processes), megabytes(.free_bytes))]
    Memory {
        /// Name of the aligner.
        engine: &'static str,
        /// Path of the reference to which the index belongs.
        reference: PathBuf,
        /// Number of processes on this machine that load the index.
        processes: u64,
        /// Memory that all these processes need, bytes.
        needed_bytes: u64,
        /// Free memory of the machine, bytes.
        free_bytes: u64,
        /// Instructions for the user that solve the problem.
        remedy: &'static str,
    },
    /// An option or a command line with placeholders is invalid.
    #[error("{message}")]
    Arguments {
        /// Description of the defect, and of the form that would be correct.
        message: String,
    },
    /// The aligner's index does not exist.
    #[error("the index {} is missing; {remedy}", .path.display())]
    MissingIndex {
        /// Path at which the index was expected.
        path: PathBuf,
        /// Instructions for the user that solve the problem.
        remedy: String,
    },
    /// The aligner's index does not match the reference or the options.
    #[error("the index {} cannot be used: {problem}; {remedy}", .path.display())]
    WrongIndex {
        /// Path of the index.
        path: PathBuf,
        /// Description of the difference.
        problem: String,
        /// Instructions for the user that solve the problem.
        remedy: String,
    },
    /// The reference could not be read.
    #[error("cannot use the reference {}", .path.display())]
    Reference {
        /// Path of the reference.
        path: PathBuf,
        /// The error of reading or parsing the file.
        #[source]
        source: godwit_formats::fasta::FastaError,
    },
    /// The output of an external program is invalid, for example it does not match the input reads.
    #[error("{}: {problem}; its command line was: {command_line}{}", .program.display(), format_stderr_tail(.stderr_tail))]
    Output {
        /// Path of the program.
        program: PathBuf,
        /// Command line with which the program was started.
        command_line: String,
        /// Description of the defect and, if known, how to solve it.
        problem: String,
        /// Last lines of the program's stderr, at most 20.
        stderr_tail: Vec<String>,
    },
    /// The program exited with status 0, but could not read an input file to the end.
    #[error(transparent)]
    UnreadableInput(Box<UnreadableInput>),
    /// The program violated the protocol, or godwit called the reader or writer of the program in a wrong order.
    #[error(
        "{} violated the protocol of godwit: {problem}; this is a bug, or the program belongs to another version of \
         godwit",
        .program.display()
    )]
    Protocol {
        /// Path of the program.
        program: PathBuf,
        /// Description of the violation.
        problem: String,
        /// The error of the stream that could not be read, if that was the cause.
        #[source]
        source: Option<StreamError>,
    },
    /// A system call failed.
    #[error("cannot {action} {}", .program.display())]
    Io {
        /// Path of the program or file.
        program: PathBuf,
        /// The action that failed, such as `start`, `write to` or `wait for`.
        action: &'static str,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
}

impl EngineError {
    /// Returns whether the error only means that godwit itself killed the program. The actual cause is then another
    /// error.
    pub fn is_stopped_by_godwit(&self) -> bool {
        matches!(self, Self::Exited { exit_description: ExitCause::StoppedByGodwit, .. })
    }

    /// Returns whether a program is not installed on this host, or has an unsuitable version. Other hosts may have it.
    pub fn is_missing_program(&self) -> bool {
        matches!(self, Self::NotInstalled { .. } | Self::VersionMismatch { .. })
    }
}

/// Returns the number of megabytes in `bytes`, rounded up.
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

/// Returns the paths of input files, one of which could not be read.
fn describe_inputs(inputs: &[PathBuf]) -> String {
    let paths = join_paths(inputs);
    if inputs.len() > 1 { format!("one of {paths}") } else { paths }
}

/// Returns the remedy for input files, one of which could not be read.
fn input_remedy(inputs: &[PathBuf]) -> String {
    let file = match inputs {
        [file] => file.display().to_string(),
        _ => "FILE".to_owned(),
    };
    // `godwit verify` reads only CRAM files that have a manifest.
    let is_cram = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "cram");
    let check = if inputs.iter().any(is_cram) { "samtools view -c" } else { "godwit verify" };
    format!("check it with `{check} {file}`, and create its index again with `samtools index {file}`")
}

fn format_stderr_tail(lines: &[String]) -> String {
    if lines.is_empty() {
        "; its stderr is empty".into()
    } else {
        format!("; its stderr ends with:\n{}", lines.join("\n"))
    }
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
