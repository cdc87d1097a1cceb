//! SLURM's programs, run without what an enclosing job or a user's taste would change in them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::profile::SlurmProfile;
use crate::FleetError;
use crate::quote::command_line;

/// Lines of stderr in messages.
const TAIL_LINES: usize = 20;
/// What squeue is asked for. The script comes last, for only it may hold the mark between fields.
const FORMAT: &str = "--format=%T|%B|%N|%r|%o";
/// The message of SLURM's programs about a job that they do not know (SLURM 22.05, `src/common/slurm_errno.c`).
const UNKNOWN_JOB: &str = "Invalid job id specified";
/// Their messages when the controller cannot be asked (the same file).
const SILENCE: [&str; 5] = [
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Connection refused",
];

/// How SLURM sees a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    /// `RUNNING` and the like.
    pub(super) state: String,
    /// Where the script runs.
    pub(super) script_node: String,
    /// Its nodes in short: `gw[1-4]`.
    pub(super) nodes: String,
    /// Why it waits.
    pub(super) reason: String,
    /// The script that was submitted.
    pub(super) script: String,
}

/// Options of sbatch, and the variables that would go before what the script says of them.
const VARIABLES: [(&str, &str); 14] = [
    ("account", "SBATCH_ACCOUNT"),
    ("constraint", "SBATCH_CONSTRAINT"),
    ("export", "SBATCH_EXPORT"),
    ("input", "SBATCH_INPUT"),
    ("job-name", "SBATCH_JOB_NAME"),
    ("mem", "SBATCH_MEM_PER_NODE"),
    ("mem-per-cpu", "SBATCH_MEM_PER_CPU"),
    ("no-kill", "SBATCH_NO_KILL"),
    ("open-mode", "SBATCH_OPEN_MODE"),
    ("output", "SBATCH_OUTPUT"),
    ("partition", "SBATCH_PARTITION"),
    ("qos", "SBATCH_QOS"),
    ("signal", "SBATCH_SIGNAL"),
    ("time", "SBATCH_TIMELIMIT"),
];

/// Submits a script that lies there. Returns the job's number.
pub(super) fn submit(profile: &SlurmProfile, path: &Path, script: &str) -> Result<String, FleetError> {
    let path = path.to_string_lossy();
    let words = ["sbatch", "--parsable", "--", &path];
    let output = run(profile, &words, &overruling(script))?.map_err(|failure| failure.told(&words))?;
    // "NUMBER" or "NUMBER;CLUSTER"; a site's own wrapper may print lines before it.
    let last = output.lines().last().unwrap_or_default();
    let id = last.split(';').next().unwrap_or_default().trim();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        let command = command_line(words);
        return Err(FleetError::Unreadable { command, output, expected: "the number of a job" });
    }
    Ok(id.to_owned())
}

/// Variables that would go before what this script says.
fn overruling(script: &str) -> Vec<&'static str> {
    let says = |option: &str| {
        let mut words = script.lines().filter_map(|line| line.strip_prefix("#SBATCH --"));
        words.any(|word| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
    };
    VARIABLES.iter().filter(|(option, _)| says(option)).map(|(_, variable)| *variable).collect()
}

/// The job in SLURM's memory: nothing where it knows no such job, or has forgotten it.
pub(super) fn look(profile: &SlurmProfile, id: &str) -> Result<Option<Queued>, FleetError> {
    let jobs = format!("--jobs={id}");
    let words = ["squeue", "--noheader", "--states=all", &jobs, FORMAT];
    let output = match run(profile, &words, &[])? {
        Ok(output) => output,
        Err(failure) if failure.is_unknown_job() => return Ok(None),
        Err(failure) => return Err(failure.silent(&words)),
    };
    let Some(line) = output.lines().find(|line| !line.trim().is_empty()) else { return Ok(None) };
    let unreadable = || FleetError::Unreadable {
        command: command_line(words),
        output: output.clone(),
        expected: "a line of five fields",
    };
    parse(line).ok_or_else(unreadable).map(Some)
}

fn parse(line: &str) -> Option<Queued> {
    let mut fields = line.splitn(5, '|').map(|field| field.trim().to_owned());
    let mut next = || fields.next();
    Some(Queued { state: next()?, script_node: next()?, nodes: next()?, reason: next()?, script: next()? })
}

/// The names of the nodes.
pub(super) fn expand(profile: &SlurmProfile, nodes: &str) -> Result<Vec<String>, FleetError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let words = ["scontrol", "show", "hostnames", nodes];
    let output = run(profile, &words, &[])?.map_err(|failure| failure.told(&words))?;
    Ok(output.lines().map(str::to_owned).collect())
}

