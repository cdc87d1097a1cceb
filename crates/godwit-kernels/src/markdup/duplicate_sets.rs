//! Duplicate sets with their members, for the tags `DI` and `DS` (`TAG_DUPLICATE_SET_MEMBERS`).

use std::collections::HashMap;

use bytemuck::{Pod, Zeroable};
use godwit_model::{BlockId, RecordId};

use super::record_set::RecordSet;

/// A set of two or more duplicate pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DuplicateSet {
    /// The leading record of the best pair.
    pub representative: RecordId,
    /// Index of that record in the marked file: `DI`. 32 bits, as Picard's.
    pub index: i32,
    /// Number of pairs: `DS`.
    pub pairs: u32,
}

/// The sets and their members, held in memory: 8 bytes for each member, 16 for each set.
#[derive(Clone, Debug, Default)]
pub struct DuplicateSets {
    sets: Vec<DuplicateSet>,
    members: HashMap<BlockId, Vec<SetMember>>,
}

/// Index of a record in its block, and index of its set.
pub type SetMember = [u32; 2];

impl DuplicateSets {
    /// Adds a set and returns its index.
    pub(super) fn add(&mut self, representative: RecordId, pairs: usize) -> u32 {
        self.sets.push(DuplicateSet { representative, index: 0, pairs: pairs as u32 });
        self.sets.len() as u32 - 1
    }

    /// Adds a record to a set.
    pub(super) fn add_member(&mut self, record: RecordId, set: u32) {
        self.members.entry(record.block()).or_default().push([record.index(), set]);
    }

    /// Ends the input and sorts the members for lookups.
    pub(super) fn finish(&mut self) {
        self.members.values_mut().for_each(|members| members.sort_unstable());
    }

    /// Sets every set's index to the file index of its representative.
    pub fn set_indices(&mut self, file_index_of: impl Fn(RecordId) -> u64) {
        // Picard stores the index in a Java `int`.
        self.sets.iter_mut().for_each(|set| set.index = file_index_of(set.representative) as i32);
    }

    /// Returns the set of all representatives.
    pub fn representatives(&self) -> RecordSet {
        let mut bits = RecordSet::default();
        self.sets.iter().for_each(|set| bits.insert(set.representative));
        bits
    }

    /// Returns the members in one block, for [`DuplicateSets::set_of_record`].
    pub fn block_members(&self, block: BlockId) -> &[SetMember] {
        self.members.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Returns the set of the record with this index, from the members of its block.
    pub fn set_of_record(&self, block_members: &[SetMember], index: u32) -> Option<&DuplicateSet> {
        let at = block_members.binary_search_by_key(&index, |[record, _]| *record).ok()?;
        self.sets.get(block_members[at][1] as usize)
    }

    /// Returns all sets.
    pub fn sets(&self) -> &[DuplicateSet] {
        &self.sets
    }

    /// Iterates over the blocks that have members, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[SetMember])> {
        self.members.iter().map(|(block, members)| (*block, members.as_slice()))
    }

    /// Creates the sets from received ones, with their members in order.
    pub fn from_blocks(sets: Vec<DuplicateSet>, blocks: impl IntoIterator<Item = (BlockId, Vec<SetMember>)>) -> Self {
        Self { sets, members: blocks.into_iter().collect() }
    }
}
