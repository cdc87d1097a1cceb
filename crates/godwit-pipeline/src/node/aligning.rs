//! Blocks on a node: fed to the aligner, taken from it, sorted and packed into slices.

use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender};

use godwit_engines::aligner::{AlignedBlock, BlockHeader, BlockReader, BlockWriter};
use godwit_exchange::{Gift, Report, Ticket};
use godwit_model::{BlockId, EndSignature, PairSignature};

use super::{Shared, buffer_of, malformed};
use crate::align::records_and_keys;
use crate::error::PipelineError;
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
}

impl BlockPieces {
    /// From the pieces as they arrive; `None` where they are none.
    pub(crate) fn from_bytes(pieces: &[arrow_buffer::MutableBuffer]) -> Option<Self> {
        let [pairs, ends, table] = pieces else { return None };
        let pairs = bytemuck::try_cast_slice(pairs.as_slice()).ok()?.to_vec();
        let ends = bytemuck::try_cast_slice(ends.as_slice()).ok()?.to_vec();
        Some(Self { pairs, ends, table: RunTable(table.as_slice().to_vec()) })
    }
}

/// Asks for blocks and feeds them to the aligner, which takes one more while it aligns one.
pub(super) fn feed(
    shared: &Shared,
    mut writer: BlockWriter,
    orders: &Receiver<(BlockId, bool)>,
) -> Result<(), PipelineError> {
    loop {
        shared.link.say(Report::Wants)?;
        let Ok((block, cuts)) = orders.recv() else { return Ok(()) };
        if cuts {
            shared.set_first(block);
        }
        let mut reads = shared.link.get(&Ticket::Reads { block })?;
        let mut open = false;
        while let Some((batch, _)) = reads.next_batch()? {
            if !open {
                let schema = reads.schema().ok_or_else(|| malformed("reads came without a schema".into()))?;
                let header = BlockHeader::from_metadata(schema.metadata());
                writer.start_block(&header.map_err(|error| malformed(error.to_string()))?)?;
                open = true;
            }
            writer.write(&batch)?;
        }
        if !open {
            return Err(malformed(format!("block {block:?} has no reads")));
        }
        writer.end_block()?;
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
pub(super) fn pack(shared: &Shared, partitions: u32, inputs: &Receiver<Packing>) -> Result<(), PipelineError> {
    let mut held_back = Vec::new();
    while let Ok(input) = inputs.recv() {
        if let Packing::Aligned(block) = input {
            held_back.push(Packed::new(*block));
        }
        if shared.store.get().is_some() {
            held_back.drain(..).try_for_each(|block| block.keep(shared))?;
        } else if let Some(first) = held_back.last().filter(|block| shared.is_first(block.block.id)) {
            let plan = first.sorted.plan(partitions);
            shared.link.say(Report::Cut { starts: plan.starts().to_vec() })?;
        }
    }
    Ok(())
}

/// A sorted block.
struct Packed {
    block: AlignedBlock,
    sorted: SortedBlock,
}

impl Packed {
    fn new(mut block: AlignedBlock) -> Self {
        let (chunks, keys) = records_and_keys(std::mem::take(&mut block.batches), block.records);
        Self { block, sorted: SortedBlock::new(chunks, &keys) }
    }

    /// Keeps the slices and tells the head.
    fn keep(self, shared: &Shared) -> Result<(), PipelineError> {
        let Some(store) = shared.store.get() else { return Ok(()) };
        let table = store.add_block(self.block.id, self.sorted).map_err(|error| shared.scratch_failed(error))?;
        let content = shared.contents.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.block.id);
        shared.keep(self.block.id, &content.unwrap_or_default(), store.all_shares())?;
        let AlignedBlock { id, reads, records, pairs, ends, counts, .. } = self.block;
        let gift = Gift::Block { block: id, reads, records, counts };
        let pieces = vec![buffer_of(&pairs), buffer_of(&ends), buffer_of(&table.0)];
        Ok(shared.link.give(shared.id, gift, pieces)?)
    }
}
