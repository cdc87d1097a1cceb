//! The Python step (`--step`): a Python function that processes the records of each partition as a table, between
//! duplicate marking and writing.
//!
//! A [`PythonStep`] identifies a function that was found on this host. A [`PythonStepProcess`] applies the function to
//! one table after the other. Conversion of records to tables is in other modules.

mod process;
mod shared_table;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_model::schema::alignment_columns;
use serde::{Deserialize, Serialize};

use crate::error::{PipelineError, PythonStepError, PythonStepRefusal};
use crate::fingerprint::FingerprintKey;
use crate::journal::FingerprintEntry;
use crate::marking::MarkingOptions;

use process::IdleProcesses;
pub(crate) use process::{PartitionInfo, PythonStepOutput, PythonStepProcess};

/// The options of a Python step, as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStepOptions {
    /// The Python function, as `MODULE:FUNCTION`.
    pub function: String,
    /// Path of the Python interpreter, or its name on PATH.
    pub python_path: PathBuf,
}

/// A Python function that was found on this host, with the data that workers need to find it on theirs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PythonStep {
    /// The Python function, as `MODULE:FUNCTION`.
    function: String,
    #[serde(rename = "python")]
    python_path: PathBuf,
    /// Directory in which Python searches modules first: the working directory of the command.
    #[serde(rename = "directory")]
    module_directory: PathBuf,
    /// SHA-256 of the module file, hexadecimal; empty if the module has no file.
    #[serde(rename = "digest")]
    module_digest: String,
    /// Indexes of the columns that the function receives, ascending, in the schema of alignments; `None`: all columns.
    columns: Option<Vec<usize>>,
    /// Versions of Python and pyarrow on the host that started the job.
    version: String,
    /// Processes that wait for a table. The first one is the process that found the function, if this host writes
    /// partitions.
    #[serde(skip)]
    idle_processes: IdleProcesses,
}

impl PythonStep {
    /// Finds the function of a Python step; `None` if the job has no Python step. `marking`: the options of the job's
    /// duplicate marking. `here`: true if this process writes partitions; then the Python process that found the function
    /// is kept for the first table.
    ///
    /// # Errors
    /// [`PipelineError::PythonStep`] if the function cannot be called. [`PipelineError::Options`] if other options
    /// exclude a Python step.
    pub fn for_job(
        options: Option<&PythonStepOptions>,
        marking: &MarkingOptions,
        here: bool,
        cancelled: &AtomicBool,
    ) -> Result<Option<Self>, PipelineError> {
        let Some(options) = options else { return Ok(None) };
        if marking.tag_set_members {
            let problem = "--tag-duplicate-set-members names sets by record numbers in the file, which --step \
                           changes; omit one of them";
            return Err(PipelineError::Options { problem: problem.to_owned() });
        }
        let module_directory = std::env::current_dir().map_err(PipelineError::file("find", "."))?;
        // A path is made absolute. A name without directory is searched on the PATH of each host.
        let is_name = options.python_path.components().count() == 1;
        let python = if is_name { Ok(options.python_path.clone()) } else { std::path::absolute(&options.python_path) };
        let mut step = Self {
            function: options.function.clone(),
            python_path: python.map_err(PipelineError::file("find", &options.python_path))?,
            module_directory,
            module_digest: String::new(),
            columns: None,
            version: String::new(),
            idle_processes: IdleProcesses::default(),
        };
        let (worker, found) = step.inspect_function(cancelled)?;
        if here {
            step.idle_processes.push(worker);
        }
        step.columns = found.columns.map(|names| step.column_indexes(names)).transpose()?;
        step.module_digest = found.digest;
        step.version = format!("{} with pyarrow {}", found.python, found.pyarrow);
        Ok(Some(step))
    }

    /// Finds the function on this host, and checks that its module is identical to that on the host that started the
    /// job.
    ///
    /// # Errors
    /// [`PipelineError::PythonStep`] if the function cannot be found or its module differs.
    pub fn check_same_module(&self, cancelled: &AtomicBool) -> Result<(), PipelineError> {
        let (_, found) = self.inspect_function(cancelled)?;
        if found.digest == self.module_digest {
            return Ok(());
        }
        let problem = "the module of the function differs from that on the host that started the job; install the \
                       same file on all hosts"
            .to_owned();
        Err(PythonStepError::Refused { function: self.function.clone(), kind: PythonStepRefusal::Missing, problem }
            .into())
    }

    fn inspect_function(
        &self,
        cancelled: &AtomicBool,
    ) -> Result<(PythonStepProcess, process::FunctionInfo), PipelineError> {
        let started = PythonStepProcess::start(self, cancelled);
        started.map_err(|error| PipelineError::from(error).or_interrupted(cancelled))
    }

    fn column_indexes(&self, names: Vec<String>) -> Result<Vec<usize>, PythonStepError> {
        let schema = alignment_columns::alignments();
        let index = |name: String| {
            schema.index_of(&name).map_err(|_| PythonStepError::Refused {
                function: self.function.clone(),
                kind: PythonStepRefusal::Usage,
                problem: format!("unknown column {name}; docs/formats/alignments.md lists the columns"),
            })
        };
        let mut indexes = names.into_iter().map(index).collect::<Result<Vec<_>, _>>()?;
        indexes.sort_unstable();
        indexes.dedup();
        Ok(indexes)
    }

    /// Returns the fingerprint entry of this Python step.
    pub fn fingerprint_entry(&self) -> FingerprintEntry {
        let digest = self.module_digest.get(..16).unwrap_or("no file");
        FingerprintKey::StepModule.entry(format!("{}, {digest}", self.function))
    }

    /// Returns the function as `MODULE:FUNCTION`.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// Returns the versions of Python and pyarrow on the host that started the job.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the indexes of the columns that the function receives; `None`: all columns.
    pub fn columns(&self) -> Option<&[usize]> {
        self.columns.as_deref()
    }

    /// Returns an idle Python process, or starts one.
    ///
    /// # Errors
    /// [`PythonStepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(crate) fn acquire_process(&self, cancelled: &AtomicBool) -> io::Result<PythonStepProcess> {
        self.idle_processes.pop().map_or_else(|| PythonStepProcess::start_for_tables(self, cancelled), Ok)
    }

    /// Adds a Python process to the idle processes.
    pub(crate) fn release_process(&self, worker: PythonStepProcess) {
        self.idle_processes.push(worker);
    }

    /// Returns the directory in which Python searches modules first.
    fn module_directory(&self) -> &Path {
        &self.module_directory
    }
}
