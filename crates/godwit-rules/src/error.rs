//! Errors of policies and audit logs.

use std::io;
use std::path::PathBuf;

/// The reason why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The policy, or its key.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The syntax of the policy is wrong.
    #[error("{}: {problem}", path.display())]
    Syntax {
        /// The policy.
        path: PathBuf,
        /// The problem, and its position.
        problem: String,
    },
    /// A rule is invalid.
    #[error("{}: rule {number}, {name:?}: {problem}", path.display())]
    Rule {
        /// The policy.
        path: PathBuf,
        /// 1-based number of the rule.
        number: usize,
        /// Its name.
        name: String,
        /// The problem, and what to do.
        problem: String,
    },
}

/// An error of the audit log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process writes to it.
    #[error("{} is written by another process; give each server a file of its own", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// A line does not match the chain of the lines before it.
    #[error("{}: line {line} is broken: {problem}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// 1-based number of the line.
        line: u64,
        /// The defect.
        problem: String,
    },
}
