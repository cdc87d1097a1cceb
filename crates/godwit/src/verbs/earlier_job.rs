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
    /// [`PipelineError::Options`] if there is such a job and `resume` is false; [`FleetError::UnknownJobState`] if
    /// SLURM does not respond and `resume` is false; another error of the launcher if the state of the job cannot be
    /// queried.
    pub fn find(
        launcher: &dyn Launcher,
        job_directory: &Path,
        name: &str,
        resume: bool,
    ) -> Result<Option<Self>, PipelineError> {
        let Ok(handle) = JobHandle::load(job_directory) else { return Ok(None) };
        let is_completing = match launcher.status(&handle) {
            Ok(JobStatus::Running { is_completing, .. }) => is_completing,
            Ok(JobStatus::Pending { .. }) => false,
            // Without a response of SLURM, do not submit a second job: it would fail if the first one has not ended and
            // has locked the output.
            Err(FleetError::SchedulerUnavailable { .. }) if resume => false,
            Err(error @ FleetError::SchedulerUnavailable { .. }) => {
                return Err(FleetError::UnknownJobState { id: handle.id, source: Box::new(error) }.into());
            }
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

#[cfg(test)]
mod tests {
    use godwit_fleet::JobSpec;
    use godwit_model::ErrorKind;

    use super::*;

    /// A launcher whose scheduler does not respond.
    struct SilentLauncher;

    impl Launcher for SilentLauncher {
        fn render_script(&self, _: &JobSpec) -> Result<String, FleetError> {
            unreachable!()
        }

        fn submit(&self, _: &JobSpec) -> Result<JobHandle, FleetError> {
            unreachable!()
        }

        fn status(&self, _: &JobHandle) -> Result<JobStatus, FleetError> {
            let (command, exit_status) = ("squeue".to_owned(), "exit status: 1".to_owned());
            Err(FleetError::SchedulerUnavailable { command, exit_status, stderr: String::new() })
        }

        fn cancel(&self, _: &JobHandle) -> Result<(), FleetError> {
            unreachable!()
        }
    }

    #[test]
    fn without_a_response_of_slurm_only_a_resumed_command_waits_for_the_job() {
        let directory = tempfile::tempdir().unwrap();
        // A handle of an earlier version, without `first_attempt`.
        let handle = r#"{"launcher": "slurm", "id": "7", "directory": "/nowhere"}"#;
        std::fs::write(directory.path().join("handle.json"), handle).unwrap();
        let find = |resume| EarlierJob::find(&SilentLauncher, directory.path(), "sample", resume);
        assert_eq!(find(true).unwrap().map(|job| job.handle.id).as_deref(), Some("7"));
        let error = find(false).err().unwrap();
        assert!(matches!(error.kind(), ErrorKind::Machine), "{error}");
        let message = error.to_string();
        for words in ["job 7", "is unknown", "SLURM does not respond"] {
            assert!(message.contains(words), "{message}");
        }
    }
}
