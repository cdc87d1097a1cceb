//! The two ends of a running aligner, whichever way it talks.

use arrow_array::RecordBatch;

use super::foreign::{SamReader, TextWriter};
use super::pipe_reader::PipeReader;
use super::pipe_writer::PipeWriter;
use super::{AlignedBlock, BlockHeader};
use crate::EngineError;

/// Feeds an aligner: [`start_block`](Self::start_block), [`write`](Self::write) as often as needed,
/// [`end_block`](Self::end_block), and [`finish`](Self::finish) after the last block.
///
/// Every call may wait until the aligner has taken what came before.
#[allow(clippy::large_enum_variant)] // There is one for each process.
pub enum BlockWriter {
    /// To a program of godwit's.
    Pipe(PipeWriter),
    /// To a program of somebody else's.
    Text(TextWriter),
}

impl BlockWriter {
    /// Starts a block.
    ///
    /// # Errors
    /// [`EngineError::Died`] when the child is gone, [`EngineError::Io`] when the pipe failed,
    /// [`EngineError::Protocol`] when a block is open.
    pub fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.start_block(header),
            Self::Text(writer) => writer.start_block(header),
        }
    }

    /// Writes reads of the open block: a batch of `schema::reads`. Where reads are paired, mates may be in two batches.
    ///
    /// # Errors
    /// As for [`start_block`](Self::start_block), [`EngineError::Protocol`] when no block is open.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.write(batch),
            Self::Text(writer) => writer.write(batch),
        }
    }

    /// Ends the open block.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and [`EngineError::Protocol`] when a paired block has an odd number of reads.
    pub fn end_block(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.end_block(),
            Self::Text(writer) => writer.end_block(),
        }
    }

    /// Closes the child's input: it answers what it has and ends.
    ///
    /// # Errors
    /// [`EngineError::Protocol`] when a block is open, and as for [`write`](Self::write).
    pub fn finish(self) -> Result<(), EngineError> {
        match self {
            Self::Pipe(writer) => writer.finish(),
            Self::Text(writer) => writer.finish(),
        }
    }
}

/// Takes the answers of an aligner, in the order the blocks were fed.
#[allow(clippy::large_enum_variant)] // There is one for each process.
pub enum BlockReader {
    /// From a program of godwit's.
    Pipe(PipeReader),
    /// From a program of somebody else's.
    Sam(SamReader),
}

impl BlockReader {
    /// The next aligned block; `None` when the input was finished and all is answered.
    ///
    /// # Errors
    /// [`EngineError::Died`] when the child is gone before its work was done, [`EngineError::Protocol`] and
    /// [`EngineError::Output`] when an answer is not what it should be: wrong order, wrong counts, records that are none.
    pub fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        match self {
            Self::Pipe(reader) => reader.next_block(),
            Self::Sam(reader) => reader.next_block(),
        }
    }
}
