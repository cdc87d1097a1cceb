//! The description of a job, and its validation.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::FleetError;
use crate::shell_quoting::utf8_word;

/// Environment variables that a launcher sets and that a job must not set.
const LAUNCHER_VARIABLES: [&str; 5] =
    ["GODWIT_NODE", "GODWIT_NODES", "GODWIT_ATTEMPT", "GODWIT_JOB_DIRECTORY", "GODWIT_VERSION"];

/// A job: one command that several workers run. The standard input of each process is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// Name of the job for the scheduler. It consists of letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// The program and its arguments. If the program name contains no slash, the program is searched on `PATH` of the
    /// worker's host.
    pub command: Vec<OsString>,
    /// Number of workers, each of which runs the command once.
    pub workers: u32,
    /// Number of processors for each worker. Only SLURM enforces it.
    pub cpus_per_worker: u32,
    /// Memory limit of each worker, bytes; `None` for the default of the scheduler. Only SLURM enforces it.
    pub memory_bytes_per_worker: Option<u64>,
    /// Time after which all processes are stopped; `None` for the time limit of the SLURM profile or partition.
    pub time_limit: Option<Duration>,
    /// Absolute path of the working directory of each process, which must exist on every host.
    pub working_directory: PathBuf,
    /// Environment variables of each process, in addition to those of the submitting shell (local, SLURM) or the login
    /// shell (ssh).
    pub environment: Vec<(String, String)>,
    /// Absolute path of the directory for script, logs and exit marks. All hosts share it, and only this job may use
    /// it. The launcher makes it readable by its owner only.
    pub job_directory: PathBuf,
}

/// The fields of a valid job as text, which can be written into a script.
pub(super) struct ScriptFields<'a> {
    pub(super) command: Vec<&'a str>,
    pub(super) working_directory: &'a str,
    pub(super) job_directory: &'a str,
}

impl JobSpec {
    /// Returns the path of the file with the standard output of worker `node`.
    pub fn stdout_path(&self, node: u32) -> PathBuf {
        self.job_directory.join(format!("logs/node-{node}.out"))
    }

    /// Returns the path of the file with the standard error of worker `node`.
    pub fn stderr_path(&self, node: u32) -> PathBuf {
        self.job_directory.join(format!("logs/node-{node}.err"))
    }

    /// Returns the last error message in the log of worker `node`, without its prefix.
    pub fn last_error_line(&self, node: u32) -> Option<String> {
        let stderr_bytes = std::fs::read(self.stderr_path(node)).ok()?;
        let stderr_text = String::from_utf8_lossy(&stderr_bytes).into_owned();
        let lines = stderr_text.lines().rev();
        lines.filter_map(|line| line.strip_prefix(crate::ERROR_PREFIX)).map(str::to_owned).next()
    }

    pub(super) fn validate(&self) -> Result<ScriptFields<'_>, FleetError> {
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(named) || self.name.starts_with('-') {
            let problem = "use letters, digits, '.', '_' and '-', and no '-' at its start";
            return Err(FleetError::invalid_value("the job's name", &self.name, problem));
        }
        for (what, count) in
            [("the number of workers", self.workers), ("the number of processors", self.cpus_per_worker)]
        {
            if count == 0 {
                return Err(FleetError::invalid_value(what, "0", "it must be at least 1"));
            }
        }
        let Some(program) = self.command.first().filter(|program| !program.is_empty()) else {
            return Err(FleetError::invalid_value("the command", "", "the command has no program"));
        };
        // The shell would interpret this word as a variable assignment, and the next word as the command.
        if program.to_string_lossy().contains('=') {
            return Err(FleetError::invalid_value("the program", program.to_string_lossy(), "it contains a '='"));
        }
        for (name, value) in &self.environment {
            check_variable(name, value)?;
        }
        Ok(ScriptFields {
            command: self.command.iter().map(|word| utf8_word("the command", word)).collect::<Result<_, _>>()?,
            working_directory: check_absolute_path("the working directory", &self.working_directory)?,
            job_directory: check_absolute_path("the job's directory", &self.job_directory)?,
        })
    }

    /// Returns the environment variables of one process, first those that the launcher sets. `node` is `None` if the
    /// script itself sets the index of the worker.
    pub(super) fn environment_variables(&self, node: Option<u32>, attempt: u64) -> Vec<(String, String)> {
        let own = [
            ("GODWIT_NODE", node.map(|node| node.to_string())),
            ("GODWIT_NODES", Some(self.workers.to_string())),
            ("GODWIT_ATTEMPT", Some(attempt.to_string())),
            ("GODWIT_JOB_DIRECTORY", Some(self.job_directory.to_string_lossy().into_owned())),
            ("GODWIT_VERSION", Some(crate::VERSION.to_owned())),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        own.chain(self.environment.iter().cloned()).collect()
    }
}

fn check_variable(name: &str, value: &str) -> Result<(), FleetError> {
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(FleetError::invalid_value(
            "a variable's name",
            name,
            "use letters, digits and '_', and a letter first",
        ));
    }
    if LAUNCHER_VARIABLES.contains(&name) {
        return Err(FleetError::invalid_value("a variable's name", name, "the launcher sets this variable"));
    }
    utf8_word(name, value.as_ref()).map(|_| ())
}

fn check_absolute_path<'a>(what: &str, path: &'a Path) -> Result<&'a str, FleetError> {
    let path_text = utf8_word(what, path.as_os_str())?;
    if !path.is_absolute() {
        return Err(FleetError::invalid_value(
            what,
            path_text,
            "the path must be absolute, because workers start in other directories",
        ));
    }
    Ok(path_text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn job(directory: &Path, command: &[&str], workers: u32) -> JobSpec {
        JobSpec {
            name: "test".into(),
            command: command.iter().map(OsString::from).collect(),
            workers,
            cpus_per_worker: 1,
            memory_bytes_per_worker: None,
            time_limit: None,
            working_directory: directory.to_owned(),
            environment: Vec::new(),
            job_directory: directory.join("job"),
        }
    }

    #[test]
    fn jobs_that_no_script_could_run_are_refused() {
        let good = job(Path::new("/tmp"), &["true"], 1);
        assert!(good.validate().is_ok());
        let broken: [fn(&mut JobSpec); 11] = [
            |job| job.name = "a b".into(),
            |job| job.name = "-x".into(),
            |job| job.name.clear(),
            |job| job.workers = 0,
            |job| job.cpus_per_worker = 0,
            |job| job.command.clear(),
            |job| job.command = vec!["A=b".into()],
            |job| job.environment = vec![("A-B".into(), String::new())],
            |job| job.environment = vec![("GODWIT_NODE".into(), "1".into())],
            |job| job.working_directory = "tmp".into(),
            |job| job.job_directory = "tmp".into(),
        ];
        for (index, break_it) in broken.into_iter().enumerate() {
            let mut job = good.clone();
            break_it(&mut job);
            assert!(job.validate().is_err(), "case {index}");
        }
    }
}
