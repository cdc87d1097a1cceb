//! Who aligns which block, who holds which slice, who writes which part.
//!
//! The genome is cut into *shares*, each owned by one node. A block is aligned by whoever asks, which leaves one slice for
//! each share with that node. Owners then fetch their slices from where they are, and where the aligning node is the
//! owner itself another node fetches a second copy: a block is finished when two nodes hold every slice. Fetching
//! rather than sending lets every node take what it has room for, and makes losing a node no special case: what
//! lacks a copy is fetched from where there is one, and a block of which a slice is nowhere is aligned again.
//!
//! A node that comes (back) may have slices of blocks that were aligned before. Told of before the genome is cut, they decide
//! who owns what; a block of which every slice is somewhere need not be fed.
//!
//! Everything a node says counts only while it is known to live and to have been asked: a node that was given up joins
//! again under another [`NodeId`]. Bytes are the same whoever makes them, so that late ones do no harm.

mod blocks;
mod parts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use godwit_model::BlockId;
use serde::{Deserialize, Serialize};

use blocks::{Block, BlockState};
use parts::Parts;

/// A node, as long as it is connected. Numbers are never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// 0-based index of a share of the genome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Share(pub u16);

/// Files that parts go to, at most.
pub const FILES: usize = 2;
/// A number of bytes for each file, 0 where there is no such file.
pub type PerFile = [u64; FILES];

/// Limits.
#[derive(Clone, Copy, Debug)]
pub struct LedgerOptions {
    /// Blocks that a node may have at a time: one being read, one aligned, one sorted.
    pub blocks_per_node: usize,
    /// Fetches that a node has under way at a time.
    pub fetches_per_node: usize,
    /// A block that takes longer than this many times the mean is also given to another node with nothing to do.
    pub straggler_factor: u32,
    /// Time before a fetch that failed is tried again.
    pub retry_after: Duration,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self { blocks_per_node: 3, fetches_per_node: 4, straggler_factor: 3, retry_after: Duration::from_millis(500) }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node is there, which writes so many parts at a time.
    Joined {
        /// The node; a number that was never used before.
        node: NodeId,
        /// Parts it writes at a time.
        writers: usize,
    },
    /// A node is gone, or silent for too long.
    Lost(NodeId),
    /// A node has room for one more block.
    Wants(NodeId),
    /// The reads of a block can be had.
    Fed(BlockId),
    /// There are no more blocks than those that were fed.
    FeedEnded,
    /// The genome is cut into so many shares.
    Planned {
        /// Number of shares, at least one.
        shares: u16,
    },
    /// A node has aligned a block and holds all its slices; what else it says of the block has arrived.
    Aligned(NodeId, BlockId),
    /// A node has what it was to fetch of a block.
    Fetched(NodeId, BlockId),
    /// A node could not fetch that.
    FetchFailed(NodeId, BlockId),
    /// A node came with slices of a block that was aligned before: by it, or for an earlier head of the run.
    Held(NodeId, BlockId, Vec<Share>),
    /// Duplicates are decided; parts are to be written, in this order, each of one share. Once all of them are in the
    /// files it may come again: all parts are written anew.
    Decided(Vec<Share>),
    /// A node has written a part aside, of so many bytes.
    Written(NodeId, usize, PerFile),
    /// A part is in the files.
    Placed(NodeId, usize),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give a block to a node.
    Align(NodeId, BlockId),
    /// Let a node fetch slices of a block from another one.
    Fetch {
        /// Who fetches.
        node: NodeId,
        /// Of which block.
        block: BlockId,
        /// Which slices, ascending.
        shares: Vec<Share>,
        /// From whom.
        from: NodeId,
    },
    /// The reads of a block are not needed any more.
    Release(BlockId),
    /// The reads of a block that was released are needed again.
    Refeed(BlockId),
    /// All blocks are finished: decide duplicates.
    Decide,
    /// Let a node write a part aside.
    Write(NodeId, usize),
    /// Let a node put a part into the files, at these bytes behind the start of the first part.
    Place(NodeId, usize, PerFile),
    /// A part came out with another size than before: its bytes depend on who writes them, which must not be.
    Differs(usize),
    /// All parts are in the files.
    Finish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Aligning,
    Deciding,
    Writing,
    Finished,
}

