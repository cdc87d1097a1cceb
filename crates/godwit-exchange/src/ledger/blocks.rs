//! Blocks: fed, leased, aligned, their slices fetched, finished.

use std::time::Duration;

use godwit_model::BlockId;

use super::{Action, Ledger, NodeId, Phase, Share};

/// Copies of a slice that are looked after, where there are so many nodes.
const COPIES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// Its reads were released and are asked for again.
    Unfed,
    Waiting,
    Leased,
    Aligned,
}

pub(super) struct Block {
    pub(super) state: BlockState,
    /// To whom it is given, since when.
    pub(super) leases: Vec<(NodeId, Duration)>,
    /// One for each share, once it was aligned.
    pub(super) slices: Vec<Slice>,
    /// Slices that lack a copy.
    lacking: u16,
    released: bool,
}

impl Block {
    fn new() -> Self {
        Self { state: BlockState::Unfed, leases: Vec::new(), slices: Vec::new(), lacking: 0, released: false }
    }

    /// Whether some node may have something of it.
    pub(super) fn is_held(&self) -> bool {
        !self.slices.is_empty()
    }

    /// Each share and who holds a slice of it.
    pub(super) fn holders(&self) -> impl Iterator<Item = (usize, NodeId)> {
        self.slices.iter().enumerate().flat_map(|(share, slice)| slice.holders().map(move |node| (share, node)))
    }
}

/// Who holds a slice. Of more than two only two are remembered.
#[derive(Clone, Copy, Default)]
pub(super) struct Slice([Option<NodeId>; COPIES]);

impl Slice {
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.0.contains(&Some(node))
    }

    fn holders(&self) -> impl Iterator<Item = NodeId> {
        self.0.iter().flatten().copied()
    }

    /// Remembers a holder, instead of one that is not the owner where there are two already.
    fn add(&mut self, node: NodeId, owner: Option<NodeId>) {
        if self.has(node) {
            return;
        }
        let free = self.0.iter().position(Option::is_none);
        if let Some(at) = free.or_else(|| self.0.iter().position(|holder| *holder != owner)) {
            self.0[at] = Some(node);
        }
    }

    pub(super) fn remove(&mut self, node: NodeId) {
        self.0.iter_mut().filter(|holder| **holder == Some(node)).for_each(|holder| *holder = None);
    }
}

impl Ledger {
    pub(super) fn fed(&mut self, id: BlockId) {
        let block = self.blocks.entry(id).or_insert_with(Block::new);
        block.released = false;
        if block.state == BlockState::Unfed {
            block.state = BlockState::Waiting;
            self.waiting.insert(id);
        }
        // Somebody may have come with it meanwhile.
        self.release_finished(id);
    }

