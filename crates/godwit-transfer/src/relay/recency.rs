//! Which files of a cache go first: a bound on bytes and on files, and the order in which they were last used. No file is touched here.

use std::collections::{BTreeMap, HashMap};

/// Bytes that a file takes on a disk come in pages.
const PAGE_BYTES: u64 = 4096;

/// A name of a file in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// A block, by its hash.
    Block([u8; blake3::OUT_LEN]),
    /// What is known of the blocks of a file somewhere, by the hash of where.
    Origin([u8; blake3::OUT_LEN]),
}

/// Files in the order of their last use.
#[derive(Debug)]
pub(super) struct Recency {
    limit_bytes: u64,
    limit_files: usize,
    /// Bytes of all files, and of those that are being written.
    bytes: u64,
    files: HashMap<Name, Kept>,
    order: BTreeMap<u64, Name>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    place: u64,
    bytes: u64,
}

/// What a file of so many bytes takes.
fn taken_by(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES).max(1) * PAGE_BYTES
}

impl Recency {
    /// Nothing, where so much may be.
    pub(super) fn new(limit_bytes: u64, limit_files: usize) -> Self {
        Self { limit_bytes, limit_files, bytes: 0, files: HashMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// Room for one more file of so many bytes, which is its writer's until [`Self::add`] or [`Self::give_back`]; files that have to go.
    pub(super) fn reserve(&mut self, bytes: u64) -> Vec<Name> {
        self.bytes += taken_by(bytes);
        self.surplus(1)
    }

    /// A writer wants its room no more.
    pub(super) fn give_back(&mut self, bytes: u64) {
        self.bytes -= taken_by(bytes);
    }

    /// A file is there, for which room was reserved. One of the same name is no more.
    pub(super) fn add(&mut self, name: Name, bytes: u64) {
        self.remove(name);
        let kept = Kept { place: self.next, bytes: taken_by(bytes) };
        self.files.insert(name, kept);
        self.order.insert(self.next, name);
        self.next += 1;
    }

    /// A file is used; false where there is none.
    pub(super) fn touch(&mut self, name: Name) -> bool {
        let Some(kept) = self.files.get_mut(&name) else { return false };
        self.order.remove(&kept.place);
        kept.place = self.next;
        self.order.insert(self.next, name);
        self.next += 1;
        true
    }

    /// A file is gone.
    pub(super) fn remove(&mut self, name: Name) {
        if let Some(kept) = self.files.remove(&name) {
            self.order.remove(&kept.place);
            self.bytes -= kept.bytes;
        }
    }

    /// Files that have to go where there are too many, the one first that nobody used for longest.
    pub(super) fn surplus(&mut self, writers: usize) -> Vec<Name> {
        let mut gone = Vec::new();
        while self.bytes > self.limit_bytes || self.files.len() + writers > self.limit_files {
            let Some((_, name)) = self.order.first_key_value().map(|(place, name)| (*place, *name)) else { break };
            self.remove(name);
            gone.push(name);
        }
        gone
    }

    /// Bytes of all files, and of those that are being written.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(number: u8) -> Name {
        Name::Block([number; blake3::OUT_LEN])
    }

    fn put(recency: &mut Recency, number: u8, bytes: u64) -> Vec<Name> {
        let gone = recency.reserve(bytes);
        recency.add(name(number), bytes);
        gone
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut recency = Recency::new(3 * PAGE_BYTES, 100);
        for number in 0..3 {
            assert!(put(&mut recency, number, 1).is_empty());
        }
        assert!(recency.touch(name(0)) && !recency.touch(name(9)));
        assert_eq!(put(&mut recency, 3, PAGE_BYTES + 1), [name(1), name(2)]);
        assert_eq!(recency.bytes(), 3 * PAGE_BYTES);
        let mut few = Recency::new(u64::MAX, 2);
        for number in 0..2 {
            assert!(put(&mut few, number, 1).is_empty());
        }
        assert_eq!(put(&mut few, 2, 1), [name(0)]);
    }

    proptest! {
        #[test]
        fn bytes_are_those_of_the_files_and_never_beyond_the_limit(
            steps in proptest::collection::vec((0u8..4, 0u8..20, 0u64..20_000), 0..200),
        ) {
            let mut recency = Recency::new(10 * PAGE_BYTES, 8);
            let mut there: HashMap<Name, u64> = HashMap::new();
            for (what, number, bytes) in steps {
                match what {
                    0 => recency.remove(name(number)),
                    1 => prop_assert_eq!(recency.touch(name(number)), there.contains_key(&name(number))),
                    2 => {
                        for gone in recency.reserve(bytes) {
                            there.remove(&gone);
                        }
                        recency.give_back(bytes);
                    }
                    _ => {
                        for gone in put(&mut recency, number, bytes) {
                            there.remove(&gone);
                        }
                        there.insert(name(number), taken_by(bytes));
                    }
                }
                if what == 0 {
                    there.remove(&name(number));
                }
                prop_assert_eq!(recency.bytes(), there.values().sum::<u64>());
                prop_assert!(there.len() <= 8 && recency.bytes() <= 10 * PAGE_BYTES);
            }
        }
    }
}
