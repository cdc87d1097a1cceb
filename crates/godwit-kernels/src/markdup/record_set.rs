//! Sets of records with one bit per record, such as the result of duplicate marking.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use godwit_model::{BlockId, RecordId};

/// A set of records, stored as bits for each block.
#[derive(Clone, Debug, Default)]
pub struct RecordSet {
    blocks: HashMap<BlockId, Vec<u64>>,
    record_count: u64,
}

impl RecordSet {
    /// Adds a record to the set.
    pub(super) fn insert(&mut self, record: RecordId) {
        let words = self.blocks.entry(record.block()).or_default();
        let (word, bit) = (record.index() as usize / 64, record.index() % 64);
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        self.record_count += u64::from(words[word] >> bit & 1 == 0);
        words[word] |= 1 << bit;
    }

    /// Returns the bits of one block, by record index. Records beyond the last bit are not in the set.
    pub fn block_bits(&self, block: BlockId) -> &[u64] {
        self.blocks.get(&block).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the set contains the record with this index, given the bits of the record's block.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::RecordSet;
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 0 };
    /// let duplicates = RecordSet::from_blocks([(block, vec![0b1100])]);
    /// let bits = duplicates.block_bits(block);
    /// assert!(RecordSet::is_set(bits, 2));
    /// assert!(!RecordSet::is_set(bits, 64));
    /// ```
    #[inline]
    pub fn is_set(block_bits: &[u64], index: u32) -> bool {
        block_bits.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// Reports whether the set contains a record.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::RecordSet;
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 0 };
    /// let duplicates = RecordSet::from_blocks([(block, vec![0b1100])]);
    /// assert!(duplicates.contains(block.record(3)));
    /// assert!(!duplicates.contains(block.record(4)));
    /// assert!(!duplicates.contains(BlockId { lane: 0, ordinal: 1 }.record(3)));
    /// ```
    pub fn contains(&self, record: RecordId) -> bool {
        Self::is_set(self.block_bits(record.block()), record.index())
    }

    /// Returns an iterator over the blocks that have records in the set, with their bits. The order of blocks is
    /// unspecified.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &[u64])> {
        self.blocks.iter().map(|(block, words)| (*block, words.as_slice()))
    }

    /// Creates a set from the bits of each block, for example after they were received from another process.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::RecordSet;
    /// use godwit_model::BlockId;
    ///
    /// let block = |ordinal| BlockId { lane: 0, ordinal };
    /// let duplicates = RecordSet::from_blocks([(block(0), vec![0b1100]), (block(1), vec![0, 0b1])]);
    /// assert_eq!(duplicates.record_count(), 3);
    /// assert!(duplicates.contains(block(1).record(64)));
    /// ```
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

/// A record set to which several threads add records.
#[derive(Debug, Default)]
pub(super) struct SharedRecordSet {
    blocks: HashMap<BlockId, Vec<AtomicU64>>,
}

impl SharedRecordSet {
    /// Creates an empty set of records of these blocks. The records of a block must have indices below its number of
    /// records.
    pub(super) fn new(record_counts: &HashMap<BlockId, u32>) -> Self {
        let words = |records: u32| (0..records.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { blocks: record_counts.iter().map(|(block, records)| (*block, words(*records))).collect() }
    }

    /// Adds a record of one of the blocks.
    pub(super) fn insert(&self, record: RecordId) {
        let (word, bit) = (record.index() as usize / 64, record.index() % 64);
        self.blocks[&record.block()][word].fetch_or(1 << bit, Ordering::Relaxed);
    }

    /// Returns the set after the last record was added.
    pub(super) fn finish(self) -> RecordSet {
        let finish_block = |words: Vec<AtomicU64>| {
            let mut words: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
            words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
            words
        };
        let blocks = self.blocks.into_iter().map(|(block, words)| (block, finish_block(words)));
        RecordSet::from_blocks(blocks.filter(|(_, words)| !words.is_empty()))
    }
}
