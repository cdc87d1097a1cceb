//! Processes on machines that ssh reaches without asking anything.
//!
//! The far process ends when the connection does: a shell around it reads the connection, and when that closes, because the
//! launcher closed it, died, or was cut off, the shell sends TERM to the process's group, and KILL five seconds later. A
//! machine that vanishes without closing anything is noticed on this side after 15 s. On the far side that is up to its
//! sshd (`ClientAliveInterval`), so a process that must not run on unseen has to listen for its peers by itself.
//!
//! Logs come back over the connection. The job's directory has to be seen by all hosts only for what the processes do there.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::children::{Children, Planned, Request};
use super::{JobHandle, JobSpec, JobStatus, Launcher, prepare};
use crate::quote::{command_line, shell_word};
use crate::{FleetError, attempts, private};

/// The launcher's name in handles and messages.
const NAME: &str = "ssh";

/// What runs on the far side: `sh -c THIS sh DIRECTORY env NAME=VALUE.. COMMAND..`, in one line, for shells that do not
/// take line breaks between quotes.
///
/// sshd gives every session a process group, so group 0 is the session's. The shell survives its own TERM to tell how the
/// process ended; the reader of the connection survives it to send KILL.
const KEEP: &str = concat!(
    r#"cd "$1" || exit 4; shift; exec 3<&0; trap : TERM; "#,
    r#""$@" 3<&- </dev/null & worker=$!; "#,
    r#"{ trap "" TERM; cat <&3; kill -TERM 0; sleep 5; kill -KILL 0; } >/dev/null 2>&1 & "#,
    r#"exec 3<&-; wait "$worker"; status=$?; kill -TERM 0; exit "$status""#
);

/// A machine and how many processes it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// What ssh is told: a name, an address, an alias of its configuration, `user@name`.
    pub name: String,
    /// Processes it takes.
    pub slots: u32,
}

/// Starts one process per node on the hosts of a file, filling each host's slots before going on to the next one.
pub struct Ssh {
    hosts: PathBuf,
    options: Vec<String>,
    /// The place of the first node among those of the file.
    first: usize,
    children: Children,
}

impl Ssh {
    /// A launcher for the hosts in a file, one to a line: `host [slots=N]`, with `#` before comments. `options` go to ssh
    /// before the host, as in `-F FILE`.
    pub fn new(hosts: impl Into<PathBuf>, options: Vec<String>) -> Self {
        Self { hosts: hosts.into(), options, first: 0, children: Children::default() }
    }

    /// The same, where the first `first` places of the file are left out: a launcher for each node of a run starts jobs of one node there.
    pub fn from_place(self, first: usize) -> Self {
        Self { first, ..self }
    }

    /// The host of each node.
    fn places(&self, nodes: u32) -> Result<Vec<String>, FleetError> {
        let text = std::fs::read_to_string(&self.hosts).map_err(FleetError::file("read", &self.hosts))?;
        let hosts = parse_hosts(&text, &self.hosts)?;
        let slots = hosts.iter().map(|host| u64::from(host.slots)).sum();
        let last = u64::from(nodes) + self.first as u64;
        if slots < last {
            return Err(FleetError::TooFewSlots { path: self.hosts.clone(), slots, nodes: last as u32 });
        }
        let places = hosts.into_iter().flat_map(|host| std::iter::repeat_n(host.name, host.slots as usize));
        Ok(places.skip(self.first).take(nodes as usize).collect())
    }