    /// Gives blocks to those who want one.
    pub(super) fn lease(&mut self, now: Duration) {
        let ids: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| node.wants > 0).map(|(id, _)| *id).collect();
        for id in ids {
            while self.nodes[&id].wants > 0 {
                let Some(block) = self.block_for(id, now) else { break };
                self.give(id, block, now);
            }
        }
    }

    fn block_for(&self, id: NodeId, now: Duration) -> Option<BlockId> {
        let node = &self.nodes[&id];
        // Before the genome is cut nobody can pass on what is aligned: one block each, but the first one at once.
        let most = if self.owners.is_empty() { 1 } else { self.options.blocks_per_node };
        let next = self.waiting.first().copied();
        let is_first = |block: BlockId| self.owners.is_empty() && self.blocks.keys().next() == Some(&block);
        match next {
            Some(block) if node.leased.len() < most || is_first(block) => Some(block),
            Some(_) => None,
            None if self.feed_ended && node.leased.is_empty() => self.straggler(now),
            None => None,
        }
    }

    /// The block that is out for the longest time, if that is too long.
    fn straggler(&self, now: Duration) -> Option<BlockId> {
        let mean = self.align_time.checked_div(self.align_times)?;
        let limit = mean * self.options.straggler_factor;
        // Those that are out are at most a few for each node.
        let leased = self.nodes.values().flat_map(|node| &node.leased).copied();
        let open = leased.filter(|id| self.blocks[id].state == BlockState::Leased);
        let alone = open.filter_map(|id| match &self.blocks[&id].leases[..] {
            [(_, since)] if now.saturating_sub(*since) > limit => Some((*since, id)),
            _ => None,
        });
        alone.min().map(|(_, id)| id)
    }

    fn give(&mut self, id: NodeId, block: BlockId, now: Duration) {
        self.waiting.remove(&block);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.wants -= 1;
            node.leased.insert(block);
        }
        if let Some(block) = self.blocks.get_mut(&block) {
            block.state = BlockState::Leased;
            self.stragglers += u64::from(!block.leases.is_empty());
            block.leases.push((id, now));
        }
        self.actions.push(Action::Align(id, block));
    }

    pub(super) fn take_aligned(&mut self, node: NodeId, id: BlockId, now: Duration) {
        if !self.is_leased(node, id) || self.owners.is_empty() {
            return;
        }
        let shares = self.owners.len();
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if let Some((_, since)) = block.leases.iter().find(|(leased, _)| *leased == node) {
            self.align_time += now.saturating_sub(*since);
            self.align_times += 1;
        }
        if block.state != BlockState::Aligned {
            block.state = BlockState::Aligned;
            self.aligned += 1;
        }
        block.slices.resize(shares, Slice::default());
        for (slice, owner) in block.slices.iter_mut().zip(&self.owners) {
            slice.add(node, *owner);
        }
        self.end_lease(node, id);
        (0..shares).for_each(|share| self.refresh(id, Share(share as u16)));
        self.release_finished(id);
    }

    /// Takes what a node has of a block; the block may be one that is not fed yet, or never will be.
    pub(super) fn take_held(&mut self, node: NodeId, id: BlockId, shares: &[Share]) {
        if !self.nodes.contains_key(&node) {
            return;
        }
        let of_owners = self.owners.len();
        let known = |share: &&Share| of_owners == 0 || usize::from(share.0) < of_owners;
        let block = self.blocks.entry(id).or_insert_with(Block::new);
        for share in shares.iter().filter(known).map(|share| usize::from(share.0)) {
            if block.slices.len() <= share {
                block.slices.resize(share + 1, Slice::default());
            }
            block.slices[share].add(node, self.owners.get(share).copied().flatten());
        }
        if of_owners > 0 {
            self.settle(id);
        }
    }

    /// Looks again at a block of which nodes brought slices: where all of them are somewhere it is aligned.
    pub(super) fn settle(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        block.slices.resize(self.owners.len(), Slice::default());
        let whole = block.slices.iter().all(|slice| slice.holders().next().is_some());
        if whole && block.state != BlockState::Aligned {
            // Reads that were never there cannot be had again without being fed.
            block.released |= block.state == BlockState::Unfed;
            block.state = BlockState::Aligned;
            self.aligned += 1;
            self.waiting.remove(&id);
        }
        (0..self.owners.len()).for_each(|share| self.refresh(id, Share(share as u16)));
        self.release_finished(id);
    }

    /// Lets nodes fetch what they lack.
    pub(super) fn fetch(&mut self, now: Duration) {
        let ready = |node: &super::Node, most: usize| {
            !node.wanted.is_empty() && node.fetching.len() < most && node.retry_at <= now
        };
        let most = self.options.fetches_per_node;
        let ids: Vec<NodeId> = self.nodes.iter().filter(|(_, node)| ready(node, most)).map(|(id, _)| *id).collect();
        for id in ids {
            while let Some((block, shares, from)) = self.next_fetch(id) {
                let Some(node) = self.nodes.get_mut(&id) else { break };
                node.wanted.retain(|(wanted, share)| *wanted != block || !shares.contains(share));
                node.fetching.insert(block, shares.clone());
                self.actions.push(Action::Fetch { node: id, block, shares, from });
            }
        }
    }

    /// Slices of one block that a node lacks and one other node has.
    fn next_fetch(&self, id: NodeId) -> Option<(BlockId, Vec<Share>, NodeId)> {
        let node = &self.nodes[&id];
        if node.fetching.len() >= self.options.fetches_per_node {
            return None;
        }
        let (first, share) = *node.wanted.iter().find(|(block, _)| !node.fetching.contains_key(block))?;
        let slices = &self.blocks[&first].slices;
        let from = slices[usize::from(share.0)].holders().find(|holder| *holder != id)?;
        let of_block = node.wanted.range((first, Share(0))..=(first, Share(u16::MAX)));
        let shares = of_block.map(|(_, share)| *share).filter(|share| slices[usize::from(share.0)].has(from));
        Some((first, shares.collect(), from))
    }

    pub(super) fn take_fetched(&mut self, id: NodeId, block: BlockId) {
        let fetched = self.nodes.get_mut(&id).and_then(|node| node.fetching.remove(&block));
        for share in fetched.into_iter().flatten() {
            let owner = self.owners[usize::from(share.0)];
            if let Some(block) = self.blocks.get_mut(&block) {
                block.slices[usize::from(share.0)].add(id, owner);
            }
            self.refresh(block, share);
        }
        self.release_finished(block);
    }

    pub(super) fn take_failed(&mut self, id: NodeId, block: BlockId, now: Duration) {
        let retry_at = now + self.options.retry_after;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.retry_at = retry_at;
        for share in node.fetching.remove(&block).into_iter().flatten() {
            self.refresh(block, share);
        }
    }

    /// Looks again at who has to have what.
    pub(super) fn refresh_all(&mut self) {
        let held = self.blocks.iter().filter(|(_, block)| block.is_held());
        let ids: Vec<BlockId> = held.map(|(id, _)| *id).collect();
        for id in ids {
            (0..self.owners.len()).for_each(|share| self.refresh(id, Share(share as u16)));
            self.release_finished(id);
        }
    }

    /// Looks again at who has to have one slice.
    fn refresh(&mut self, id: BlockId, share: Share) {
        let key = (id, share);
        let lack = self.lack_of(id, share);
        let before = self.lacking.get(&key).copied();
        if let Some(Some(fetcher)) = before
            && lack != Some(Some(fetcher))
            && let Some(node) = self.nodes.get_mut(&fetcher)
        {
            node.wanted.remove(&key);
        }
        let Some(block) = self.blocks.get_mut(&id) else { return };
        match (before.is_some(), lack) {
            (true, None) => {
                self.lacking.remove(&key);
                self.share_lacking[usize::from(share.0)] -= 1;
                block.lacking -= 1;
            }
            (was, Some(fetcher)) => {
                self.lacking.insert(key, fetcher);
                self.share_lacking[usize::from(share.0)] += usize::from(!was);
                block.lacking += u16::from(!was);
            }
            (false, None) => {}
        }
        match lack {
            Some(Some(fetcher)) => {
                let Some(node) = self.nodes.get_mut(&fetcher) else { return };
                let under_way = node.fetching.get(&id).is_some_and(|shares| shares.contains(&share));
                if !under_way {
                    node.wanted.insert(key);
                }
            }
            Some(None) => self.align_again(id, share),
            None => {}
        }
    }

    /// Who has to fetch a slice; nobody can where no node has it; `None` where it has its copies.
    fn lack_of(&self, id: BlockId, share: Share) -> Option<Option<NodeId>> {
        if self.phase != Phase::Aligning && self.parts.is_share_placed(share) {
            return None;
        }
        let slice = &self.blocks[&id].slices[usize::from(share.0)];
        let holders = slice.holders().count();
        let owner = self.owners[usize::from(share.0)];
        match owner {
            _ if holders == 0 => Some(None),
            Some(owner) if !slice.has(owner) => Some(Some(owner)),
            Some(owner) if self.phase == Phase::Aligning && holders < COPIES.min(self.nodes.len()) => {
                // The next node after the owner; shares of one owner go to one buddy, so that it fetches them at once.
                let mut after = self.nodes.range(owner..).skip(1).chain(self.nodes.range(..owner)).map(|(id, _)| *id);
                after.find(|id| !slice.has(*id)).map(Some)
            }
            Some(_) => None,
            None => Some(None),
        }
    }

    /// A slice that no node has: the block is aligned once more, by whoever asks first.
    fn align_again(&mut self, id: BlockId, share: Share) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        let gone = block.slices[usize::from(share.0)].holders().next().is_none();
        if !gone || block.state != BlockState::Aligned {
            return;
        }
        self.aligned -= 1;
        if !block.leases.is_empty() {
            block.state = BlockState::Leased;
        } else if block.released {
            block.state = BlockState::Unfed;
            self.actions.push(Action::Refeed(id));
        } else {
            block.state = BlockState::Waiting;
            self.waiting.insert(id);
        }
    }

    fn release_finished(&mut self, id: BlockId) {
        let Some(block) = self.blocks.get_mut(&id) else { return };
        if block.state == BlockState::Aligned && block.lacking == 0 && !block.released && block.leases.is_empty() {
            block.released = true;
            self.actions.push(Action::Release(id));
        }
    }
}
