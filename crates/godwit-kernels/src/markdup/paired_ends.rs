//! The ends of pairs that are compared with fragments.
//!
//! Nearly all reads of most inputs are paired. So the keys of paired ends are not sorted until the fragments are known,
//! and then only those keys that a filter of the fragments' keys lets through.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::duplicate_decider::Fragment;
use super::sort_items::{EndItem, PositionKey};
use crate::sort::{ExternalSorter, SortedItems, Spill};
use crate::threads::for_each_index;

/// Number of bits of the filter for each fragment, before the number is rounded up to a power of two.
const FILTER_BITS_PER_FRAGMENT: usize = 16;
/// Number of keys that a thread adds to the sorter of all threads at once.
const KEYS_PER_BATCH: usize = 1024;

/// The keys of paired ends that fragments may have as well.
pub(super) struct PairedEnds<K> {
    filter: KeyFilter,
    keys: Mutex<ExternalSorter<K>>,
}

impl<K: PositionKey> PairedEnds<K> {
    /// Creates an empty collection for these fragments. The filter takes at most a fifth of the memory.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub(super) fn new<E: EndItem<Key = K>>(
        fragments: &SortedItems<Fragment<E>>,
        memory_bytes: usize,
        threads: usize,
        spill: &Arc<dyn Spill>,
    ) -> io::Result<Self> {
        let filter = KeyFilter::new(fragments.item_count(), memory_bytes / 5 * 8);
        let borders = fragments.range_borders()?;
        for_each_index(
            threads,
            borders.range_count(),
            || (),
            |(), range| -> io::Result<()> {
                let is_before = |Fragment(end): &Fragment<E>, Fragment(border): &Fragment<E>| {
                    end.position_key() < border.position_key()
                };
                let mut ends = fragments.range(&borders, range, is_before)?;
                while let Some(Fragment(end)) = ends.next()? {
                    filter.insert(end.position_key().position());
                }
                Ok(())
            },
        )?;
        let keys = ExternalSorter::new(memory_bytes / 5 * 4, threads, spill.clone());
        Ok(Self { filter, keys: Mutex::new(keys) })
    }

    /// Returns a batch with which one thread adds keys.
    pub(super) fn batch(&self) -> PairedEndBatch<'_, K> {
        PairedEndBatch { ends: self, keys: Vec::new() }
    }

    /// Returns the keys in sorted order; they include those of all paired ends that a fragment has as well.
    ///
    /// # Errors
    /// The I/O error of the spill.
    pub(super) fn finish(self) -> io::Result<SortedItems<K>> {
        self.keys.into_inner().finish()
    }
}

/// Keys of paired ends that are not yet in the sorter of all threads.
pub(super) struct PairedEndBatch<'p, K> {
    ends: &'p PairedEnds<K>,
    keys: Vec<K>,
}

impl<K: PositionKey> PairedEndBatch<'_, K> {
    /// Adds the key of an end, unless no fragment has it.
    pub(super) fn push(&mut self, key: K) -> io::Result<()> {
        if !self.ends.filter.may_contain(key.position()) {
            return Ok(());
        }
        self.keys.push(key);
        if self.keys.len() < KEYS_PER_BATCH { Ok(()) } else { self.flush() }
    }

    /// Adds the keys to the sorter of all threads. Must be called after the last key.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.ends.keys.lock().extend(&self.keys)?;
        self.keys.clear();
        Ok(())
    }
}

/// An approximate set of keys, one bit for each hash.
struct KeyFilter {
    /// A power of two of words; none if the set is empty.
    words: Vec<AtomicU64>,
}

impl KeyFilter {
    fn new(keys: usize, max_bits: usize) -> Self {
        let words = match keys {
            0 => 0,
            _ => (keys.saturating_mul(FILTER_BITS_PER_FRAGMENT).min(max_bits) / 128).next_power_of_two(),
        };
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Returns the word of a key and its bit.
    fn place(&self, key: u128) -> Option<(&AtomicU64, u64)> {
        let folded = key as u64 ^ ((key >> 64) as u64).rotate_left(32);
        // Two rounds of multiplication spread also keys at regular distances.
        let spread = |bits: u64| (bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = spread(spread(folded)) >> 24;
        let word = (hash >> 6) as usize & self.words.len().wrapping_sub(1);
        Some((self.words.get(word)?, 1 << (hash & 63)))
    }

    fn insert(&self, key: u128) {
        if let Some((word, bit)) = self.place(key) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn may_contain(&self, key: u128) -> bool {
        self.place(key).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_lets_all_its_keys_through_and_few_others() {
        for max_bits in [1 << 20, 1] {
            let filter = KeyFilter::new(1000, max_bits);
            let key = |number: u128| number * 1954;
            (0..1000).for_each(|number| filter.insert(key(number)));
            assert!((0..1000).all(|number| filter.may_contain(key(number))));
            let others = (0..1000).filter(|number| filter.may_contain(key(*number) + 1)).count();
            assert!(max_bits == 1 || others < 200, "{others}");
        }
        assert!(!KeyFilter::new(0, 1 << 20).may_contain(0));
    }
}
