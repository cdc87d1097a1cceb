//! A launcher that starts the workers as processes on this host.

use std::process::Command;

use super::child_jobs::{ChildJobs, ProcessSpec, StopMethod};
use super::{JobHandle, JobSpec, JobStatus, Launcher, prepare_job_directory};
use crate::shell_quoting::{quote_command_line, quote_word};
use crate::{FleetError, attempts, private_files};

/// Name of the launcher in job handles and messages.
const LAUNCHER_NAME: &str = "local";

/// A launcher that starts one process per worker on this host, each in its own process group. When the launcher is
/// dropped, or its process ends for any reason, all these processes are killed.
#[derive(Default)]
pub struct LocalLauncher {
    children: ChildJobs,
}

impl LocalLauncher {
    /// Creates a launcher that has not started any jobs.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Launcher for LocalLauncher {
    fn render_script(&self, job: &JobSpec) -> Result<String, FleetError> {
        render_attempt(job, attempts::next_attempt(&job.job_directory)?)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        // Validate the job first, so that an invalid one does not claim an attempt number.
        let script = self.render_script(job)?;
        prepare_job_directory(job, &script)?;
        let attempt = attempts::claim_attempt(&job.job_directory)?;
        prepare_job_directory(job, &render_attempt(job, attempt)?)?;
        let planned = (0..job.workers).map(|node| process_spec(job, node, attempt)).collect::<Result<_, _>>()?;
        self.children.start_job(LAUNCHER_NAME, job, planned, StopMethod::Terminate)
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        self.children.job_status(LAUNCHER_NAME, handle)
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        self.children.cancel_job(LAUNCHER_NAME, handle)
    }
}

fn process_spec(job: &JobSpec, node: u32, attempt: u64) -> Result<ProcessSpec, FleetError> {
    let checked = job.validate()?;
    let mut command = Command::new(checked.command[0]);
    command.args(&checked.command[1..]).current_dir(&job.working_directory);
    command.envs(job.environment_variables(Some(node), attempt));
    command
        .stdout(private_files::open_for_append(&job.stdout_path(node))?)
        .stderr(private_files::open_for_append(&job.stderr_path(node))?);
    Ok(ProcessSpec { name: format!("worker {node}"), command, command_line: quote_command_line(checked.command) })
}

fn render_attempt(job: &JobSpec, attempt: u64) -> Result<String, FleetError> {
    let checked = job.validate()?;
    let mut script = format!(
        "#!/bin/sh\n# Job {} of godwit {}: {} processes on this host. Standard input of each is empty.\ncd {} || exit \
         4\n",
        job.name,
        crate::VERSION,
        job.workers,
        quote_word(checked.working_directory)
    );
    for (name, value) in job.environment_variables(None, attempt) {
        script += &format!("export {name}={}\n", quote_word(&value));
    }
    let command = quote_command_line(checked.command.iter().copied());
    for node in 0..job.workers {
        let (output, error) = (job.stdout_path(node), job.stderr_path(node));
        script += &format!(
            "GODWIT_NODE={node} {command} </dev/null >>{} 2>>{} &\n",
            quote_word(&output.to_string_lossy()),
            quote_word(&error.to_string_lossy())
        );
    }
    script += "wait\n";
    Ok(script)
}

#[cfg(test)]
mod tests;
