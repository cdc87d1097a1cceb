//! Schedules which worker aligns which block, holds which slice, and writes which part.
//!
//! The genome is cut into *shards*, each owned by one worker. A block is aligned by any worker that requests work, which
//! then holds one slice for each shard. Owners fetch their slices from there; where the aligning worker is the owner itself,
//! another worker fetches a second copy: a block is finished when two workers hold every slice. Since slices are fetched and
//! not sent, a worker receives no more than it has room for, and the loss of a worker needs no special case: a slice that
//! lacks a copy is fetched from a holder, and a block of which a slice is lost is aligned again.
//!
//! A worker that joins may hold slices of blocks that were aligned before. If they are reported before the genome is cut,
//! they decide the owners; a block of which every slice has a holder need not be fed.
//!
//! An event of a worker counts only while the worker is connected and was assigned the work: a lost worker joins again under
//! another [`WorkerId`]. Results are the same bytes from any worker, so that late ones do no harm.

mod blocks;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use blocks::{BlockEntry, BlockState};
use parts::Parts;

/// A worker, as long as it is connected. Numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub u32);

/// 0-based index of a shard of the genome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// Most files that parts are written to.
pub const MAX_FILES: usize = 2;
/// A number of bytes for each file, 0 for an absent file.
pub type BytesPerFile = [u64; MAX_FILES];

/// Limits of the scheduler.
#[derive(Clone, Copy, Debug)]
pub struct ShuffleOptions {
    /// Blocks that a worker may have at a time: one being read, one aligned, one sorted.
    pub max_blocks_per_worker: usize,
    /// Concurrent fetches of a worker.
    pub max_fetches_per_worker: usize,
    /// A block that takes longer than this many times the mean is also assigned to another idle worker.
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

/// An event of the cluster run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShuffleEvent {
    /// A worker joined.
    WorkerJoined {
        /// The worker; its number was never used before.
        worker: WorkerId,
        /// Parts that it writes at a time.
        writers: usize,
    },
    /// A worker disconnected, or was silent for too long.
    WorkerLost(WorkerId),
    /// A worker has room for one more block.
    WorkRequested(WorkerId),
    /// The reads of a block are available.
    BlockAvailable(BlockId),
    /// No more blocks than those available will follow.
    InputEnded,
    /// The genome was cut into shards.
    GenomeSharded {
        /// Number of shards, at least one.
        shard_count: u16,
    },
    /// A worker has aligned a block and holds all its slices; its other results have been uploaded.
    BlockAligned(WorkerId, BlockId),
    /// A worker has fetched its slices of a block.
    SlicesFetched(WorkerId, BlockId),
    /// A worker could not fetch these slices.
    SliceFetchFailed(WorkerId, BlockId),
    /// A worker holds slices of a block that was aligned before: by it, or for an earlier head of the run.
    SlicesHeld(WorkerId, BlockId, Vec<ShardId>),
    /// Duplicates are decided; parts are to be written, in this order, each of one shard. Once all are placed, the event may
    /// occur again: then all parts are written anew.
    DuplicatesDecided(Vec<ShardId>),
    /// A worker has written a part into its own storage, of this size.
    PartWritten(WorkerId, usize, BytesPerFile),
    /// A part was placed in the files.
    PartPlaced(WorkerId, usize),
}

/// An action of the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShuffleAction {
    /// Assign a block to a worker.
    AlignBlock(WorkerId, BlockId),
    /// Have a worker fetch slices of a block from another one.
    FetchSlices {
        /// The worker that fetches.
        worker: WorkerId,
        /// The block.
        block: BlockId,
        /// The slices, ascending.
        shards: Vec<ShardId>,
        /// The worker that holds them.
        from: WorkerId,
    },
    /// Release the reads of a block.
    ReleaseReads(BlockId),
    /// Reload the released reads of a block.
    ReloadReads(BlockId),
    /// All blocks are finished: decide duplicates.
    DecideDuplicates,
    /// Have a worker write a part into its own storage.
    WritePart(WorkerId, usize),
    /// Have a worker place a part in the files, at these offsets from the start of the first part, bytes.
    PlacePart(WorkerId, usize, BytesPerFile),
    /// Report a part whose size changed: its bytes depend on the worker that wrote it, which is an error.
    ReportSizeMismatch(usize),
    /// All parts are placed in the files.
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
    /// Slices that it is to fetch.
    slices_to_fetch: BTreeSet<(BlockId, ShardId)>,
    /// Slices that it is fetching, by block.
    active_fetches: BTreeMap<BlockId, Vec<ShardId>>,
    retry_at: Duration,
}

