//! A Python process that runs a step on one table after the other. `python/src/godwit/_step_worker.py`, the program of the
//! process, describes the protocol.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::cast::AsArray;
use arrow_buffer::BooleanBuffer;
use godwit_engines::{EngineError, LineProtocolChild};
use godwit_formats::columnar::{ArrowFile, ArrowReadError};
use godwit_formats::message_with_causes;
use godwit_formats::random_access::LocalFile;
use serde::{Deserialize, Serialize};

use super::shared_table::{SharedTableWriter, proc_path};
use super::{PythonStep, PythonStepError, PythonStepRefusal};
use crate::memory_file::create_memory_file;
use crate::scratch;

/// The program of the process.
const WORKER_SCRIPT: &str = include_str!("../../../../python/src/godwit/_step_worker.py");
/// Reads the program from standard input, so that it is neither in a file nor on the command line.
const BOOTSTRAP_CODE: &str =
    "import sys; i = sys.stdin.buffer; exec(compile(i.read(int(i.readline())), 'godwit step', 'exec'))";
const INSTALL_REMEDY: &str = "install Python 3.10 or later with pyarrow, or name one with --python";

/// A process and the files by which tables are exchanged. Dropping it ends the process.
pub(crate) struct PythonStepProcess {
    child: LineProtocolChild,
    function: String,
    /// The file of tables for the process.
    table_file: File,
    /// The file of its results, for tables in memory.
    result_file: File,
    scratch: PathBuf,
}

/// Idle processes. Clones share them, within this process.
#[derive(Clone, Default)]
pub(super) struct IdleProcesses(Arc<Mutex<Vec<PythonStepProcess>>>);

impl std::fmt::Debug for IdleProcesses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("Idle")
    }
}

impl IdleProcesses {
    pub(super) fn pop(&self) -> Option<PythonStepProcess> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn push(&self, worker: PythonStepProcess) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
    }
}

/// The description of the function and its interpreter.
#[derive(Debug, Deserialize)]
pub(super) struct FunctionInfo {
    pub(super) python: String,
    pub(super) pyarrow: String,
    pub(super) digest: String,
    pub(super) columns: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StartupReply {
    Refused {
        #[serde(rename = "refused")]
        refusal: PythonStepRefusal,
        problem: String,
    },
    Accepted(FunctionInfo),
}

/// The description of a partition for functions.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PartitionInfo {
    pub(crate) sample: String,
    /// 0-based number in the order of the file.
    pub(crate) index: usize,
    #[serde(rename = "count")]
    pub(crate) partition_count: usize,
    /// For people: positions are 1-based.
    pub(crate) region: String,
    /// Contig and 0-based position of its start; `None` for records without a contig.
    pub(crate) start: Option<(String, i64)>,
    /// Contig and 0-based position of its end, exclusive; `None` for the last partition.
    pub(crate) end: Option<(String, i64)>,
    /// Directory for files of the function.
    #[serde(rename = "out")]
    pub(crate) output_directory: PathBuf,
}

impl std::fmt::Display for PartitionInfo {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "{} ({})", self.index, self.region)
    }
}

