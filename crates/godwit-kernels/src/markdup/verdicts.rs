//! The outcome of duplicate marking: one bit per record.

use std::collections::HashMap;

use godwit_model::{BlockId, RecordId};

/// Which records are duplicates, by block. Records never named are not.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    blocks: HashMap<BlockId, Vec<u64>>,
    duplicates: u64,
}

impl Verdicts {
    /// Names a duplicate.
    pub(super) fn mark(&mut self, record: RecordId) {
        let words = self.blocks.entry(record.block()).or_default();
        let (word, bit) = (record.index() as usize / 64, record.index() % 64);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        self.duplicates += u64::from(words[word] >> bit & 1 == 0);
        words[word] |= 1 << bit;
    }

    /// The bits of one block, by record index; bits beyond its end are 0.
    pub fn of_block(&self, block: BlockId) -> &[u64] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Whether the record with this index is a duplicate, from the bits of its block.
    #[inline]
    pub fn is_set(block_bits: &[u64], index: u32) -> bool {
        block_bits.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Whether a record is named.
    pub fn contains(&self, record: RecordId) -> bool {
        Self::is_set(self.of_block(record.block()), record.index())
    }

    /// The bits of every block that has duplicates, in no order.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[u64])> {
        self.blocks.iter().map(|(block, words)| (*block, words.as_slice()))
    }

    /// Verdicts that were told elsewhere.
    pub fn from_blocks(blocks: impl IntoIterator<Item = (BlockId, Vec<u64>)>) -> Self {
        let blocks: HashMap<BlockId, Vec<u64>> = blocks.into_iter().collect();
        let duplicates = blocks.values().flatten().map(|word| u64::from(word.count_ones())).sum();
        Self { blocks, duplicates }
    }

    /// Number of duplicates.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }
}
