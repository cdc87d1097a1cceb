//! Scheduler that decides which worker aligns which block, stores which slice, and writes which part of the output.
//!
//! The genome is cut into *shards*, and each shard is owned by one worker. A block is aligned by any worker that
//! requests work. That worker then stores one slice of the block for each shard.
//!
//! The owner of a shard fetches the slice from the worker that aligned the block. If the owner aligned the block
//! itself, another worker fetches a second copy. A block is finished when two workers hold every slice.
//!
//! Workers fetch slices instead of receiving them unrequested, so a worker receives only as much as it can store. The
//! loss of a worker is handled by the same rules: a slice that lacks a copy is fetched from a holder, and a block that
//! has lost a slice is aligned again.
//!
//! A worker that joins may hold slices of blocks that were aligned earlier. If the worker reports these slices before
//! the genome is cut, they influence which worker owns which shard. A block whose slices all have holders is not
//! aligned again.
//!
//! An event of a worker counts only while the worker is connected and has the work assigned. A lost worker that joins
//! again has another [`WorkerId`]. Every worker computes the same bytes, so a late result does no harm.

mod blocks;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use godwit_fleet::WorkerId;
use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use crate::per_file::PerFile;
use blocks::{BlockEntry, BlockState};
use parts::Parts;

/// 0-based index of a shard of the genome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// Limits and delays of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleOptions {
    /// Maximum number of blocks that a worker processes at a time: usually one is read, one aligned and one sorted.
    pub max_blocks_per_worker: usize,
    /// Maximum number of concurrent fetches of a worker.
    pub max_fetches_per_worker: usize,
    /// Multiple of the mean alignment time after which a block is also assigned to a second, idle worker.
    pub straggler_factor: u32,
    /// Delay before a failed fetch is retried.
    pub fetch_retry_delay: Duration,
}

impl Default for ShuffleOptions {
    fn default() -> Self {
        Self {
            max_blocks_per_worker: 3,
            max_fetches_per_worker: 4,
            straggler_factor: 3,
            fetch_retry_delay: Duration::from_millis(500),
        }
    }
}

/// An event of the cluster run that the scheduler handles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShuffleEvent {
    /// A worker joined.
    WorkerJoined {
        /// Id of the worker; it was never used before.
        worker: WorkerId,
        /// Number of parts that the worker can write concurrently.
        writers: usize,
    },
    /// A worker disconnected, or was silent for too long.
    WorkerLost(WorkerId),
    /// A worker has room for one more block.
    WorkRequested(WorkerId),
    /// The reads of a block can be downloaded from the head.
    BlockAvailable(BlockId),
    /// The input has ended; no further blocks will become available.
    InputEnded,
    /// The genome was cut into shards.
    GenomeSharded {
        /// Number of shards, at least one.
        shard_count: u16,
    },
    /// A worker has aligned a block and holds all its slices. The other results of the block have been uploaded to the
    /// head.
    BlockAligned(WorkerId, BlockId),
    /// A worker has fetched the slices of a block that were assigned to it.
    SlicesFetched(WorkerId, BlockId),
    /// A worker could not fetch the slices of a block that were assigned to it.
    SliceFetchFailed(WorkerId, BlockId),
    /// A worker holds slices of a block that was aligned earlier, either by the worker itself or for an earlier head of
    /// the run.
    SlicesHeld(WorkerId, BlockId, Vec<ShardId>),
    /// The head has decided which records are duplicates. The list contains the shard of each part of the output, in
    /// output order. If the event occurs again after all parts were placed, all parts are written again.
    DuplicatesDecided(Vec<ShardId>),
    /// A worker has written the part with this index to its own storage; the last field is the size in each output
    /// file.
    PartWritten(WorkerId, usize, PerFile<u64>),
    /// A worker has copied the part with this index to the output files.
    PartPlaced(WorkerId, usize),
}

