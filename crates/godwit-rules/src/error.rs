//! Errors of access policies and audit logs.

use std::io;
use std::path::PathBuf;

/// The reason why an access policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy file or the key file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// Path of the policy file or the key file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The policy file has a syntax error.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// Path of the policy file.
        path: PathBuf,
        /// Description of the error and its position in the file.
        problem: String,
    },
    /// A rule of the policy is invalid.
    #[error("{}: rule {number}, {name:?}: {problem}", path.display())]
    Rule {
        /// Path of the policy file.
        path: PathBuf,
        /// 1-based number of the rule in the file.
        number: usize,
        /// Name of the rule.
        name: String,
        /// Description of the error, and of the remedy.
        problem: String,
    },
}

/// An error of the audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The log file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation that failed: `read` or `write`.
        action: &'static str,
        /// Path of the log file.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// Another process writes to the log file.
    #[error("{} is locked by another process; give each server its own file", path.display())]
    Locked {
        /// Path of the log file.
        path: PathBuf,
    },
    /// The chain of a line does not match the lines before it.
    #[error("{}: line {line} is invalid: {problem}", path.display())]
    Broken {
        /// Path of the log file.
        path: PathBuf,
        /// 1-based number of the invalid line.
        line: u64,
        /// Description of the defect.
        problem: String,
    },
}
