//! Writes reads as FASTQ text to one or two pipes.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::{Array, BinaryArray, RecordBatch};

use super::pending_reads::{PendingReads, name_fingerprint};
use crate::EngineError;
use crate::aligner::BlockHeader;
use crate::child::ChildState;

/// Size of the buffers that are sent to the thread that writes to the pipe, bytes.
const BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of buffers that wait to be written to one pipe. A program with two inputs may read one of them this
/// far ahead.
const MAX_QUEUED_BUFFERS: usize = 8;

/// A pipe into the program, with its own thread that writes to it: a program with two inputs may read either of them
/// first.
pub(super) struct InputPipe {
    text: Vec<u8>,
    sender: Option<SyncSender<Vec<u8>>>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
}

impl InputPipe {
    pub(super) fn new(mut pipe: impl Write + Send + 'static) -> std::io::Result<Self> {
        let (sender, chunks) = sync_channel::<Vec<u8>>(MAX_QUEUED_BUFFERS);
        let work = move || chunks.iter().try_for_each(|chunk| pipe.write_all(&chunk));
        let thread = std::thread::Builder::new().name("godwit-reads".into()).spawn(work)?;
        Ok(Self { text: Vec::with_capacity(BUFFER_BYTES), sender: Some(sender), thread: Some(thread) })
    }

    /// Sends the buffer to the thread if the buffer is full or `all` is true.
    fn send_buffered(&mut self, all: bool) -> std::io::Result<()> {
        if self.text.is_empty() || self.text.len() < BUFFER_BYTES && !all {
            return Ok(());
        }
        let chunk = std::mem::replace(&mut self.text, Vec::with_capacity(BUFFER_BYTES));
        match &self.sender {
            Some(sender) if sender.send(chunk).is_ok() => Ok(()),
            _ => Err(self.flush_and_close().err().unwrap_or_else(|| std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Waits until the thread has written all queued buffers, then closes the pipe.
    fn flush_and_close(&mut self) -> std::io::Result<()> {
        self.sender = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that fills the pipe ended")))
    }
}

/// A writer of reads to an external aligner program; see [`BlockWriter`](super::BlockWriter).
pub struct FastqWriter {
    state: Arc<ChildState>,
    inputs: Vec<InputPipe>,
    pending_reads: Arc<PendingReads>,
    /// The open block: true if its reads are paired, and the number of reads written so far.
    open_block: Option<(bool, u64)>,
}

impl FastqWriter {
    pub(super) fn new(state: Arc<ChildState>, inputs: Vec<InputPipe>, pending_reads: Arc<PendingReads>) -> Self {
        Self { state, inputs, pending_reads, open_block: None }
    }

    pub(in crate::aligner) fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        if self.open_block.is_some() {
            return Err(self.state.protocol_error("a block was started in another one"));
        }
        self.open_block = Some((header.paired, 0));
        self.pending_reads.start_block(header.clone());
        Ok(())
    }

    pub(in crate::aligner) fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let Some((paired, before)) = self.open_block else {
            return Err(self.state.protocol_error("reads were written outside of a block"));
        };
        let column = |name| batch.column_by_name(name).and_then(|column| column.as_any().downcast_ref::<BinaryArray>());
        let columns = (column("name"), column("comment"), column("sequence"), column("quality"));
        let (Some(name), Some(comment), Some(sequence), Some(quality)) = columns else {
            return Err(self.state.protocol_error("a batch of reads lacks a column"));
        };
        let rows = batch.num_rows();
        let step = if paired { 2 } else { 1 };
        // Register each template with its first read only, because its mates may be in two batches.
        let first = (before as usize).next_multiple_of(step) - before as usize;
        let names = (first..rows).step_by(step).map(|row| name_fingerprint(name.value(row)));
        self.pending_reads.add_reads(names, rows as u64);
        self.open_block = Some((paired, before + rows as u64));
        let inputs = self.inputs.len();
        for row in 0..rows {
            let input = &mut self.inputs[(before as usize + row) % inputs];
            let optional = |column: &BinaryArray| column.is_valid(row).then(|| column.value(row).to_owned());
            let (comment, quality) = (optional(comment), optional(quality));
            append_read(&mut input.text, name.value(row), comment.as_deref(), sequence.value(row), quality.as_deref());
            let sent = input.send_buffered(false);
            sent.map_err(|error| self.state.write_error(error))?;
        }
        Ok(())
    }

    pub(in crate::aligner) fn end_block(&mut self) -> Result<(), EngineError> {
        match self.open_block.take() {
            None => Err(self.state.protocol_error("a block was ended that was not started")),
            Some((true, reads)) if reads % 2 == 1 => {
                Err(self.state.protocol_error(format!("a block of pairs has {reads} reads")))
            }
            Some(_) => {
                self.pending_reads.end_block();
                Ok(())
            }
        }
    }

    pub(in crate::aligner) fn finish(mut self) -> Result<(), EngineError> {
        if self.open_block.is_some() {
            return Err(self.state.protocol_error("the input was finished within a block"));
        }
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in &mut inputs {
            input.send_buffered(true).map_err(|error| self.state.write_error(error))?;
        }
        // Close all pipes at once: a program may need the end of one input before it reads the other one.
        inputs.iter_mut().for_each(|input| input.sender = None);
        inputs.iter_mut().try_for_each(InputPipe::flush_and_close).map_err(|error| self.state.write_error(error))
    }
}

/// Appends a read as FASTQ, or as FASTA if the read has no qualities.
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
