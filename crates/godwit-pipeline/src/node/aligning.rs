//! Blocks on a node: fed to the aligner, taken from it, sorted and packed into slices.

use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use godwit_engines::aligner::{AlignedBlock, BlockHeader, BlockReader, BlockWriter};
use godwit_exchange::{Downloading, Gift, Report, Ticket};
use godwit_kernels::markdup::{BlockDetails, BlockTemplates};
use godwit_model::{BlockId, EndSignature, PairSignature};

use super::aligner::Feeding;
use super::{AlignWork, Shared, buffer_of, malformed};
use crate::align::records_and_keys;
use crate::error::PipelineError;
use crate::marking::MarkingOptions;
use crate::runs::{RunTable, SortedBlock};

/// What the packing thread is told.
pub(super) enum Packing {
    /// The aligner has answered.
    Aligned(Box<AlignedBlock>),
    /// The genome is cut.
    Planned,
}

/// The data of a [`Gift::Block`].
pub(crate) struct BlockPieces {
    pub(crate) pairs: Vec<PairSignature>,
    pub(crate) ends: Vec<EndSignature>,
    pub(crate) table: RunTable,
    pub(crate) details: BlockDetails,
}

impl BlockPieces {
    /// From the pieces as they arrive; `None` where they are none.
    pub(crate) fn from_bytes(pieces: &[arrow_buffer::MutableBuffer]) -> Option<Self> {
        let [pairs, ends, table, templates, barcodes] = pieces else { return None };
        let pairs = bytemuck::try_cast_slice(pairs.as_slice()).ok()?.to_vec();
        let ends = bytemuck::try_cast_slice(ends.as_slice()).ok()?.to_vec();
        let templates = BlockTemplates::from_bytes(templates.as_slice())?;
        let barcodes = bytemuck::try_cast_slice(barcodes.as_slice()).ok()?.to_vec();
        let details = BlockDetails { templates, barcodes };
        Some(Self { pairs, ends, table: RunTable(table.as_slice().to_vec()), details })
    }
}

/// The reads of a block on their way in.
pub(super) struct BlockReads<'n> {
    header: BlockHeader,
    first: Option<RecordBatch>,
    rest: Downloading<'n>,
}

impl<'n> BlockReads<'n> {
    fn open(shared: &Shared<'n>, block: BlockId) -> Result<Self, PipelineError> {
        let mut rest = shared.link.get(&Ticket::Reads { block })?;
        let first = rest.next_batch()?.map(|(batch, _)| batch);
        let schema = rest.schema().filter(|_| first.is_some());
        let schema = schema.ok_or_else(|| malformed(format!("block {block:?} has no reads")))?;
        let header = BlockHeader::from_metadata(schema.metadata()).map_err(|error| malformed(error.to_string()))?;
        Ok(Self { header, first, rest })
    }

    pub(super) fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Feeds the whole block.
    pub(super) fn feed(&mut self, writer: &mut BlockWriter) -> Result<(), PipelineError> {
        writer.start_block(&self.header)?;
        if let Some(batch) = self.first.take() {
            writer.write(&batch)?;
        }
        while let Some((batch, _)) = self.rest.next_batch()? {
            writer.write(&batch)?;
        }
        Ok(writer.end_block()?)
    }
}

/// Asks for blocks and feeds them to the aligner; one that runs for all of them takes one more while it aligns one.
pub(super) fn feed(
    shared: &Shared,
    mut aligner: Feeding,
    packing: &Sender<Packing>,
    orders: &Receiver<(BlockId, bool)>,
) -> Result<(), PipelineError> {
    loop {
        shared.link.say(Report::Wants)?;
        let Ok((block, cuts)) = orders.recv() else { return Ok(()) };
        if cuts {
            shared.set_first(block);
        }
        let mut reads = BlockReads::open(shared, block)?;
        match &mut aligner {
            Feeding::Lasting(writer) => reads.feed(writer)?,
            Feeding::EachBlock(each) => each.align(reads, packing)?,
        }
    }
}

/// Takes what the aligner answers.
pub(super) fn take(mut reader: BlockReader, packing: &Sender<Packing>) -> Result<(), PipelineError> {
    while let Some(block) = reader.next_block()? {
        if packing.send(Packing::Aligned(Box::new(block))).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Sorts and packs blocks, once it is known how the genome is cut: the first block of the run decides that.
pub(super) fn pack(shared: &Shared, job: &AlignWork, inputs: &Receiver<Packing>) -> Result<(), PipelineError> {
    let mut held_back = Vec::new();
    while let Ok(input) = inputs.recv() {
        if let Packing::Aligned(block) = input {
            held_back.push(Packed::new(*block, &job.marking)?);
        }
        if shared.store.get().is_some() {
            held_back.drain(..).try_for_each(|block| block.keep(shared))?;
        } else if let Some(first) = held_back.last().filter(|block| shared.is_first(block.block.id)) {
            let plan = first.sorted.plan(job.partitions);
            shared.link.say(Report::Cut { starts: plan.starts().to_vec() })?;
        }
    }
    Ok(())
}

/// A sorted block.
struct Packed {
    block: AlignedBlock,
    sorted: SortedBlock,
    details: BlockDetails,
}

impl Packed {
    fn new(mut block: AlignedBlock, marking: &MarkingOptions) -> Result<Self, PipelineError> {
        let (chunks, keys) = records_and_keys(std::mem::take(&mut block.batches), block.records);
        let details = marking.details(&chunks)?;
        Ok(Self { block, sorted: SortedBlock::new(chunks, &keys), details })
    }

    /// Keeps the slices and tells the head.
    fn keep(self, shared: &Shared) -> Result<(), PipelineError> {
        let Some(store) = shared.store.get() else { return Ok(()) };
        let table = store.add_block(self.block.id, self.sorted).map_err(|error| shared.scratch_failed(error))?;
        let content = shared.contents.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.block.id);
        shared.keep(self.block.id, &content.unwrap_or_default(), store.all_shares())?;
        let AlignedBlock { id, reads, records, pairs, ends, counts, .. } = self.block;
        let gift = Gift::Block { block: id, reads, records, counts };
        let templates = Buffer::from_vec(self.details.templates.to_bytes());
        let barcodes = buffer_of(&self.details.barcodes);
        let pieces = vec![buffer_of(&pairs), buffer_of(&ends), buffer_of(&table.0), templates, barcodes];
        Ok(shared.link.give(shared.id, gift, pieces)?)
    }
}
