//! What a job is, and whether it can be one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::FleetError;
use crate::quote::text;

/// Variables that launchers set by themselves.
const OWN_VARIABLES: [&str; 5] =
    ["GODWIT_NODE", "GODWIT_NODES", "GODWIT_ATTEMPT", "GODWIT_JOB_DIRECTORY", "GODWIT_VERSION"];

/// The same command on some nodes. Standard input of each process is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// What the scheduler calls it: letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// The program, found on `PATH` of the node where it has no slash, and its arguments.
    pub command: Vec<OsString>,
    /// How many nodes; each runs the command once.
    pub nodes: u32,
    /// Processors for each process. Only SLURM holds it to that.
    pub cpus_per_node: u32,
    /// Memory for each process, in bytes; the scheduler's default where none is given. Only SLURM holds it to that.
    pub memory_bytes_per_node: Option<u64>,
    /// After that long all processes are ended; the profile's or the partition's limit where none is given.
    pub time_limit: Option<Duration>,
    /// Where each process starts: absolute, and there on every node.
    pub working_directory: PathBuf,
    /// Variables each process gets, beside those it inherits from the submitting shell (local, SLURM) or the login (ssh).
    pub environment: Vec<(String, String)>,
    /// Where script, logs and marks go: absolute, the job's alone, seen by every node. It becomes private.
    pub job_directory: PathBuf,
}

/// A job whose words can be written into a script.
pub(super) struct Checked<'a> {
    pub(super) command: Vec<&'a str>,
    pub(super) working_directory: &'a str,
    pub(super) job_directory: &'a str,
}

impl JobSpec {
    /// File that takes what the command of a node prints.
    pub fn output_path(&self, node: u32) -> PathBuf {
        self.job_directory.join(format!("logs/node-{node}.out"))
    }

    /// File that takes what the command of a node says on stderr.
    pub fn error_path(&self, node: u32) -> PathBuf {
        self.job_directory.join(format!("logs/node-{node}.err"))
    }

    pub(super) fn check(&self) -> Result<Checked<'_>, FleetError> {
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if self.name.is_empty() || !self.name.bytes().all(named) || self.name.starts_with('-') {
            let problem = "use letters, digits, '.', '_' and '-', and no '-' at its start";
            return Err(FleetError::unusable("the job's name", &self.name, problem));
        }
        for (what, count) in [("the number of nodes", self.nodes), ("the number of processors", self.cpus_per_node)] {
            if count == 0 {
                return Err(FleetError::unusable(what, "0", "it must be at least 1"));
            }
        }
        let Some(program) = self.command.first().filter(|program| !program.is_empty()) else {
            return Err(FleetError::unusable("the command", "", "it has no program"));
        };
        // A shell would take it for an assignment, and the rest for the command.
        if program.to_string_lossy().contains('=') {
            return Err(FleetError::unusable("the program", program.to_string_lossy(), "it holds a '='"));
        }
        for (name, value) in &self.environment {
            check_variable(name, value)?;
        }
        Ok(Checked {
            command: self.command.iter().map(|word| text("the command", word)).collect::<Result<_, _>>()?,
            working_directory: absolute("the working directory", &self.working_directory)?,
            job_directory: absolute("the job's directory", &self.job_directory)?,
        })
    }

    /// Variables of one process, those of the launcher first. `node` is left out where the script finds it.
    pub(super) fn variables(&self, node: Option<u32>, attempt: u64) -> Vec<(String, String)> {
        let own = [
            ("GODWIT_NODE", node.map(|node| node.to_string())),
            ("GODWIT_NODES", Some(self.nodes.to_string())),
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
        return Err(FleetError::unusable("a variable's name", name, "use letters, digits and '_', and a letter first"));
    }
    if OWN_VARIABLES.contains(&name) {
        return Err(FleetError::unusable("a variable's name", name, "the launcher sets this one"));
    }
    text(name, value.as_ref()).map(|_| ())
}

fn absolute<'a>(what: &str, path: &'a Path) -> Result<&'a str, FleetError> {
    let path_text = text(what, path.as_os_str())?;
    if !path.is_absolute() {
        return Err(FleetError::unusable(what, path_text, "it must be absolute, for nodes start elsewhere"));
    }
    Ok(path_text)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn job(directory: &Path, command: &[&str], nodes: u32) -> JobSpec {
        JobSpec {
            name: "test".into(),
            command: command.iter().map(OsString::from).collect(),
            nodes,
            cpus_per_node: 1,
            memory_bytes_per_node: None,
            time_limit: None,
            working_directory: directory.to_owned(),
            environment: Vec::new(),
            job_directory: directory.join("job"),
        }
    }

    #[test]
    fn jobs_that_no_script_could_run_are_refused() {
        let good = job(Path::new("/tmp"), &["true"], 1);
        assert!(good.check().is_ok());
        let broken: [fn(&mut JobSpec); 11] = [
            |job| job.name = "a b".into(),
            |job| job.name = "-x".into(),
            |job| job.name.clear(),
            |job| job.nodes = 0,
            |job| job.cpus_per_node = 0,
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
            assert!(job.check().is_err(), "case {index}");
        }
    }
}
