//! A Python process that applies the function of a step to one table after the other.
//! `python/src/godwit/_step_worker.py`, the Python program of this process, describes the protocol.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::cast::AsArray;
use arrow_buffer::BooleanBuffer;
use godwit_columnar::{ArrowFile, ArrowReadError};
use godwit_engines::{EngineError, LineProtocolChild};
use godwit_files::create_unnamed_file;
use godwit_io::random_access::LocalFile;
use godwit_model::message_with_causes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::PythonStep;
use super::shared_table::{SharedTableWriter, proc_path};
use crate::error::{PythonStepError, PythonStepRefusal};
use crate::memory_file::create_memory_file;

/// The Python program that the process runs.
const WORKER_SCRIPT: &str = include_str!("../../../../python/src/godwit/_step_worker.py");
/// Python code for the command line that reads the program from standard input. The program is then neither in a file
/// nor on the command line.
const BOOTSTRAP_CODE: &str =
    "import sys; i = sys.stdin.buffer; exec(compile(i.read(int(i.readline())), 'godwit step', 'exec'))";
const INSTALL_REMEDY: &str = "install Python 3.10 or later with pyarrow, or name one with --python";

/// A Python process and the files with which tables are exchanged. Dropping this value ends the process.
pub(crate) struct PythonStepProcess {
    child: LineProtocolChild,
    function: String,
    /// File in memory with the table that the process reads.
    table_file: File,
    /// File in memory to which the process writes its result.
    result_file: File,
    scratch: PathBuf,
}

/// Idle Python processes. All clones within this process share them.
#[derive(Clone, Default)]
pub(super) struct IdleProcesses(Arc<Mutex<Vec<PythonStepProcess>>>);

impl std::fmt::Debug for IdleProcesses {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        formatter.write_str("Idle")
    }
}

impl IdleProcesses {
    pub(super) fn pop(&self) -> Option<PythonStepProcess> {
        self.0.lock().pop()
    }

    pub(super) fn push(&self, worker: PythonStepProcess) {
        self.0.lock().push(worker);
    }
}

/// Properties of the function and of the Python interpreter, which the process reports at its start.
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

/// The partition of a table, as it is passed to the function.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PartitionInfo {
    pub sample: String,
    /// Number of the partition in genome order, 0-based.
    pub index: usize,
    #[serde(rename = "count")]
    pub(crate) partition_count: usize,
    /// The partition as a region with 1-based positions, for people.
    pub region: String,
    /// Contig and 0-based position of the start of the partition; `None` for the records without a contig.
    pub start: Option<(String, i64)>,
    /// Contig and 0-based position behind the end of the partition; `None` for the last partition.
    pub end: Option<(String, i64)>,
    /// Directory to which the function may write files.
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

/// The result of the function for one table.
pub(crate) enum PythonStepOutput {
    /// The function returned the table unchanged.
    Unchanged,
    /// The function selected rows of the table: a bit for each row, and the number of set bits.
    Mask(Vec<BooleanBuffer>, u64),
    /// The function returned other rows: an Arrow file with the columns of `plain_alignments`, and the number of rows.
    Replaced(ArrowFile, u64),
}

impl PythonStepProcess {
    /// Starts a Python process, which finds the function. The directory for large tables is set later, by
    /// [`PythonStepProcess::create_table`].
    ///
    /// # Errors
    /// [`PythonStepError`] if the process fails or the function cannot be called.
    pub(super) fn start(step: &PythonStep, cancelled: &AtomicBool) -> Result<(Self, FunctionInfo), PythonStepError> {
        let function = step.function().to_owned();
        let failed = |source| PythonStepError::Python { function: function.clone(), source: Box::new(source) };
        let system =
            |source| EngineError::Io { program: step.python_path.clone(), action: "create memory files for", source };
        let (table_file, result_file) = create_memory_file()
            .and_then(|memory| Ok((memory, create_memory_file()?)))
            .map_err(system)
            .map_err(failed)?;
        let mut command = Command::new(&step.python_path);
        command.args(["-c", BOOTSTRAP_CODE]).arg(&function).arg(step.module_directory());
        let mut child = LineProtocolChild::start(command, INSTALL_REMEDY).map_err(failed)?;
        let program = format!("{}\n{WORKER_SCRIPT}", WORKER_SCRIPT.len());
        let reply = child.request(program.as_bytes(), cancelled).map_err(failed)?;
        match serde_json::from_str(&reply) {
            Ok(StartupReply::Accepted(found)) => {
                child.set_version(&found.python);
                let worker = Self { child, function, table_file, result_file, scratch: PathBuf::new() };
                Ok((worker, found))
            }
            Ok(StartupReply::Refused { refusal, problem }) => {
                Err(PythonStepError::Refused { function, kind: refusal, problem })
            }
            Err(_) => Err(failed(unexpected_reply(step, &reply))),
        }
    }

