//! Launchers: start one command on several workers, report its status, and cancel it.
//!
//! In: a [`JobSpec`]. Out: processes, one per worker, and a [`JobHandle`] for requests. A launcher writes everything below
//! the job's directory, which is made private:
//!
//! ```text
//! script.sh              the script that was run, as `render_script` shows it beforehand
//! handle.json            the JobHandle, for processes that did not start the job
//! job.log                output of the scheduler's script (SLURM only)
//! logs/node-K.out, .err  output of the command on worker K; later attempts append to it
//! attempts/N/            made by attempt N before anything else of it; see GODWIT_ATTEMPT below
//! ```
//!
//! Each process has in its environment, beside the job's variables: `GODWIT_NODE` (0 to workers - 1), `GODWIT_NODES`,
//! `GODWIT_ATTEMPT`, `GODWIT_JOB_DIRECTORY` and `GODWIT_VERSION`. Attempts are numbers that rise with every start of the
//! job, whatever caused it: a restart by the scheduler, a second submission, a duplicate that was thought dead. Two starts
//! never have one number, and the higher one counts.

mod child_jobs;
mod job_spec;
mod local;
mod slurm;
mod ssh;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{FleetError, private_files};

pub use job_spec::JobSpec;
pub use local::LocalLauncher;
pub use slurm::{MemoryRequest, SlurmLauncher, SlurmProfile};
pub use ssh::{Host, SshLauncher, parse_hosts};

/// A way of starting jobs.
pub trait Launcher: Send + Sync {
    /// Returns what `submit` would run now, as a shell script: the exact text, unless another job is started in between.
    ///
    /// # Errors
    /// [`FleetError::InvalidValue`] and [`FleetError::TooFewSlots`] for a job that cannot be run this way.
    fn render_script(&self, job: &JobSpec) -> Result<String, FleetError>;

    /// Starts or queues the job.
    ///
    /// # Errors
    /// As for [`Launcher::render_script`]; others where the scheduler, the system or the file system rejects it. After
    /// [`FleetError::SchedulerUnavailable`] the job may run all the same; the attempt of a later submission fences it.
    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError>;

    /// Returns its status.
    ///
    /// # Errors
    /// [`FleetError::SchedulerUnavailable`] where the scheduler does not answer, which does not mean that the job has ended.
    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError>;

    /// Requests the end of the job. Its processes have a moment to end by themselves. Not an error for a job that has ended.
    ///
    /// # Errors
    /// [`FleetError::CommandRejected`], [`FleetError::SchedulerUnavailable`].
    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError>;
}

/// A job that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHandle {
    /// Name of its launcher: `local`, `ssh` or `slurm`.
    pub launcher: String,
    /// Its identifier there: SLURM's job number.
    pub id: String,
    /// The job's directory.
    pub directory: PathBuf,
}

impl JobHandle {
    /// Loads the handle of the last job that was started with this directory.
    ///
    /// # Errors
    /// [`FleetError::File`] where there is none.
    pub fn load(job_directory: &Path) -> Result<Self, FleetError> {
        let path = Self::file_path(job_directory);
        let bytes = fs::read(&path).map_err(FleetError::file_error("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| FleetError::File {
            action: "understand",
            path,
            source: std::io::Error::other(error),
        })
    }

    fn save(&self) -> Result<(), FleetError> {
        let bytes = serde_json::to_vec_pretty(self).expect("strings and paths of UTF-8 can be written as JSON");
        private_files::replace_file(&Self::file_path(&self.directory), &bytes)
    }

    fn file_path(job_directory: &Path) -> PathBuf {
        job_directory.join("handle.json")
    }

    /// Checks that this launcher started the job.
    fn check_launcher(&self, launcher: &'static str) -> Result<(), FleetError> {
        if self.launcher == launcher { Ok(()) } else { Err(FleetError::ForeignJob { id: self.id.clone(), launcher }) }
    }
}

/// The status of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// It waits to be started, or started again.
    Pending {
        /// The scheduler's reason.
        reason: String,
    },
    /// It runs.
    Running {
        /// The hosts that it still has, by name, without lost ones.
        workers: Vec<String>,
        /// The 0-based indexes of its running processes, ascending; `None` where the launcher knows hosts only.
        indexes: Option<Vec<u32>>,
        /// True if the host of the job's script is lost: the other processes run on, but their end is not awaited, and the
        /// job is not started again automatically. See [`SlurmLauncher::requeue`].
        is_batch_host_lost: bool,
    },
    /// It has ended.
    Ended {
        /// Its outcome.
        outcome: JobOutcome,
    },
    /// Unknown: the scheduler has no such job, and the job recorded no end. It may be dead, or alive and forgotten; it has
    /// not succeeded.
    Unknown {
        /// The evidence.
        reason: String,
    },
}

/// The outcome of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobOutcome {
    /// Every process exited with status 0.
    Succeeded,
    /// A process, or the script around it, exited otherwise.
    Failed {
        /// The failed process and its failure, for users.
        description: String,
        /// Its exit status, where it has one.
        exit_code: Option<i32>,
    },
    /// It was cancelled.
    Cancelled,
    /// Its time limit was reached, and it could not be started again.
    TimeLimit,
    /// A host was lost, and it could not continue or be started again.
    HostLost,
    /// Its hosts were assigned to another job, and it could not be started again.
    Preempted,
}

/// Creates the job's directory and the files in it before the start. Returns the script's path.
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
