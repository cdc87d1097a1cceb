//! Jobs of SLURM: `sbatch` submits a batch script, `squeue` reports its status, and exit marks of the script contain
//! its outcome.
//!
//! SLURM's accounting is not used, because many sites do not run it. SLURM decides whether a job is alive. A job counts
//! as successful only if its batch script wrote the exit mark, which is the last action of the script. If SLURM does
//! not know a job and the job wrote no mark, its status is *unknown*: a SLURM controller that fails soon after `sbatch`
//! forgets running jobs.
//!
//! The loss of a host does not end the job (`--no-kill`). If the lost host runs the batch script, SLURM lets the other
//! tasks run forever and does not report the loss (observed with 22.05). The status is then [`JobStatus::Running`] with
//! `is_batch_host_lost`, and [`SlurmLauncher::requeue`] starts the job again as its next attempt. Any process that
//! detects this first may requeue the job, also a worker.

mod batch_script;
mod commands;
mod profile;

use super::{JobHandle, JobOutcome, JobSpec, JobStatus, Launcher, prepare_job_directory};
use crate::attempts::{self, AttemptExit, AttemptStage};
use crate::{FleetError, private_files};

pub use profile::{MemoryRequest, SlurmProfile};

/// Name of the launcher in job handles and messages.
const LAUNCHER_NAME: &str = "slurm";

/// A launcher that submits jobs to SLURM.
#[derive(Clone, Debug, Default)]
pub struct SlurmLauncher {
    profile: SlurmProfile,
}

impl SlurmLauncher {
    /// Creates a launcher with the settings of a site.
    pub fn new(profile: SlurmProfile) -> Self {
        Self { profile }
    }

    /// Checks whether SLURM would accept a job now, such as its partition, account and memory. Does not submit it.
    ///
    /// # Errors
    /// [`FleetError::CommandRejected`] if SLURM would reject the job; [`FleetError::MissingProgram`] or
    /// [`FleetError::SchedulerUnavailable`] if it cannot be asked.
    pub fn test_submission(&self, job: &JobSpec) -> Result<(), FleetError> {
        commands::test_script(&self.profile, &self.render_script(job)?)
    }

    /// Requeues a running job: SLURM stops its processes and starts the job again, as its next attempt.
    ///
    /// # Errors
    /// [`FleetError::ForeignJob`] if SLURM no longer knows the job or uses its number for another job; other errors if
    /// SLURM rejects the request.
    pub fn requeue(&self, handle: &JobHandle) -> Result<(), FleetError> {
        handle.check_launcher(LAUNCHER_NAME)?;
        if self.find_own_job(handle)?.is_none() {
            return Err(FleetError::ForeignJob { id: handle.id.clone(), launcher: LAUNCHER_NAME });
        }
        commands::requeue_job(&self.profile, &handle.id)
    }

    /// Returns the entry of the job in SLURM's queue, but only if its script is that of this job: a controller that
    /// lost its state reuses job numbers.
    fn find_own_job(&self, handle: &JobHandle) -> Result<Option<commands::QueueEntry>, FleetError> {
        let script = handle.directory.join("script.sh");
        let found = commands::query_job(&self.profile, &handle.id)?;
        Ok(found.filter(|queued| queued.script == script.to_string_lossy()))
    }

    fn running_status(&self, queued: &commands::QueueEntry) -> Result<JobStatus, FleetError> {
        let workers = commands::expand_host_list(&self.profile, &queued.host_list)?;
        let is_batch_host_lost = !workers.is_empty() && !workers.contains(&queued.batch_host);
        let is_completing = queued.state == "COMPLETING";
        Ok(JobStatus::Running { workers, indexes: None, is_batch_host_lost, is_completing })
    }
}