    /// ssh's words for each node.
    fn command_lines(&self, job: &JobSpec, attempt: u64) -> Result<Vec<(String, Vec<String>)>, FleetError> {
        let places = self.places(job.nodes)?;
        let lines = places.into_iter().zip(0..).map(|(host, node)| {
            let mut words: Vec<String> =
                ["-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
                    .map(str::to_owned)
                    .into();
            words.extend(self.options.iter().cloned());
            let far = far_command(job, node, attempt)?;
            words.extend(["--".to_owned(), host.clone(), far]);
            Ok((format!("node {node} on {host}"), words))
        });
        lines.collect()
    }

    fn render_attempt(&self, job: &JobSpec, attempt: u64) -> Result<String, FleetError> {
        job.check()?;
        let mut script = format!(
            "#!/bin/sh\n# Job {} of godwit {}: {} processes by ssh. Each one's standard input stays open as long as godwit\n\
             # wants it to run: when it closes, the far shell ends what it started.\n",
            job.name,
            crate::VERSION,
            job.nodes
        );
        for ((_, words), node) in self.command_lines(job, attempt)?.into_iter().zip(0..) {
            script += &format!(
                "tail -f /dev/null | ssh {} >>{} 2>>{} &\n",
                command_line(words.iter().map(String::as_str)),
                shell_word(&job.output_path(node).to_string_lossy()),
                shell_word(&job.error_path(node).to_string_lossy())
            );
        }
        script += "wait\n";
        Ok(script)
    }
}

impl Launcher for Ssh {
    fn render(&self, job: &JobSpec) -> Result<String, FleetError> {
        self.render_attempt(job, attempts::next(&job.job_directory)?)
    }

    fn submit(&self, job: &JobSpec) -> Result<JobHandle, FleetError> {
        // What cannot be run must leave no number behind.
        let script = self.render(job)?;
        prepare(job, &script)?;
        let attempt = attempts::claim(&job.job_directory)?;
        prepare(job, &self.render_attempt(job, attempt)?)?;
        let mut planned = Vec::new();
        for ((name, words), node) in self.command_lines(job, attempt)?.into_iter().zip(0..) {
            let mut command = Command::new("ssh");
            command.args(&words);
            command.stdout(private::appended(&job.output_path(node))?);
            command.stderr(private::appended(&job.error_path(node))?);
            let shown = format!("ssh {}", command_line(words.iter().map(String::as_str)));
            planned.push(Planned { name, command, shown });
        }
        self.children.start(NAME, job, planned, Request::CloseInput)
    }

    fn status(&self, handle: &JobHandle) -> Result<JobStatus, FleetError> {
        self.children.status(NAME, handle)
    }

    fn cancel(&self, handle: &JobHandle) -> Result<(), FleetError> {
        self.children.cancel(NAME, handle)
    }
}

/// The one word that ssh hands to the login shell of the far side, which has to be a POSIX one (or fish).
fn far_command(job: &JobSpec, node: u32, attempt: u64) -> Result<String, FleetError> {
    let checked = job.check()?;
    let variables: Vec<String> =
        job.variables(Some(node), attempt).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let words = ["sh", "-c", KEEP, "sh", checked.working_directory, "env"].into_iter();
    let words = words.chain(variables.iter().map(String::as_str)).chain(checked.command);
    Ok(format!("exec {}", command_line(words)))
}

/// Hosts of a file's text. `path` is for messages.
///
/// # Errors
/// [`FleetError::Unusable`] with the line that is not `host [slots=N]`.
pub fn parse_hosts(text: &str, path: &Path) -> Result<Vec<Host>, FleetError> {
    let mut hosts = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let Some(name) = words.next() else { continue };
        let refuse = |problem: &str| {
            Err(FleetError::unusable(format!("line {number} of {}", path.display()), content.trim(), problem))
        };
        // ssh would take it for an option; a slash or a control character is in no name.
        if name.starts_with('-') || name.contains('/') || name.chars().any(char::is_control) {
            return refuse("a host's name comes first");
        }
        let slots = match words.next().map(|word| word.strip_prefix("slots=").map(str::parse)) {
            None => 1,
            Some(Some(Ok(slots))) if slots > 0 => slots,
            Some(_) => return refuse("after the host, only slots=N may follow, N being at least 1"),
        };
        if words.next().is_some() {
            return refuse("after the host, only slots=N may follow, and nothing after that");
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
    fn slots_are_filled_in_the_order_of_the_file_and_too_few_are_told() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("hosts");
        std::fs::write(&path, "a slots=2\nb\n").unwrap();
        let ssh = Ssh::new(&path, Vec::new());
        assert_eq!(ssh.places(3).unwrap(), ["a", "a", "b"]);
        assert_eq!(ssh.places(1).unwrap(), ["a"]);
        let error = ssh.places(4).unwrap_err().to_string();
        assert!(error.contains("has room for 3 processes, but 4 are asked for"), "{error}");
    }
}