struct Node {
    writers: usize,
    wants: usize,
    leased: BTreeSet<BlockId>,
    /// Slices it is to fetch.
    wanted: BTreeSet<(BlockId, Share)>,
    /// What it fetches, by block.
    fetching: BTreeMap<BlockId, Vec<Share>>,
    retry_at: Duration,
}

/// The state of a run.
pub struct Ledger {
    options: LedgerOptions,
    phase: Phase,
    nodes: BTreeMap<NodeId, Node>,
    /// Owner of each share; none before the genome is cut, or without a node.
    owners: Vec<Option<NodeId>>,
    blocks: BTreeMap<BlockId, Block>,
    /// Blocks that can be given to a node.
    waiting: BTreeSet<BlockId>,
    feed_ended: bool,
    /// Slices without their copies, and who is to fetch them; nobody where the block has to be aligned again.
    lacking: BTreeMap<(BlockId, Share), Option<NodeId>>,
    /// How many of these there are of each share.
    share_lacking: Vec<usize>,
    aligned: usize,
    align_time: Duration,
    align_times: u32,
    stragglers: u64,
    parts: Parts,
    actions: Vec<Action>,
}

impl Ledger {
    /// A run without blocks and nodes.
    pub fn new(options: LedgerOptions) -> Self {
        Self {
            options,
            phase: Phase::Aligning,
            nodes: BTreeMap::new(),
            owners: Vec::new(),
            blocks: BTreeMap::new(),
            waiting: BTreeSet::new(),
            feed_ended: false,
            lacking: BTreeMap::new(),
            share_lacking: Vec::new(),
            aligned: 0,
            align_time: Duration::ZERO,
            align_times: 0,
            stragglers: 0,
            parts: Parts::default(),
            actions: Vec::new(),
        }
    }

