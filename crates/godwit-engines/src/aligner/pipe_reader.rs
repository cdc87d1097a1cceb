//! The end of an aligner that gives aligned blocks.

use std::io::BufReader;
use std::process::ChildStdout;
use std::sync::{Arc, PoisonError};

use arrow_array::{Array, BinaryArray, FixedSizeBinaryArray, RecordBatch};
use bytemuck::Pod;
use godwit_model::{BlockId, EndSignature, PairSignature, RawRecord, schema};

use super::AlignedBlock;
use super::protocol::{self, BlockEnd, ProtocolError};
use super::session::Unanswered;
use crate::EngineError;
use crate::child::ChildState;
use crate::stream::{StreamError, StreamReader};

/// One piece of an aligned block, in the order they come: alignments, pairs, ends, end.
#[derive(Debug)]
pub enum BlockPart {
    /// A batch of `schema::alignments`, about 4 MiB; every record in it was checked.
    Alignments(RecordBatch),
    /// All pairs of the block, or some of them.
    Pairs(Vec<PairSignature>),
    /// All ends of the block, or some of them.
    Ends(Vec<EndSignature>),
    /// The block is whole.
    End(BlockEnd),
}

/// Takes the answers of an aligner, block by block or piece by piece.
pub struct PipeReader {
    state: Arc<ChildState>,
    streams: StreamReader<BufReader<ChildStdout>>,
    unanswered: Unanswered,
    contigs: usize,
    stage: Stage,
    /// Records of the current block so far.
    records: u64,
}

/// What is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    BetweenBlocks,
    Alignments(BlockId),
    Pairs(BlockId),
    Ends(BlockId),
}

/// The child's error where a stream could not be read: its death, or bytes that make no sense.
pub(super) fn stream_failed(state: &ChildState, error: StreamError) -> EngineError {
    let truncated = matches!(error, StreamError::Truncated { .. });
    let program = state.program().clone();
    let failure = EngineError::Protocol { program, problem: error.to_string(), source: Some(error) };
    // Only a child that closed its output can be on its way out; one that talks nonsense may go on forever.
    if truncated { state.explain(failure) } else { failure }
}

impl PipeReader {
    pub(super) fn new(
        state: Arc<ChildState>,
        streams: StreamReader<BufReader<ChildStdout>>,
        unanswered: Unanswered,
        contigs: usize,
    ) -> Self {
        Self { state, streams, unanswered, contigs, stage: Stage::BetweenBlocks, records: 0 }
    }

    /// The next aligned block, in the order they were fed; `None` when the input was finished and all is answered.
    ///
    /// # Errors
    /// As for [`next_part`](Self::next_part).
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

    /// The next piece, so that a block need not be held whole; nothing of a block counts before its
    /// [`BlockPart::End`]. `None` when the input was finished and all is answered.
    ///
    /// # Errors
    /// [`EngineError::Died`] when the child is gone before its work was done, [`EngineError::Protocol`] when an answer is
    /// not what it should be: wrong order, wrong counts, records that are none.
    pub fn next_part(&mut self) -> Result<Option<BlockPart>, EngineError> {
        loop {
            if self.stage != Stage::BetweenBlocks {
                let batch = self.streams.next_batch().map_err(|error| stream_failed(&self.state, error))?;
                if let Some(batch) = batch {
                    return self.part(batch).map(Some);
                }
            }
            let stream = self.streams.next_stream().map_err(|error| stream_failed(&self.state, error))?;
            let Some(schema) = stream else { return self.output_ended().map(|()| None) };
            if let Some(end) = self.enter(schema.metadata())? {
                return Ok(Some(BlockPart::End(end)));
            }
        }
    }

    /// Takes the start of a stream; the block's end is a stream of its own.
    fn enter(&mut self, metadata: &protocol::Metadata) -> Result<Option<BlockEnd>, EngineError> {
        let refused = |problem: ProtocolError| self.state.protocol(problem);
        let id = protocol::block_id(metadata).map_err(refused)?;
        let out_of_order =
            |expected| refused(ProtocolError::Kind { found: protocol::kind(metadata).to_owned(), expected });
        self.stage = match (self.stage, protocol::kind(metadata)) {
            (Stage::BetweenBlocks, schema::ALIGNMENTS) => Stage::Alignments(id),
            (Stage::BetweenBlocks, _) => return Err(out_of_order(schema::ALIGNMENTS)),
            (Stage::Alignments(block), schema::PAIRS) if block == id => Stage::Pairs(id),
            (Stage::Alignments(_), _) => return Err(out_of_order("pairs of the same block")),
            (Stage::Pairs(block), schema::ENDS) if block == id => Stage::Ends(id),
            (Stage::Pairs(_), _) => return Err(out_of_order("ends of the same block")),
            (Stage::Ends(block), schema::BLOCK_END) if block == id => {
                let end = BlockEnd::from_metadata(metadata).map_err(refused)?;
                self.check_end(&end)?;
                self.stage = Stage::BetweenBlocks;
                self.records = 0;
                return Ok(Some(end));
            }
            (Stage::Ends(_), _) => return Err(out_of_order("the end of the same block")),
        };
        Ok(None)
    }

    fn part(&mut self, batch: RecordBatch) -> Result<BlockPart, EngineError> {
        match self.stage {
            Stage::Pairs(_) => Ok(BlockPart::Pairs(self.signatures(&batch)?)),
            Stage::Ends(_) => Ok(BlockPart::Ends(self.signatures(&batch)?)),
            Stage::Alignments(_) | Stage::BetweenBlocks => {
                self.check_records(&batch)?;
                self.records += batch.num_rows() as u64;
                Ok(BlockPart::Alignments(batch))
            }
        }
    }

    fn check_records(&self, batch: &RecordBatch) -> Result<(), EngineError> {
        let records = batch.column_by_name("record").and_then(|column| column.as_any().downcast_ref::<BinaryArray>());
        let Some(records) = records else { return Err(self.state.protocol("a batch has no records")) };
        for index in 0..records.len() {
            RawRecord::checked(records.value(index), self.contigs).map_err(|error| self.state.protocol(error))?;
        }
        Ok(())
    }

    fn signatures<T: Pod>(&self, batch: &RecordBatch) -> Result<Vec<T>, EngineError> {
        let column = batch.column(0).as_any().downcast_ref::<FixedSizeBinaryArray>();
        let bytes = column.map(|column| column.value_data()).unwrap_or_default();
        if bytes.len() != batch.num_rows() * size_of::<T>() {
            return Err(self.state.protocol("signatures are cut short"));
        }
        Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
    }

    fn check_end(&self, end: &BlockEnd) -> Result<(), EngineError> {
        let due = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if due != Some((end.id, end.reads)) {
            let problem = format!("it answered {:?} with {} reads, but {due:?} was due", end.id, end.reads);
            return Err(self.state.protocol(problem));
        }
        if end.records != self.records {
            let problem = format!("it counts {} records in {:?}, but {} came", end.records, end.id, self.records);
            return Err(self.state.protocol(problem));
        }
        Ok(())
    }

    fn output_ended(&self) -> Result<(), EngineError> {
        let all_answered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if all_answered && self.stage == Stage::BetweenBlocks {
            return self.state.expect_success();
        }
        Err(self.state.explain(self.state.protocol("it closed its output within a block")))
    }
}
