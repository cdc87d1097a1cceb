//! The reader of aligned blocks from one of godwit's own aligner programs, over the pipe protocol.

use std::io::BufReader;
use std::process::ChildStdout;
use std::sync::Arc;

use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch};
use bytemuck::Pod;
use godwit_model::{BlockId, EndSignature, PairSignature, RawRecord, schema};

use super::AlignedBlock;
use super::pipe_session::PendingBlocks;
use super::stream_metadata::{self, BlockEnd, ProtocolError};
use crate::EngineError;
use crate::child::ChildState;
use crate::stream::{StreamError, StreamReader};

/// A part of an aligned block. The parts of a block arrive in this order: alignments, pairs, ends, end of the block.
#[derive(Debug)]
pub enum BlockPart {
    /// A batch of records with the schema `schema::pipe_alignments`, about 4 MiB. The reader has validated every record in
    /// it.
    Alignments(RecordBatch),
    /// Duplicate signatures of all read pairs of the block, or of some of them.
    Pairs(Vec<PairSignature>),
    /// Duplicate signatures of all unpaired ends of the block, or of some of them.
    Ends(Vec<EndSignature>),
    /// The end of the block: all other parts have arrived.
    End(BlockEnd),
}

/// A reader of an aligner's output, block by block or part by part.
pub struct PipeReader {
    state: Arc<ChildState>,
    streams: StreamReader<BufReader<ChildStdout>>,
    pending_blocks: PendingBlocks,
    contigs: usize,
    read_state: ReadState,
    /// Number of records received so far for the current block.
    block_records: u64,
}

/// The kind of stream that the reader currently reads, and its block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadState {
    BetweenBlocks,
    Alignments(BlockId),
    Pairs(BlockId),
    Ends(BlockId),
}

/// Returns the error for a stream that cannot be read: the exit of the aligner if that was the cause, else a protocol
/// error.
pub(super) fn stream_error(state: &ChildState, error: StreamError) -> EngineError {
    let truncated = matches!(error, StreamError::Truncated { .. });
    let program = state.program().clone();
    let failure = EngineError::Protocol { program, problem: error.to_string(), source: Some(error) };
    // Only a child that closed its output may be exiting. A child that writes malformed bytes may run forever, so do
    // not wait for it.
    if truncated { state.exit_error_or(failure) } else { failure }
}

impl PipeReader {
    pub(super) fn new(
        state: Arc<ChildState>,
        streams: StreamReader<BufReader<ChildStdout>>,
        pending_blocks: PendingBlocks,
        contigs: usize,
    ) -> Self {
        Self { state, streams, pending_blocks, contigs, read_state: ReadState::BetweenBlocks, block_records: 0 }
    }

    /// Returns the next aligned block, in the order of the input blocks; `None` after the last block once the writer
    /// has finished.
    ///
    /// # Errors
    /// The errors of [`next_part`](Self::next_part).
    pub fn next_block(&mut self) -> Result<Option<AlignedBlock>, EngineError> {
        let (mut batches, mut pairs, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match self.next_part()? {
                None => return Ok(None),
                Some(BlockPart::Alignments(batch)) => batches.push(batch),
                Some(BlockPart::Pairs(more)) => pairs.extend(more),
                Some(BlockPart::Ends(more)) => ends.extend(more),
                Some(BlockPart::End(BlockEnd { id, reads, records, counts })) => {
                    return Ok(Some(AlignedBlock { id, reads, records, batches, pairs, ends, counts }));
                }
            }
        }
    }

    /// Returns the next part of a block, so that the block need not fit in memory. The parts of a block are valid only
    /// after its [`BlockPart::End`]. Returns `None` after the last block once the writer has finished.
    ///
    /// # Errors
    /// [`EngineError::Exited`] if the aligner exited too early; [`EngineError::Protocol`] if its output has a wrong
    /// order, wrong counts or invalid records.
    pub fn next_part(&mut self) -> Result<Option<BlockPart>, EngineError> {
        loop {
            if self.read_state != ReadState::BetweenBlocks {
                let batch = self.streams.next_batch().map_err(|error| stream_error(&self.state, error))?;
                if let Some(batch) = batch {
                    return self.decode_part(batch).map(Some);
                }
            }
            let stream = self.streams.next_stream().map_err(|error| stream_error(&self.state, error))?;
            let Some(schema) = stream else { return self.check_end_of_output().map(|()| None) };
            if let Some(end) = self.start_stream(schema.metadata())? {
                return Ok(Some(BlockPart::End(end)));
            }
        }
    }