/// An action that the head has to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShuffleAction {
    /// Assign a block to a worker for alignment.
    AlignBlock(WorkerId, BlockId),
    /// Command a worker to fetch slices of a block from another worker.
    FetchSlices {
        /// The worker that has to fetch the slices.
        worker: WorkerId,
        /// Id of the block.
        block: BlockId,
        /// Shards of the slices, in ascending order.
        shards: Vec<ShardId>,
        /// The worker that holds the slices.
        from: WorkerId,
    },
    /// Release the reads of a block; they are not needed any more.
    ReleaseReads(BlockId),
    /// Make the reads of a block available again after they were released.
    ReloadReads(BlockId),
    /// Decide which records are duplicates, because all blocks are finished.
    DecideDuplicates,
    /// Command a worker to write the part with this index to its own storage.
    WritePart(WorkerId, usize),
    /// Command a worker to copy the part with this index to the output files. The offsets are in bytes from the start
    /// of the first part in each file.
    PlacePart(WorkerId, usize, PerFile<u64>),
    /// Report an error: the part with this index was written again with another size, so its bytes depend on the
    /// worker.
    ReportSizeMismatch(usize),
    /// Finish the job, because all parts have been copied to the output files.
    FinishJob,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Aligning,
    Deciding,
    Writing,
    Finished,
}

struct WorkerState {
    writers: usize,
    requested_blocks: usize,
    leased_blocks: BTreeSet<BlockId>,
    /// Slices that the worker has to fetch but is not fetching yet.
    slices_to_fetch: BTreeSet<(BlockId, ShardId)>,
    /// Shards of the slices that the worker is fetching now, by block.
    active_fetches: BTreeMap<BlockId, Vec<ShardId>>,
    retry_at: Duration,
}

/// The scheduler of the shuffle, with the state of workers, blocks and parts.
pub struct ShuffleScheduler {
    options: ShuffleOptions,
    phase: Phase,
    workers: BTreeMap<WorkerId, WorkerState>,
    /// Workers that may start another fetch, because a slice to fetch was added or a fetch ended.
    idle_fetchers: BTreeSet<WorkerId>,
    /// Owner of each shard. Empty before the genome is cut; `None` for a shard while no worker is connected.
    owners: Vec<Option<WorkerId>>,
    blocks: BTreeMap<BlockId, BlockEntry>,
    /// Blocks that can be assigned to a worker.
    waiting_blocks: BTreeSet<BlockId>,
    input_ended: bool,
    /// Slices that lack a copy, each with the worker that has to fetch it. `None` if the block has to be aligned again.
    missing_copies: BTreeMap<(BlockId, ShardId), Option<WorkerId>>,
    /// Number of slices in `missing_copies` for each shard.
    missing_by_shard: Vec<usize>,
    aligned_blocks: usize,
    total_align_time: Duration,
    timed_blocks: u32,
    stragglers: u64,
    parts: Parts,
    actions: Vec<ShuffleAction>,
}

impl ShuffleScheduler {
    /// Creates a scheduler that does not have blocks or workers.
    pub fn new(options: ShuffleOptions) -> Self {
        Self {
            options,
            phase: Phase::Aligning,
            workers: BTreeMap::new(),
            idle_fetchers: BTreeSet::new(),
            owners: Vec::new(),
            blocks: BTreeMap::new(),
            waiting_blocks: BTreeSet::new(),
            input_ended: false,
            missing_copies: BTreeMap::new(),
            missing_by_shard: Vec::new(),
            aligned_blocks: 0,
            total_align_time: Duration::ZERO,
            timed_blocks: 0,
            stragglers: 0,
            parts: Parts::default(),
            actions: Vec::new(),
        }
    }

    /// Handles an event and returns the actions that follow from it, in order. `now` is the time since the start of the
    /// run.
    pub fn handle_event(&mut self, event: ShuffleEvent, now: Duration) -> Vec<ShuffleAction> {
        // Results of fetches and parts arrive most often, and make no block and no worker available.
        let is_of_slices = matches!(
            event,
            ShuffleEvent::SlicesFetched(..)
                | ShuffleEvent::SliceFetchFailed(..)
                | ShuffleEvent::PartWritten(..)
                | ShuffleEvent::PartPlaced(..)
        );
        self.apply_event(event, now);
        if !is_of_slices {
            self.lease_blocks(now);
        }
        self.schedule(now)
    }

