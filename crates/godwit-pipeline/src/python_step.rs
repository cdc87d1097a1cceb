//! `--step`: a Python function that processes the table of every partition between marking and writing.
//!
//! A [`PythonStep`] is a function that was located. A [`PythonStepProcess`] runs it on one table after the other. The
//! further processing of the records is not part of this module.

mod process;
mod shared_table;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_engines::EngineError;
use godwit_model::schema::alignment_columns;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, PipelineError};
use crate::fingerprint::FingerprintKey;
use crate::job::JobOptions;
use crate::journal::FingerprintEntry;

use process::IdleProcesses;
pub(crate) use process::{PartitionInfo, PythonStepOutput, PythonStepProcess};

/// The options of a Python step, as on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonStepOptions {
    /// `MODULE:FUNCTION`.
    pub function: String,
    /// The Python interpreter, as a path or a name on PATH.
    pub python_path: PathBuf,
}

/// A located function, with the data that workers need.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PythonStep {
    /// `MODULE:FUNCTION`.
    function: String,
    #[serde(rename = "python")]
    python_path: PathBuf,
    /// First directory of the module search: the working directory of the command.
    #[serde(rename = "directory")]
    module_directory: PathBuf,
    /// SHA-256 of the module file, hexadecimal; empty without a file.
    #[serde(rename = "digest")]
    module_digest: String,
    /// Indexes in the schema of the columns that the function receives, ascending; `None`: all columns.
    columns: Option<Vec<usize>>,
    /// Versions of Python and pyarrow on the host that started the job.
    version: String,
    /// Processes that wait for a table: at first the one that located the function, if this process writes.
    #[serde(skip)]
    idle_processes: IdleProcesses,
}

/// The reason why a step cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PythonStepRefusal {
    /// A module or a library is missing.
    Missing,
    /// The function does not exist, or does not accept tables.
    Usage,
    /// The module raised an exception.
    Failed,
}

/// An error of a Python step that ends a job.
#[derive(Debug, thiserror::Error)]
pub enum PythonStepError {
    /// The function cannot be called.
    #[error("--step {function}: {problem}")]
    Refused {
        /// `MODULE:FUNCTION`.
        function: String,
        /// The kind of the reason.
        kind: PythonStepRefusal,
        /// The problem.
        problem: String,
    },
    /// Python did not start, or ended before it described the function.
    #[error("cannot run --step {function}")]
    Python {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Its end.
        #[source]
        source: Box<EngineError>,
    },
    /// The function raised an exception.
    #[error("--step {function} failed on partition {partition}: {problem}")]
    Failed {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Number and region.
        partition: String,
        /// The exception and its line.
        problem: String,
    },
    /// The function returned a value that cannot be written.
    #[error("--step {function} on partition {partition}: {problem}")]
    Returned {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Number and region.
        partition: String,
        /// The problem.
        problem: String,
    },
    /// The process ended.
    #[error("--step {function} ended on partition {partition}")]
    Ended {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Number and region.
        partition: String,
        /// Its end.
        #[source]
        source: Box<EngineError>,
    },
}

impl PythonStepError {
    /// Returns the kind of the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { kind: PythonStepRefusal::Missing, .. } => ErrorKind::Machine,
            Self::Refused { kind: PythonStepRefusal::Usage, .. } => ErrorKind::Usage,
            Self::Python { source, .. } if matches!(**source, EngineError::NotInstalled { .. }) => ErrorKind::Machine,
            _ => ErrorKind::Engine,
        }
    }

    /// Reports whether all workers would fail in the same way.
    pub(crate) fn affects_all_workers(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Returned { .. })
    }
}

impl PythonStep {
    /// Locates the Python step of a job, if it has one. `here`: whether this process writes, so that the Python process that
    /// located it waits for the first table.
    ///
    /// # Errors
    /// [`PipelineError::PythonStep`]; [`PipelineError::Options`] if it cannot be combined with other options.
    pub(crate) fn for_job(job: &JobOptions, here: bool, cancelled: &AtomicBool) -> Result<Option<Self>, PipelineError> {
        let Some(options) = &job.python_step else { return Ok(None) };
        if job.marking.tag_set_members {
            let problem = "--tag-duplicate-set-members names sets by places in a file that --step makes another one of; leave out one of \
                           them";
            return Err(PipelineError::Options { problem: problem.to_owned() });
        }
        let module_directory = std::env::current_dir().map_err(PipelineError::file("find", "."))?;
        // A name is looked up on the PATH of each host.
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

    /// Locates the function on this host, and checks that its module is the one of the host that started the job.
    ///
    /// # Errors
    /// [`PipelineError::PythonStep`] if the function cannot be located or its module differs.
    pub(crate) fn check_same_module(&self, cancelled: &AtomicBool) -> Result<(), PipelineError> {
        let (_, found) = self.inspect_function(cancelled)?;
        if found.digest == self.module_digest {
            return Ok(());
        }
        let problem =
            "its module is another one than where the run was started; have the same file everywhere".to_owned();
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
                problem: format!("there is no column {name}; docs/formats/alignments.md lists them"),
            })
        };
        let mut indexes = names.into_iter().map(index).collect::<Result<Vec<_>, _>>()?;
        indexes.sort_unstable();
        indexes.dedup();
        Ok(indexes)
    }

    /// Returns the fingerprint entry of the step.
    pub(crate) fn fingerprint_entry(&self) -> FingerprintEntry {
        let digest = self.module_digest.get(..16).unwrap_or("no file");
        FingerprintKey::StepModule.fact(format!("{}, {digest}", self.function))
    }

    /// Returns `MODULE:FUNCTION`.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Returns the versions of Python and pyarrow on the host that started the job.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the indexes of the columns that the function receives; `None`: all columns.
    pub(crate) fn columns(&self) -> Option<&[usize]> {
        self.columns.as_deref()
    }

    /// Returns an idle process, or starts one.
    ///
    /// # Errors
    /// [`PythonStepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(crate) fn acquire_process(&self, cancelled: &AtomicBool) -> io::Result<PythonStepProcess> {
        self.idle_processes.pop().map_or_else(|| PythonStepProcess::start_for_tables(self, cancelled), Ok)
    }

    /// Returns a process to the idle ones.
    pub(crate) fn release_process(&self, worker: PythonStepProcess) {
        self.idle_processes.push(worker);
    }

    /// Returns the first directory of the module search.
    fn module_directory(&self) -> &Path {
        &self.module_directory
    }
}
