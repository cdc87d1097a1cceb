//! How a finished block gets into the run directory: its data durable first, then the line that names it.

use std::io;
use std::sync::{MutexGuard, PoisonError};

use godwit_kernels::markdup::{BlockDetails, BlockSignatures};
use godwit_kernels::sort::Spill;
use godwit_model::{BlockId, PartitionPlan};

use super::RunDirectory;
use crate::journal::{BlockEntry, Entry};
use crate::runs::RunTable;

impl RunDirectory {
    /// Keeps others from appending a block until the guard is dropped.
    pub fn append_block(&self) -> BlockAppender<'_> {
        let turn = self.appending.lock().unwrap_or_else(PoisonError::into_inner);
        // What an append that failed left behind belongs to no block.
        self.blocks.take_digest();
        BlockAppender { run: self, offset: self.blocks.bytes(), _turn: turn }
    }
}

/// What is known of a block that is done.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    /// The block.
    pub id: BlockId,
    /// Its records.
    pub records: u64,
    /// Reference bases that one of them reaches over, at most.
    pub longest_bases: u32,
}

/// A block being appended to the spill of runs: frames first, which [`crate::runs`] writes, then [`Self::finish`].
pub struct BlockAppender<'r> {
    run: &'r RunDirectory,
    offset: u64,
    _turn: MutexGuard<'r, ()>,
}

impl BlockAppender<'_> {
    /// Appends what else belongs to the block, makes it durable and notes that it is finished. `details` are kept where the
    /// records are not.
    ///
    /// # Errors
    /// What the file system reports.
    pub fn finish(
        self,
        block: &Finished,
        signatures: &BlockSignatures,
        details: Option<&BlockDetails>,
        table: &RunTable,
        plan: &PartitionPlan,
    ) -> io::Result<()> {
        let (run, Finished { id, records, longest_bases }) = (self.run, *block);
        let frame_bytes = run.blocks.bytes() - self.offset;
        let (pairs, ends) = (bytemuck::cast_slice(&signatures.pairs), bytemuck::cast_slice(&signatures.ends));
        let templates = details.map_or_else(Vec::new, |details| details.templates.to_bytes());
        let barcodes: &[u8] = details.map_or(&[], |details| bytemuck::cast_slice(&details.barcodes));
        for bytes in [pairs, ends, &table.0, &templates, barcodes] {
            run.blocks.append(bytes)?;
        }
        let checksum = run.blocks.take_digest().to_hex().to_string();
        run.blocks.sync()?;
        if run.plan.get().is_none() {
            run.journal.append(&Entry::Plan { starts: plan.starts().iter().map(|start| start.0).collect() })?;
            let _ = run.plan.set(plan.clone());
        }
        let fed = run.fed.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let (reads, content) = fed.ok_or_else(|| io::Error::other("a block came back that was never fed"))?;
        let kept_content = content.clone();
        run.journal.append(&Entry::Block(BlockEntry {
            id,
            reads,
            content,
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
        run.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(id, kept_content);
        run.resumable.keep();
        Ok(())
    }
}
