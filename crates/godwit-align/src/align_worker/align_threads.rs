//! Alignment of blocks on a worker. Threads feed blocks to the aligner, collect the records, and sort and pack them
//! into slices.

use std::sync::mpsc::{Receiver, Sender};

use arrow_array::RecordBatch;
use godwit_cluster::DownloadReader;
use godwit_engines::aligner::{AlignedBlock, BlockHeader, BlockReader, BlockWriter};
use godwit_kernels::markdup::BlockDetails;
use godwit_model::BlockId;
use godwit_pipeline::MarkingOptions;
use godwit_pipeline::PipelineError;
use godwit_pipeline::runs::SortedBlock;

use super::WorkerContext;
use super::block_aligner::AlignerFeed;
use crate::align_messages::{AlignEvent, AlignTask, AlignTicket, AlignUpload, AlignedBlockInfo, BlockUpload};
use crate::aligner_threads::records_and_keys;

/// An input of the packing thread.
pub(super) enum PackInput {
    /// The aligner has finished a block.
    BlockAligned(Box<AlignedBlock>),
    /// The partitions of the genome are known.
    PlanKnown,
}

/// The reads of a block while they are downloaded.
pub(super) struct BlockReads<'n> {
    header: BlockHeader,
    first_batch: Option<RecordBatch>,
    remaining_batches: DownloadReader<'n>,
}

impl<'n> BlockReads<'n> {
    fn open(shared: &WorkerContext<'n>, block: BlockId) -> Result<Self, PipelineError> {
        let mut remaining_batches = shared.connection.download_from_head(&AlignTicket::Reads { block })?;
        let first_batch = remaining_batches.next_batch()?.map(|(batch, _)| batch);
        let schema = remaining_batches.schema().filter(|_| first_batch.is_some());
        let schema = schema.ok_or_else(|| PipelineError::malformed_command(format!("block {block:?} has no reads")))?;
        let header = BlockHeader::from_metadata(schema.metadata())
            .map_err(|error| PipelineError::malformed_command(error.to_string()))?;
        Ok(Self { header, first_batch, remaining_batches })
    }

    pub(super) fn header(&self) -> &BlockHeader {
        &self.header
    }

    /// Writes all reads of the block to the aligner.
    pub(super) fn feed_into(&mut self, writer: &mut BlockWriter) -> Result<(), PipelineError> {
        writer.start_block(&self.header)?;
        if let Some(batch) = self.first_batch.take() {
            writer.write(&batch)?;
        }
        while let Some((batch, _)) = self.remaining_batches.next_batch()? {
            writer.write(&batch)?;
        }
        Ok(writer.end_block()?)
    }
}

/// Requests blocks from the head and feeds them to the aligner. A persistent aligner receives the next block while it
/// aligns the current block.
pub(super) fn feed_aligner(
    shared: &WorkerContext,
    mut aligner: AlignerFeed,
    packing: &Sender<PackInput>,
    orders: &Receiver<(BlockId, bool)>,
) -> Result<(), PipelineError> {
    loop {
        shared.connection.send_event(AlignEvent::WorkRequested)?;
        let Ok((block, cuts)) = orders.recv() else { return Ok(()) };
        if cuts {
            shared.set_planning_block(block);
        }
        let mut reads = BlockReads::open(shared, block)?;
        match &mut aligner {
            AlignerFeed::Persistent(writer) => reads.feed_into(writer)?,
            AlignerFeed::PerBlock(each) => each.align_block(reads, packing)?,
        }
    }
}

/// Passes the blocks that the aligner returns to the packing thread.
pub(super) fn collect_aligned(mut reader: BlockReader, packing: &Sender<PackInput>) -> Result<(), PipelineError> {
    while let Some(block) = reader.next_block()? {
        if packing.send(PackInput::BlockAligned(Box::new(block))).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Sorts blocks, and packs them into slices as soon as the partitions of the genome are known. The first block of the
/// job decides the partitions.
pub(super) fn pack_blocks(
    shared: &WorkerContext,
    job: &AlignTask,
    inputs: &Receiver<PackInput>,
) -> Result<(), PipelineError> {
    let mut held_back = Vec::new();
    while let Ok(input) = inputs.recv() {
        if let PackInput::BlockAligned(block) = input {
            held_back.push(SortedAlignedBlock::new(*block, &job.marking)?);
        }
        if shared.slice_store.get().is_some() {
            held_back.drain(..).try_for_each(|block| block.store_and_upload(shared))?;
        } else if let Some(first) = held_back.last().filter(|block| shared.is_planning_block(block.block.id)) {
            let plan = first.sorted.plan(job.partitions);
            shared.connection.send_event(AlignEvent::GenomePartitioned { starts: plan.starts().to_vec() })?;
        }
    }
    Ok(())
}

/// An aligned block whose records are sorted.
struct SortedAlignedBlock {
    block: AlignedBlock,
    sorted: SortedBlock,
    details: BlockDetails,
}

impl SortedAlignedBlock {
    fn new(mut block: AlignedBlock, marking: &MarkingOptions) -> Result<Self, PipelineError> {
        let (chunks, keys) = records_and_keys(std::mem::take(&mut block.batches), block.records);
        let details = marking.block_details(&chunks)?;
        Ok(Self { block, sorted: SortedBlock::new(chunks, &keys), details })
    }

    /// Stores the slices of the block, and uploads its duplicate signatures and the table of its frames to the head.
    fn store_and_upload(self, shared: &WorkerContext) -> Result<(), PipelineError> {
        let Some(store) = shared.slice_store.get() else { return Ok(()) };
        let table = store.add_block(self.block.id, self.sorted).map_err(|error| shared.scratch_error(error))?;
        let content = shared.reads_checksums.lock().remove(&self.block.id);
        shared.checkpoint_slices(self.block.id, &content.unwrap_or_default(), store.all_shards())?;
        let AlignedBlock { id, reads, records, pairs, ends, counts, .. } = self.block;
        let info = AlignedBlockInfo { block: id, reads, records, counts };
        let results = BlockUpload { pairs, ends, table, details: self.details };
        Ok(shared.connection.upload(AlignUpload::AlignedBlock(info), results.to_pieces())?)
    }
}
