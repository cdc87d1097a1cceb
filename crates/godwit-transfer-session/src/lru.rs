//! The index of the files in the cache of a relay by recency of use, with a limit of bytes and a limit of files. It does
//! not access the files.

use std::collections::{BTreeMap, HashMap};

/// Size of a disk page, bytes. The disk space of a file is a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// The name of a file in the cache, in `blocks/` or `origins/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheKey {
    /// A block, by its hash.
    Block([u8; blake3::OUT_LEN]),
    /// The block hashes of a file version, by the hash of its origin.
    Origin([u8; blake3::OUT_LEN]),
}

/// The names and sizes of the files of a cache, in the order of their last use.
#[derive(Debug)]
pub struct LruIndex {
    limit_bytes: u64,
    limit_files: usize,
    /// Disk space of all files, including those that are being written, bytes.
    used_bytes: u64,
    files: HashMap<CacheKey, LruEntry>,
    order: BTreeMap<u64, CacheKey>,
    next_sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct LruEntry {
    sequence: u64,
    bytes: u64,
}

/// Returns the disk space that a file of `bytes` bytes takes, bytes.
fn disk_usage(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).max(1) * PAGE_BYTES
}

impl LruIndex {
    /// Returns an empty index with these limits.
    pub fn new(limit_bytes: u64, limit_files: usize) -> Self {
        Self {
            limit_bytes,
            limit_files,
            used_bytes: 0,
            files: HashMap::new(),
            order: BTreeMap::new(),
            next_sequence: 0,
        }
    }

    /// Reserves space for a file that will be written. The caller then calls [`Self::insert`] or
    /// [`Self::release_space`]. Returns the files that the caller must remove.
    pub fn reserve_space(&mut self, bytes: u64) -> Vec<CacheKey> {
        self.used_bytes += disk_usage(bytes);
        self.evict_surplus(1)
    }

    /// Releases the space that was reserved for a file of `bytes` bytes.
    pub fn release_space(&mut self, bytes: u64) {
        self.used_bytes -= disk_usage(bytes);
    }

    /// Inserts a file whose space was reserved; replaces an entry of the same name.
    pub fn insert(&mut self, name: CacheKey, bytes: u64) {
        self.remove(name);
        let kept = LruEntry { sequence: self.next_sequence, bytes: disk_usage(bytes) };
        self.files.insert(name, kept);
        self.order.insert(self.next_sequence, name);
        self.next_sequence += 1;
    }

    /// Marks a file as used; returns false if it is not in the index.
    pub fn mark_used(&mut self, name: CacheKey) -> bool {
        let Some(kept) = self.files.get_mut(&name) else { return false };
        self.order.remove(&kept.sequence);
        kept.sequence = self.next_sequence;
        self.order.insert(self.next_sequence, name);
        self.next_sequence += 1;
        true
    }

    /// Removes a file from the index.
    pub fn remove(&mut self, name: CacheKey) {
        if let Some(kept) = self.files.remove(&name) {
            self.order.remove(&kept.sequence);
            self.used_bytes -= kept.bytes;
        }
    }

    /// Removes the least recently used files from the index until it is within its limits, and returns them. `writers`
    /// is the number of files that are being written.
    pub fn evict_surplus(&mut self, writers: usize) -> Vec<CacheKey> {
        let mut gone = Vec::new();
        while self.used_bytes > self.limit_bytes || self.files.len() + writers > self.limit_files {
            let Some((_, name)) = self.order.first_key_value().map(|(place, name)| (*place, *name)) else { break };
            self.remove(name);
            gone.push(name);
        }
        gone
    }

    /// Returns the disk space of all files, including those that are being written, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(number: u8) -> CacheKey {
        CacheKey::Block([number; blake3::OUT_LEN])
    }

    fn insert_file(recency: &mut LruIndex, number: u8, bytes: u64) -> Vec<CacheKey> {
        let gone = recency.reserve_space(bytes);
        recency.insert(name(number), bytes);
        gone
    }

    #[test]
    fn the_least_recently_used_entry_is_evicted_first() {
        let mut recency = LruIndex::new(3 * PAGE_BYTES, 100);
        for number in 0..3 {
            assert!(insert_file(&mut recency, number, 1).is_empty());
        }
        assert!(recency.mark_used(name(0)) && !recency.mark_used(name(9)));
        assert_eq!(insert_file(&mut recency, 3, PAGE_BYTES + 1), [name(1), name(2)]);
        assert_eq!(recency.used_bytes(), 3 * PAGE_BYTES);
        let mut few = LruIndex::new(u64::MAX, 2);
        for number in 0..2 {
            assert!(insert_file(&mut few, number, 1).is_empty());
        }
        assert_eq!(insert_file(&mut few, 2, 1), [name(0)]);
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_the_files_and_never_beyond_the_limit(
            steps in proptest::collection::vec((0u8..4, 0u8..20, 0u64..20_000), 0..200),
        ) {
            let mut recency = LruIndex::new(10 * PAGE_BYTES, 8);
            let mut there: HashMap<CacheKey, u64> = HashMap::new();
            for (what, number, bytes) in steps {
                match what {
                    0 => recency.remove(name(number)),
                    1 => prop_assert_eq!(recency.mark_used(name(number)), there.contains_key(&name(number))),
                    2 => {
                        for gone in recency.reserve_space(bytes) {
                            there.remove(&gone);
                        }
                        recency.release_space(bytes);
                    }
                    _ => {
                        for gone in insert_file(&mut recency, number, bytes) {
                            there.remove(&gone);
                        }
                        there.insert(name(number), disk_usage(bytes));
                    }
                }
                if what == 0 {
                    there.remove(&name(number));
                }
                prop_assert_eq!(recency.used_bytes(), there.values().sum::<u64>());
                prop_assert!(there.len() <= 8 && recency.used_bytes() <= 10 * PAGE_BYTES);
            }
        }
    }
}
