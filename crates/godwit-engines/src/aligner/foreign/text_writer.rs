//! Reads to FASTQ text on one pipe or two.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::{Array, BinaryArray, RecordBatch};

use super::expected::{Expected, fingerprint};
use crate::EngineError;
use crate::aligner::BlockHeader;
use crate::child::ChildState;

/// Text gathered before it goes to the pipe.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait for a pipe. A program that reads mates from two inputs may be that much further in one of them.
const CHUNKS: usize = 8;

/// A pipe into the program, with the thread that fills it: of two inputs a program may want either first.
pub(super) struct Input {
    text: Vec<u8>,
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl Input {
    pub(super) fn new(mut pipe: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (sender, chunks) = sync_channel::<Vec<u8>>(CHUNKS);
        let work = move || chunks.iter().try_for_each(|chunk| pipe.write_all(&chunk));
        let thread = std::thread::Builder::new().name("godwit-reads".into()).spawn(work)?;
        Ok(Self { text: Vec::with_capacity(CHUNK_BYTES), sender: Some(sender), thread: Some(thread) })
    }

    /// Sends what was gathered, if it is enough or `all` is wanted.
    fn send(&mut self, all: bool) -> std::io::Result<()> {
        if self.text.is_empty() || self.text.len() < CHUNK_BYTES && !all {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.text, Vec::with_capacity(CHUNK_BYTES));
        match &self.sender {
            Some(sender) if sender.send(chunk).is_ok() => Ok(()),
            _ => Err(self.close().err().unwrap_or_else(|| std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Closes the pipe once all that was sent is in it.
    fn close(&mut self) -> std::io::Result<()> {
        self.sender = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that fills the pipe ended")))
    }
}

/// Feeds a program of somebody else's; see [`BlockWriter`](super::BlockWriter).
pub struct TextWriter {
    state: Arc<ChildState>,
    inputs: Vec<Input>,
    expected: Arc<Expected>,
    /// Of the open block: whether it is of pairs, and its reads so far.
    open: Option<(bool, u64)>,
}

impl TextWriter {
    pub(super) fn new(state: Arc<ChildState>, inputs: Vec<Input>, expected: Arc<Expected>) -> Self {
        Self { state, inputs, expected, open: None }
    }

    pub(in crate::aligner) fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        if self.open.is_some() {
            return Err(self.state.protocol("a block was started in another one"));
        }
        self.open = Some((header.paired, 0));
        self.expected.start_block(header.clone());
        Ok(())
    }

    pub(in crate::aligner) fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let Some((paired, before)) = self.open else {
            return Err(self.state.protocol("reads were written outside of a block"));
        };
        let column = |name| batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<BinaryArray>());
        let columns = (column("name"), column("comment"), column("sequence"), column("quality"));
        let (Some(name), Some(comment), Some(sequence), Some(quality)) = columns else {
            return Err(self.state.protocol("a batch of reads lacks a column"));
        };
        let rows = batch.num_rows();
        let step = if paired { 2 } else { 1 };
        // Mates may be in two batches: a template counts with its first read.
        let first = (before as usize).next_multiple_of(step) - before as usize;
        let names = (first..rows).step_by(step).map(|row| fingerprint(name.value(row)));
        self.expected.add(names, rows as u64);
        self.open = Some((paired, before + rows as u64));
        let inputs = self.inputs.len();
        for row in 0..rows {
            let input = &mut self.inputs[(before as usize + row) % inputs];
            let optional = |column: &BinaryArray| column.is_valid(row).then(|| column.value(row).to_owned());
            let (comment, quality) = (optional(comment), optional(quality));
            append_read(&mut input.text, name.value(row), comment.as_deref(), sequence.value(row), quality.as_deref());
            let sent = input.send(false);
            sent.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    pub(in crate::aligner) fn end_block(&mut self) -> Result<(), EngineError> {
        match self.open.take() {
            None => Err(self.state.protocol("a block was ended that was not started")),
            Some((true, reads)) if reads % 2 == 1 => {
                Err(self.state.protocol(format!("a block of pairs has {reads} reads")))
            }
            Some(_) => {
                self.expected.end_block();
                Ok(())
            }
        }
    }

    pub(in crate::aligner) fn finish(mut self) -> Result<(), EngineError> {
        if self.open.is_some() {
            return Err(self.state.protocol("the input was finished within a block"));
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in &mut inputs {
            input.send(true).map_err(|error| self.failed(error))?;
        }
        // All pipes at once: a program may wait for the end of one before it reads on in the other.
        inputs.iter_mut().for_each(|input| input.sender = None);
        inputs.iter_mut().try_for_each(Input::close).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: std::io::Error) -> EngineError {
        let broken = error.kind() == std::io::ErrorKind::BrokenPipe;
        let failure = self.state.io("write to", error);
        if broken { self.state.explain(failure) } else { failure }
    }
}

/// A read as FASTQ, or as FASTA where it has no qualities.
fn append_read(text: &mut Vec<u8>, name: &[u8], comment: Option<&[u8]>, sequence: &[u8], quality: Option<&[u8]>) {
    text.push(if quality.is_some() { b'@' } else { b'>' });
    text.extend_from_slice(name);
    if let Some(comment) = comment.filter(|comment| !comment.is_empty()) {
        text.push(b' ');
        text.extend_from_slice(comment);
    }
    text.push(b'\n');
    text.extend_from_slice(sequence);
    if let Some(quality) = quality {
        text.extend_from_slice(b"\n+\n");
        text.extend_from_slice(quality);
    }
    text.push(b'\n');
}
