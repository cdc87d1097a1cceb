//! What can be wrong with a policy, and with the record of accesses.

use std::io;
use std::path::PathBuf;

/// Why a file is no policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The policy, or its key.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// It is not written as policies are.
    #[error("{}: {problem}", path.display())]
    Text {
        /// The policy.
        path: PathBuf,
        /// What is wrong, and where.
        problem: String,
    },
    /// A rule says what cannot be done.
    #[error("{}: rule {number}, {name:?}: {problem}", path.display())]
    Rule {
        /// The policy.
        path: PathBuf,
        /// Which, counted from 1.
        number: usize,
        /// Its name.
        name: String,
        /// What, and what to do.
        problem: String,
    },
}

/// Why accesses cannot be recorded, or what is wrong with a record of them.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("{} is written by another process; give each server a file of its own", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// A line is not what the lines before it say it has to be.
    #[error("{}: line {line} is broken: {problem}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Which, counted from 1.
        line: u64,
        /// How.
        problem: String,
    },
}
