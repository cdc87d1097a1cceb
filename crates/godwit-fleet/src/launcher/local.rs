//! Processes on this machine.

use std::process::Command;

use super::children::{Children, Planned, Request};
use super::{JobHandle, JobSpec, JobStatus, Launcher, prepare};
use crate::quote::{command_line, shell_word};
use crate::{FleetError, attempts, private};

/// The launcher's name in handles and messages.
const NAME: &str = "local";

/// Starts one process per node on this machine, each in a process group of its own. They end with this value, and with
/// the process that holds it, however that ends.
#[derive(Default)]
pub struct Local {
    children: Children,
}

impl Local {
    /// A launcher with no jobs.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Launcher for Local {
    fn render(&self, job: &JobSpec) -> Result<String, FleetError> {
        render(job, attempts::next(&job.job_directory)?)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        // What cannot be run must leave no number behind.
        let script = self.render(job)?;
        prepare(job, &script)?;
        let attempt = attempts::claim(&job.job_directory)?;
        prepare(job, &render(job, attempt)?)?;
        let planned = (0..job.nodes).map(|node| plan(job, node, attempt)).collect::<Result<_, _>>()?;
        self.children.start(NAME, job, planned, Request::Terminate)
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        self.children.status(NAME, handle)
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        self.children.cancel(NAME, handle)
    }
}

fn plan(job: &JobSpec, node: u32, attempt: u64) -> Result<Planned, FleetError> {
    let checked = job.check()?;
    let mut command = Command::new(checked.command[0]);
    command.args(&checked.command[1..]).current_dir(&job.working_directory);
    command.envs(job.variables(Some(node), attempt));
    command.stdout(private::appended(&job.output_path(node))?).stderr(private::appended(&job.error_path(node))?);
    Ok(Planned { name: format!("node {node}"), command, shown: command_line(checked.command) })
}

fn render(job: &JobSpec, attempt: u64) -> Result<String, FleetError> {
    let checked = job.check()?;
    let mut script = format!(
        "#!/bin/sh\n# Job {} of godwit {}: {} processes on this machine. Standard input of each is empty.\ncd {} || exit 4\n",
        job.name,
        crate::VERSION,
        job.nodes,
        shell_word(checked.working_directory)
    );
    for (name, value) in job.variables(None, attempt) {
        script += &format!("export {name}={}\n", shell_word(&value));
    }
    let command = command_line(checked.command.iter().copied());
    for node in 0..job.nodes {
        let (output, error) = (job.output_path(node), job.error_path(node));
        script += &format!(
            "GODWIT_NODE={node} {command} </dev/null >>{} 2>>{} &\n",
            shell_word(&output.to_string_lossy()),
            shell_word(&error.to_string_lossy())
        );
    }
    script += "wait\n";
    Ok(script)
}

#[cfg(test)]
mod tests;
