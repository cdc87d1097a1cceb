//! The allocation of a SLURM job, as one of its processes sees it.

use std::path::PathBuf;

use crate::{FleetError, attempts};

/// The job to which this process belongs, and its worker number, from the variables that the launcher sets.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// Number of this process in the job; 0 is the head.
    pub worker_index: u32,
    /// Number of the attempt of the job to which this process belongs.
    pub attempt: u64,
    /// Directory of the job.
    pub job_directory: PathBuf,
}

impl Allocation {
    /// Reads the environment variables that the launcher sets.
    ///
    /// # Errors
    /// [`FleetError::Variable`] if a variable is missing or malformed.
    pub fn from_environment() -> Result<Self, FleetError> {
        let text = |name: &'static str| {
            let problem = "is not set: --on allocation is for jobs that --on slurm submits";
            std::env::var(name).map_err(|_| FleetError::Variable { name, problem })
        };
        let number = |name: &'static str| {
            let wrong = |_| FleetError::Variable { name, problem: "is not a number" };
            text(name)?.parse::<u64>().map_err(wrong)
        };
        let job_directory = PathBuf::from(text("GODWIT_JOB_DIRECTORY")?);
        Ok(Self { worker_index: number("GODWIT_NODE")? as u32, attempt: number("GODWIT_ATTEMPT")?, job_directory })
    }

    /// Creates a file that marks the job as finished. The process that has submitted the job then cancels it if it does
    /// not end, because SLURM waits forever for a worker on an unreachable host.
    ///
    /// # Errors
    /// [`FleetError::File`] if the file cannot be written.
    pub fn write_finished_marker(&self) -> Result<(), FleetError> {
        let path = attempts::finished_marker_path(&self.job_directory, self.attempt);
        std::fs::write(&path, "").map_err(FleetError::file_error("write", &path))
    }

    /// Returns whether a process of the job has marked it as finished.
    pub fn is_finished(&self) -> bool {
        attempts::finished_marker_path(&self.job_directory, self.attempt).exists()
    }

    /// Returns whether the head of this attempt has ended, for any reason. The batch script writes the mark
    /// (`launcher/slurm/batch_script.rs`).
    pub fn has_head_ended(&self) -> bool {
        self.job_directory.join(format!("attempts/{}/head-ended", self.attempt)).exists()
    }

    /// Returns whether the job has earlier attempts, whose work can be resumed.
    pub fn is_restart(&self) -> bool {
        self.job_starts().iter().any(|start| *start < self.attempt)
    }

    /// Returns the number of a later attempt of this job, if there is one. This process then has to end.
    pub fn newer_attempt(&self) -> Option<u64> {
        self.job_starts().into_iter().filter(|start| *start > self.attempt).max()
    }

    /// Returns the numbers of all attempts of this SLURM job, including the current attempt. A requeued job has several
    /// attempts.
    fn job_starts(&self) -> Vec<u64> {
        let own = attempts::job_of_attempt(&self.job_directory, self.attempt);
        own.and_then(|own| attempts::attempts_of_job(&self.job_directory, &own, 0).ok()).unwrap_or_default()
    }
}