#[derive(Serialize)]
struct TableRequest<'r> {
    partition: &'r PartitionInfo,
    table: PathBuf,
    bytes: u64,
    result: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TableReply {
    Kept {
        #[serde(rename = "kept")]
        kind: ReplyKind,
        rows: u64,
        #[serde(rename = "held")]
        is_held: bool,
    },
    Failed {
        #[serde(rename = "failed")]
        message: String,
    },
    Wrong {
        #[serde(rename = "wrong")]
        message: String,
    },
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReplyKind {
    All,
    Mask,
    Table,
}

/// The result of a function for a table.
pub(crate) enum PythonStepOutput {
    /// The unchanged table.
    Unchanged,
    /// Some of its rows: a bit for each row, and the number of set bits.
    Mask(Vec<BooleanBuffer>, u64),
    /// Other rows: an Arrow file with the columns of `plain_alignments`, and the number of rows.
    Replaced(ArrowFile, u64),
}

impl PythonStepProcess {
    /// Starts a process, which locates the function. [`PythonStepProcess::create_table`] sets the directory of large tables.
    ///
    /// # Errors
    /// [`PythonStepError`] if the process or the function fails.
    pub(super) fn start(step: &PythonStep, cancelled: &AtomicBool) -> Result<(Self, FunctionInfo), PythonStepError> {
        let function = step.function().to_owned();
        let failed = |source| PythonStepError::Python { function: function.clone(), source: Box::new(source) };
        let system =
            |source| EngineError::Io { program: step.python_path.clone(), action: "make files in memory for", source };
        let (table_file, result_file) = create_memory_file()
            .and_then(|memory| Ok((memory, create_memory_file()?)))
            .map_err(system)
            .map_err(failed)?;
        let mut command = Command::new(&step.python_path);
        command.args(["-c", BOOTSTRAP_CODE]).arg(&function).arg(step.module_directory());
        let mut child = LineProtocolChild::start(command, INSTALL_REMEDY).map_err(failed)?;
        let program = format!("{}\n{WORKER_SCRIPT}", WORKER_SCRIPT.len());
        let said = child.request(program.as_bytes(), cancelled).map_err(failed)?;
        match serde_json::from_str(&said) {
            Ok(StartupReply::Accepted(found)) => {
                child.set_version(&found.python);
                let worker = Self { child, function, table_file, result_file, scratch: PathBuf::new() };
                Ok((worker, found))
            }
            Ok(StartupReply::Refused { refusal, problem }) => {
                Err(PythonStepError::Refused { function, kind: refusal, problem })
            }
            Err(_) => Err(failed(unexpected_reply(step, &said))),
        }
    }

    /// Starts a process for tables of partitions.
    ///
    /// # Errors
    /// [`PythonStepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(super) fn start_for_tables(step: &PythonStep, cancelled: &AtomicBool) -> io::Result<Self> {
        let (worker, _) = Self::start(step, cancelled).map_err(|error| or_interrupted(error, cancelled))?;
        Ok(worker)
    }

    /// Returns a writer of the next table: in memory, beyond `limit_bytes` in the directory `scratch`.
    ///
    /// # Errors
    /// The I/O error of the system.
    pub(crate) fn create_table(&mut self, limit_bytes: u64, scratch: &Path) -> io::Result<SharedTableWriter> {
        self.scratch = scratch.to_owned();
        SharedTableWriter::new(&self.table_file, limit_bytes, scratch.to_owned())
    }

    /// Runs the function on a table.
    ///
    /// # Errors
    /// [`PythonStepError`] in an [`io::Error`], or an I/O error; [`io::ErrorKind::Interrupted`] when `cancelled` is set.
    pub(crate) fn process_table(
        &mut self,
        partition: &PartitionInfo,
        table: SharedTableWriter,
        cancelled: &AtomicBool,
    ) -> io::Result<PythonStepOutput> {
        let table = table.finish();
        // A result of a table that is too large for memory may be too large, too.
        let beyond = (!table.in_memory).then(|| scratch::create_unnamed_file(&self.scratch)).transpose()?;
        let result = proc_path(beyond.as_ref().unwrap_or(&self.result_file));
        let request = TableRequest { partition, table: table.proc_path(), bytes: table.bytes, result: result.clone() };
        let mut words = serde_json::to_vec(&request)?;
        words.push(b'\n');
        let said = self.child.request(&words, cancelled);
        let said = said.map_err(|source| or_interrupted(self.exit_error(partition, source), cancelled))?;
        let (function, name) = (self.function.clone(), partition.to_string());
        match serde_json::from_str(&said)? {
            TableReply::Failed { message } => {
                Err(io::Error::other(PythonStepError::Failed { function, partition: name, problem: message }))
            }
            TableReply::Wrong { message: wrong } => Err(self.output_error(partition, wrong)),
            TableReply::Kept { kind, rows, is_held } => {
                if is_held {
                    // The function holds references to these pages: the next table must not overwrite them.
                    self.table_file = create_memory_file()?;
                }
                let kept = read_output(kind, rows, &result);
                kept.map_err(|error| self.output_error(partition, message_with_causes(&error)))
            }
        }
    }

    /// Returns the error for a result that cannot be written.
    pub(crate) fn output_error(&self, partition: &PartitionInfo, problem: String) -> io::Error {
        let (function, partition) = (self.function.clone(), partition.to_string());
        io::Error::other(PythonStepError::Returned { function, partition, problem })
    }

    fn exit_error(&self, partition: &PartitionInfo, source: EngineError) -> PythonStepError {
        PythonStepError::Ended {
            function: self.function.clone(),
            partition: partition.to_string(),
            source: Box::new(source),
        }
    }
}

/// Returns the error, or the interruption by which the process was killed.
fn or_interrupted(error: PythonStepError, cancelled: &AtomicBool) -> io::Error {
    match cancelled.load(Ordering::Relaxed) {
        true => io::Error::new(io::ErrorKind::Interrupted, "interrupted"),
        false => io::Error::other(error),
    }
}

/// Returns the error for an invalid reply at the start.
fn unexpected_reply(step: &PythonStep, said: &str) -> EngineError {
    let problem = format!("it said {:?}", said.trim_end());
    EngineError::Protocol { program: step.python_path.clone(), problem, source: None }
}

/// Reads the result of a process for a table.
fn read_output(kept: ReplyKind, rows: u64, result: &Path) -> Result<PythonStepOutput, ArrowReadError> {
    let open = || {
        let file = LocalFile::open(result).map_err(|source| ArrowReadError::Io { path: result.to_owned(), source })?;
        ArrowFile::open(Arc::new(file))
    };
    Ok(match kept {
        ReplyKind::All => PythonStepOutput::Unchanged,
        ReplyKind::Table => PythonStepOutput::Replaced(open()?, rows),
        ReplyKind::Mask => {
            let mut batches = open()?.batches(0..usize::MAX, None);
            let mut mask = Vec::new();
            while let Some(batch) = batches.next_batch()? {
                mask.extend(
                    batch.columns().iter().filter_map(|keep| keep.as_boolean_opt()).map(|keep| keep.values().clone()),
                );
            }
            PythonStepOutput::Mask(mask, rows)
        }
    })
}