    /// Returns the actions that have become due by the time `now`, such as retries.
    pub fn handle_time(&mut self, now: Duration) -> Vec<ShuffleAction> {
        self.lease_overdue_blocks(now);
        self.schedule(now)
    }

    /// Returns the number of connected workers.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of available blocks that are not assigned to a worker.
    pub fn waiting_block_count(&self) -> usize {
        self.waiting_blocks.len()
    }

    /// Returns the number of aligned blocks. A block that was aligned twice is counted once.
    pub fn aligned_block_count(&self) -> usize {
        self.aligned_blocks
    }

    /// Returns whether a block is aligned; its reads are then not needed for alignment.
    pub fn is_block_aligned(&self, block: BlockId) -> bool {
        self.blocks.get(&block).is_some_and(|block| block.state == BlockState::Aligned)
    }

    /// Returns whether a block is assigned to a worker that has not finished it.
    pub fn is_leased(&self, worker: WorkerId, block: BlockId) -> bool {
        self.workers.get(&worker).is_some_and(|worker| worker.leased_blocks.contains(&block))
    }

    /// Returns the owner of each shard.
    pub fn owners(&self) -> &[Option<WorkerId>] {
        &self.owners
    }

    /// Returns how often a block was also assigned to a second worker because the first worker was slow.
    pub fn straggler_count(&self) -> u64 {
        self.stragglers
    }

    /// Returns the number of slices that have fewer copies than required.
    pub fn missing_copy_count(&self) -> usize {
        self.missing_copies.len()
    }

    fn apply_event(&mut self, event: ShuffleEvent, now: Duration) {
        match event {
            ShuffleEvent::WorkerJoined { worker, writers } => self.add_worker(worker, writers.max(1)),
            ShuffleEvent::WorkerLost(worker) => self.remove_worker(worker),
            ShuffleEvent::WorkRequested(worker) => {
                if let Some(worker) = self.workers.get_mut(&worker) {
                    worker.requested_blocks += 1;
                }
            }
            ShuffleEvent::BlockAvailable(block) => self.add_available_block(block),
            ShuffleEvent::InputEnded => self.input_ended = true,
            ShuffleEvent::GenomeSharded { shard_count } => self.assign_shards(shard_count),
            ShuffleEvent::BlockAligned(worker, block) => self.record_aligned_block(worker, block, now),
            ShuffleEvent::SlicesFetched(worker, block) => self.record_fetched_slices(worker, block),
            ShuffleEvent::SliceFetchFailed(worker, block) => self.record_fetch_failure(worker, block, now),
            ShuffleEvent::SlicesHeld(worker, block, shares) => self.record_held_slices(worker, block, &shares),
            ShuffleEvent::DuplicatesDecided(shares) if matches!(self.phase, Phase::Deciding | Phase::Finished) => {
                self.parts = Parts::new(shares);
                self.phase = Phase::Writing;
                // Compute the missing copies of all parts, because they are not tracked before the parts are known.
                self.update_all_missing_copies();
            }
            ShuffleEvent::PartWritten(worker, part, bytes) => {
                if !self.parts.mark_written(worker, part, bytes) {
                    self.actions.push(ShuffleAction::ReportSizeMismatch(part));
                }
            }
            ShuffleEvent::PartPlaced(worker, part) => self.parts.mark_placed(worker, part),
            ShuffleEvent::DuplicatesDecided(_) => {}
        }
    }

    fn schedule(&mut self, now: Duration) -> Vec<ShuffleAction> {
        self.start_fetches(now);
        if self.phase == Phase::Aligning && self.are_all_blocks_aligned() {
            self.phase = Phase::Deciding;
            self.actions.push(ShuffleAction::DecideDuplicates);
        }
        if self.phase == Phase::Writing {
            self.schedule_writes();
        }
        std::mem::take(&mut self.actions)
    }

