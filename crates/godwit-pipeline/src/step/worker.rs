//! A process of Python that runs a step on one table after the other. What goes to and fro is told in
//! `python/src/godwit/_step_worker.py`, which is what it runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_buffer::BooleanBuffer;
use godwit_engines::{Dialogue, EngineError};
use godwit_formats::columnar::{ArrowFile, ArrowReadError};
use godwit_formats::random_access::LocalFile;
use godwit_formats::with_causes;
use serde::{Deserialize, Serialize};

use super::table::{TableWriter, path_of};
use super::{Refusal, Step, StepError};
use crate::memory_file::memory_file;
use crate::scratch;

/// What the process runs.
const PROGRAM: &str = include_str!("../../../../python/src/godwit/_step_worker.py");
/// Reads that from standard input, so that it stands neither in a file nor on the command line.
const START: &str = "import sys; i = sys.stdin.buffer; exec(compile(i.read(int(i.readline())), 'godwit step', 'exec'))";
const REMEDY: &str = "install Python 3.10 or later with pyarrow, or name one with --python";

/// A process and the files through which tables go. Dropping it ends the process.
pub(crate) struct StepWorker {
    dialogue: Dialogue,
    function: String,
    /// Where tables are filled.
    memory: File,
    /// Where a process hands back what it makes of tables that lie in memory.
    answer: File,
    scratch: PathBuf,
}

/// Processes without work. Copies share them, within this process.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Vec<StepWorker>>>);

impl std::fmt::Debug for Idle {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("Idle")
    }
}

impl Idle {
    pub(super) fn take(&self) -> Option<StepWorker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn put(&self, worker: StepWorker) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}

/// What there is where the process runs.
#[derive(Debug, Deserialize)]
pub(super) struct Found {
    pub(super) python: String,
    pub(super) pyarrow: String,
    pub(super) digest: String,
    pub(super) columns: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Hello {
    Refused { refused: Refusal, problem: String },
    Found(Found),
}

/// A partition, as functions are told of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PartitionName {
    pub(crate) sample: String,
    /// Its number in the order of the file, from 0.
    pub(crate) index: usize,
    pub(crate) count: usize,
    /// For people: positions are 1-based.
    pub(crate) region: String,
    /// Contig and 0-based position where it begins; `None` for records without a contig.
    pub(crate) start: Option<(String, i64)>,
    /// Contig and 0-based position of what comes behind it; `None` for the last.
    pub(crate) end: Option<(String, i64)>,
    /// Where the function may put files.
    pub(crate) out: PathBuf,
}

impl std::fmt::Display for PartitionName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.index, self.region)
    }
}

#[derive(Serialize)]
struct Request<'r> {
    partition: &'r PartitionName,
    table: PathBuf,
    bytes: u64,
    result: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Kept { kept: What, rows: u64, held: bool },
    Failed { failed: String },
    Wrong { wrong: String },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    All,
    Mask,
    Table,
}

/// What a function made of a table.
pub(crate) enum Kept {
    /// The table as it is.
    All,
    /// Some of its rows: a bit for each, and how many are set.
    Some(Vec<BooleanBuffer>, u64),
    /// Other rows in its place: the columns of `plain_alignments`, and how many there are.
    Changed(ArrowFile, u64),
}

impl StepWorker {
    /// Starts a process, and has it find the function. Large tables go through the directory that [`StepWorker::table`] names.
    ///
    /// # Errors
    /// [`StepError`].
    pub(super) fn start(step: &Step, cancelled: &AtomicBool) -> Result<(Self, Found), StepError> {
        let function = step.function().to_owned();
        let failed = |source| StepError::Python { function: function.clone(), source: Box::new(source) };
        let system =
            |source| EngineError::Io { program: step.python.clone(), action: "make files in memory for", source };
        let (memory, answer) =
            memory_file().and_then(|memory| Ok((memory, memory_file()?))).map_err(system).map_err(failed)?;
        let mut command = Command::new(&step.python);
        command.args(["-c", START]).arg(&function).arg(step.directory());
        let mut dialogue = Dialogue::start(command, REMEDY).map_err(failed)?;
        let program = format!("{}\n{PROGRAM}", PROGRAM.len());
        let said = dialogue.ask(program.as_bytes(), cancelled).map_err(failed)?;
        match serde_json::from_str(&said) {
            Ok(Hello::Found(found)) => {
                dialogue.set_version(&found.python);
                let worker = Self { dialogue, function, memory, answer, scratch: PathBuf::new() };
                Ok((worker, found))
            }
            Ok(Hello::Refused { refused, problem }) => Err(StepError::Refused { function, kind: refused, problem }),
            Err(_) => Err(failed(unclear(step, &said))),
        }
    }

