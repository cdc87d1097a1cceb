//! `godwit node`: the worker process of a cluster run, which a launcher starts. The head assigns the task.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_align::{AlignTask, run_align_worker};
use godwit_call::{CallTask, run_call_worker};
use godwit_cli::cli::WorkerArgs;
use godwit_cli::failure::Failure;
use godwit_cluster::{ClusterError, ConnectionError, FailureReport, WorkerError, WorkerOptions, WorkerSession};
use godwit_pipeline::PipelineError;
use godwit_search::{SearchError, SearchTask, run_cluster_worker};
use serde::Deserialize;

use crate::interruption;

/// Maximum time for which a worker waits for the head of the job. The head may first have to read the reference from a
/// slow disk.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The task of a worker, by the name of the job.
#[derive(Debug, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
enum WorkerTask {
    Align(Box<AlignTask>),
    Call(Box<CallTask>),
    Search(Box<SearchTask>),
}

/// The error of a worker.
#[derive(Debug)]
pub enum WorkError {
    /// The error of an alignment, of variant calling or of the cluster run.
    Pipeline(PipelineError),
    /// The error of a search.
    Search(SearchError),
}

impl From<ClusterError> for WorkError {
    fn from(error: ClusterError) -> Self {
        Self::Pipeline(error.into())
    }
}

impl From<SearchError> for WorkError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::WorkersUnavailable(error) => (*error).into(),
            error => Self::Search(error),
        }
    }
}

impl From<WorkError> for Failure {
    fn from(error: WorkError) -> Self {
        match error {
            WorkError::Pipeline(error) => error.into(),
            WorkError::Search(error) => error.into(),
        }
    }
}

impl WorkError {
    fn as_worker_error(&self) -> &dyn WorkerError {
        match self {
            Self::Pipeline(error) => error,
            Self::Search(error) => error,
        }
    }
}

impl WorkerError for WorkError {
    fn connection_error(&self) -> Option<&ConnectionError> {
        self.as_worker_error().connection_error()
    }

    fn failure_report(&self) -> FailureReport {
        self.as_worker_error().failure_report()
    }
}

/// Runs this process as a worker until the job has finished.
pub fn run(args: &WorkerArgs) -> Result<(), Failure> {
    let options = WorkerOptions {
        rendezvous_directory: args.meeting.clone(),
        attempt: args.attempt,
        threads: args.threads.map_or_else(available_cores, |threads| threads as usize),
        temp: args.temp.clone(),
        join_timeout: HEAD_TIMEOUT,
    };
    Ok(run_worker(&options, &interruption::flag())?)
}

/// Finds the head of a cluster run, and executes its task until the job has finished.
pub fn run_worker(options: &WorkerOptions, cancelled: &Arc<AtomicBool>) -> Result<(), WorkError> {
    godwit_cluster::run_worker(options, cancelled, |session: &WorkerSession<WorkerTask>| match &session.task {
        WorkerTask::Align(task) => run_align_worker(session, task, options, cancelled).map_err(WorkError::Pipeline),
        WorkerTask::Call(task) => run_call_worker(session, task, options, cancelled).map_err(WorkError::Pipeline),
        WorkerTask::Search(task) => run_cluster_worker(session, task, options, cancelled).map_err(WorkError::from),
    })
}

/// Returns the number of cores that this process may use.
pub fn available_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