    fn are_all_blocks_aligned(&self) -> bool {
        self.input_ended && self.aligned_blocks == self.blocks.len() && self.missing_copies.is_empty()
    }

    fn add_worker(&mut self, id: WorkerId, writers: usize) {
        let worker = WorkerState {
            writers,
            requested_blocks: 0,
            leased_blocks: BTreeSet::new(),
            slices_to_fetch: BTreeSet::new(),
            active_fetches: BTreeMap::new(),
            retry_at: Duration::ZERO,
        };
        self.workers.insert(id, worker);
        let unowned_shards: Vec<usize> = (0..self.owners.len()).filter(|share| self.owners[*share].is_none()).collect();
        unowned_shards.into_iter().for_each(|share| self.owners[share] = Some(id));
        // The new worker can own shards without an owner, and can hold second copies of slices.
        if self.workers.len() <= 2 {
            self.update_all_missing_copies();
        }
    }

    fn remove_worker(&mut self, id: WorkerId) {
        let Some(worker) = self.workers.remove(&id) else { return };
        for block in worker.leased_blocks {
            self.end_lease(id, block);
        }
        self.parts.remove_worker(id);
        for share in 0..self.owners.len() {
            if self.owners[share] == Some(id) {
                self.owners[share] = self.worker_with_fewest_shards();
            }
        }
        for block in self.blocks.values_mut() {
            block.slices.iter_mut().for_each(|slice| slice.remove(id));
        }
        self.update_all_missing_copies();
    }

    /// Returns the worker that owns the fewest shards.
    fn worker_with_fewest_shards(&self) -> Option<WorkerId> {
        let owned = |id: WorkerId| self.owners.iter().filter(|owner| **owner == Some(id)).count();
        self.workers.keys().copied().min_by_key(|id| (owned(*id), *id))
    }

    fn assign_shards(&mut self, shares: u16) {
        if !self.owners.is_empty() {
            return;
        }
        self.owners = self.initial_owners(usize::from(shares));
        self.missing_by_shard = vec![0; usize::from(shares)];
        let held: Vec<BlockId> =
            self.blocks.iter().filter(|(_, block)| block.has_slices()).map(|(id, _)| *id).collect();
        held.into_iter().for_each(|id| self.update_held_block(id));
    }

    /// Returns the initial owners of the shards. By default, each worker owns adjacent shards. But a shard is assigned
    /// to the worker that holds most of its slices, unless that worker already has its fraction of all shards.
    fn initial_owners(&self, shares: usize) -> Vec<Option<WorkerId>> {
        let workers: Vec<WorkerId> = self.workers.keys().copied().collect();
        let max_shards_per_worker = shares.div_ceil(workers.len().max(1));
        let mut owned: BTreeMap<WorkerId, usize> = workers.iter().map(|id| (*id, 0)).collect();
        let mut held: BTreeMap<(usize, WorkerId), usize> = BTreeMap::new();
        self.blocks.values().flat_map(BlockEntry::holders).for_each(|slice| *held.entry(slice).or_default() += 1);
        let owner = |share: usize| {
            let held = |id: &WorkerId| held.get(&(share, *id)).copied().unwrap_or(0);
            let most = workers
                .iter()
                .filter(|id| owned[*id] < max_shards_per_worker)
                .map(|id| (held(id), std::cmp::Reverse(*id)))
                .max();
            let owner = match most {
                Some((held, std::cmp::Reverse(id))) if held > 0 => Some(id),
                _ => workers.get(share * workers.len() / shares).copied(),
            };
            owner.inspect(|id| *owned.entry(*id).or_default() += 1)
        };
        (0..shares).map(owner).collect()
    }
}

impl ShuffleScheduler {
    fn end_lease(&mut self, worker: WorkerId, id: BlockId) {
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.leased_blocks.remove(&id);
        }
        let Some(block) = self.blocks.get_mut(&id) else { return };
        block.leases.retain(|(leased, _)| *leased != worker);
        if block.leases.is_empty() && block.state == BlockState::Leased {
            block.state = BlockState::Waiting;
            self.waiting_blocks.insert(id);
        }
    }
}