    /// A process for tables of partitions.
    ///
    /// # Errors
    /// [`StepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(super) fn for_tables(step: &Step, cancelled: &AtomicBool) -> io::Result<Self> {
        let (worker, _) = Self::start(step, cancelled).map_err(|error| unless_cancelled(error, cancelled))?;
        Ok(worker)
    }

    /// A place for the next table: in memory, and where it has more than `limit_bytes` in the directory `scratch`.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn table(&mut self, limit_bytes: u64, scratch: &Path) -> io::Result<TableWriter> {
        self.scratch = scratch.to_owned();
        TableWriter::new(&self.memory, limit_bytes, scratch.to_owned())
    }

    /// Has the function look at a table.
    ///
    /// # Errors
    /// [`StepError`] inside an [`io::Error`], and what the system reports; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(crate) fn ask(
        &mut self,
        partition: &PartitionName,
        table: TableWriter,
        cancelled: &AtomicBool,
    ) -> io::Result<Kept> {
        let table = table.finish();
        // What is too large for memory is so in both directions.
        let beyond = (!table.in_memory).then(|| scratch::unnamed(&self.scratch)).transpose()?;
        let result = path_of(beyond.as_ref().unwrap_or(&self.answer));
        let request = Request { partition, table: table.path(), bytes: table.bytes, result: result.clone() };
        let mut words = serde_json::to_vec(&request)?;
        words.push(b'\n');
        let said = self.dialogue.ask(&words, cancelled);
        let said = said.map_err(|source| unless_cancelled(self.ended(partition, source), cancelled))?;
        let (function, name) = (self.function.clone(), partition.to_string());
        match serde_json::from_str(&said)? {
            Answer::Failed { failed } => {
                Err(io::Error::other(StepError::Failed { function, partition: name, problem: failed }))
            }
            Answer::Wrong { wrong } => Err(self.returned(partition, wrong)),
            Answer::Kept { kept, rows, held } => {
                if held {
                    // Somebody looks at these pages, who must not see another table there.
                    self.memory = memory_file()?;
                }
                let kept = kept_of(kept, rows, &result);
                kept.map_err(|error| self.returned(partition, with_causes(&error)))
            }
        }
    }

    /// What the function returned cannot be written.
    pub(crate) fn returned(&self, partition: &PartitionName, problem: String) -> io::Error {
        let (function, partition) = (self.function.clone(), partition.to_string());
        io::Error::other(StepError::Returned { function, partition, problem })
    }

    fn ended(&self, partition: &PartitionName, source: EngineError) -> StepError {
        StepError::Ended { function: self.function.clone(), partition: partition.to_string(), source: Box::new(source) }
    }
}

/// What went wrong, or the interruption by which the process was killed.
fn unless_cancelled(error: StepError, cancelled: &AtomicBool) -> io::Error {
    match cancelled.load(Ordering::Relaxed) {
        true => io::Error::new(io::ErrorKind::Interrupted, "interrupted"),
        false => io::Error::other(error),
    }
}

/// Something else than a hello.
fn unclear(step: &Step, said: &str) -> EngineError {
    let problem = format!("it said {:?}", said.trim_end());
    EngineError::Protocol { program: step.python.clone(), problem, source: None }
}

/// What a process says that it made of a table.
fn kept_of(kept: What, rows: u64, result: &Path) -> Result<Kept, ArrowReadError> {
    let open = || {
        let file = LocalFile::open(result).map_err(|source| ArrowReadError::Io { path: result.to_owned(), source })?;
        ArrowFile::open(Arc::new(file))
    };
    Ok(match kept {
        What::All => Kept::All,
        What::Table => Kept::Changed(open()?, rows),
        What::Mask => {
            let mut batches = open()?.batches(0..usize::MAX, None);
            let mut mask = Vec::new();
            while let Some(batch) = batches.next_batch()? {
                mask.extend(
                    batch.columns().iter().filter_map(|keep| keep.as_boolean_opt()).map(|keep| keep.values().clone()),
                );
            }
            Kept::Some(mask, rows)
        }
    })
}
