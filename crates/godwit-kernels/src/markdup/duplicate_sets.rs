//! Duplicate sets and their members, for the tags `DI` and `DS` (option `TAG_DUPLICATE_SET_MEMBERS` of Picard).

use std::collections::HashMap;

use bytemuck::{Pod, Zeroable};
use godwit_model::{BlockId, RecordId};

use super::record_set::RecordSet;

/// A set of two or more duplicate pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct DuplicateSet {
    /// The first record of the best pair of the set.
    pub representative: RecordId,
    /// Index of `representative` in the marked file: the value of `DI`, with 32 bits as in Picard.
    pub index: i32,
    /// Number of pairs of the set: the value of `DS`.
    pub pairs: u32,
}

/// All duplicate sets and their members. Memory: 8 bytes for each member record and 16 bytes for each set.
#[derive(Clone, Debug, Default)]
pub struct DuplicateSets {
    sets: Vec<DuplicateSet>,
    members: HashMap<BlockId, Vec<SetMember>>,
}

/// Index of a record in its block, and index of the duplicate set that the record belongs to.
pub type SetMember = [u32; 2];

impl DuplicateSets {
    /// Adds a duplicate set and returns the index of the set.
    pub(super) fn add(&mut self, representative: RecordId, pairs: usize) -> u32 {
        self.sets.push(DuplicateSet { representative, index: 0, pairs: pairs as u32 });
        self.sets.len() as u32 - 1
    }

    /// Adds a record to the set with this index.
    pub(super) fn add_member(&mut self, record: RecordId, set: u32) {
        self.members.entry(record.block()).or_default().push([record.index(), set]);
    }

    /// Appends sets with other members; their indices follow those of the present sets.
    pub(super) fn append(&mut self, sets: Self) {
        let first = self.sets.len() as u32;
        self.sets.extend(sets.sets);
        for (block, members) in sets.members {
            let renumbered = members.into_iter().map(|[record, set]| [record, first + set]);
            self.members.entry(block).or_default().extend(renumbered);
        }
    }

    /// Ends the input and sorts the members for lookups.
    pub(super) fn finish(&mut self) {
        self.members.values_mut().for_each(|members| members.sort_unstable());
    }

    /// Sets the `index` of every set to the index of its representative in the marked file, which `file_index_of`
    /// returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::{DuplicateSet, DuplicateSets};
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 0 };
    /// let set = DuplicateSet { representative: block.record(2), index: 0, pairs: 2 };
    /// let mut sets = DuplicateSets::from_blocks(vec![set], [(block, vec![[2, 0], [8, 0]])]);
    /// // The first record of the block has the index 5,000 in the marked file.
    /// sets.set_indices(|record| 5_000 + u64::from(record.index()));
    /// assert_eq!(sets.sets()[0].index, 5_002);
    /// ```
    pub fn set_indices(&mut self, file_index_of: impl Fn(RecordId) -> u64) {
        // Picard stores this index in a Java `int`.
        self.sets.iter_mut().for_each(|set| set.index = file_index_of(set.representative) as i32);
    }

    /// Returns the representatives of all sets as a record set.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::{DuplicateSet, DuplicateSets};
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 0 };
    /// let set = DuplicateSet { representative: block.record(2), index: 0, pairs: 2 };
    /// let sets = DuplicateSets::from_blocks(vec![set], [(block, vec![[2, 0], [8, 0]])]);
    /// assert!(sets.representatives().contains(block.record(2)));
    /// assert!(!sets.representatives().contains(block.record(8)));
    /// ```
    pub fn representatives(&self) -> RecordSet {
        let mut bits = RecordSet::default();
        self.sets.iter().for_each(|set| bits.insert(set.representative));
        bits
    }

    /// Returns the members of sets that are in one block, for [`DuplicateSets::set_of_record`].
    pub fn block_members(&self, block: BlockId) -> &[SetMember] {
        self.members.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Returns the duplicate set of the record with this index, given the members in the record's block.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::{DuplicateSet, DuplicateSets};
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 0 };
    /// let set = DuplicateSet { representative: block.record(2), index: 0, pairs: 2 };
    /// // Records 2, 3, 8 and 9 of the block are members of set 0.
    /// let sets = DuplicateSets::from_blocks(vec![set], [(block, vec![[2, 0], [3, 0], [8, 0], [9, 0]])]);
    /// let members = sets.block_members(block);
    /// assert_eq!(sets.set_of_record(members, 8), Some(&set));
    /// assert_eq!(sets.set_of_record(members, 5), None);
    /// ```
    pub fn set_of_record(&self, block_members: &[SetMember], index: u32) -> Option<&DuplicateSet> {
        let at = block_members.binary_search_by_key(&index, |[record, _]| *record).ok()?;
        self.sets.get(block_members[at][1] as usize)
    }

    /// Returns all duplicate sets.
    pub fn sets(&self) -> &[DuplicateSet] {
        &self.sets
    }

    /// Returns an iterator over the blocks that have members, in unspecified order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[SetMember])> {
        self.members.iter().map(|(block, members)| (*block, members.as_slice()))
    }

    /// Creates the sets from parts that were received from another process. The members of each block must be sorted.
    pub fn from_blocks(sets: Vec<DuplicateSet>, blocks: impl IntoIterator<Item = (BlockId, Vec<SetMember>)>) -> Self {
        Self { sets, members: blocks.into_iter().collect() }
    }
}