    /// Takes an event at a time since the start of the run; returns what is to be done now, in order.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        self.take(event, now);
        self.go_on(now)
    }

    /// What has to be done because time went by.
    pub fn tick(&mut self, now: Duration) -> Vec<Action> {
        self.go_on(now)
    }

    /// Nodes that live.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Blocks that wait for a node.
    pub fn waiting_blocks(&self) -> usize {
        self.waiting.len()
    }

    /// Blocks that are aligned, each counted once.
    pub fn aligned_blocks(&self) -> usize {
        self.aligned
    }

    /// Whether a block is aligned, so that its reads are not needed.
    pub fn has_aligned(&self, block: BlockId) -> bool {
        self.blocks.get(&block).is_some_and(|block| block.state == BlockState::Aligned)
    }

    /// Whether a node has been asked to align a block and has not answered.
    pub fn is_leased(&self, node: NodeId, block: BlockId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.leased.contains(&block))
    }

    /// Owner of each share.
    pub fn owners(&self) -> &[Option<NodeId>] {
        &self.owners
    }

    /// How many times a block was given to a second node because the first one took long.
    pub fn stragglers(&self) -> u64 {
        self.stragglers
    }

    /// Slices that lack a copy where one should be.
    pub fn lacking_slices(&self) -> usize {
        self.lacking.len()
    }

    fn take(&mut self, event: Event, now: Duration) {
        match event {
            Event::Joined { node, writers } => self.join(node, writers.max(1)),
            Event::Lost(node) => self.lose(node),
            Event::Wants(node) => {
                if let Some(node) = self.nodes.get_mut(&node) {
                    node.wants += 1;
                }
            }
            Event::Fed(block) => self.fed(block),
            Event::FeedEnded => self.feed_ended = true,
            Event::Planned { shares } => self.plan(shares),
            Event::Aligned(node, block) => self.take_aligned(node, block, now),
            Event::Fetched(node, block) => self.take_fetched(node, block),
            Event::FetchFailed(node, block) => self.take_failed(node, block, now),
            Event::Held(node, block, shares) => self.take_held(node, block, &shares),
            Event::Decided(shares) if matches!(self.phase, Phase::Deciding | Phase::Finished) => {
                self.parts = Parts::new(shares);
                self.phase = Phase::Writing;
                // Nobody looked after slices whose parts were in the files.
                self.refresh_all();
            }
            Event::Written(node, part, bytes) => {
                if !self.parts.written(node, part, bytes) {
                    self.actions.push(Action::Differs(part));
                }
            }
            Event::Placed(node, part) => self.parts.placed(node, part),
            Event::Decided(_) => {}
        }
    }

    fn go_on(&mut self, now: Duration) -> Vec<Action> {
        self.lease(now);
        self.fetch(now);
        if self.phase == Phase::Aligning && self.is_aligned() {
            self.phase = Phase::Deciding;
            self.actions.push(Action::Decide);
        }
        if self.phase == Phase::Writing {
            self.write();
        }
        std::mem::take(&mut self.actions)
    }

    fn is_aligned(&self) -> bool {
        self.feed_ended && self.aligned == self.blocks.len() && self.lacking.is_empty()
    }

    fn join(&mut self, id: NodeId, writers: usize) {
        let node = Node {
            writers,
            wants: 0,
            leased: BTreeSet::new(),
            wanted: BTreeSet::new(),
            fetching: BTreeMap::new(),
            retry_at: Duration::ZERO,
        };
        self.nodes.insert(id, node);
        let orphans: Vec<usize> = (0..self.owners.len()).filter(|share| self.owners[*share].is_none()).collect();
        orphans.into_iter().for_each(|share| self.owners[share] = Some(id));
        // There is somebody now who owns what nobody owned, or who can have a second copy.
        if self.nodes.len() <= 2 {
            self.refresh_all();
        }
    }

    fn lose(&mut self, id: NodeId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        for block in node.leased {
            self.end_lease(id, block);
        }
        self.parts.lose(id);
        for share in 0..self.owners.len() {
            if self.owners[share] == Some(id) {
                self.owners[share] = self.least_owner();
            }
        }
        for block in self.blocks.values_mut() {
            block.slices.iter_mut().for_each(|slice| slice.remove(id));
        }
        self.refresh_all();
    }

    /// The node that owns the fewest shares.
    fn least_owner(&self) -> Option<NodeId> {
        let owned = |id: NodeId| self.owners.iter().filter(|owner| **owner == Some(id)).count();
        self.nodes.keys().copied().min_by_key(|id| (owned(*id), *id))
    }

    fn plan(&mut self, shares: u16) {
        if !self.owners.is_empty() {
            return;
        }
        self.owners = self.first_owners(usize::from(shares));
        self.share_lacking = vec![0; usize::from(shares)];
        let held: Vec<BlockId> = self.blocks.iter().filter(|(_, block)| block.is_held()).map(|(id, _)| *id).collect();
        held.into_iter().for_each(|id| self.settle(id));
    }

    /// Owners of the shares at the start: neighbours go to one node; but a share goes to the node that holds the most of it,
    /// unless that node has its part of all shares.
    fn first_owners(&self, shares: usize) -> Vec<Option<NodeId>> {
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let fair = shares.div_ceil(nodes.len().max(1));
        let mut owned: BTreeMap<NodeId, usize> = nodes.iter().map(|id| (*id, 0)).collect();
        let mut held: BTreeMap<(usize, NodeId), usize> = BTreeMap::new();
        self.blocks.values().flat_map(Block::holders).for_each(|slice| *held.entry(slice).or_default() += 1);
        let owner = |share: usize| {
            let held = |id: &NodeId| held.get(&(share, *id)).copied().unwrap_or(0);
            let most = nodes.iter().filter(|id| owned[*id] < fair).map(|id| (held(id), std::cmp::Reverse(*id))).max();
            let owner = match most {
                Some((held, std::cmp::Reverse(id))) if held > 0 => Some(id),
                _ => nodes.get(share * nodes.len() / shares).copied(),
            };
            owner.inspect(|id| *owned.entry(*id).or_default() += 1)
        };
        (0..shares).map(owner).collect()
    }
}

impl Ledger {
    fn end_lease(&mut self, node: NodeId, id: BlockId) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.leased.remove(&id);
        }
        let Some(block) = self.blocks.get_mut(&id) else { return };
        block.leases.retain(|(leased, _)| *leased != node);
        if block.leases.is_empty() && block.state == BlockState::Leased {
            block.state = BlockState::Waiting;
            self.waiting.insert(id);
        }
    }
}
