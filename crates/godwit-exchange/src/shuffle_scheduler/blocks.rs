//! The states of blocks, from available reads over leases and alignment to the last fetched slice.

use std::time::Duration;

use godwit_model::BlockId;

use super::{Phase, ShardId, ShuffleAction, ShuffleScheduler, WorkerId};

/// Number of copies of each slice that the scheduler maintains if there are enough workers.
const COPIES_PER_SLICE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// The reads are not available: either they were never available, or they were released and requested again.
    AwaitingReads,
    Waiting,
    Leased,
    Aligned,
}

pub(super) struct BlockEntry {
    pub(super) state: BlockState,
    /// The workers to which the block is assigned, each with the time of the assignment.
    pub(super) leases: Vec<(WorkerId, Duration)>,
    /// The holders of the slice of each shard; empty until a worker holds a slice.
    pub(super) slices: Vec<SliceHolders>,
    /// Number of slices of the block that lack a copy.
    missing_copies: u16,
    released: bool,
}

impl BlockEntry {
    fn new() -> Self {
        Self {
            state: BlockState::AwaitingReads,
            leases: Vec::new(),
            slices: Vec::new(),
            missing_copies: 0,
            released: false,
        }
    }

    /// Returns whether a worker holds or held a slice of the block.
    pub(super) fn has_slices(&self) -> bool {
        !self.slices.is_empty()
    }

    /// Returns pairs of a shard index and a holder of its slice.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, WorkerId)> {
        self.slices.iter().enumerate().flat_map(|(share, slice)| slice.holders().map(move |worker| (share, worker)))
    }
}

/// The holders of a slice. If more than two workers hold the slice, only two of them are stored.
#[derive(Clone, Copy, Default)]
pub(super) struct SliceHolders([Option<WorkerId>; COPIES_PER_SLICE]);

impl SliceHolders {
    pub(super) fn contains(&self, worker: WorkerId) -> bool {
        self.0.contains(&Some(worker))
    }

    fn holders(&self) -> impl Iterator<Item = WorkerId> {
        self.0.iter().flatten().copied()
    }

    /// Adds a holder. If two holders are stored already, the new holder replaces one that is not the owner.
    fn add(&mut self, worker: WorkerId, owner: Option<WorkerId>) {
        if self.contains(worker) {
            return;
        }
        let free = self.0.iter().position(Option::is_none);
        if let Some(at) = free.or_else(|| self.0.iter().position(|holder| *holder != owner)) {
            self.0[at] = Some(worker);
        }
    }

    pub(super) fn remove(&mut self, worker: WorkerId) {
        self.0.iter_mut().filter(|holder| **holder == Some(worker)).for_each(|holder| *holder = None);
    }
}

impl ShuffleScheduler {
    pub(super) fn add_available_block(&mut self, id: BlockId) {
        let block = self.blocks.entry(id).or_insert_with(BlockEntry::new);
        block.released = false;
        if block.state == BlockState::AwaitingReads {
            block.state = BlockState::Waiting;
            self.waiting_blocks.insert(id);
        }
        // A worker that holds the slices of this block may have joined before the reads became available.
        self.release_finished_block(id);
    }

    /// Assigns waiting blocks to the workers that request blocks.
    pub(super) fn lease_blocks(&mut self, now: Duration) {
        if self.waiting_blocks.is_empty() {
            return;
        }
        let requesting = self.workers.iter().filter(|(_, worker)| worker.requested_blocks > 0);
        for id in requesting.map(|(id, _)| *id).collect::<Vec<_>>() {
            while let Some(block) = self.next_block_for(id) {
                self.lease_block(id, block, now);
            }
        }
    }

    fn next_block_for(&self, id: WorkerId) -> Option<BlockId> {
        let worker = self.workers.get(&id).filter(|worker| worker.requested_blocks > 0)?;
        let block = *self.waiting_blocks.first()?;
        // Until the genome is cut, a worker cannot pass on an aligned block, so each worker has at most one block. The
        // first block is an exception: it is assigned at once, because the genome is cut by it.
        let max_blocks = if self.owners.is_empty() { 1 } else { self.options.max_blocks_per_worker };
        let is_first = || self.owners.is_empty() && self.blocks.keys().next() == Some(&block);
        (worker.leased_blocks.len() < max_blocks || is_first()).then_some(block)
    }

    /// Assigns blocks that take too long to idle workers too.
    pub(super) fn lease_overdue_blocks(&mut self, now: Duration) {
        if !self.input_ended || !self.waiting_blocks.is_empty() {
            return;
        }
        let idle =
            self.workers.iter().filter(|(_, worker)| worker.requested_blocks > 0 && worker.leased_blocks.is_empty());
        for id in idle.map(|(id, _)| *id).collect::<Vec<_>>() {
            let Some(block) = self.longest_overdue_block(now) else { break };
            self.lease_block(id, block, now);
        }
    }

