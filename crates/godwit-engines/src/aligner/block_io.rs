//! Writer and reader of a running aligner, for either protocol.

use arrow_array::RecordBatch;

use super::pipe_reader::PipeReader;
use super::pipe_writer::PipeWriter;
use super::sam_program::{FastqWriter, SamReader};
use super::{AlignedBlock, BlockHeader};
use crate::EngineError;

/// A writer of reads to an aligner: [`start_block`](Self::start_block), [`write`](Self::write) as often as needed,
/// [`end_block`](Self::end_block), and [`finish`](Self::finish) after the last block.
///
/// Every call may block until the aligner has read the earlier data.
#[allow(clippy::large_enum_variant)] // There is one for each process.
pub enum BlockWriter {
    /// To one of godwit's own programs.
    Pipe(PipeWriter),
    /// To an external program.
    Fastq(FastqWriter),
}

impl BlockWriter {
    /// Starts a block.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the child has exited, [`EngineError::Io`] if the pipe failed, [`EngineError::Protocol`] if
    /// a block is open.
    pub fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.start_block(header),
            Self::Fastq(writer) => writer.start_block(header),
        }
    }

    /// Writes reads of the open block: a batch of `schema::reads`. Mates of paired reads may be in two batches.
    ///
    /// # Errors
    /// As for [`start_block`](Self::start_block), [`EngineError::Protocol`] if no block is open.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.write(batch),
            Self::Fastq(writer) => writer.write(batch),
        }
    }

    /// Ends the open block.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and [`EngineError::Protocol`] if a paired block has an odd number of reads.
    pub fn end_block(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.end_block(),
            Self::Fastq(writer) => writer.end_block(),
        }
    }

    /// Closes the child's input: the child aligns the remaining reads and exits.
    ///
    /// # Errors
    /// [`EngineError::Protocol`] if a block is open, and as for [`write`](Self::write).
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
    /// From one of godwit's own programs.
    Pipe(PipeReader),
    /// From an external program.
    Sam(SamReader),
}

impl BlockReader {
    /// Returns the next aligned block; `None` after the last block of a finished input.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the child exited too early, [`EngineError::Protocol`] and [`EngineError::Output`] for
    /// invalid output: wrong order, wrong counts, invalid records.
    pub fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        match self {
            Self::Pipe(reader) => reader.next_block(),
            Self::Sam(reader) => reader.next_block(),
        }
    }
}