    /// Processes the start of a stream. The end of a block is a separate stream; for that one, the function returns the
    /// [`BlockEnd`].
    fn start_stream(&mut self, metadata: &stream_metadata::StreamMetadata) -> Result<Option<BlockEnd>, EngineError> {
        let refused = |problem: ProtocolError| self.state.protocol_error(problem);
        let id = stream_metadata::parse_block_id(metadata).map_err(refused)?;
        let out_of_order = |expected| {
            refused(ProtocolError::Kind { found: stream_metadata::stream_kind(metadata).to_owned(), expected })
        };
        self.read_state = match (self.read_state, stream_metadata::stream_kind(metadata)) {
            (ReadState::BetweenBlocks, schema::ALIGNMENTS) => ReadState::Alignments(id),
            (ReadState::BetweenBlocks, _) => return Err(out_of_order(schema::ALIGNMENTS)),
            (ReadState::Alignments(block), schema::PAIRS) if block == id => ReadState::Pairs(id),
            (ReadState::Alignments(_), _) => return Err(out_of_order("pairs of the same block")),
            (ReadState::Pairs(block), schema::ENDS) if block == id => ReadState::Ends(id),
            (ReadState::Pairs(_), _) => return Err(out_of_order("ends of the same block")),
            (ReadState::Ends(block), schema::BLOCK_END) if block == id => {
                let end = BlockEnd::from_metadata(metadata).map_err(refused)?;
                self.check_block_end(&end)?;
                self.read_state = ReadState::BetweenBlocks;
                self.block_records = 0;
                return Ok(Some(end));
            }
            (ReadState::Ends(_), _) => return Err(out_of_order("the end of the same block")),
        };
        Ok(None)
    }

    fn decode_part(&mut self, batch: RecordBatch) -> Result<BlockPart, EngineError> {
        match self.read_state {
            ReadState::Pairs(_) => Ok(BlockPart::Pairs(self.decode_signatures(&batch)?)),
            ReadState::Ends(_) => Ok(BlockPart::Ends(self.decode_signatures(&batch)?)),
            ReadState::Alignments(_) | ReadState::BetweenBlocks => {
                self.check_records(&batch)?;
                self.block_records += batch.num_rows() as u64;
                Ok(BlockPart::Alignments(batch))
            }
        }
    }

    fn check_records(&self, batch: &RecordBatch) -> Result<(), EngineError> {
        let records = batch.column_by_name("record").and_then(|column| column.as_any().downcast_ref::<BinaryArray>());
        let Some(records) = records else { return Err(self.state.protocol_error("a batch has no column `record`")) };
        for index in 0..records.len() {
            RawRecord::from_bytes(records.value(index), self.contigs)
                .map_err(|error| self.state.protocol_error(error))?;
        }
        Ok(())
    }

    fn decode_signatures<T: Pod>(&self, batch: &RecordBatch) -> Result<Vec<T>, EngineError> {
        let column = batch.column(0).as_any().downcast_ref::<FixedSizeBinaryArray>();
        let bytes = column.map(|column| column.value_data()).unwrap_or_default();
        if bytes.len() != batch.num_rows() * size_of::<T>() {
            return Err(self.state.protocol_error("signatures are truncated"));
        }
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    fn check_block_end(&self, end: &BlockEnd) -> Result<(), EngineError> {
        let due = self.pending_blocks.lock().pop_front();
        if due != Some((end.id, end.reads)) {
            let problem =
                format!("it returned the block {:?} with {} reads, but {due:?} was expected", end.id, end.reads);
            return Err(self.state.protocol_error(problem));
        }
        if end.records != self.block_records {
            let problem = format!(
                "it declares {} records in {:?}, but {} were received",
                end.records, end.id, self.block_records
            );
            return Err(self.state.protocol_error(problem));
        }
        Ok(())
    }

    fn check_end_of_output(&self) -> Result<(), EngineError> {
        let all_answered = self.pending_blocks.lock().is_empty();
        if all_answered && self.read_state == ReadState::BetweenBlocks {
            return self.state.expect_success();
        }
        Err(self.state.exit_error_or(self.state.protocol_error("it closed its output within a block")))
    }
}
