//! Parts of the output files. A part is written by the owner of its shard, and copied to its place in the files when
//! the sizes of all preceding parts are known.

use std::collections::{BTreeSet, HashMap};

use super::{PerFile, Phase, ShardId, ShuffleAction, ShuffleScheduler, WorkerId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Waiting,
    Writing(WorkerId),
    Written(WorkerId),
    Placing(WorkerId),
    Placed,
}

struct Part {
    shard: ShardId,
    state: PartState,
    /// Size in each file; `None` until the part is written. All workers write the same size.
    bytes: Option<PerFile<u64>>,
    /// Offset in each file; `None` until all preceding parts are written.
    offset: Option<PerFile<u64>>,
}

/// All parts of the output files, in the order of the files.
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    waiting_parts: BTreeSet<usize>,
    /// Indices of parts that are written, but not yet copied to the output files.
    unplaced_written_parts: BTreeSet<usize>,
    placed_count: usize,
    /// Number of parts of each shard that are not yet copied to the output files.
    unplaced_by_shard: Vec<usize>,
    /// Index of the first part whose size is not known, and its offset.
    next_unknown_offset: (usize, PerFile<u64>),
}

impl Parts {
    pub(super) fn new(shares: Vec<ShardId>) -> Self {
        let shard_count = shares.iter().map(|share| usize::from(share.0) + 1).max().unwrap_or(0);
        let mut unplaced_by_shard = vec![0; shard_count];
        shares.iter().for_each(|share| unplaced_by_shard[usize::from(share.0)] += 1);
        let part = |shard| Part { shard, state: PartState::Waiting, bytes: None, offset: None };
        let waiting_parts = (0..shares.len()).collect();
        let parts = shares.into_iter().map(part).collect();
        let mut all = Self { parts, waiting_parts, unplaced_by_shard, ..Self::default() };
        all.update_offsets();
        all
    }

    /// Returns whether all parts of a shard have been copied to the output files.
    pub(super) fn is_shard_placed(&self, share: ShardId) -> bool {
        !self.parts.is_empty() && self.unplaced_by_shard.get(usize::from(share.0)).is_none_or(|left| *left == 0)
    }

    /// Records the size of a written part. Returns false if an earlier write of the part had another size.
    pub(super) fn mark_written(&mut self, worker: WorkerId, at: usize, bytes: PerFile<u64>) -> bool {
        let Some(part) = self.parts.get_mut(at) else { return true };
        if part.state != PartState::Writing(worker) {
            return true;
        }
        part.state = PartState::Written(worker);
        let same = part.bytes.is_none_or(|before| before == bytes);
        part.bytes = Some(bytes);
        self.unplaced_written_parts.insert(at);
        self.update_offsets();
        same
    }

    pub(super) fn mark_placed(&mut self, worker: WorkerId, at: usize) {
        let Some(part) = self.parts.get_mut(at) else { return };
        if part.state == PartState::Placing(worker) {
            part.state = PartState::Placed;
            self.placed_count += 1;
            self.unplaced_by_shard[usize::from(part.shard.0)] -= 1;
        }
    }

    /// Removes a lost worker. Parts that this worker was writing or has not yet copied to the files wait for another
    /// worker.
    pub(super) fn remove_worker(&mut self, worker: WorkerId) {
        for (at, part) in self.parts.iter_mut().enumerate() {
            let owner = match part.state {
                PartState::Writing(owner) | PartState::Written(owner) | PartState::Placing(owner) => owner,
                PartState::Waiting | PartState::Placed => continue,
            };
            if owner == worker {
                part.state = PartState::Waiting;
                self.unplaced_written_parts.remove(&at);
                self.waiting_parts.insert(at);
            }
        }
    }

    fn update_offsets(&mut self) {
        let (mut at, mut offset) = self.next_unknown_offset;
        while let Some(part) = self.parts.get_mut(at) {
            part.offset = Some(offset);
            let Some(bytes) = part.bytes else { break };
            offset = offset.sum(bytes);
            at += 1;
        }
        self.next_unknown_offset = (at, offset);
    }
}

impl ShuffleScheduler {
    pub(super) fn schedule_writes(&mut self) {
        let (owners, share_lacking) = (&self.owners, &self.missing_by_shard);
        let mut room: HashMap<WorkerId, usize> =
            self.workers.iter().map(|(id, worker)| (*id, worker.writers)).collect();
        let parts = &mut self.parts;
        for part in &parts.parts {
            if let PartState::Writing(worker) = part.state
                && let Some(room) = room.get_mut(&worker)
            {
                *room = room.saturating_sub(1);
            }
        }
        let mut given = Vec::new();
        for at in &parts.waiting_parts {
            let share = usize::from(parts.parts[*at].shard.0);
            let Some(owner) = owners[share] else { continue };
            if let Some(room) = room.get_mut(&owner).filter(|room| **room > 0 && share_lacking[share] == 0) {
                *room -= 1;
                given.push((owner, *at));
            }
        }
        for (owner, at) in given {
            parts.waiting_parts.remove(&at);
            parts.parts[at].state = PartState::Writing(owner);
            self.actions.push(ShuffleAction::WritePart(owner, at));
        }
        let placeable = parts.unplaced_written_parts.iter().copied().filter(|at| parts.parts[*at].offset.is_some());
        for at in placeable.collect::<Vec<_>>() {
            let part = &mut parts.parts[at];
            if let (PartState::Written(worker), Some(offset)) = (part.state, part.offset) {
                part.state = PartState::Placing(worker);
                parts.unplaced_written_parts.remove(&at);
                self.actions.push(ShuffleAction::PlacePart(worker, at, offset));
            }
        }
        if parts.placed_count == parts.parts.len() {
            self.phase = Phase::Finished;
            self.actions.push(ShuffleAction::FinishJob);
        }
    }
}
