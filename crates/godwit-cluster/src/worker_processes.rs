//! The worker processes of a cluster run, which a launcher starts.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_fleet::{Allocation, FleetError, JobHandle, JobSpec, JobStatus, Launcher};
use parking_lot::Mutex;

/// Time for workers to exit by themselves at the end of the run, before they are cancelled.
const WORKER_EXIT_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval at which the end of the workers is checked.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The command that each worker runs, `godwit node`, and its resources.
#[derive(Clone, Debug)]
pub struct WorkerCommand {
    /// Path of the godwit program.
    pub program: PathBuf,
    /// Working directory of each worker.
    pub working_directory: PathBuf,
    /// Number of threads of each worker.
    pub threads: usize,
    /// Scratch directory of each worker; `None` for a directory that the head names.
    pub temp: Option<PathBuf>,
}

/// The worker processes that the head of a cluster run starts and stops.
pub struct WorkerProcesses {
    launcher: Box<dyn Launcher>,
    command: WorkerCommand,
    /// Number of workers that this process starts.
    worker_count: u32,
    allocation: Option<Allocation>,
    submitted: Mutex<Option<(JobSpec, JobHandle)>>,
    /// Numbers of the workers whose exit was reported to the user.
    reported_exits: Mutex<BTreeSet<u32>>,
}

impl WorkerProcesses {
    /// Creates the description of `workers` workers, none of which is started. In an allocation of SLURM, the scheduler
    /// has started the workers of all other hosts, so that only that on the host of the head is missing.
    pub fn new(
        launcher: Box<dyn Launcher>,
        command: WorkerCommand,
        workers: u32,
        allocation: Option<Allocation>,
    ) -> Self {
        let worker_count = if allocation.is_some() { 1 } else { workers };
        let (submitted, reported_exits) = Default::default();
        Self { launcher, command, worker_count, allocation, submitted, reported_exits }
    }

    /// Returns the allocation of the SLURM job in which the workers run; `None` outside of a SLURM job.
    pub fn allocation(&self) -> Option<&Allocation> {
        self.allocation.as_ref()
    }

    /// Returns the number of this attempt of the job; workers of earlier attempts are rejected.
    pub(crate) fn attempt(&self) -> u64 {
        self.allocation.as_ref().map_or(0, |allocation| allocation.attempt)
    }

    /// Fails if there is a later attempt of this job: two heads would write the same files.
    ///
    /// # Errors
    /// [`FleetError::Superseded`] if there is a later attempt.
    pub(crate) fn check_current(&self) -> Result<(), FleetError> {
        match self.allocation.as_ref().and_then(Allocation::newer_attempt) {
            Some(current) => Err(FleetError::Superseded { own: self.attempt(), current }),
            None => Ok(()),
        }
    }

    /// Starts all workers, which find the head by the rendezvous file in this directory.
    ///
    /// # Errors
    /// The error of [`Launcher::submit`].
    pub(crate) fn start(&self, rendezvous_directory: &Path) -> Result<(), FleetError> {
        let job = self.job_spec(rendezvous_directory);
        let handle = self.launcher.submit(&job)?;
        *self.submitted.lock() = Some((job, handle));
        self.reported_exits.lock().clear();
        Ok(())
    }

    fn job_spec(&self, rendezvous_directory: &Path) -> JobSpec {
        let WorkerCommand { program, working_directory, threads, temp } = &self.command;
        let mut command: Vec<OsString> =
            vec![program.into(), "node".into(), "--meeting".into(), rendezvous_directory.into()];
        command.extend(["--attempt".into(), self.attempt().to_string().into()]);
        command.extend(["--threads".into(), threads.to_string().into()]);
        if let Some(temp) = temp {
            command.extend(["--temp".into(), temp.into()]);
        }
        JobSpec {
            name: "godwit-nodes".into(),
            command,
            workers: self.worker_count,
            cpus_per_worker: *threads as u32,
            memory_bytes_per_worker: None,
            time_limit: None,
            working_directory: working_directory.clone(),
            environment: Vec::new(),
            job_directory: rendezvous_directory.join("nodes"),
        }
    }

    fn status(&self) -> Option<(JobSpec, Result<JobStatus, FleetError>)> {
        let started = self.submitted.lock().clone();
        started.map(|(job, handle)| (job, self.launcher.status(&handle)))
    }

    /// Returns the last message of each worker that has ended since the previous call, with the number of the worker.
    pub(crate) fn exit_messages(&self) -> Vec<String> {
        let Some((job, Ok(status))) = self.status() else { return Vec::new() };
        let runs = |node: u32| match &status {
            JobStatus::Ended { .. } => false,
            JobStatus::Running { indexes, .. } => indexes.as_ref().is_some_and(|indexes| indexes.contains(&node)),
            JobStatus::Pending { .. } | JobStatus::Unknown { .. } => true,
        };
        let mut reported = self.reported_exits.lock();
        let ended = (0..job.workers).filter(|node| !runs(*node) && reported.insert(*node));
        let exit_message = |node| match job.last_error_line(node) {
            Some(error) => format!("worker {node} exited: {error}"),
            None => format!("worker {node} exited without an error message"),
        };
        ended.map(exit_message).collect()
    }

    /// Returns whether all started workers have ended.
    pub(crate) fn all_ended(&self) -> bool {
        // In an allocation, workers on other hosts may still connect, even if the worker of this host has exited.
        let ended = matches!(self.status(), Some((_, Ok(JobStatus::Ended { .. } | JobStatus::Unknown { .. }))));
        ended && self.allocation.is_none()
    }

    /// Waits for a time until workers end by themselves, and stops those that still run.
    pub(crate) fn stop(&self) {
        let Some((_, handle)) = self.submitted.lock().take() else { return };
        let until = Instant::now() + WORKER_EXIT_TIMEOUT;
        while Instant::now() < until {
            match self.launcher.status(&handle) {
                Ok(JobStatus::Ended { .. }) => return,
                _ => std::thread::sleep(EXIT_POLL_INTERVAL),
            }
        }
        // Ignore errors: workers that cannot be cancelled exit when they lose the connection to the head.
        let _ = self.launcher.cancel(&handle);
    }
}
