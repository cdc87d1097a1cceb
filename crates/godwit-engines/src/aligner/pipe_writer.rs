//! The writer of reads to one of godwit's own aligner programs, over the pipe protocol.

use std::io::BufWriter;
use std::process::ChildStdin;
use std::sync::Arc;

use arrow_array::RecordBatch;
use godwit_model::{BlockId, schema};

use super::pipe_session::PendingBlocks;
use super::stream_metadata::BlockHeader;
use crate::EngineError;
use crate::child::ChildState;
use crate::stream::StreamWriter;

/// A writer of reads to an aligner. For each block, call [`start_block`](Self::start_block), then
/// [`write`](Self::write) once per batch, then [`end_block`](Self::end_block). Call [`finish`](Self::finish) after the
/// last block.
///
/// Every call may block: while the aligner aligns one block, it reads only the next one.
pub struct PipeWriter {
    state: Arc<ChildState>,
    /// The pipe to the aligner while no block is open; `None` otherwise.
    pipe: Option<BufWriter<ChildStdin>>,
    open_block: Option<OpenBlock>,
    pending_blocks: PendingBlocks,
}

struct OpenBlock {
    id: BlockId,
    reads: u64,
    paired: bool,
    stream: StreamWriter<BufWriter<ChildStdin>>,
}

impl PipeWriter {
    pub(super) fn new(state: Arc<ChildState>, pipe: BufWriter<ChildStdin>, pending_blocks: PendingBlocks) -> Self {
        Self { state, pipe: Some(pipe), open_block: None, pending_blocks }
    }

    /// Starts a block of reads with the values in `header`.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the aligner has exited, [`EngineError::Io`] if writing to the pipe failed,
    /// [`EngineError::Protocol`] if another block is still open.
    pub fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        let Some(pipe) = self.pipe.take() else {
            return Err(self.state.protocol_error("a block was started inside another one"));
        };
        let stream = StreamWriter::start(pipe, &schema::pipe_reads(), header.to_metadata());
        let stream = stream.map_err(|error| self.state.write_error(error))?;
        self.open_block = Some(OpenBlock { id: header.id, reads: 0, paired: header.paired, stream });
        Ok(())
    }

    /// Writes a batch of `schema::pipe_reads` to the open block. The two mates of a pair may be in consecutive batches.
    ///
    /// # Errors
    /// The errors of [`start_block`](Self::start_block), but [`EngineError::Protocol`] if no block is open.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let Some(open) = &mut self.open_block else {
            return Err(self.state.protocol_error("reads were written outside of a block"));
        };
        open.reads += batch.num_rows() as u64;
        let written = open.stream.write(batch);
        written.map_err(|error| self.state.write_error(error))
    }

    /// Ends the open block, so that the aligner can align it.
    ///
    /// # Errors
    /// The errors of [`write`](Self::write), and [`EngineError::Protocol`] if a block of paired reads has an odd number
    /// of reads.
    pub fn end_block(&mut self) -> Result<(), EngineError> {
        let Some(open) = self.open_block.take() else {
            return Err(self.state.protocol_error("a block was ended that was not started"));
        };
        if open.paired && open.reads % 2 == 1 {
            return Err(self.state.protocol_error(format!("a block of pairs has {} reads", open.reads)));
        }
        // Register the block before sending its end, so that the aligned block cannot arrive before it is registered.
        self.pending_blocks.lock().push_back((open.id, open.reads));
        self.pipe = Some(open.stream.finish().map_err(|error| self.state.write_error(error))?);
        Ok(())
    }

    /// Closes the input pipe of the aligner, which then aligns the remaining reads and exits. Dropping the writer also
    /// closes the pipe, but then the aligner fails if a block is still open.
    ///
    /// # Errors
    /// [`EngineError::Protocol`] if a block is still open.
    pub fn finish(self) -> Result<(), EngineError> {
        match self.open_block {
            None => Ok(()),
            Some(_) => Err(self.state.protocol_error("the input was finished within a block")),
        }
    }
}
