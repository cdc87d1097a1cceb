//! Duplicate sets by their members, for the tags `DI` and `DS` (`TAG_DUPLICATE_SET_MEMBERS`).

use std::collections::HashMap;

use bytemuck::{Pod, Zeroable};
use godwit_model::{BlockId, RecordId};

use super::verdicts::Verdicts;

/// A set of two duplicate pairs or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DuplicateSet {
    /// The record of the best pair that leads.
    pub representative: RecordId,
    /// Where that record lies in the file that was marked: `DI`. 32 bits, as Picard's.
    pub index: i32,
    /// Number of pairs: `DS`.
    pub pairs: u32,
}

/// The sets, and which record belongs to which of them. Held whole: 8 bytes for each member, 16 for each set.
#[derive(Clone, Debug, Default)]
pub struct DuplicateSets {
    sets: Vec<DuplicateSet>,
    members: HashMap<BlockId, Vec<SetMember>>,
}

/// Index of a record in its block, and that of its set.
pub type SetMember = [u32; 2];

impl DuplicateSets {
    /// Adds a set and returns its index.
    pub(super) fn add(&mut self, representative: RecordId, pairs: usize) -> u32 {
        self.sets.push(DuplicateSet { representative, index: 0, pairs: pairs as u32 });
        self.sets.len() as u32 - 1
    }

    /// Adds a record to a set.
    pub(super) fn join(&mut self, record: RecordId, set: u32) {
        self.members.entry(record.block()).or_default().push([record.index(), set]);
    }

    /// Ends the input: members can be looked up.
    pub(super) fn finish(&mut self) {
        self.members.values_mut().for_each(|members| members.sort_unstable());
    }

    /// Sets every set's index to what `place` says of its representative.
    pub fn number(&mut self, place: impl Fn(RecordId) -> u64) {
        // Picard keeps the place in a Java `int`.
        self.sets.iter_mut().for_each(|set| set.index = place(set.representative) as i32);
    }

    /// A bit for each representative.
    pub fn representatives(&self) -> Verdicts {
        let mut bits = Verdicts::default();
        self.sets.iter().for_each(|set| bits.mark(set.representative));
        bits
    }

    /// The members in one block, for [`DuplicateSets::of`].
    pub fn of_block(&self, block: BlockId) -> &[SetMember] {
        self.members.get(&block).map_or(&[], Vec::as_slice)
    }

    /// The set of the record with this index, from the members of its block.
    pub fn of(&self, block_members: &[SetMember], index: u32) -> Option<&DuplicateSet> {
        let at = block_members.binary_search_by_key(&index, |[record, _]| *record).ok()?;
        self.sets.get(block_members[at][1] as usize)
    }

    /// All sets.
    pub fn sets(&self) -> &[DuplicateSet] {
        &self.sets
    }

    /// The members in every block that has some, in no order of blocks.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[SetMember])> {
        self.members.iter().map(|(block, members)| (*block, members.as_slice()))
    }

    /// Sets that were told elsewhere, with their members in order.
    pub fn from_blocks(sets: Vec<DuplicateSet>, blocks: impl IntoIterator<Item = (BlockId, Vec<SetMember>)>) -> Self {
        Self { sets, members: blocks.into_iter().collect() }
    }
}