/// Cancels a job; no matter if it is over.
pub(super) fn cancel(profile: &SlurmProfile, id: &str) -> Result<(), FleetError> {
    let words = ["scancel", "--quiet", id];
    match run(profile, &words, &[])? {
        Err(failure) if !failure.is_unknown_job() => Err(failure.told(&words)),
        _ => Ok(()),
    }
}

/// Has a job start again.
pub(super) fn requeue(profile: &SlurmProfile, id: &str) -> Result<(), FleetError> {
    let words = ["scontrol", "requeue", id];
    run(profile, &words, &[])?.map(drop).map_err(|failure| failure.told(&words))
}

/// The kind of a failure of one of SLURM's programs. They exit with status 1 for all of them, so that only their messages tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// SLURM does not know the job, or has forgotten it.
    UnknownJob,
    /// The controller cannot be asked.
    Unavailable,
    /// The request was refused.
    Refused,
}

impl FailureKind {
    fn of_stderr(stderr: &str) -> Self {
        if stderr.contains(UNKNOWN_JOB) {
            Self::UnknownJob
        } else if SILENCE.iter().any(|known| stderr.contains(known)) {
            Self::Unavailable
        } else {
            Self::Refused
        }
    }
}

struct Failure {
    kind: FailureKind,
    ending: String,
    stderr: String,
}

impl Failure {
    fn is_unknown_job(&self) -> bool {
        self.kind == FailureKind::UnknownJob
    }

    fn told(self, words: &[&str]) -> FleetError {
        if self.kind == FailureKind::Unavailable {
            return self.silent(words);
        }
        let command = command_line(words.iter().copied());
        FleetError::Refused { command, ending: self.ending, stderr: self.stderr }
    }

    fn silent(self, words: &[&str]) -> FleetError {
        let command = command_line(words.iter().copied());
        FleetError::Silent { command, ending: self.ending, stderr: self.stderr }
    }
}

/// Runs one of SLURM's programs: what it printed, or how it failed. They have time limits of their own for a controller
/// that does not answer. The variables `without` are kept from it.
fn run(profile: &SlurmProfile, words: &[&str], without: &[&str]) -> Result<Result<String, Failure>, FleetError> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).env("LC_ALL", "C");
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if is_of_an_enclosing_job_or_taste(&shown) || without.contains(&shown.as_ref()) {
            command.env_remove(name);
        }
    }
    if let Some(configuration) = &profile.configuration {
        command.env("SLURM_CONF", configuration);
    }
    let missing = |source| FleetError::MissingProgram { program: words[0].to_owned(), source };
    let output = command.output().map_err(missing)?;
    if output.status.success() {
        return Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    Ok(Err(Failure { kind: FailureKind::of_stderr(&tail), ending: output.status.to_string(), stderr: tail }))
}

/// Variables that would make sbatch take over the limits of the job it is called from, or have squeue leave jobs out.
fn is_of_an_enclosing_job_or_taste(name: &str) -> bool {
    const KEPT: [&str; 2] = ["SLURM_CONF", "SLURM_CLUSTERS"];
    ["SLURM_", "SQUEUE_", "SCANCEL_"].iter().any(|prefix| name.starts_with(prefix)) && !KEPT.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_squeue_is_read_whatever_the_scripts_name() {
        let read = parse("RUNNING|gw1|gw[1-4]|None|/a|b c/script.sh").unwrap();
        assert_eq!((read.state.as_str(), read.nodes.as_str()), ("RUNNING", "gw[1-4]"));
        assert_eq!(read.script, "/a|b c/script.sh");
        assert_eq!(parse("RUNNING|gw1|gw[1-4]|None"), None);
    }

    #[test]
    fn failures_of_slurm_are_classified_by_its_messages() {
        for (stderr, kind) in [
            ("slurm_load_jobs error: Invalid job id specified", FailureKind::UnknownJob),
            ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", FailureKind::Unavailable),
            ("scontrol: error: Socket timed out on send/recv operation", FailureKind::Unavailable),
            ("sbatch: error: Batch job submission failed: Invalid account", FailureKind::Refused),
            ("", FailureKind::Refused),
        ] {
            assert_eq!(FailureKind::of_stderr(stderr), kind, "{stderr}");
        }
    }

    #[test]
    fn an_enclosing_job_is_not_passed_on_but_the_cluster_is() {
        for name in ["SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SQUEUE_FORMAT"] {
            assert!(is_of_an_enclosing_job_or_taste(name), "{name}");
        }
        for name in ["SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "PATH"] {
            assert!(!is_of_an_enclosing_job_or_taste(name), "{name}");
        }
    }

    #[test]
    fn what_the_script_says_is_not_overruled_and_what_it_does_not_say_may_be_set_outside() {
        let script = "#!/bin/bash\n#SBATCH --mem=4M\n#SBATCH --no-kill\n\nsrun --qos=x\n";
        assert_eq!(overruling(script), ["SBATCH_MEM_PER_NODE", "SBATCH_NO_KILL"]);
    }
}
