//! A launcher that starts the workers on hosts that ssh can reach without prompting for a password.
//!
//! A remote worker process ends when its ssh connection ends. A shell around the process reads from the connection. The
//! connection closes if the launcher closes it, the launcher ends, or the network fails. The shell then sends TERM to
//! the process group of the worker, and KILL five seconds later. If a remote host disappears without closing its
//! connection, the launcher detects this after 15 s. If the launcher's host disappears, only the remote sshd can detect
//! this (`ClientAliveInterval`). A worker process that must not continue alone therefore has to check its own
//! connection to the head.
//!
//! Logs are sent to the launcher over the ssh connection. The launcher does not need a shared job directory, but the
//! worker processes may.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::child_jobs::{ChildJobs, ProcessSpec, StopMethod};
use super::{JobHandle, JobSpec, JobStatus, Launcher, prepare_job_directory};
use crate::shell_quoting::{quote_command_line, quote_word};
use crate::{FleetError, attempts, private_files};

/// Name of the launcher in job handles and messages.
const LAUNCHER_NAME: &str = "ssh";

/// The remote shell script, run as `sh -c THIS sh DIRECTORY env NAME=VALUE.. COMMAND..`. It is one line, because some
/// login shells do not accept line breaks between quotes.
///
/// sshd creates a process group for every session, so `kill 0` signals all processes of the session. The outer shell
/// ignores its own TERM, so that it can report the exit status of the worker. The subshell that reads from the
/// connection ignores TERM, so that it can send KILL later.
const REMOTE_SCRIPT: &str = concat!(
    r#"cd "$1" || exit 4; shift; exec 3<&0; trap : TERM; "#,
    r#""$@" 3<&- </dev/null & worker=$!; "#,
    r#"{ trap "" TERM; cat <&3; kill -TERM 0; sleep 5; kill -KILL 0; } >/dev/null 2>&1 & "#,
    r#"exec 3<&-; wait "$worker"; status=$?; kill -TERM 0; exit "$status""#
);

/// A host and the number of workers that it can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The destination argument of ssh: a host name, an address, an alias in ssh's configuration, or `user@name`.
    pub name: String,
    /// Maximum number of worker processes on this host.
    pub slots: u32,
}

/// A launcher that starts one process per worker on the hosts in a file. It fills all slots of a host before it uses
/// the next host.
pub struct SshLauncher {
    hosts_file: PathBuf,
    ssh_options: Vec<String>,
    /// 0-based index of the slot of the first worker, counted over all hosts in the file.
    first_slot: usize,
    children: ChildJobs,
}

impl SshLauncher {
    /// Creates a launcher for the hosts in a file. Each line has the form `host [slots=N]`, and `#` starts a comment.
    /// `ssh_options` are arguments of ssh, such as `-F FILE`.
    pub fn new(hosts: impl Into<PathBuf>, ssh_options: Vec<String>) -> Self {
        Self { hosts_file: hosts.into(), ssh_options, first_slot: 0, children: ChildJobs::default() }
    }

    /// Skips the first `first_slot` slots in the file, so that several jobs of one worker each can use different slots.
    pub fn with_first_slot(self, first_slot: usize) -> Self {
        Self { first_slot, ..self }
    }

    /// Returns the name of the host of each worker.
    fn slot_hosts(&self, nodes: u32) -> Result<Vec<String>, FleetError> {
        let text =
            std::fs::read_to_string(&self.hosts_file).map_err(FleetError::file_error("read", &self.hosts_file))?;
        let hosts = parse_hosts(&text, &self.hosts_file)?;
        let slots = hosts.iter().map(|host| u64::from(host.slots)).sum();
        let last = u64::from(nodes) + self.first_slot as u64;
        if slots < last {
            return Err(FleetError::TooFewSlots { path: self.hosts_file.clone(), slots, workers: last as u32 });
        }
        let places = hosts.into_iter().flat_map(|host| std::iter::repeat_n(host.name, host.slots as usize));
        Ok(places.skip(self.first_slot).take(nodes as usize).collect())
    }

    /// Returns the name and the ssh arguments of each worker.
    fn ssh_arguments(&self, job: &JobSpec, attempt: u64) -> Result<Vec<(String, Vec<String>)>, FleetError> {
        let places = self.slot_hosts(job.workers)?;
        let lines = places.into_iter().zip(0..).map(|(host, node)| {
            let mut words: Vec<String> =
                ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
                    .map(str::to_owned)
                    .into();
            words.extend(self.ssh_options.iter().cloned());
            let far = remote_command(job, node, attempt)?;
            words.extend(["--".to_owned(), host.clone(), far]);
            Ok((format!("worker {node} on {host}"), words))
        });
        lines.collect()
    }

