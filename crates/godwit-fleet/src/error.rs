//! What can go wrong with starting and finding processes, one variant per thing the caller can act on.

use std::net::IpAddr;
use std::path::PathBuf;

/// A job that could not be described, started, asked about or found.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A job, a host file or an option that cannot be used as it is.
    #[error("{what} cannot be {value:?}: {problem}")]
    Unusable {
        /// The field: `the job's name`, `line 3 of hosts.txt`.
        what: String,
        /// What it holds.
        value: String,
        /// What is wrong and what is right.
        problem: String,
    },
    /// Fewer places than nodes.
    #[error("{} has room for {slots} processes, but {nodes} are asked for; add hosts or slots, or ask for fewer nodes", .path.display())]
    TooFewSlots {
        /// The host file.
        path: PathBuf,
        /// Places in it.
        slots: u64,
        /// Places needed.
        nodes: u32,
    },
    /// A program of the scheduler, or ssh, is not there.
    #[error("cannot start {program}; install it, or run this where it is installed")]
    MissingProgram {
        /// Its name.
        program: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// The scheduler said no.
    #[error("{command} was refused ({ending}): {stderr}")]
    Refused {
        /// The command line.
        command: String,
        /// How it ended: `exit status: 1`.
        ending: String,
        /// What it said, at most the last 20 lines.
        stderr: String,
    },
    /// The scheduler does not answer. The job may be alive and well; ask again later.
    #[error("{command} got no answer from the scheduler ({ending}): {stderr}")]
    Silent {
        /// The command line.
        command: String,
        /// How it ended.
        ending: String,
        /// What it said, at most the last 20 lines.
        stderr: String,
    },
    /// A program of the scheduler said something that cannot be understood.
    #[error("{command} printed {output:?}, which is not {expected}")]
    Unreadable {
        /// The command line.
        command: String,
        /// What it printed.
        output: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A job of another launcher, or of a process that is gone.
    #[error("job {id} was not started by this {launcher} launcher")]
    Foreign {
        /// The job.
        id: String,
        /// The launcher that was asked.
        launcher: &'static str,
    },
    /// The file system refused something.
    #[error("cannot {action} {}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A process could not be started.
    #[error("cannot start {command}")]
    Start {
        /// The command line.
        command: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// Nobody wrote the rendezvous file in time.
    #[error("nobody wrote {} within {waited_s} s; look into the logs beside it for why the first node did not start", .path.display())]
    NoRendezvous {
        /// The file.
        path: PathBuf,
        /// Seconds waited.
        waited_s: u64,
    },
    /// The caller said so.
    #[error("cancelled")]
    Cancelled,
    /// The rendezvous file is not one.
    #[error("{} is not a rendezvous file; remove it and start the job again", .path.display())]
    BadRendezvous {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by another version.
    #[error("{} was written by godwit {theirs}, but this is godwit {ours}; start all nodes with one version", .path.display())]
    VersionMismatch {
        /// The file.
        path: PathBuf,
        /// Version of who wrote it.
        theirs: String,
        /// Version of this program.
        ours: String,
    },
    /// A later attempt of the job has taken over.
    #[error("this process belongs to attempt {own} of the job, but attempt {current} has taken over; it must end")]
    Superseded {
        /// The attempt of the caller.
        own: u64,
        /// The attempt in the file.
        current: u64,
    },
    /// No address of this machine is as asked for.
    #[error("no address of this machine is {wanted}; it has {}", list(.present))]
    NoAddress {
        /// What was asked for.
        wanted: String,
        /// What there is, by interface.
        present: Vec<(String, IpAddr)>,
    },
    /// The network refused something.
    #[error("cannot {action}")]
    Network {
        /// What was tried.
        action: String,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
}

impl FleetError {
    pub(crate) fn unusable(what: impl Into<String>, value: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Unusable { what: what.into(), value: value.into(), problem: problem.into() }
    }

    pub(crate) fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}

fn list(present: &[(String, IpAddr)]) -> String {
    if present.is_empty() {
        return "none".to_owned();
    }
    present.iter().map(|(name, address)| format!("{address} ({name})")).collect::<Vec<_>>().join(", ")
}
