//! `--step`: a function in Python that looks at the table of every partition between marking and writing.
//!
//! A [`Step`] is a function that was found to be there. A [`StepWorker`] is a process that runs it, on one table after the other. What
//! becomes of records afterwards is not decided here.

mod table;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use godwit_engines::EngineError;
use godwit_model::schema::columnar;
use serde::{Deserialize, Serialize};

use crate::error::{Blame, PipelineError};
use crate::fingerprint::FingerprintKey;
use crate::job::JobOptions;
use crate::journal::Fact;

use worker::Idle;
pub(crate) use worker::{Kept, PartitionName, StepWorker};

/// A function, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepOptions {
    /// `MODULE:FUNCTION`.
    pub function: String,
    /// The Python that runs it, by its path or its name on PATH.
    pub python: PathBuf,
}

/// A function that is there, and what nodes have to know of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// `MODULE:FUNCTION`.
    function: String,
    python: PathBuf,
    /// Where modules are looked for first: the directory of the command.
    directory: PathBuf,
    /// SHA-256 of the file of the module, hexadecimal; empty where it has none.
    digest: String,
    /// Columns that the function is given, by their index in the schema, ascending; all of them where `None`.
    columns: Option<Vec<usize>>,
    /// Versions of Python and pyarrow where the run began.
    version: String,
    /// Processes that wait for a table: at first the one that was asked for the function, where this process writes.
    #[serde(skip)]
    idle: Idle,
}

/// Whose turn it is where a step cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// A module or a library is not there.
    Missing,
    /// There is no such function, or none that takes tables.
    Usage,
    /// The module failed.
    Failed,
}

/// Why a step ended a run.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The function cannot be called.
    #[error("--step {function}: {problem}")]
    Refused {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Of which kind this is.
        kind: Refusal,
        /// What is wrong.
        problem: String,
    },
    /// Python did not start, or ended before it said what there is.
    #[error("cannot run --step {function}")]
    Python {
        /// `MODULE:FUNCTION`.
        function: String,
        /// How it ended.
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
    /// The function returned something that cannot be written.
    #[error("--step {function} on partition {partition}: {problem}")]
    Returned {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Number and region.
        partition: String,
        /// What is wrong.
        problem: String,
    },
    /// Its process ended.
    #[error("--step {function} ended on partition {partition}")]
    Ended {
        /// `MODULE:FUNCTION`.
        function: String,
        /// Number and region.
        partition: String,
        /// How.
        #[source]
        source: Box<EngineError>,
    },
}

impl StepError {
    /// Whose turn it is.
    pub(crate) fn blame(&self) -> Blame {
        match self {
            Self::Refused { kind: Refusal::Missing, .. } => Blame::Machine,
            Self::Refused { kind: Refusal::Usage, .. } => Blame::Usage,
            Self::Python { source, .. } if matches!(**source, EngineError::NotInstalled { .. }) => Blame::Machine,
            _ => Blame::Engine,
        }
    }

    /// Whether any other node would meet it too.
    pub(crate) fn is_everywhere(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Returned { .. })
    }
}

impl Step {
    /// The step of a job, where it has one, after asking Python for it. `here`: whether this process writes, so that the Python that was
    /// asked waits for the first table.
    ///
    /// # Errors
    /// [`PipelineError::Step`]; [`PipelineError::Options`] where it does not go together with other options.
    pub(crate) fn of(job: &JobOptions, here: bool, cancelled: &AtomicBool) -> Result<Option<Self>, PipelineError> {
        let Some(options) = &job.step else { return Ok(None) };
        if job.marking.tag_set_members {
            let problem = "--tag-duplicate-set-members names sets by places in a file that --step makes another one of; leave out one of \
                           them";
            return Err(PipelineError::Options { problem: problem.to_owned() });
        }
        let directory = std::env::current_dir().map_err(PipelineError::file("find", "."))?;
        // A name is looked for on the PATH of each machine.
        let is_name = options.python.components().count() == 1;
        let python = if is_name { Ok(options.python.clone()) } else { std::path::absolute(&options.python) };
        let mut step = Self {
            function: options.function.clone(),
            python: python.map_err(PipelineError::file("find", &options.python))?,
            directory,
            digest: String::new(),
            columns: None,
            version: String::new(),
            idle: Idle::default(),
        };
        let (worker, found) = step.ask(cancelled)?;
        if here {
            step.idle.put(worker);
        }
        step.columns = found.columns.map(|names| step.indexes(names)).transpose()?;
        step.digest = found.digest;
        step.version = format!("{} with pyarrow {}", found.python, found.pyarrow);
        Ok(Some(step))
    }

    /// Asks for the function on this machine, which has to be the one it is where the run began.
    ///
    /// # Errors
    /// [`PipelineError::Step`].
    pub(crate) fn check_here(&self, cancelled: &AtomicBool) -> Result<(), PipelineError> {
        let (_, found) = self.ask(cancelled)?;
        if found.digest == self.digest {
            return Ok(());
        }
        let problem =
            "its module is another one than where the run was started; have the same file everywhere".to_owned();
        Err(StepError::Refused { function: self.function.clone(), kind: Refusal::Missing, problem }.into())
    }

    fn ask(&self, cancelled: &AtomicBool) -> Result<(StepWorker, worker::Found), PipelineError> {
        let started = StepWorker::start(self, cancelled);
        started.map_err(|error| PipelineError::from(error).unless_cancelled(cancelled))
    }

    fn indexes(&self, names: Vec<String>) -> Result<Vec<usize>, StepError> {
        let schema = columnar::alignments();
        let index = |name: String| {
            schema.index_of(&name).map_err(|_| StepError::Refused {
                function: self.function.clone(),
                kind: Refusal::Usage,
                problem: format!("there is no column {name}; docs/formats/alignments.md lists them"),
            })
        };
        let mut indexes = names.into_iter().map(index).collect::<Result<Vec<_>, _>>()?;
        indexes.sort_unstable();
        indexes.dedup();
        Ok(indexes)
    }

    /// What decides the records of a run.
    pub(crate) fn fact(&self) -> Fact {
        let digest = self.digest.get(..16).unwrap_or("no file");
        FingerprintKey::StepModule.fact(format!("{}, {digest}", self.function))
    }

    /// `MODULE:FUNCTION`.
    pub(crate) fn function(&self) -> &str {
        &self.function
    }

    /// Versions of Python and pyarrow where the run began.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Columns that the function is given, by their index; all of them where `None`.
    pub(crate) fn columns(&self) -> Option<&[usize]> {
        self.columns.as_deref()
    }

    /// A process that waits for a table, started where there is none.
    ///
    /// # Errors
    /// [`StepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(crate) fn worker(&self, cancelled: &AtomicBool) -> io::Result<StepWorker> {
        self.idle.take().map_or_else(|| StepWorker::for_tables(self, cancelled), Ok)
    }

    /// Takes back a process that has nothing to do.
    pub(crate) fn put_back(&self, worker: StepWorker) {
        self.idle.put(worker);
    }

    /// Where modules are looked for first.
    fn directory(&self) -> &Path {
        &self.directory
    }
}
