//! Cluster runs of any verb: how workers are started and how they find the head, and which of them are connected.

mod worker_pool;

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use godwit_fleet::FleetError;

use crate::error::PipelineError;

pub(crate) use worker_pool::{WorkerPool, WorkerPoolEvent};

/// Returns a message for workers as JSON.
///
/// # Errors
/// [`PipelineError::Options`] if a path in it is not UTF-8.
pub(crate) fn to_worker_json(told: &impl serde::Serialize) -> Result<serde_json::Value, PipelineError> {
    serde_json::to_value(told).map_err(|error| PipelineError::Options {
        problem: format!(
            "nodes cannot be told what to do: {error}; over nodes the paths of all files and directories must be UTF-8: rename \
             the one that is not"
        ),
    })
}

/// Options of a cluster run.
pub struct ClusterOptions<'l> {
    /// Number of workers that are started; more may join, and some may be lost.
    pub workers: u32,
    /// Addresses of this host for connections of workers, best first. With a single one, the head listens only there.
    pub addresses: Vec<IpAddr>,
    /// The directory with the rendezvous file, if the launcher has one that workers know already.
    pub rendezvous_directory: Option<PathBuf>,
    /// Number of this attempt of the job; workers of earlier attempts are rejected.
    pub attempt: u64,
    /// True if all workers run on one host.
    pub single_host: bool,
    /// Starts and stops the workers.
    pub launcher: &'l dyn WorkerLauncher,
}

/// A launcher of workers.
pub trait WorkerLauncher: Sync {
    /// Starts all workers, which find the head through this directory.
    ///
    /// # Errors
    /// [`PipelineError`] if the workers could not be started.
    fn start_workers(&self, rendezvous_directory: &Path) -> Result<(), PipelineError>;

    /// Returns the last messages of workers that ended since the previous call, each with its number.
    fn exit_messages(&self) -> Vec<String>;

    /// Reports whether all workers have ended.
    fn all_ended(&self) -> bool;

    /// Stops workers that still run, after a time to end by themselves.
    fn stop_workers(&self);

    /// Returns the number of a later attempt of this job, if there is one: this process has to end.
    fn newer_attempt(&self) -> Option<u64>;
}

impl ClusterOptions<'_> {
    /// Checks that there is no later attempt of this job: two heads would write the same files.
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
