//! Errors of starting jobs and connecting their processes, with one variant for each case that a caller can handle.

use std::net::IpAddr;
use std::path::PathBuf;

/// An error of describing, starting, querying or connecting the processes of a job.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A field of a job, a line of a host file, or the value of an option is invalid.
    #[error("{field} cannot be {value:?}: {problem}")]
    InvalidValue {
        /// Description of the field, such as `the job's name` or `line 3 of hosts.txt`.
        field: String,
        /// The invalid value.
        value: String,
        /// Description of the problem and of a valid form.
        problem: String,
    },
    /// The host file has fewer slots than the job has workers.
    #[error(
        "{} has {slots} slots, but the job needs {workers}; add hosts or slots, or request fewer workers",
        .path.display()
    )]
    TooFewSlots {
        /// Path of the host file.
        path: PathBuf,
        /// Number of slots in the host file.
        slots: u64,
        /// Number of slots that the job needs.
        workers: u32,
    },
    /// A program of the scheduler, or ssh, is not installed.
    #[error("cannot start {program}; install it, or run this on a host that has it")]
    MissingProgram {
        /// Name of the program.
        program: String,
        /// The I/O error of starting the program.
        #[source]
        source: std::io::Error,
    },
    /// The scheduler rejected a command of godwit.
    #[error("{command} failed ({exit_status}): {stderr}")]
    CommandRejected {
        /// Command line of the scheduler's program.
        command: String,
        /// Exit status of the program, such as `exit status: 1`.
        exit_status: String,
        /// Last lines of the program's stderr, at most 20.
        stderr: String,
    },
    /// The scheduler did not respond. The job may be running nevertheless; query it later.
    #[error("the scheduler did not answer {command} ({exit_status}): {stderr}")]
    SchedulerUnavailable {
        /// Command line of the scheduler's program.
        command: String,
        /// Exit status of the program.
        exit_status: String,
        /// Last lines of the program's stderr, at most 20.
        stderr: String,
    },
    /// The scheduler did not respond, so it is unknown whether an earlier job has ended.
    #[error(
        "the state of job {id} of an earlier command is unknown, because SLURM does not respond; repeat the command \
         later, or add --resume to wait for the job"
    )]
    UnknownJobState {
        /// Identifier of the job.
        id: String,
        /// The error of the query.
        #[source]
        source: Box<FleetError>,
    },
    /// The output of a scheduler's program cannot be parsed.
    #[error("{command} printed {output:?}, which is not {expected}")]
    UnexpectedOutput {
        /// Command line of the scheduler's program.
        command: String,
        /// Output of the program.
        output: String,
        /// Description of the expected output.
        expected: &'static str,
    },
    /// The job was started by a different launcher, or by a process that has ended.
    #[error("job {id} was not started by this {launcher} launcher")]
    ForeignJob {
        /// Identifier of the job.
        id: String,
        /// Name of the launcher that was called.
        launcher: &'static str,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// The operation that failed, such as `read`.
        action: &'static str,
        /// Path of the file or directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// A process could not be started.
    #[error("cannot start {command}")]
    ProcessStart {
        /// Command line of the process.
        command: String,
        /// The I/O error of starting the process.
        #[source]
        source: std::io::Error,
    },
    /// The head did not write the rendezvous file in time.
    #[error(
        "the first worker did not write {} within {waited_s} s; its log in the same directory contains the reason",
        .path.display()
    )]
    RendezvousTimeout {
        /// Path of the rendezvous file.
        path: PathBuf,
        /// Time that the worker waited, seconds.
        waited_s: u64,
    },
    /// An environment variable that a launcher sets is missing or malformed.
    #[error("{name} {problem}")]
    Variable {
        /// Name of the variable.
        name: &'static str,
        /// The problem, as the end of a sentence that begins with the name.
        problem: &'static str,
    },
    /// The caller cancelled the operation.
    #[error("cancelled")]
    Cancelled,
    /// The rendezvous file is malformed.
    #[error("{} is not a rendezvous file; remove it and start the job again", .path.display())]
    InvalidRendezvous {
        /// Path of the rendezvous file.
        path: PathBuf,
        /// The JSON error.
        #[source]
        source: serde_json::Error,
    },
    /// The rendezvous file was written by a different version of godwit.
    #[error(
        "{} was written by godwit {file_version}, but this is godwit {own_version}; start all workers with one version",
        .path.display()
    )]
    VersionMismatch {
        /// Path of the rendezvous file.
        path: PathBuf,
        /// Version of godwit that wrote the file.
        file_version: String,
        /// Version of this godwit.
        own_version: String,
    },
    /// A later attempt of the job has started, so this attempt must stop.
    #[error("this process belongs to attempt {own} of the job, but attempt {current} has taken over; it must end")]
    Superseded {
        /// Attempt number of this process.
        own: u64,
        /// Attempt number in the rendezvous file.
        current: u64,
    },
    /// No address of this host matches the choice of the user.
    #[error("no address of this host matches {requested}; available: {}", format_addresses(.available))]
    NoAddress {
        /// The value that the user specified.
        requested: String,
        /// The addresses of this host, each with the name of its interface.
        available: Vec<(String, IpAddr)>,
    },
    /// A network operation failed.
    #[error("cannot {action}")]
    Network {
        /// Description of the operation that failed.
        action: String,
        /// The I/O error.
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
