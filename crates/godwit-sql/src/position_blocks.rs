//! Counts at the positions of a contig, which a sweep over sorted reads allocates in blocks.

use std::collections::BTreeMap;

/// Number of positions whose counts are allocated together.
const BLOCK_POSITIONS: i32 = 64;

/// Counts at positions, 0-based. Memory grows with the range of positions that are not taken.
#[derive(Debug)]
pub(crate) struct PositionBlocks<C> {
    /// Counts of [`BLOCK_POSITIONS`] positions from the key times that number on.
    blocks: BTreeMap<i32, Vec<C>>,
}

impl<C> Default for PositionBlocks<C> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new() }
    }
}

impl<C: Clone + Default> PositionBlocks<C> {
    /// Returns the counts at a position, which must not be negative.
    pub(crate) fn at(&mut self, position: i32) -> &mut C {
        let new_block = || vec![C::default(); BLOCK_POSITIONS as usize];
        let block = self.blocks.entry(position / BLOCK_POSITIONS).or_insert_with(new_block);
        &mut block[(position % BLOCK_POSITIONS) as usize]
    }

    /// Removes the first block if it ends at or before a position. Returns its first position and its counts.
    pub(crate) fn take_before(&mut self, position: i64) -> Option<(i32, Vec<C>)> {
        let end = |block: i32| (i64::from(block) + 1) * i64::from(BLOCK_POSITIONS);
        let entry = self.blocks.first_entry().filter(|entry| end(*entry.key()) <= position)?;
        let (block, counts) = entry.remove_entry();
        Some((block * BLOCK_POSITIONS, counts))
    }
}
