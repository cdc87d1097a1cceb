//! The errors of the crate.

use std::io;
use std::path::{Path, PathBuf};

/// The result of a step of the observatory.
pub type Result<T> = std::result::Result<T, Error>;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File {
        /// The failed operation as a verb, for example `read`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A program cannot be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// The cause.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} ended with {status}\n{stderr}")]
    Program {
        /// The command line.
        command: String,
        /// The exit status.
        status: String,
        /// The last lines of its standard error.
        stderr: String,
    },
    /// The reference run of bwa and samtools was killed, or samtools cannot sort its records.
    #[error(
        "bwa mem | samtools sort: bwa ended with {bwa}, samtools with {sort}; is there memory and disk space?\n{stderr}"
    )]
    Oracle {
        /// The exit status of bwa.
        bwa: String,
        /// The exit status of samtools.
        sort: String,
        /// The last lines of samtools' standard error.
        stderr: String,
    },
    /// The bwa on PATH does not have the version with which records are compared.
    #[error("bwa on PATH has version {found}; {expected} is needed, because other versions give other records")]
    OracleVersion {
        /// The version of the bwa on PATH.
        found: String,
        /// The required version.
        expected: &'static str,
    },
    /// The format of an input file is not supported by the observatory.
    #[error("{path}: {problem}", path = path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        problem: String,
    },
}

impl Error {
    /// Returns a function that adds the action and the path to an error of the operating system.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { action, path, source }
    }
}