    fn render_attempt(&self, job: &JobSpec, attempt: u64) -> Result<String, FleetError> {
        job.validate()?;
        let mut script = format!(
            "#!/bin/sh\n# Job {} of godwit {}: {} processes by ssh. Standard input of each stays open until godwit\n\
             # stops it: when it closes, the remote shell ends the process.\n",
            job.name,
            crate::VERSION,
            job.workers
        );
        for ((_, words), node) in self.ssh_arguments(job, attempt)?.into_iter().zip(0..) {
            script += &format!(
                "tail -f /dev/null | ssh {} >>{} 2>>{} &\n",
                quote_command_line(words.iter().map(String::as_str)),
                quote_word(&job.stdout_path(node).to_string_lossy()),
                quote_word(&job.stderr_path(node).to_string_lossy())
            );
        }
        script += "wait\n";
        Ok(script)
    }
}

impl Launcher for SshLauncher {
    fn render_script(&self, job: &JobSpec) -> Result<String, FleetError> {
        self.render_attempt(job, attempts::next_attempt(&job.job_directory)?)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        // Validate the job first, so that an invalid one does not claim an attempt number.
        let script = self.render_script(job)?;
        prepare_job_directory(job, &script)?;
        let attempt = attempts::claim_attempt(&job.job_directory)?;
        prepare_job_directory(job, &self.render_attempt(job, attempt)?)?;
        let mut planned = Vec::new();
        for ((name, words), node) in self.ssh_arguments(job, attempt)?.into_iter().zip(0..) {
            let mut command = Command::new("ssh");
            command.args(&words);
            command.stdout(private_files::open_for_append(&job.stdout_path(node))?);
            command.stderr(private_files::open_for_append(&job.stderr_path(node))?);
            let shown = format!("ssh {}", quote_command_line(words.iter().map(String::as_str)));
            planned.push(ProcessSpec { name, command, command_line: shown });
        }
        self.children.start_job(LAUNCHER_NAME, job, planned, StopMethod::CloseInput)
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        self.children.job_status(LAUNCHER_NAME, handle)
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        self.children.cancel_job(LAUNCHER_NAME, handle)
    }
}

/// Returns the remote command as one word. ssh passes this word to the login shell of the host, which must be a POSIX
/// shell or fish.
fn remote_command(job: &JobSpec, node: u32, attempt: u64) -> Result<String, FleetError> {
    let checked = job.validate()?;
    let variables: Vec<String> = job
        .environment_variables(Some(node), attempt)
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let words = ["sh", "-c", REMOTE_SCRIPT, "sh", checked.working_directory, "env"].into_iter();
    let words = words.chain(variables.iter().map(String::as_str)).chain(checked.command);
    Ok(format!("exec {}", quote_command_line(words)))
}

/// Parses the content of a host file. `path`: path of the file, for error messages.
///
/// # Errors
/// [`FleetError::InvalidValue`] if a line does not have the form `host [slots=N]`.
fn parse_hosts(text: &str, path: &Path) -> Result<Vec<Host>, FleetError> {
    let mut hosts = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let Some(name) = words.next() else { continue };
        let refuse = |problem: &str| {
            Err(FleetError::invalid_value(format!("line {number} of {}", path.display()), content.trim(), problem))
        };
        // ssh would interpret a leading hyphen as an option. Host names contain no slashes or control characters.
        if name.starts_with('-') || name.contains('/') || name.chars().any(char::is_control) {
            return refuse("expected a host name first");
        }
        let slots = match words.next().map(|word| word.strip_prefix("slots=").map(str::parse)) {
            None => 1,
            Some(Some(Ok(slots))) if slots > 0 => slots,
            Some(_) => return refuse("after the host name, only slots=N with N of at least 1 is allowed"),
        };
        if words.next().is_some() {
            return refuse("after the host name, only slots=N is allowed");
        }
        hosts.push(Host { name: name.to_owned(), slots });
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_files_have_comments_slots_and_errors_with_lines() {
        let parse = |text: &str| parse_hosts(text, Path::new("hosts"));
        let host = |name: &str, slots| Host { name: name.into(), slots };
        let read = parse("# ours\nn1\n\n  n2 slots=3 # big\nme@n3\tslots=1\n").unwrap();
        assert_eq!(read, [host("n1", 1), host("n2", 3), host("me@n3", 1)]);
        for bad in ["-oProxyCommand=x", "n1 slots=0", "n1 slots=x", "n1 slot=2", "n1 slots=2 3", "a/b"] {
            let error = parse(&format!("n0\n{bad}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2 of hosts cannot be"), "{error}");
        }
    }

    #[test]
    fn slots_are_filled_in_the_order_of_the_file_and_too_few_are_reported() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("hosts");
        std::fs::write(&path, "a slots=2\nb\n").unwrap();
        let ssh = SshLauncher::new(&path, Vec::new());
        assert_eq!(ssh.slot_hosts(3).unwrap(), ["a", "a", "b"]);
        assert_eq!(ssh.slot_hosts(1).unwrap(), ["a"]);
        let error = ssh.slot_hosts(4).unwrap_err().to_string();
        assert!(error.contains("has 3 slots, but the job needs 4"), "{error}");
    }
}
