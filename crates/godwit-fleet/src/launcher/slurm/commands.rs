//! Runs SLURM's programs. Environment variables of an enclosing job or of the user that would change their behaviour
//! are removed.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::profile::SlurmProfile;
use crate::FleetError;
use crate::shell_quoting::quote_command_line;

/// Maximum number of stderr lines in an error message.
const MAX_TAIL_LINES: usize = 20;
/// Output format of squeue. The path of the script is the last field, because only this field may contain the
/// separator.
const SQUEUE_FORMAT: &str = "--format=%T|%B|%N|%r|%o";
/// Error message of SLURM's programs for an unknown job (SLURM 22.05, `src/common/slurm_errno.c`).
const UNKNOWN_JOB: &str = "Invalid job id specified";
/// Error messages of SLURM's programs if the controller is unavailable (SLURM 22.05, `src/common/slurm_errno.c`), or if
/// this host has no configuration of SLURM (`src/common/read_config.c`).
const UNAVAILABLE_MESSAGES: [&str; 6] = [
    "Could not establish a configuration source",
    "Unable to contact slurm controller",
    "Socket timed out",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Connection refused",
];

/// A job in SLURM's queue, as squeue reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueueEntry {
    /// State of the job, such as `RUNNING`.
    pub(super) state: String,
    /// Name of the host that runs the batch script.
    pub(super) batch_host: String,
    /// Hosts of the job in SLURM's compact form, such as `gw[1-4]`.
    pub(super) host_list: String,
    /// Reason why the job is waiting.
    pub(super) reason: String,
    /// Path of the batch script that was submitted.
    pub(super) script: String,
}

/// Options of sbatch, each with the environment variable that overrides this option in a batch script.
const SBATCH_VARIABLES: [(&str, &str); 14] = [
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

/// Submits the batch script at `path`, whose content is `script`. Returns the job number.
pub(super) fn submit_script(profile: &SlurmProfile, path: &Path, script: &str) -> Result<String, FleetError> {
    let path = path.to_string_lossy();
    let words = ["sbatch", "--parsable", "--", &path];
    let output = run_command(profile, &words, &overriding_variables(script), None)?;
    let output = output.map_err(|failure| failure.into_error(&words))?;
    // The line is "NUMBER" or "NUMBER;CLUSTER". A site's wrapper of sbatch may print other lines before it.
    let last = output.lines().last().unwrap_or_default();
    let id = last.split(';').next().unwrap_or_default().trim();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        let command = quote_command_line(words);
        return Err(FleetError::UnexpectedOutput { command, output, expected: "the number of a job" });
    }
    Ok(id.to_owned())
}

/// Checks whether SLURM would accept a batch script, without submitting it.
pub(super) fn test_script(profile: &SlurmProfile, script: &str) -> Result<(), FleetError> {
    let words = ["sbatch", "--test-only"];
    let output = run_command(profile, &words, &overriding_variables(script), Some(script))?;
    output.map(drop).map_err(|failure| failure.into_error(&words))
}

/// Returns the environment variables that would override options in the `#SBATCH` lines of this script.
fn overriding_variables(script: &str) -> Vec<&'static str> {
    let says = |option: &str| {
        let mut words = script.lines().filter_map(|line| line.strip_prefix("#SBATCH --"));
        words.any(|word| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
    };
    SBATCH_VARIABLES.iter().filter(|(option, _)| says(option)).map(|(_, variable)| *variable).collect()
}

/// Queries a job; returns `None` if SLURM does not know the job or has forgotten it.
pub(super) fn query_job(profile: &SlurmProfile, id: &str) -> Result<Option<QueueEntry>, FleetError> {
    let jobs = format!("--jobs={id}");
    let words = ["squeue", "--noheader", "--states=all", &jobs, SQUEUE_FORMAT];
    let output = match run_command(profile, &words, &[], None)? {
        Ok(output) => output,
        Err(failure) if failure.is_unknown_job() => return Ok(None),
        Err(failure) => return Err(failure.into_unavailable_error(&words)),
    };
    let Some(line) = output.lines().find(|line| !line.trim().is_empty()) else { return Ok(None) };
    let unreadable = || FleetError::UnexpectedOutput {
        command: quote_command_line(words),
        output: output.clone(),
        expected: "a line of five fields",
    };
    parse_entry(line).ok_or_else(unreadable).map(Some)
}

fn parse_entry(line: &str) -> Option<QueueEntry> {
    let mut fields = line.splitn(5, '|').map(|field| field.trim().to_owned());
    let mut next = || fields.next();
    Some(QueueEntry { state: next()?, batch_host: next()?, host_list: next()?, reason: next()?, script: next()? })
}

/// Expands a host list in SLURM's compact form to the names of the hosts.
pub(super) fn expand_host_list(profile: &SlurmProfile, nodes: &str) -> Result<Vec<String>, FleetError> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let words = ["scontrol", "show", "hostnames", nodes];
    let output = run_command(profile, &words, &[], None)?.map_err(|failure| failure.into_error(&words))?;
    Ok(output.lines().map(str::to_owned).collect())
}

