//! Cluster runs of any subcommand: options, the launcher that starts workers, and the pool of connected workers.

mod worker_connection;
mod worker_pool;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use godwit_fleet::FleetError;
use serde::{Deserialize, Serialize};

use crate::error::PipelineError;

pub use worker_connection::WorkerOptions;
pub(crate) use worker_connection::{
    WorkerInput, forward_commands, host_name, malformed_command, receive_input, run_reporting_failure,
    unexpected_command,
};
pub(crate) use worker_pool::{WorkerPool, WorkerPoolEvent};

/// The kind of work of a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkKind {
    /// Alignment of blocks of reads.
    Align,
    /// Calling of regions.
    Call,
    /// Search of queries in ranges of a database.
    Search,
}

/// The task of all workers of a job, as the head sends it. The type of `task` depends on the kind of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerTask<T> {
    pub(crate) work: WorkKind,
    #[serde(flatten)]
    pub(crate) task: T,
}

/// Returns a task or command for workers as JSON.
///
/// # Errors
/// [`PipelineError::Options`] if the task contains a path that is not UTF-8.
pub(crate) fn to_worker_json(told: &impl Serialize) -> Result<serde_json::Value, PipelineError> {
    serde_json::to_value(told).map_err(|error| PipelineError::Options {
        problem: format!(
            "the task cannot be sent to workers: {error}; a cluster run requires UTF-8 in the paths of all files and \
             directories: rename the path that is not UTF-8"
        ),
    })
}

/// Options of a cluster run.
pub struct ClusterOptions<'l> {
    /// Number of workers that the launcher starts. More workers may join later, and workers may be lost.
    pub workers: u32,
    /// Addresses of this host to which workers connect, best first. If there is only one, the head listens only at this
    /// address.
    pub addresses: Vec<IpAddr>,
    /// Directory of the rendezvous file, by which workers find the head, if the launcher has given workers its path
    /// already.
    pub rendezvous_directory: Option<PathBuf>,
    /// Number of this attempt of the job; workers of earlier attempts are rejected.
    pub attempt: u64,
    /// True if all workers run on one host.
    pub single_host: bool,
    /// Launcher that starts and stops the workers.
    pub launcher: &'l dyn WorkerLauncher,
}

/// A launcher of workers.
pub trait WorkerLauncher: Sync {
    /// Starts all workers, which find the head by the rendezvous file in this directory.
    ///
    /// # Errors
    /// [`PipelineError`] if the workers could not be started.
    fn start_workers(&self, rendezvous_directory: &Path) -> Result<(), PipelineError>;

    /// Returns the last message of each worker that has ended since the previous call, with the number of the worker.
    fn exit_messages(&self) -> Vec<String>;

    /// Returns whether all started workers have ended.
    fn all_ended(&self) -> bool;

    /// Waits for the workers to exit until a timeout, and stops the workers that are still running.
    fn stop_workers(&self);

    /// Returns the number of a later attempt of this job, if there is one. This process must then exit.
    fn newer_attempt(&self) -> Option<u64>;
}

impl ClusterOptions<'_> {
    /// Fails if there is a later attempt of this job: two heads would write the same files.
    ///
    /// # Errors
    /// [`FleetError::Superseded`] if there is a later attempt.
    pub(crate) fn check_current(&self) -> Result<(), PipelineError> {
        match self.launcher.newer_attempt() {
            Some(current) => Err(FleetError::Superseded { own: self.attempt, current }.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct TestTask {
        reference: PathBuf,
        regions: u64,
    }

    #[test]
    fn a_task_and_its_kind_are_one_object() {
        let task = TestTask { reference: "/a.fa".into(), regions: u64::MAX };
        let json = to_worker_json(&WorkerTask { work: WorkKind::Call, task: &task }).unwrap();
        assert_eq!(json, serde_json::json!({ "work": "call", "reference": "/a.fa", "regions": u64::MAX }));
        let WorkerTask { work, task: rest } = serde_json::from_value::<WorkerTask<serde_json::Value>>(json).unwrap();
        assert!(matches!(work, WorkKind::Call));
        assert_eq!(serde_json::from_value::<TestTask>(rest).unwrap(), task);
    }
}