    /// Returns the block with the longest current lease, if that lease exceeds the limit for stragglers.
    fn longest_overdue_block(&self, now: Duration) -> Option<BlockId> {
        let mean = self.total_align_time.checked_div(self.timed_blocks)?;
        let limit = mean * self.options.straggler_factor;
        // This loop is short, because each worker has only a few leased blocks.
        let leased = self.workers.values().flat_map(|worker| &worker.leased_blocks).copied();
        let open = leased.filter(|id| self.blocks[id].state == BlockState::Leased);
        let alone = open.filter_map(|id| match &self.blocks[&id].leases[..] {
            [(_, since)] if now.saturating_sub(*since) > limit => Some((*since, id)),
            _ => None,
        });
        alone.min().map(|(_, id)| id)
    }

    fn lease_block(&mut self, id: WorkerId, block: BlockId, now: Duration) {
        self.waiting_blocks.remove(&block);
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.requested_blocks -= 1;
            worker.leased_blocks.insert(block);
        }
        if let Some(block) = self.blocks.get_mut(&block) {
            block.state = BlockState::Leased;
            self.stragglers += u64::from(!block.leases.is_empty());
            block.leases.push((id, now));
        }
        self.actions.push(ShuffleAction::AlignBlock(id, block));
    }

    pub(super) fn record_aligned_block(&mut self, worker: WorkerId, id: BlockId, now: Duration) {
        if !self.is_leased(worker, id) || self.owners.is_empty() {
            return;
        }
        let shares = self.owners.len();
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if let Some((_, since)) = block.leases.iter().find(|(leased, _)| *leased == worker) {
            self.total_align_time += now.saturating_sub(*since);
            self.timed_blocks += 1;
        }
        if block.state != BlockState::Aligned {
            block.state = BlockState::Aligned;
            self.aligned_blocks += 1;
        }
        block.slices.resize(shares, SliceHolders::default());
        for (slice, owner) in block.slices.iter_mut().zip(&self.owners) {
            slice.add(worker, *owner);
        }
        self.end_lease(worker, id);
        (0..shares).for_each(|share| self.update_missing_copy(id, ShardId(share as u16)));
        self.release_finished_block(id);
    }

    /// Records the slices of a block that a worker holds. The reads of the block need not be available.
    pub(super) fn record_held_slices(&mut self, worker: WorkerId, id: BlockId, shares: &[ShardId]) {
        if !self.workers.contains_key(&worker) {
            return;
        }
        let shard_count = self.owners.len();
        let known = |share: &&ShardId| shard_count == 0 || usize::from(share.0) < shard_count;
        let block = self.blocks.entry(id).or_insert_with(BlockEntry::new);
        for share in shares.iter().filter(known).map(|share| usize::from(share.0)) {
            if block.slices.len() <= share {
                block.slices.resize(share + 1, SliceHolders::default());
            }
            block.slices[share].add(worker, self.owners.get(share).copied().flatten());
        }
        if shard_count > 0 {
            self.update_held_block(id);
        }
    }

    /// Updates a block of which workers hold slices. If every slice has a holder, the block becomes aligned.
    pub(super) fn update_held_block(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        block.slices.resize(self.owners.len(), SliceHolders::default());
        let whole = block.slices.iter().all(|slice| slice.holders().next().is_some());
        if whole && block.state != BlockState::Aligned {
            // Mark reads that were never available as released, so that they are requested when they are needed.
            block.released |= block.state == BlockState::AwaitingReads;
            block.state = BlockState::Aligned;
            self.aligned_blocks += 1;
            self.waiting_blocks.remove(&id);
        }
        (0..self.owners.len()).for_each(|share| self.update_missing_copy(id, ShardId(share as u16)));
        self.release_finished_block(id);
    }

    /// Starts fetches of the slices that workers have to fetch.
    pub(super) fn start_fetches(&mut self, now: Duration) {
        for id in std::mem::take(&mut self.idle_fetchers) {
            if self.workers.get(&id).is_some_and(|worker| worker.retry_at > now) {
                self.idle_fetchers.insert(id);
                continue;
            }
            while let Some((block, shards, from)) = self.next_fetch(id) {
                let Some(worker) = self.workers.get_mut(&id) else { break };
                for share in &shards {
                    worker.slices_to_fetch.remove(&(block, *share));
                }
                worker.active_fetches.insert(block, shards.clone());
                self.actions.push(ShuffleAction::FetchSlices { worker: id, block, shards, from });
            }
        }
    }

    /// Returns a block, slices of it that a worker has to fetch, and another worker that holds these slices.
    fn next_fetch(&self, id: WorkerId) -> Option<(BlockId, Vec<ShardId>, WorkerId)> {
        let worker = self.workers.get(&id)?;
        if worker.active_fetches.len() >= self.options.max_fetches_per_worker {
            return None;
        }
        let (first, share) =
            *worker.slices_to_fetch.iter().find(|(block, _)| !worker.active_fetches.contains_key(block))?;
        let slices = &self.blocks[&first].slices;
        let from = slices[usize::from(share.0)].holders().find(|holder| *holder != id)?;
        let of_block = worker.slices_to_fetch.range((first, ShardId(0))..=(first, ShardId(u16::MAX)));
        let shares = of_block.map(|(_, share)| *share).filter(|share| slices[usize::from(share.0)].contains(from));
        Some((first, shares.collect(), from))
    }

    pub(super) fn record_fetched_slices(&mut self, id: WorkerId, block: BlockId) {
        let fetched = self.workers.get_mut(&id).and_then(|worker| worker.active_fetches.remove(&block));
        self.idle_fetchers.insert(id);
        for share in fetched.into_iter().flatten() {
            let owner = self.owners[usize::from(share.0)];
            if let Some(block) = self.blocks.get_mut(&block) {
                block.slices[usize::from(share.0)].add(id, owner);
            }
            self.update_missing_copy(block, share);
        }
        self.release_finished_block(block);
    }

    pub(super) fn record_fetch_failure(&mut self, id: WorkerId, block: BlockId, now: Duration) {
        let retry_at = now + self.options.fetch_retry_delay;
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.retry_at = retry_at;
        self.idle_fetchers.insert(id);
        for share in worker.active_fetches.remove(&block).into_iter().flatten() {
            self.update_missing_copy(block, share);
        }
    }

    /// Updates the missing copies of the slices of all blocks.
    pub(super) fn update_all_missing_copies(&mut self) {
        let held = self.blocks.iter().filter(|(_, block)| block.has_slices());
        let ids: Vec<BlockId> = held.map(|(id, _)| *id).collect();
        for id in ids {
            (0..self.owners.len()).for_each(|share| self.update_missing_copy(id, ShardId(share as u16)));
            self.release_finished_block(id);
        }
    }

    /// Updates whether one slice lacks a copy, and which worker has to fetch it.
    fn update_missing_copy(&mut self, id: BlockId, share: ShardId) {
        let key = (id, share);
        let missing = self.missing_copy_of(id, share);
        let before = self.missing_copies.get(&key).copied();
        if let Some(Some(fetcher)) = before
            && missing != Some(Some(fetcher))
            && let Some(worker) = self.workers.get_mut(&fetcher)
        {
            worker.slices_to_fetch.remove(&key);
        }
        let Some(block) = self.blocks.get_mut(&id) else { return };
        match (before.is_some(), missing) {
            (true, None) => {
                self.missing_copies.remove(&key);
                self.missing_by_shard[usize::from(share.0)] -= 1;
                block.missing_copies -= 1;
            }
            (was, Some(fetcher)) => {
                self.missing_copies.insert(key, fetcher);
                self.missing_by_shard[usize::from(share.0)] += usize::from(!was);
                block.missing_copies += u16::from(!was);
            }
            (false, None) => {}
        }
        match missing {
            Some(Some(fetcher)) => {
                let Some(worker) = self.workers.get_mut(&fetcher) else { return };
                let under_way = worker.active_fetches.get(&id).is_some_and(|shares| shares.contains(&share));
                if !under_way {
                    worker.slices_to_fetch.insert(key);
                    self.idle_fetchers.insert(fetcher);
                }
            }
            Some(None) => self.requeue_block(id, share),
            None => {}
        }
    }

    /// Returns `None` if the slice has enough copies, `Some(Some(worker))` if that worker has to fetch a copy, and
    /// `Some(None)` if no worker can fetch one.
    fn missing_copy_of(&self, id: BlockId, share: ShardId) -> Option<Option<WorkerId>> {
        if self.phase != Phase::Aligning && self.parts.is_shard_placed(share) {
            return None;
        }
        let slice = &self.blocks[&id].slices[usize::from(share.0)];
        let holders = slice.holders().count();
        let owner = self.owners[usize::from(share.0)];
        match owner {
            _ if holders == 0 => Some(None),
            Some(owner) if !slice.contains(owner) => Some(Some(owner)),
            Some(owner) if self.phase == Phase::Aligning && holders < COPIES_PER_SLICE.min(self.workers.len()) => {
                // Choose the next worker after the owner. This worker is the same for all shards of the owner, so it
                // can fetch their slices together.
                let mut after =
                    self.workers.range(owner..).skip(1).chain(self.workers.range(..owner)).map(|(id, _)| *id);
                after.find(|id| !slice.contains(*id)).map(Some)
            }
            Some(_) => None,
            None => Some(None),
        }
    }

    /// Requeues a block that has lost all copies of a slice. The first worker that requests work aligns the block
    /// again.
    fn requeue_block(&mut self, id: BlockId, share: ShardId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let gone = block.slices[usize::from(share.0)].holders().next().is_none();
        if !gone || block.state != BlockState::Aligned {
            return;
        }
        self.aligned_blocks -= 1;
        if !block.leases.is_empty() {
            block.state = BlockState::Leased;
        } else if block.released {
            block.state = BlockState::AwaitingReads;
            self.actions.push(ShuffleAction::ReloadReads(id));
        } else {
            block.state = BlockState::Waiting;
            self.waiting_blocks.insert(id);
        }
    }

    fn release_finished_block(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if block.state == BlockState::Aligned && block.missing_copies == 0 && !block.released && block.leases.is_empty()
        {
            block.released = true;
            self.actions.push(ShuffleAction::ReleaseReads(id));
        }
    }
}