/// Cancels a job. Succeeds also if the job has already ended.
pub(super) fn cancel_job(profile: &SlurmProfile, id: &str) -> Result<(), FleetError> {
    let words = ["scancel", "--quiet", id];
    match run_command(profile, &words, &[], None)? {
        Err(failure) if !failure.is_unknown_job() => Err(failure.into_error(&words)),
        _ => Ok(()),
    }
}

/// Requests that SLURM stops a job and starts it again.
pub(super) fn requeue_job(profile: &SlurmProfile, id: &str) -> Result<(), FleetError> {
    let words = ["scontrol", "requeue", id];
    run_command(profile, &words, &[], None)?.map(drop).map_err(|failure| failure.into_error(&words))
}

/// The reason why a SLURM program failed. The exit status is always 1, so only the error messages distinguish the
/// reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// SLURM does not know the job or has forgotten it.
    UnknownJob,
    /// The SLURM controller is unavailable.
    Unavailable,
    /// SLURM rejected the request.
    Refused,
}

impl FailureKind {
    fn of_stderr(stderr: &str) -> Self {
        if stderr.contains(UNKNOWN_JOB) {
            Self::UnknownJob
        } else if UNAVAILABLE_MESSAGES.iter().any(|known| stderr.contains(known)) {
            Self::Unavailable
        } else {
            Self::Refused
        }
    }
}

struct CommandFailure {
    kind: FailureKind,
    ending: String,
    stderr: String,
}

impl CommandFailure {
    fn is_unknown_job(&self) -> bool {
        self.kind == FailureKind::UnknownJob
    }

    fn into_error(self, words: &[&str]) -> FleetError {
        if self.kind == FailureKind::Unavailable {
            return self.into_unavailable_error(words);
        }
        let command = quote_command_line(words.iter().copied());
        FleetError::CommandRejected { command, exit_status: self.ending, stderr: self.stderr }
    }

    fn into_unavailable_error(self, words: &[&str]) -> FleetError {
        let command = quote_command_line(words.iter().copied());
        FleetError::SchedulerUnavailable { command, exit_status: self.ending, stderr: self.stderr }
    }
}

/// Runs one of SLURM's programs and returns its stdout or its failure. The programs have their own timeouts for a
/// controller that does not respond. The variables `without` are removed from the environment of the program. Its
/// standard input is `input`, or empty.
fn run_command(
    profile: &SlurmProfile,
    words: &[&str],
    without: &[&str],
    input: Option<&str>,
) -> Result<Result<String, CommandFailure>, FleetError> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdout(Stdio::piped()).stderr(Stdio::piped()).env("LC_ALL", "C");
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if is_inherited_slurm_variable(&shown) || without.contains(&shown.as_ref()) {
            command.env_remove(name);
        }
    }
    if let Some(configuration) = &profile.configuration {
        command.env("SLURM_CONF", configuration);
    }
    let missing = |source| FleetError::MissingProgram { program: words[0].to_owned(), source };
    let mut child = command.spawn().map_err(missing)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // Ignore the error of a program that has exited before it read everything; its exit status tells the reason.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(missing)?;
    if output.status.success() {
        return Ok(Ok(String::from_utf8_lossy(&output.stdout).into_owned()));
    }
    let stderr_text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr_text.trim_end().lines().collect();
    let tail = lines[lines.len().saturating_sub(MAX_TAIL_LINES)..].join("\n");
    Ok(Err(CommandFailure { kind: FailureKind::of_stderr(&tail), ending: output.status.to_string(), stderr: tail }))
}

/// Returns whether an environment variable would make sbatch inherit limits of an enclosing job, or make squeue omit
/// jobs.
fn is_inherited_slurm_variable(name: &str) -> bool {
    const KEPT: [&str; 2] = ["SLURM_CONF", "SLURM_CLUSTERS"];
    ["SLURM_", "SQUEUE_", "SCANCEL_"].iter().any(|prefix| name.starts_with(prefix)) && !KEPT.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_squeue_is_read_whatever_the_scripts_name() {
        let read = parse_entry("RUNNING|gw1|gw[1-4]|None|/a|b c/script.sh").unwrap();
        assert_eq!((read.state.as_str(), read.host_list.as_str()), ("RUNNING", "gw[1-4]"));
        assert_eq!(read.script, "/a|b c/script.sh");
        assert_eq!(parse_entry("RUNNING|gw1|gw[1-4]|None"), None);
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
            assert!(is_inherited_slurm_variable(name), "{name}");
        }
        for name in ["SLURM_CONF", "SLURM_CLUSTERS", "SBATCH_ACCOUNT", "PATH"] {
            assert!(!is_inherited_slurm_variable(name), "{name}");
        }
    }

    #[test]
    fn variables_that_override_the_script_are_removed_and_others_stay() {
        let script = "#!/bin/bash\n#SBATCH --mem=4M\n#SBATCH --no-kill\n\nsrun --qos=x\n";
        assert_eq!(overriding_variables(script), ["SBATCH_MEM_PER_NODE", "SBATCH_NO_KILL"]);
    }
}
