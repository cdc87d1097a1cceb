//! The end of an aligner that takes blocks of reads.

use std::io::BufWriter;
use std::process::ChildStdin;
use std::sync::{Arc, PoisonError};

use arrow_array::RecordBatch;
use godwit_model::{BlockId, schema};

use super::protocol::BlockHeader;
use super::session::Unanswered;
use crate::EngineError;
use crate::child::ChildState;
use crate::stream::StreamWriter;

/// Feeds an aligner: [`start_block`](Self::start_block), [`write`](Self::write) as often as needed,
/// [`end_block`](Self::end_block), and [`finish`](Self::finish) after the last block.
///
/// Every call may wait: the child takes the next block while it aligns one, but no more.
pub struct PipeWriter {
    state: Arc<ChildState>,
    /// The pipe between blocks.
    pipe: Option<BufWriter<ChildStdin>>,
    open: Option<OpenBlock>,
    unanswered: Unanswered,
}

struct OpenBlock {
    id: BlockId,
    reads: u64,
    paired: bool,
    stream: StreamWriter<BufWriter<ChildStdin>>,
}

impl PipeWriter {
    pub(super) fn new(state: Arc<ChildState>, pipe: BufWriter<ChildStdin>, unanswered: Unanswered) -> Self {
        Self { state, pipe: Some(pipe), open: None, unanswered }
    }

    /// Starts a block.
    ///
    /// # Errors
    /// [`EngineError::Died`] when the child is gone, [`EngineError::Io`] when the pipe failed,
    /// [`EngineError::Protocol`] when a block is open.
    pub fn start_block(&mut self, header: &BlockHeader) -> Result<(), EngineError> {
        let Some(pipe) = self.pipe.take() else {
            return Err(self.state.protocol("a block was started in another one"));
        };
        let stream = StreamWriter::start(pipe, &schema::reads(), header.to_metadata());
        let stream = stream.map_err(|error| self.failed(error))?;
        self.open = Some(OpenBlock { id: header.id, reads: 0, paired: header.paired, stream });
        Ok(())
    }

    /// Writes reads of the open block: a batch of `schema::reads`. Where reads are paired, mates may be in two batches.
    ///
    /// # Errors
    /// As for [`start_block`](Self::start_block), [`EngineError::Protocol`] when no block is open.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let Some(open) = &mut self.open else {
            return Err(self.state.protocol("reads were written outside of a block"));
        };
        open.reads += batch.num_rows() as u64;
        let written = open.stream.write(batch);
        written.map_err(|error| self.failed(error))
    }

    /// Ends the open block; the child can align it now.
    ///
    /// # Errors
    /// As for [`write`](Self::write), and [`EngineError::Protocol`] when a paired block has an odd number of reads.
    pub fn end_block(&mut self) -> Result<(), EngineError> {
        let Some(open) = self.open.take() else {
            return Err(self.state.protocol("a block was ended that was not started"));
        };
        if open.paired && open.reads % 2 == 1 {
            return Err(self.state.protocol(format!("a block of pairs has {} reads", open.reads)));
        }
        // Before its end mark is out, so that the answer can never come first.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).push_back((open.id, open.reads));
        self.pipe = Some(open.stream.finish().map_err(|error| self.failed(error))?);
        Ok(())
    }

    /// Closes the child's input: it answers what it has and ends. Dropping the writer does the same, but a block left
    /// open then makes the child fail.
    ///
    /// # Errors
    /// [`EngineError::Protocol`] when a block is open.
    pub fn finish(self) -> Result<(), EngineError> {
        match self.open {
            None => Ok(()),
            Some(_) => Err(self.state.protocol("the input was finished within a block")),
        }
    }

    fn failed(&self, error: std::io::Error) -> EngineError {
        let broken = error.kind() == std::io::ErrorKind::BrokenPipe;
        let failure = self.state.io("write to", error);
        if broken { self.state.explain(failure) } else { failure }
    }
}
