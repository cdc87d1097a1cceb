//! Jobs of SLURM: a script for `sbatch`, asked after with `squeue`, and marks of its own for how it ended.
//!
//! SLURM's accounting is not asked: many sites have none. What SLURM says of a job counts for whether it lives; for
//! success, only the mark counts that the script leaves at its very end. A job that SLURM does not know and that left no
//! mark is *unknown*: a controller that dies soon after `sbatch` forgets jobs that run.
//!
//! Losing a node does not end the job (`--no-kill`). When it is the node of the script, SLURM lets the other tasks run on
//! for ever and tells nobody (seen with 22.05): that is [`JobStatus::Running`] with `headless`, and [`Slurm::requeue`]
//! starts the job again, as the next attempt. Whoever notices first may do so, a worker too.

mod profile;
mod queue;
mod script;

use super::{Ending, JobHandle, JobSpec, JobStatus, Launcher, prepare};
use crate::attempts::{self, AttemptStage, EndMark};
use crate::{FleetError, private};

pub use profile::{MemoryRequest, SlurmProfile};

/// The launcher's name in handles and messages.
const NAME: &str = "slurm";

/// Submits jobs to SLURM.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    profile: SlurmProfile,
}

impl Slurm {
    /// A launcher for a site.
    pub fn new(profile: SlurmProfile) -> Self {
        Self { profile }
    }

    /// Has a job that runs, headless or not, start again as its next attempt, once its processes were ended.
    ///
    /// # Errors
    /// When SLURM refuses or does not answer; [`FleetError::Foreign`] where its number is another job's by now.
    pub fn requeue(&self, handle: &JobHandle) -> Result<(), FleetError> {
        handle.expect_of(NAME)?;
        if self.own(handle)?.is_none() {
            return Err(FleetError::Foreign { id: handle.id.clone(), launcher: NAME });
        }
        queue::requeue(&self.profile, &handle.id)
    }

    /// The job as SLURM sees it, if the one of that number is ours: a controller that lost its state counts anew.
    fn own(&self, handle: &JobHandle) -> Result<Option<queue::Queued>, FleetError> {
        let script = handle.directory.join("script.sh");
        let found = queue::look(&self.profile, &handle.id)?;
        Ok(found.filter(|queued| queued.script == script.to_string_lossy()))
    }

    fn running(&self, queued: &queue::Queued) -> Result<JobStatus, FleetError> {
        let nodes = queue::expand(&self.profile, &queued.nodes)?;
        let headless = !nodes.is_empty() && !nodes.contains(&queued.script_node);
        Ok(JobStatus::Running { nodes, indexes: None, headless })
    }
}

impl Launcher for Slurm {
    fn render(&self, job: &JobSpec) -> Result<String, FleetError> {
        script::render(job, &self.profile)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        let script = self.render(job)?;
        let path = prepare(job, &script)?;
        // SLURM would make it, readable by all.
        private::appended(&job.job_directory.join("job.log"))?;
        let id = queue::submit(&self.profile, &path, &script)?;
        let handle = JobHandle { launcher: NAME.to_owned(), id: id.clone(), directory: job.job_directory.clone() };
        handle.save().map(|()| handle).inspect_err(|_| {
            // Nobody could ask after it. That the file system refused is what is told, whatever SLURM says to this.
            let _ = queue::cancel(&self.profile, &id);
        })
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        handle.expect_of(NAME)?;
        let queued = self.own(handle)?;
        let last = attempts::last_of(&handle.directory, &handle.id)?;
        let mark = last.and_then(|(_, mark)| mark);
        let Some(queued) = queued else {
            let why = "SLURM knows no such job, and it left no mark of its end; it may run on all the same";
            return Ok(settled(None, mark.as_ref(), why));
        };
        let done = mark.as_ref().is_some_and(EndMark::is_success);
        match queued.state.as_str() {
            "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => {
                Ok(JobStatus::Pending { reason: queued.reason })
            }
            "CONFIGURING" => Ok(JobStatus::Pending { reason: "its nodes are being made ready".to_owned() }),
            "RUNNING" | "SUSPENDED" | "STOPPED" | "SIGNALING" | "STAGE_OUT" | "RESIZING" => self.running(&queued),
            "COMPLETING" if !done => self.running(&queued),
            "FAILED" if mark.is_none() => {
                let what = "SLURM says that it failed; it left no mark of how".to_owned();
                Ok(JobStatus::Ended { how: Ending::Failed { what, exit_code: None } })
            }
            state => {
                let why = format!("SLURM says {state}, but the job left no mark of its end");
                Ok(settled(ending_by_state(state), mark.as_ref(), &why))
            }
        }
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        handle.expect_of(NAME)?;
        match self.own(handle)? {
            Some(_) => queue::cancel(&self.profile, &handle.id),
            None => Ok(()),
        }
    }
}

impl EndMark {
    fn is_success(&self) -> bool {
        self.stage == AttemptStage::Work && self.status == 0
    }

    fn ending(&self) -> Ending {
        let status = self.status;
        let what = match self.stage {
            AttemptStage::Work if status == 0 => return Ending::Succeeded,
            AttemptStage::Work => format!("the workers ended with status {status}"),
            AttemptStage::Limit => return Ending::TimeLimit,
            AttemptStage::Setup => format!("the script ended with status {status} before the workers were started"),
        };
        Ending::Failed { what: format!("{what}; the logs say why"), exit_code: Some(status) }
    }
}

/// The end of a job that runs no more: its own mark where that says success, then SLURM's word, then its own again.
fn settled(by_state: Option<Ending>, mark: Option<&EndMark>, why: &str) -> JobStatus {
    let by_mark = mark.map(EndMark::ending);
    match (by_state, by_mark) {
        (_, Some(Ending::Succeeded)) => JobStatus::Ended { how: Ending::Succeeded },
        (Some(how), _) | (None, Some(how)) => JobStatus::Ended { how },
        (None, None) => JobStatus::Unknown { why: why.to_owned() },
    }
}

/// What SLURM's word for a job that is over means, where it says more than the job's own mark.
fn ending_by_state(state: &str) -> Option<Ending> {
    match state {
        "CANCELLED" => Some(Ending::Cancelled),
        "TIMEOUT" | "DEADLINE" => Some(Ending::TimeLimit),
        "NODE_FAIL" | "BOOT_FAIL" => Some(Ending::NodeLost),
        "PREEMPTED" | "REVOKED" => Some(Ending::Preempted),
        "OUT_OF_MEMORY" => {
            let what = "it used more memory than it had asked for; ask for more".to_owned();
            Some(Ending::Failed { what, exit_code: None })
        }
        // COMPLETED and FAILED say what the script's status said, of which the mark knows more; and success needs the mark.
        _ => None,
    }
}

#[cfg(test)]
mod tests;
