//! Parts of the files: written aside by the owners of their shares, placed when the sizes of all before them are known.

use std::collections::BTreeSet;

use super::{Action, FILES, Ledger, NodeId, PerFile, Phase, Share};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartState {
    Waiting,
    Writing(NodeId),
    Written(NodeId),
    Placing(NodeId),
    Placed,
}

struct Part {
    share: Share,
    state: PartState,
    /// Once it was written; the same whoever writes it.
    bytes: Option<PerFile>,
    /// Once all before it were written.
    offset: Option<PerFile>,
}

/// All parts, in the order of the files.
#[derive(Default)]
pub(super) struct Parts {
    parts: Vec<Part>,
    waiting: BTreeSet<usize>,
    /// Written, but not in the files yet.
    written: BTreeSet<usize>,
    placed: usize,
    /// Parts of each share that are not placed.
    unplaced: Vec<usize>,
    /// Parts whose offsets are known, and where the next one starts.
    known: (usize, PerFile),
}

impl Parts {
    pub(super) fn new(shares: Vec<Share>) -> Self {
        let most = shares.iter().map(|share| usize::from(share.0) + 1).max().unwrap_or(0);
        let mut unplaced = vec![0; most];
        shares.iter().for_each(|share| unplaced[usize::from(share.0)] += 1);
        let part = |share| Part { share, state: PartState::Waiting, bytes: None, offset: None };
        let waiting = (0..shares.len()).collect();
        let parts = shares.into_iter().map(part).collect();
        let mut all = Self { parts, waiting, unplaced, ..Self::default() };
        all.find_offsets();
        all
    }

    /// Whether nothing of a share is left to be written.
    pub(super) fn is_share_placed(&self, share: Share) -> bool {
        !self.parts.is_empty() && self.unplaced.get(usize::from(share.0)).is_none_or(|left| *left == 0)
    }

    /// False where the size is another one than before.
    pub(super) fn written(&mut self, node: NodeId, at: usize, bytes: PerFile) -> bool {
        let Some(part) = self.parts.get_mut(at) else { return true };
        if part.state != PartState::Writing(node) {
            return true;
        }
        part.state = PartState::Written(node);
        let same = part.bytes.is_none_or(|before| before == bytes);
        part.bytes = Some(bytes);
        self.written.insert(at);
        self.find_offsets();
        same
    }

    pub(super) fn placed(&mut self, node: NodeId, at: usize) {
        let Some(part) = self.parts.get_mut(at) else { return };
        if part.state == PartState::Placing(node) {
            part.state = PartState::Placed;
            self.placed += 1;
            self.unplaced[usize::from(part.share.0)] -= 1;
        }
    }

    /// What a node did not bring into the files has to be done by another one.
    pub(super) fn lose(&mut self, node: NodeId) {
        for (at, part) in self.parts.iter_mut().enumerate() {
            let owner = match part.state {
                PartState::Writing(owner) | PartState::Written(owner) | PartState::Placing(owner) => owner,
                PartState::Waiting | PartState::Placed => continue,
            };
            if owner == node {
                part.state = PartState::Waiting;
                self.written.remove(&at);
                self.waiting.insert(at);
            }
        }
    }

    fn find_offsets(&mut self) {
        let (mut at, mut offset) = self.known;
        while let Some(part) = self.parts.get_mut(at) {
            part.offset = Some(offset);
            let Some(bytes) = part.bytes else { break };
            offset = std::array::from_fn::<_, FILES, _>(|file| offset[file] + bytes[file]);
            at += 1;
        }
        self.known = (at, offset);
    }

    fn writing(&self, node: NodeId) -> usize {
        self.parts.iter().filter(|part| part.state == PartState::Writing(node)).count()
    }
}

impl Ledger {
    pub(super) fn write(&mut self) {
        let (owners, share_lacking) = (&self.owners, &self.share_lacking);
        let mut room: std::collections::BTreeMap<NodeId, usize> =
            self.nodes.iter().map(|(id, node)| (*id, node.writers.saturating_sub(self.parts.writing(*id)))).collect();
        let parts = &mut self.parts;
        let mut given = Vec::new();
        for at in &parts.waiting {
            let share = usize::from(parts.parts[*at].share.0);
            let Some(owner) = owners[share] else { continue };
            if let Some(room) = room.get_mut(&owner).filter(|room| **room > 0 && share_lacking[share] == 0) {
                *room -= 1;
                given.push((owner, *at));
            }
        }
        for (owner, at) in given {
            parts.waiting.remove(&at);
            parts.parts[at].state = PartState::Writing(owner);
            self.actions.push(Action::Write(owner, at));
        }
        let placeable = parts.written.iter().copied().filter(|at| parts.parts[*at].offset.is_some());
        for at in placeable.collect::<Vec<_>>() {
            let part = &mut parts.parts[at];
            if let (PartState::Written(node), Some(offset)) = (part.state, part.offset) {
                part.state = PartState::Placing(node);
                parts.written.remove(&at);
                self.actions.push(Action::Place(node, at, offset));
            }
        }
        if parts.placed == parts.parts.len() {
            self.phase = Phase::Finished;
            self.actions.push(Action::Finish);
        }
    }
}
