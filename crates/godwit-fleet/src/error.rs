//! Errors of starting and finding processes, one variant for each case that a caller can act on.

use std::net::IpAddr;
use std::path::PathBuf;

/// An error of a job's description, start, status or rendezvous.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A job, a host file or an option that cannot be used as it is.
    #[error("{field} cannot be {value:?}: {problem}")]
    InvalidValue {
        /// The field: `the job's name`, `line 3 of hosts.txt`.
        field: String,
        /// The value.
        value: String,
        /// The problem, and a valid form.
        problem: String,
    },
    /// Fewer slots than workers.
    #[error("{} has room for {slots} processes, but {workers} are asked for; add hosts or slots, or ask for fewer nodes", .path.display())]
    TooFewSlots {
        /// The host file.
        path: PathBuf,
        /// Slots in it.
        slots: u64,
        /// Slots needed.
        workers: u32,
    },
    /// A program of the scheduler, or ssh, does not exist.
    #[error("cannot start {program}; install it, or run this where it is installed")]
    MissingProgram {
        /// Its name.
        program: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The scheduler rejected a command.
    #[error("{command} was refused ({exit_status}): {stderr}")]
    CommandRejected {
        /// The command line.
        command: String,
        /// Its exit status: `exit status: 1`.
        exit_status: String,
        /// Its output on stderr, at most the last 20 lines.
        stderr: String,
    },
    /// The scheduler does not answer. The job may be running; query it later.
    #[error("{command} got no answer from the scheduler ({exit_status}): {stderr}")]
    SchedulerUnavailable {
        /// The command line.
        command: String,
        /// Its exit status.
        exit_status: String,
        /// Its output on stderr, at most the last 20 lines.
        stderr: String,
    },
    /// Output of a scheduler's program that cannot be parsed.
    #[error("{command} printed {output:?}, which is not {expected}")]
    UnexpectedOutput {
        /// The command line.
        command: String,
        /// Its output.
        output: String,
        /// The expected form.
        expected: &'static str,
    },
    /// A job of another launcher, or of a process that has ended.
    #[error("job {id} was not started by this {launcher} launcher")]
    ForeignJob {
        /// The job.
        id: String,
        /// The launcher that was called.
        launcher: &'static str,
    },
    /// An operation of the file system failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A process could not be started.
    #[error("cannot start {command}")]
    ProcessStart {
        /// The command line.
        command: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The rendezvous file was not written in time.
    #[error("nobody wrote {} within {waited_s} s; look into the logs beside it for why the first node did not start", .path.display())]
    RendezvousTimeout {
        /// The file.
        path: PathBuf,
        /// Seconds waited.
        waited_s: u64,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The rendezvous file is malformed.
    #[error("{} is not a rendezvous file; remove it and start the job again", .path.display())]
    InvalidRendezvous {
        /// The file.
        path: PathBuf,
        /// The defect.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by another version.
    #[error("{} was written by godwit {file_version}, but this is godwit {own_version}; start all nodes with one version", .path.display())]
    VersionMismatch {
        /// The file.
        path: PathBuf,
        /// Version of its writer.
        file_version: String,
        /// Version of this program.
        own_version: String,
    },
    /// A later attempt of the job has replaced this one.
    #[error("this process belongs to attempt {own} of the job, but attempt {current} has taken over; it must end")]
    Superseded {
        /// The attempt of the caller.
        own: u64,
        /// The attempt in the file.
        current: u64,
    },
    /// No address of this host matches.
    #[error("no address of this machine is {requested}; it has {}", format_addresses(.available))]
    NoAddress {
        /// The requested address.
        requested: String,
        /// The available ones, by interface.
        available: Vec<(String, IpAddr)>,
    },
    /// A network operation failed.
    #[error("cannot {action}")]
    Network {
        /// The operation.
        action: String,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

impl FleetError {
    pub(crate) fn invalid_value(what: impl Into<String>, value: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::InvalidValue { field: what.into(), value: value.into(), problem: problem.into() }
    }

    pub(crate) fn file_error(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn format_addresses(present: &[(String, IpAddr)]) -> String {
    if present.is_empty() {
        return "none".to_owned();
    }
    present.iter().map(|(name, address)| format!("{address} ({name})")).collect::<Vec<_>>().join(", ")
}
