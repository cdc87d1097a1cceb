//! Launchers, which start one command on several workers, report the status of this job, and cancel it.
//!
//! A launcher receives a [`JobSpec`], starts one process per worker, and returns a [`JobHandle`] for further requests.
//! It writes the following files to the directory of the job, which only its owner can read:
//!
//! ```text
//! script.sh              the script of the job, equal to the result of `render_script`
//! handle.json            the JobHandle, for processes that did not start the job
//! job.log                output of the batch script (SLURM only)
//! logs/node-K.out, .err  stdout and stderr of the command on worker K; later attempts append to them
//! attempts/N/            created first by attempt N, to claim its number; see GODWIT_ATTEMPT below
//! attempts/N/head-ended  created when worker 0 of attempt N ends (SLURM only); the other workers then end
//! ```
//!
//! In addition to the job's variables, the environment of each process contains `GODWIT_NODE` (0 to the number of
//! workers - 1), `GODWIT_NODES`, `GODWIT_ATTEMPT`, `GODWIT_JOB_DIRECTORY` and `GODWIT_VERSION`. The attempt number
//! increases with every start of the job: by the user, by the scheduler after a failure, or in parallel with an attempt
//! that only seemed to have failed. Two starts never have the same number, and the one with the highest number is
//! valid.

mod child_jobs;
mod job_spec;
mod local;
mod slurm;
mod ssh;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{FleetError, attempts, private_files};

pub use job_spec::JobSpec;
pub use local::LocalLauncher;
pub use slurm::{MemoryRequest, SlurmLauncher, SlurmProfile};
pub use ssh::{Host, SshLauncher};

/// A method of starting jobs: on this host, by ssh, or by SLURM.
pub trait Launcher: Send + Sync {
    /// Returns the shell script that `submit` would run now. The text is exact unless another attempt starts in
    /// between.
    ///
    /// # Errors
    /// [`FleetError::InvalidValue`] or [`FleetError::TooFewSlots`] if this launcher cannot run the job.
    fn render_script(&self, job: &JobSpec) -> Result<String, FleetError>;

    /// Starts the job, or adds it to the queue of the scheduler.
    ///
    /// # Errors
    /// The errors of [`Launcher::render_script`], and other errors if the scheduler, the operating system or the file
    /// system rejects the job. After [`FleetError::SchedulerUnavailable`], the job may run nevertheless. If it is
    /// submitted again, the new attempt replaces it.
    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError>;

    /// Returns the current status of a job.
    ///
    /// # Errors
    /// [`FleetError::SchedulerUnavailable`] if the scheduler does not respond, which does not mean that the job has
    /// ended.
    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError>;

    /// Stops a job. Its processes get some time to exit by themselves. Does nothing if the job has already ended.
    ///
    /// # Errors
    /// [`FleetError::CommandRejected`] or [`FleetError::SchedulerUnavailable`] if the scheduler does not stop the job.
    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError>;
}

/// The identification of a job that was started, for later requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHandle {
    /// Name of the launcher that started the job: `local`, `ssh` or `slurm`.
    pub launcher: String,
    /// Identifier of the job at its launcher, such as SLURM's job number.
    pub id: String,
    /// Path of the directory of the job.
    pub directory: PathBuf,
    /// Lower bound of the attempt numbers of this job. Smaller numbers in the directory belong to other jobs, also if
    /// these have the same identifier: a SLURM cluster that is installed again counts its jobs from 1.
    #[serde(default)]
    pub first_attempt: u64,
}

impl JobHandle {
    /// Loads the handle of the last job that was started with this job directory.
    ///
    /// # Errors
    /// [`FleetError::File`] if the directory contains no handle.
    pub fn load(job_directory: &Path) -> Result<Self, FleetError> {
        let path = Self::file_path(job_directory);
        let bytes = fs::read(&path).map_err(FleetError::file_error("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| FleetError::File {
            action: "understand",
            path,
            source: std::io::Error::other(error),
        })
    }

    /// Returns whether the head of an attempt of this SLURM job has marked the job as finished; false if the job
    /// directory cannot be read.
    pub fn is_finished(&self) -> bool {
        let attempts = attempts::attempts_of_job(&self.directory, &self.id, self.first_attempt);
        attempts.into_iter().flatten().any(|attempt| attempts::finished_marker_path(&self.directory, attempt).exists())
    }

    fn save(&self) -> Result<(), FleetError> {
        let bytes = serde_json::to_vec_pretty(self).expect("strings and paths of UTF-8 can be written as JSON");
        private_files::replace_file(&Self::file_path(&self.directory), &bytes)
    }

    fn file_path(job_directory: &Path) -> PathBuf {
        job_directory.join("handle.json")
    }

    /// Checks that the launcher with this name started the job.
    fn check_launcher(&self, launcher: &'static str) -> Result<(), FleetError> {
        if self.launcher == launcher { Ok(()) } else { Err(FleetError::ForeignJob { id: self.id.clone(), launcher }) }
    }
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// The job waits for its first start or for a restart.
    Pending {
        /// The reason that the scheduler reports.
        reason: String,
    },
    /// The job is running.
    Running {
        /// Names of the hosts on which the job still runs, without lost hosts.
        workers: Vec<String>,
        /// 0-based indexes of the running processes, in ascending order; `None` if the launcher knows only the hosts.
        indexes: Option<Vec<u32>>,
        /// True if the host that runs the batch script of the job is lost. The processes on the other hosts continue,
        /// but no process waits for their end, and the scheduler does not restart the job. See
        /// [`SlurmLauncher::requeue`].
        is_batch_host_lost: bool,
        /// True if the scheduler is ending the job, for example because it was cancelled or requeued. Its processes may
        /// still run.
        is_completing: bool,
    },
    /// The job has ended.
    Ended {
        /// The outcome of the job.
        outcome: JobOutcome,
    },
    /// The status is unknown: the scheduler does not know the job, and the job did not write an exit mark. The job has
    /// not succeeded so far, but it may still be running.
    Unknown {
        /// Description of the information that the launcher has about the job.
        reason: String,
    },
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// Every process exited with status 0.
    Succeeded,
    /// A process, or the batch script, exited with another status or was killed by a signal.
    Failed {
        /// Description of the failed process and of its failure, for users.
        description: String,
        /// Exit status of the failed process, if it has one.
        exit_code: Option<i32>,
    },
    /// The job was cancelled.
    Cancelled,
    /// The job reached its time limit and was not restarted.
    TimeLimit,
    /// The job lost a host and was not restarted.
    HostLost,
    /// The scheduler assigned the hosts of the job to another job, and the job was not restarted.
    Preempted,
}

/// Creates the job directory and its files before the start of the job. Returns the path of the script.
fn prepare_job_directory(job: &JobSpec, script: &str) -> Result<PathBuf, FleetError> {
    private_files::create_private_directory(&job.job_directory)?;
    private_files::create_private_directory(&job.job_directory.join("attempts"))?;
    private_files::create_private_directory(&job.job_directory.join("logs"))?;
    for node in 0..job.workers {
        private_files::open_for_append(&job.stdout_path(node))?;
        private_files::open_for_append(&job.stderr_path(node))?;
    }
    let path = job.job_directory.join("script.sh");
    private_files::replace_file(&path, script.as_bytes())?;
    Ok(path)
}
