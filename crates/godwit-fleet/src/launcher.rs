//! Starting the same command on some nodes, asking how it is, and ending it.
//!
//! In: a [`JobSpec`]. Out: processes, one per node, and a [`JobHandle`] to ask with. A launcher writes everything below the
//! job's directory, which is made private:
//!
//! ```text
//! script.sh              what was run, as `render` shows it beforehand
//! handle.json            the JobHandle, for processes that did not start the job
//! job.log                what the scheduler's script said (SLURM only)
//! logs/node-K.out, .err  what the command said on node K; added to by later attempts
//! attempts/N/            made by attempt N before anything else of it; see GODWIT_ATTEMPT below
//! ```
//!
//! Each process finds in its environment, beside what the job sets: `GODWIT_NODE` (0 to nodes - 1), `GODWIT_NODES`,
//! `GODWIT_ATTEMPT`, `GODWIT_JOB_DIRECTORY` and `GODWIT_VERSION`. Attempts are numbers that rise with every start of the
//! job, whoever starts it: a restart by the scheduler, a second submission, a twin that was thought dead. Two starts never
//! have one number, and the higher one is the one that counts.

mod children;
mod local;
mod slurm;
mod spec;
mod ssh;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{FleetError, private};

pub use local::Local;
pub use slurm::{MemoryRequest, Slurm, SlurmProfile};
pub use spec::JobSpec;
pub use ssh::{Host, Ssh, parse_hosts};

/// Starts jobs in one way.
pub trait Launcher: Send + Sync {
    /// What `submit` would run now, as a shell script: the very text, but for jobs that are started in between.
    ///
    /// # Errors
    /// [`FleetError::Unusable`] and [`FleetError::TooFewSlots`] for a job that cannot be run this way.
    fn render(&self, job: &JobSpec) -> Result<String, FleetError>;

    /// Starts the job, or has it wait for its turn.
    ///
    /// # Errors
    /// As for [`Launcher::render`]; when the scheduler, the system or the file system refuses. After
    /// [`FleetError::Silent`] the job may run all the same; its attempt fences it where another one is submitted.
    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError>;

    /// How it is now.
    ///
    /// # Errors
    /// [`FleetError::Silent`] when the scheduler does not answer, which says nothing of the job.
    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError>;

    /// Asks the job to end. Its processes get a moment to do so by themselves. No error where it has ended before.
    ///
    /// # Errors
    /// When the scheduler refuses or does not answer.
    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError>;
}

/// A job that was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHandle {
    /// Who started it: `local`, `ssh` or `slurm`.
    pub launcher: String,
    /// Its name there: SLURM's job number.
    pub id: String,
    /// The job's directory.
    pub directory: PathBuf,
}

impl JobHandle {
    /// The handle of the last job that was started with this directory.
    ///
    /// # Errors
    /// [`FleetError::File`] when there is none.
    pub fn load(job_directory: &Path) -> Result<Self, FleetError> {
        let path = Self::path(job_directory);
        let bytes = fs::read(&path).map_err(FleetError::file("read", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| FleetError::File {
            action: "understand",
            path,
            source: std::io::Error::other(error),
        })
    }

    fn save(&self) -> Result<(), FleetError> {
        let bytes = serde_json::to_vec_pretty(self).expect("strings and paths of UTF-8 can be written as JSON");
        private::replace(&Self::path(&self.directory), &bytes)
    }

    fn path(job_directory: &Path) -> PathBuf {
        job_directory.join("handle.json")
    }

    /// That this launcher started it.
    fn expect_of(&self, launcher: &'static str) -> Result<(), FleetError> {
        if self.launcher == launcher { Ok(()) } else { Err(FleetError::Foreign { id: self.id.clone(), launcher }) }
    }
}

/// How a job is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// It waits: for its turn, or to be started again.
    Pending {
        /// The scheduler's word for why.
        reason: String,
    },
    /// It runs.
    Running {
        /// The nodes it still has, by name. Those that died are no longer among them.
        nodes: Vec<String>,
        /// The processes of the job that run, counted from 0, ascending; `None` where the launcher knows nodes only.
        indexes: Option<Vec<u32>>,
        /// The node with the job's script died: the other processes run on, but nobody waits for their end, and nobody
        /// will start the job again by itself. See [`Slurm::requeue`].
        headless: bool,
    },
    /// It is over.
    Ended {
        /// How it ended.
        how: Ending,
    },
    /// Nobody knows: the scheduler has no such job, and the job left no mark of its end. It may be dead, or alive and
    /// forgotten; it has not succeeded.
    Unknown {
        /// What was looked at.
        why: String,
    },
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Every process exited with status 0.
    Succeeded,
    /// Some process, or the script around it, did not.
    Failed {
        /// Which and how, for people.
        what: String,
        /// Its exit status, where it had one.
        exit_code: Option<i32>,
    },
    /// Somebody cancelled it.
    Cancelled,
    /// Its time was over, and it could not be started again.
    TimeLimit,
    /// A node died, and it could not go on or be started again.
    NodeLost,
    /// Its nodes were given to another job, and it could not be started again.
    Preempted,
}

/// Makes the job's directory and all that is in it before its start. Returns the script's path.
fn prepare(job: &JobSpec, script: &str) -> Result<PathBuf, FleetError> {
    private::directory(&job.job_directory)?;
    private::directory(&job.job_directory.join("attempts"))?;
    private::directory(&job.job_directory.join("logs"))?;
    for node in 0..job.nodes {
        private::appended(&job.output_path(node))?;
        private::appended(&job.error_path(node))?;
    }
    let path = job.job_directory.join("script.sh");
    private::replace(&path, script.as_bytes())?;
    Ok(path)
}
