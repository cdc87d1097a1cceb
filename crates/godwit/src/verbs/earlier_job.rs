//! SLURM jobs that an earlier command has submitted and that have not ended: a command with `--resume` waits for its job
//! instead of submitting a second one, which would fail because the first one has locked the outputs.

use std::path::Path;

use godwit_fleet::{FleetError, JobHandle, JobStatus, Launcher};
use godwit_pipeline::PipelineError;

/// A SLURM job of an earlier command that has not ended.
pub struct EarlierJob {
    /// The job.
    pub handle: JobHandle,
    /// True if SLURM was already ending the job, for example because the user has cancelled it.
    pub is_completing: bool,
}

impl EarlierJob {
    /// Finds the job that was submitted last with this job directory; `None` if there is none or if it has ended. `name`
    /// is the name of the work for messages.
    ///
    /// # Errors
    /// [`PipelineError::Options`] if there is such a job and `resume` is false; the error of the launcher if the state of
    /// the job cannot be queried.
    pub fn find(
        launcher: &dyn Launcher,
        job_directory: &Path,
        name: &str,
        resume: bool,
    ) -> Result<Option<Self>, PipelineError> {
        let Ok(handle) = JobHandle::load(job_directory) else { return Ok(None) };
        let is_completing = match launcher.status(&handle) {
            Ok(JobStatus::Running { is_completing, .. }) => is_completing,
            // Without a response of SLURM, assume that the job runs: a second job would fail, because the first one has
            // locked the output.
            Ok(JobStatus::Pending { .. }) | Err(FleetError::SchedulerUnavailable { .. }) => false,
            // Another launcher has started the job.
            Ok(JobStatus::Ended { .. } | JobStatus::Unknown { .. }) | Err(FleetError::ForeignJob { .. }) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        if !resume {
            let id = &handle.id;
            let problem = format!(
                "job {id} of an earlier command has not ended and processes {name}: add --resume to wait for it, or \
                 cancel it with `scancel {id}` and wait for its end"
            );
            return Err(PipelineError::Options { problem });
        }
        Ok(Some(Self { handle, is_completing }))
    }
}