    /// Starts a Python process to which tables of partitions will be sent.
    ///
    /// # Errors
    /// [`PythonStepError`] inside an [`io::Error`]; [`io::ErrorKind::Interrupted`] if `cancelled` is set.
    pub(super) fn start_for_tables(step: &PythonStep, cancelled: &AtomicBool) -> io::Result<Self> {
        let (worker, _) = Self::start(step, cancelled).map_err(|error| or_interrupted(error, cancelled))?;
        Ok(worker)
    }

    /// Returns a writer for the next table. A table of at most `limit_bytes` is written to memory, a larger one to a
    /// scratch file in `scratch`.
    ///
    /// # Errors
    /// The I/O error of the operating system.
    pub(crate) fn create_table(&mut self, limit_bytes: u64, scratch: &Path) -> io::Result<SharedTableWriter> {
        self.scratch = scratch.to_owned();
        SharedTableWriter::new(&self.table_file, limit_bytes, scratch.to_owned())
    }

    /// Applies the function to a table of a partition.
    ///
    /// # Errors
    /// [`PythonStepError`] inside an [`io::Error`], or an I/O error; [`io::ErrorKind::Interrupted`] if `cancelled` is
    /// set.
    pub(crate) fn process_table(
        &mut self,
        partition: &PartitionInfo,
        table: SharedTableWriter,
        cancelled: &AtomicBool,
    ) -> io::Result<PythonStepOutput> {
        let table = table.finish();
        // If the table is too large for memory, its result may also be, so the result is written to a scratch file.
        let beyond = (!table.in_memory).then(|| create_unnamed_file(&self.scratch)).transpose()?;
        let result = proc_path(beyond.as_ref().unwrap_or(&self.result_file));
        let request = TableRequest { partition, table: table.proc_path(), bytes: table.bytes, result: result.clone() };
        let mut words = serde_json::to_vec(&request)?;
        words.push(b'\n');
        let reply = self.child.request(&words, cancelled);
        let reply = reply.map_err(|source| or_interrupted(self.exit_error(partition, source), cancelled))?;
        let (function, name) = (self.function.clone(), partition.to_string());
        match serde_json::from_str(&reply)? {
            TableReply::Failed { message } => {
                Err(io::Error::other(PythonStepError::Failed { function, partition: name, problem: message }))
            }
            TableReply::Wrong { message: wrong } => Err(self.output_error(partition, wrong)),
            TableReply::Kept { kind, rows, is_held } => {
                if is_held {
                    // The Python function still refers to the memory of this table. Use a new file for the next table,
                    // instead of overwriting this one.
                    self.table_file = create_memory_file()?;
                }
                let kept = read_output(kind, rows, &result);
                kept.map_err(|error| self.output_error(partition, message_with_causes(&error)))
            }
        }
    }

    /// Returns the error for a result of the function that cannot be written.
    pub fn output_error(&self, partition: &PartitionInfo, problem: String) -> io::Error {
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

/// Returns the error as an I/O error. If the job was cancelled, returns an interruption, because the process was
/// killed.
fn or_interrupted(error: PythonStepError, cancelled: &AtomicBool) -> io::Error {
    match cancelled.load(Ordering::Relaxed) {
        true => io::Error::new(io::ErrorKind::Interrupted, "interrupted"),
        false => io::Error::other(error),
    }
}

/// Returns the error for an invalid reply of the Python process at its start.
fn unexpected_reply(step: &PythonStep, reply: &str) -> EngineError {
    let problem = format!("unexpected reply {:?}", reply.trim_end());
    EngineError::Protocol { program: step.python_path.clone(), problem, source: None }
}

/// Reads the result that the Python process wrote for a table.
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