impl Launcher for SlurmLauncher {
    fn render_script(&self, job: &JobSpec) -> Result<String, FleetError> {
        batch_script::render_script(job, &self.profile)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        let script = self.render_script(job)?;
        let path = prepare_job_directory(job, &script)?;
        // Create the log before SLURM does, because SLURM would make it readable by all users.
        private_files::open_for_append(&job.job_directory.join("job.log"))?;
        let first_attempt = attempts::smallest_free_attempt(&job.job_directory)?;
        let id = commands::submit_script(&self.profile, &path, &script)?;
        let handle = JobHandle {
            launcher: LAUNCHER_NAME.to_owned(),
            id: id.clone(),
            directory: job.job_directory.clone(),
            first_attempt,
        };
        handle.save().map(|()| handle).inspect_err(|_| {
            // Without a saved handle, the job could not be queried, so cancel it. The returned error is that of saving
            // the handle.
            let _ = commands::cancel_job(&self.profile, &id);
        })
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        handle.check_launcher(LAUNCHER_NAME)?;
        let queued = self.find_own_job(handle)?;
        let last = attempts::last_attempt(&handle.directory, &handle.id, handle.first_attempt)?;
        let mark = last.and_then(|(_, mark)| mark);
        let Some(queued) = queued else {
            let why = "SLURM does not list the job, and the job recorded no exit code";
            return Ok(final_status(None, mark.as_ref(), why));
        };
        let done = mark.as_ref().is_some_and(AttemptExit::is_success);
        match queued.state.as_str() {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => {
                Ok(JobStatus::Pending { reason: queued.reason })
            }
            "CONFIGURING" => Ok(JobStatus::Pending { reason: "SLURM is preparing the hosts of the job".to_owned() }),
            "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" | "RESIZING" => {
                self.running_status(&queued)
            }
            "COMPLETING" if !done => self.running_status(&queued),
            "FAILED" if mark.is_none() => {
                let description = format!("SLURM reports FAILED ({}); the job recorded no exit code", queued.reason);
                Ok(JobStatus::Ended { outcome: JobOutcome::Failed { description, exit_code: None } })
            }
            state => {
                let why = format!("SLURM reports {state}, but the job recorded no exit code");
                Ok(final_status(outcome_of_state(state), mark.as_ref(), &why))
            }
        }
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        handle.check_launcher(LAUNCHER_NAME)?;
        match self.find_own_job(handle)? {
            Some(_) => commands::cancel_job(&self.profile, &handle.id),
            None => Ok(()),
        }
    }
}

impl AttemptExit {
    fn is_success(&self) -> bool {
        self.stage == AttemptStage::Work && self.status == 0
    }

    fn outcome(&self) -> JobOutcome {
        let status = self.status;
        let what = match self.stage {
            AttemptStage::Work if status == 0 => return JobOutcome::Succeeded,
            AttemptStage::Work => format!("the workers ended with status {status}"),
            AttemptStage::Limit => return JobOutcome::TimeLimit,
            AttemptStage::Setup => format!("the script ended with status {status} before the workers were started"),
        };
        JobOutcome::Failed { description: format!("{what}; see the logs"), exit_code: Some(status) }
    }
}

/// Returns the status of a job that has ended. An exit mark of success decides; otherwise SLURM's state does, and if
/// that has no outcome, the exit mark.
fn final_status(by_state: Option<JobOutcome>, mark: Option<&AttemptExit>, why: &str) -> JobStatus {
    let by_mark = mark.map(AttemptExit::outcome);
    match (by_state, by_mark) {
        (_, Some(JobOutcome::Succeeded)) => JobStatus::Ended { outcome: JobOutcome::Succeeded },
        (Some(outcome), _) | (None, Some(outcome)) => JobStatus::Ended { outcome },
        (None, None) => JobStatus::Unknown { reason: why.to_owned() },
    }
}

/// Returns the outcome for a final state of SLURM, if the state says more than the exit mark of the job; `None`
/// otherwise.
fn outcome_of_state(state: &str) -> Option<JobOutcome> {
    match state {
        "CANCELLED" => Some(JobOutcome::Cancelled),
        "TIMEOUT" | "DEADLINE" => Some(JobOutcome::TimeLimit),
        "NODE_FAIL" | "BOOT_FAIL" => Some(JobOutcome::HostLost),
        "PREEMPTED" | "REVOKED" => Some(JobOutcome::Preempted),
        "OUT_OF_MEMORY" => {
            let description = "the job exceeded its memory limit; request more memory".to_owned();
            Some(JobOutcome::Failed { description, exit_code: None })
        }
        // COMPLETED and FAILED only reflect the exit status of the script. The exit mark contains more, and success
        // requires the mark.
        _ => None,
    }
}

#[cfg(test)]
mod tests;
