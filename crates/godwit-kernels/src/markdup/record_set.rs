//! The result of duplicate marking: one bit per record.

use std::collections::HashMap;

use godwit_model::{BlockId, RecordId};

/// A set of records, by block.
#[derive(Clone, Debug, Default)]
pub struct RecordSet {
    blocks: HashMap<BlockId, Vec<u64>>,
    record_count: u64,
}

impl RecordSet {
    /// Adds a record.
    pub(super) fn insert(&mut self, record: RecordId) {
        let words = self.blocks.entry(record.block()).or_default();
        let (word, bit) = (record.index() as usize / 64, record.index() % 64);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        self.record_count += u64::from(words[word] >> bit & 1 == 0);
        words[word] |= 1 << bit;
    }

    /// Returns the bits of one block, by record index; bits beyond the end are 0.
    pub fn block_bits(&self, block: BlockId) -> &[u64] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Reports whether the record with this index is in the set, from the bits of its block.
    #[inline]
    pub fn is_set(block_bits: &[u64], index: u32) -> bool {
        block_bits.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Reports whether the set contains a record.
    pub fn contains(&self, record: RecordId) -> bool {
        Self::is_set(self.block_bits(record.block()), record.index())
    }

    /// Iterates over the bits of every block that has records in the set, in no particular order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[u64])> {
        self.blocks.iter().map(|(block, words)| (*block, words.as_slice()))
    }

    /// Creates a set from received bits.
    pub fn from_blocks(blocks: impl IntoIterator<Item = (BlockId, Vec<u64>)>) -> Self {
        let blocks: HashMap<BlockId, Vec<u64>> = blocks.into_iter().collect();
        let record_count = blocks.values().flatten().map(|word| u64::from(word.count_ones())).sum();
        Self { blocks, record_count }
    }

    /// Returns the number of records in the set.
    pub fn record_count(&self) -> u64 {
        self.record_count
    }
}
