//! The writer of reads to a running aligner and the reader of its aligned blocks, for both kinds of aligner programs.

use arrow_array::RecordBatch;

use super::pipe_reader::PipeReader;
use super::pipe_writer::PipeWriter;
use super::sam_program::{FastqWriter, SamReader};
use super::{AlignedBlock, BlockHeader};
use crate::EngineError;

/// A writer of reads to an aligner. For each block, call [`start_block`](Self::start_block), then
/// [`write`](Self::write) once per batch, then [`end_block`](Self::end_block). Call [`finish`](Self::finish) after the
/// last block.
///
/// Every call may block until the aligner has read the reads that were written before.
#[allow(clippy::large_enum_variant)] // There is one for each process.
pub enum BlockWriter {
    /// A writer of Arrow streams to one of godwit's own aligner programs.
    Pipe(PipeWriter),
    /// A writer of FASTQ to an external aligner program.
    Fastq(FastqWriter),
}

impl BlockWriter {
    /// Starts a block of reads with the values in `header`.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the aligner has exited, [`EngineError::Io`] if writing to the pipe failed,
    /// [`EngineError::Protocol`] if another block is still open.
    pub fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.start_block(header),
            Self::Fastq(writer) => writer.start_block(header),
        }
    }

    /// Writes a batch of `schema::pipe_reads` to the open block. The two mates of a pair may be in consecutive batches.
    ///
    /// # Errors
    /// The errors of [`start_block`](Self::start_block), but [`EngineError::Protocol`] if no block is open.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.write(batch),
            Self::Fastq(writer) => writer.write(batch),
        }
    }

    /// Ends the open block, so that the aligner can align it.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write), and [`EngineError::Protocol`] if a block of paired reads has an odd number
    /// of reads.
    pub fn end_block(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.end_block(),
            Self::Fastq(writer) => writer.end_block(),
        }
    }

    /// Closes the input pipe of the aligner, which then aligns the remaining reads and exits.
    ///
    /// # Errors
    /// [`EngineError::Protocol`] if a block is still open, and the errors of [`write`](Self::write).
    pub fn finish(self) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.finish(),
            Self::Fastq(writer) => writer.finish(),
        }
    }
}

/// A reader of aligned blocks, in the order in which the blocks were written.
#[allow(clippy::large_enum_variant)] // There is one for each process.
pub enum BlockReader {
    /// A reader of Arrow streams from one of godwit's own aligner programs.
    Pipe(PipeReader),
    /// A reader of SAM from an external aligner program.
    Sam(SamReader),
}

impl BlockReader {
    /// Returns the next aligned block, or `None` after the last block once [`BlockWriter::finish`] was called.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the aligner exited too early; [`EngineError::Protocol`] or [`EngineError::Output`] if
    /// its output has a wrong order, wrong counts or invalid records.
    pub fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        match self {
            Self::Pipe(reader) => reader.next_block(),
            Self::Sam(reader) => reader.next_block(),
        }
    }
}
