//! Resumes a cluster run with a new head. The new head collects the list of slices that workers hold from an earlier
//! head, because blocks whose slices all exist need not be aligned again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use godwit_cluster::WorkerPoolEvent;
use godwit_exchange::{ShardId, ShuffleEvent, WorkerId};
use godwit_model::BlockId;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::Event;

use super::AlignHead;
use crate::align_messages::AlignCommand;

/// Maximum time to wait for workers that have not joined, if at least one has. For workers that have joined, the head
/// waits without a limit until they report their slices. Reading 100 GB of slices takes a minute; aligning their reads
/// again takes hours.
const WORKER_JOIN_TIMEOUT: Duration = Duration::from_secs(20);

impl AlignHead<'_> {
    /// Waits until workers report the slices that they hold from an earlier head. Returns the blocks that need not be
    /// read.
    pub(super) fn collect_held_blocks(&mut self) -> Result<BTreeSet<BlockId>, PipelineError> {
        let Some(plan) = self.genome_plan.clone() else { return Ok(BTreeSet::new()) };
        let shard_count = plan.shard_count;
        self.wait_for_recall()?;
        // There may be fewer workers than before: those that joined adopt slices that missing workers left in their
        // directories.
        self.recalled_workers.clear();
        self.worker_pool.broadcast_command(&AlignCommand::AdoptSlices(plan));
        self.wait_for_recall()?;
        self.apply_event(ShuffleEvent::GenomeSharded { shard_count });
        let blocks = self.job_directory.finished_blocks().map(|block| block.id);
        let held: BTreeSet<BlockId> = blocks.filter(|block| self.scheduler.is_block_aligned(*block)).collect();
        let lost = self.job_directory.finished_counts().0 - held.len();
        if lost > 0 {
            self.worker_pool
                .warn(format!("no worker has {lost} of the aligned blocks any more; they are aligned again"));
        }
        self.observer.event(&Event::Resumed { blocks: held.len(), partitions: 0 });
        self.exchange_report.resumed_blocks = held.len() as u64;
        Ok(held)
    }

    /// Waits until all joined workers have reported their slices, and all expected workers have joined or the timeout
    /// has passed.
    fn wait_for_recall(&mut self) -> Result<(), PipelineError> {
        let since = Instant::now();
        loop {
            let there = self.worker_pool.worker_ids().len();
            let all_said =
                there > 0 && self.worker_pool.worker_ids().all(|worker| self.recalled_workers.contains(&worker));
            let all_came = there >= self.worker_pool.expected_workers() || since.elapsed() > WORKER_JOIN_TIMEOUT;
            if all_said && all_came {
                return Ok(());
            }
            if let Some(WorkerPoolEvent::Event(worker, report)) = self.next_event()? {
                self.handle_event(worker, report);
            }
        }
    }

    /// Adds slices of a block that a worker held before it joined. They are accepted if the checksum of their reads is
    /// that of this job, and if the other results of the block are in the job directory.
    pub(super) fn add_held_slices(&mut self, worker: WorkerId, block: BlockId, content: &str, shares: Vec<ShardId>) {
        let is_known = self.job_directory.is_checkpointed(block)
            && self.reads_checksums.get(&block).is_some_and(|known| known == content);
        if is_known && !shares.is_empty() {
            self.apply_event(ShuffleEvent::SlicesHeld(worker, block, shares));
        }
    }
}