/// A scheduler of the shuffle, which holds its state.
pub struct ShuffleScheduler {
    options: ShuffleOptions,
    phase: Phase,
    workers: BTreeMap<WorkerId, WorkerState>,
    /// Owner of each shard; empty before the genome is cut, `None` without a worker.
    owners: Vec<Option<WorkerId>>,
    blocks: BTreeMap<BlockId, BlockEntry>,
    /// Blocks that can be assigned to a worker.
    waiting_blocks: BTreeSet<BlockId>,
    input_ended: bool,
    /// Slices that lack a copy, and the worker that is to fetch them; `None` where the block has to be aligned again.
    missing_copies: BTreeMap<(BlockId, ShardId), Option<WorkerId>>,
    /// Number of these for each shard.
    missing_by_shard: Vec<usize>,
    aligned_blocks: usize,
    total_align_time: Duration,
    timed_blocks: u32,
    stragglers: u64,
    parts: Parts,
    actions: Vec<ShuffleAction>,
}

impl ShuffleScheduler {
    /// Creates a scheduler without blocks and workers.
    pub fn new(options: ShuffleOptions) -> Self {
        Self {
            options,
            phase: Phase::Aligning,
            workers: BTreeMap::new(),
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

    /// Handles an event; `now` is the time since the start of the run. Returns the actions that follow, in order.
    pub fn handle_event(&mut self, event: ShuffleEvent, now: Duration) -> Vec<ShuffleAction> {
        self.apply_event(event, now);
        self.schedule(now)
    }

    /// Returns the actions that are due at this time.
    pub fn handle_time(&mut self, now: Duration) -> Vec<ShuffleAction> {
        self.schedule(now)
    }

    /// Returns the number of connected workers.
    pub fn worker_count(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of blocks that wait for a worker.
    pub fn waiting_block_count(&self) -> usize {
        self.waiting_blocks.len()
    }

    /// Returns the number of aligned blocks, each counted once.
    pub fn aligned_block_count(&self) -> usize {
        self.aligned_blocks
    }

    /// Reports whether a block is aligned, so that its reads are not needed.
    pub fn is_block_aligned(&self, block: BlockId) -> bool {
        self.blocks.get(&block).is_some_and(|block| block.state == BlockState::Aligned)
    }

    /// Reports whether a worker was assigned a block and has not finished it.
    pub fn is_leased(&self, node: WorkerId, block: BlockId) -> bool {
        self.workers.get(&node).is_some_and(|node| node.leased_blocks.contains(&block))
    }

    /// Returns the owner of each shard.
    pub fn owners(&self) -> &[Option<WorkerId>] {
        &self.owners
    }

    /// Returns how often a block was assigned to a second worker because the first was slow.
    pub fn straggler_count(&self) -> u64 {
        self.stragglers
    }

    /// Returns the number of slices that lack a copy.
    pub fn missing_copy_count(&self) -> usize {
        self.missing_copies.len()
    }

    fn apply_event(&mut self, event: ShuffleEvent, now: Duration) {
        match event {
            ShuffleEvent::WorkerJoined { worker, writers } => self.add_worker(worker, writers.max(1)),
            ShuffleEvent::WorkerLost(node) => self.remove_worker(node),
            ShuffleEvent::WorkRequested(node) => {
                if let Some(node) = self.workers.get_mut(&node) {
                    node.requested_blocks += 1;
                }
            }
            ShuffleEvent::BlockAvailable(block) => self.add_available_block(block),
            ShuffleEvent::InputEnded => self.input_ended = true,
            ShuffleEvent::GenomeSharded { shard_count } => self.assign_shards(shard_count),
            ShuffleEvent::BlockAligned(node, block) => self.record_aligned_block(node, block, now),
            ShuffleEvent::SlicesFetched(node, block) => self.record_fetched_slices(node, block),
            ShuffleEvent::SliceFetchFailed(node, block) => self.record_fetch_failure(node, block, now),
            ShuffleEvent::SlicesHeld(node, block, shares) => self.record_held_slices(node, block, &shares),
            ShuffleEvent::DuplicatesDecided(shares) if matches!(self.phase, Phase::Deciding | Phase::Finished) => {
                self.parts = Parts::new(shares);
                self.phase = Phase::Writing;
                // Missing copies of placed parts were not tracked.
                self.update_all_missing_copies();
            }
            ShuffleEvent::PartWritten(node, part, bytes) => {
                if !self.parts.mark_written(node, part, bytes) {
                    self.actions.push(ShuffleAction::ReportSizeMismatch(part));
                }
            }
            ShuffleEvent::PartPlaced(node, part) => self.parts.mark_placed(node, part),
            ShuffleEvent::DuplicatesDecided(_) => {}
        }
    }

    fn schedule(&mut self, now: Duration) -> Vec<ShuffleAction> {
        self.lease_blocks(now);
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
        let node = WorkerState {
            writers,
            requested_blocks: 0,
            leased_blocks: BTreeSet::new(),
            slices_to_fetch: BTreeSet::new(),
            active_fetches: BTreeMap::new(),
            retry_at: Duration::ZERO,
        };
        self.workers.insert(id, node);
        let unowned_shards: Vec<usize> = (0..self.owners.len()).filter(|share| self.owners[*share].is_none()).collect();
        unowned_shards.into_iter().for_each(|share| self.owners[share] = Some(id));
        // Shards without an owner have one now, or a second copy has become possible.
        if self.workers.len() <= 2 {
            self.update_all_missing_copies();
        }
    }

    fn remove_worker(&mut self, id: WorkerId) {
        let Some(node) = self.workers.remove(&id) else { return };
        for block in node.leased_blocks {
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

    /// Returns the initial owners of the shards: adjacent shards have one owner; but a shard is assigned to the worker that
    /// holds most of it, unless that worker has its fraction of all shards.
    fn initial_owners(&self, shares: usize) -> Vec<Option<WorkerId>> {
        let nodes: Vec<WorkerId> = self.workers.keys().copied().collect();
        let max_shards_per_worker = shares.div_ceil(nodes.len().max(1));
        let mut owned: BTreeMap<WorkerId, usize> = nodes.iter().map(|id| (*id, 0)).collect();
        let mut held: BTreeMap<(usize, WorkerId), usize> = BTreeMap::new();
        self.blocks.values().flat_map(BlockEntry::holders).for_each(|slice| *held.entry(slice).or_default() += 1);
        let owner = |share: usize| {
            let held = |id: &WorkerId| held.get(&(share, *id)).copied().unwrap_or(0);
            let most = nodes
                .iter()
                .filter(|id| owned[*id] < max_shards_per_worker)
                .map(|id| (held(id), std::cmp::Reverse(*id)))
                .max();
            let owner = match most {
                Some((held, std::cmp::Reverse(id))) if held > 0 => Some(id),
                _ => nodes.get(share * nodes.len() / shares).copied(),
            };
            owner.inspect(|id| *owned.entry(*id).or_default() += 1)
        };
        (0..shares).map(owner).collect()
    }
}

impl ShuffleScheduler {
    fn end_lease(&mut self, node: WorkerId, id: BlockId) {
        if let Some(node) = self.workers.get_mut(&node) {
            node.leased_blocks.remove(&id);
        }
        let Some(block) = self.blocks.get_mut(&id) else { return };
        block.leases.retain(|(leased, _)| *leased != node);
        if block.leases.is_empty() && block.state == BlockState::Leased {
            block.state = BlockState::Waiting;
            self.waiting_blocks.insert(id);
        }
    }
}
