//! Appending of finished blocks to the job directory. The data of a block are made durable before the journal line.

use std::io;

use godwit_kernels::markdup::{BlockDetails, BlockSignatures};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan};
use parking_lot::MutexGuard;

use super::JobDirectory;
use crate::journal::{AlignJournalEntry, BlockEntry};
use crate::runs::RunTable;

impl JobDirectory {
    /// Starts to append a block. Other threads that call this function wait until the returned appender is dropped.
    pub fn append_block(&self) -> BlockAppender<'_> {
        let turn = self.append_lock.lock();
        // Discard the digest of bytes that a failed append may have written.
        self.blocks_file.take_digest();
        BlockAppender { job_directory: self, offset: self.blocks_file.bytes(), _turn: turn }
    }
}

/// Summary of an aligned block.
#[derive(Clone, Copy, Debug)]
pub struct BlockSummary {
    /// The identifier of the block.
    pub id: BlockId,
    /// Number of records in the block.
    pub records: u64,
    /// Maximum length of a record on the reference, bases.
    pub longest_bases: u32,
}

/// A block that is being appended to the spill file. [`crate::runs`] writes the frames; then [`Self::finish`] writes
/// all other data.
pub struct BlockAppender<'r> {
    job_directory: &'r JobDirectory,
    offset: u64,
    _turn: MutexGuard<'r, ()>,
}

impl BlockAppender<'_> {
    /// Appends the signatures, details and frame table of the block, makes the block durable and writes its journal
    /// line. `details` are given only if workers store the records.
    ///
    /// # Errors
    /// The I/O error of the file system.
    pub fn finish(
        self,
        block: &BlockSummary,
        signatures: &BlockSignatures,
        details: Option<&BlockDetails>,
        table: &RunTable,
        plan: &PartitionPlan,
    ) -> io::Result<()> {
        let (run, BlockSummary { id, records, longest_bases }) = (self.job_directory, *block);
        let frame_bytes = run.blocks_file.bytes() - self.offset;
        let (pairs, ends) = (bytemuck::cast_slice(&signatures.pairs), bytemuck::cast_slice(&signatures.ends));
        let templates = details.map_or_else(Vec::new, |details| details.templates.to_bytes());
        let barcodes: &[u8] = details.map_or(&[], |details| bytemuck::cast_slice(&details.barcodes));
        for bytes in [pairs, ends, &table.0, &templates, barcodes] {
            run.blocks_file.append(bytes)?;
        }
        let checksum = run.blocks_file.take_digest().to_hex().to_string();
        run.blocks_file.sync()?;
        if run.partition_plan.get().is_none() {
            run.journal
                .append(&AlignJournalEntry::Plan { starts: plan.starts().iter().map(|start| start.0).collect() })?;
            let _ = run.partition_plan.set(plan.clone());
        }
        let fed = run.fed_blocks.lock().remove(&id);
        let (reads, reads_checksum) =
            fed.ok_or_else(|| io::Error::other("the aligner returned a block that was never sent"))?;
        let kept_content = reads_checksum.clone();
        run.journal.append(&AlignJournalEntry::Block(BlockEntry {
            id,
            reads,
            reads_checksum,
            records,
            longest_bases,
            counts: signatures.counts.clone(),
            offset: self.offset,
            frame_bytes,
            pair_bytes: pairs.len() as u64,
            end_bytes: ends.len() as u64,
            table_bytes: table.0.len() as u64,
            template_bytes: templates.len() as u64,
            barcode_bytes: barcodes.len() as u64,
            checksum,
        }))?;
        run.checkpointed_blocks.lock().insert(id, kept_content);
        run.resumable.unregister();
        Ok(())
    }
}
