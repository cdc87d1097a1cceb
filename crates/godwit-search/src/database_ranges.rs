//! The ranges of a database: their order in a search, and the hosts that have them in the page cache.

use crate::database_volumes::{DatabaseExtent, DatabaseVolumes};
use crate::page_cache;

/// Number of classes of ranges by the part that is in the page cache. Within a class, ranges are searched in the order of
/// the database, because a disk reads that order fastest.
const RESIDENT_CLASSES: u64 = 16;

/// A range of sequences of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatabaseRange {
    /// First sequence and end (exclusive), counted from 0.
    pub(crate) first: u32,
    pub(crate) end: u32,
    /// Extents of its letters; empty if the layout of the database is not known.
    pub(crate) extents: Vec<DatabaseExtent>,
}

/// The ranges of a database, numbered from 0: the first one has the most letters.
#[derive(Debug, Default)]
pub(crate) struct DatabaseRanges {
    ranges: Vec<DatabaseRange>,
    /// By range: number of the host that reads it, so that it is in the page cache of one host only. `None` for a range
    /// that was not assigned yet.
    hosts: Vec<Option<usize>>,
    /// True if the database does not fit into memory: ranges in the page cache are searched first, and the next range is
    /// read ahead.
    pub(crate) exceeds_memory: bool,
}

impl DatabaseRanges {
    /// Creates ranges from their first sequences, ends and letters.
    pub(crate) fn new(cuts: &[(u32, u32, u64)], volumes: &DatabaseVolumes, exceeds_memory: bool) -> Self {
        let mut cuts = cuts.to_vec();
        cuts.sort_by_key(|(.., letters)| std::cmp::Reverse(*letters));
        let range = |(first, end, _)| DatabaseRange { first, end, extents: volumes.range_extents(first, end) };
        let ranges: Vec<DatabaseRange> = cuts.into_iter().map(range).collect();
        Self { hosts: vec![None; ranges.len()], ranges, exceeds_memory }
    }

    /// Returns the number of ranges.
    pub(crate) fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the range of this number.
    pub(crate) fn range(&self, number: usize) -> &DatabaseRange {
        &self.ranges[number]
    }

    /// Returns how many bytes of all ranges are in the page cache of this host.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.ranges.iter().map(DatabaseRange::resident_bytes).sum()
    }

    /// Returns the numbers of the ranges in the order in which they should be searched. If the database fits into
    /// memory, the largest range is first, so that workers finish together. Otherwise those ranges are first that are in
    /// the page cache now, because reading the others displaces them.
    pub(crate) fn search_order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.ranges.len()).collect();
        if self.exceeds_memory {
            order.sort_by_cached_key(|number| {
                let range = &self.ranges[*number];
                let class = (range.resident_bytes() * RESIDENT_CLASSES).checked_div(range.bytes());
                (std::cmp::Reverse(class.unwrap_or(0)), range.first)
            });
        }
        order
    }

    /// Returns whether a host may search a range without reading what another host reads.
    pub(crate) fn suits_host(&self, number: usize, host: usize) -> bool {
        self.hosts[number].is_none_or(|reader| reader == host)
    }

    /// Assigns a range to a host if no other host reads it.
    pub(crate) fn assign_host(&mut self, number: usize, host: usize) {
        self.hosts[number].get_or_insert(host);
    }
}

impl DatabaseRange {
    /// Returns the size of the letters of this range on disk, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes).sum()
    }

    fn resident_bytes(&self) -> u64 {
        self.extents.iter().map(page_cache::resident_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_range_is_first_unless_the_database_exceeds_memory() {
        let cuts = [(0, 5, 10), (5, 9, 30), (9, 12, 20)];
        let ranges = DatabaseRanges::new(&cuts, &DatabaseVolumes::default(), false);
        let firsts = |ranges: &DatabaseRanges| -> Vec<u32> {
            ranges.search_order().into_iter().map(|number| ranges.range(number).first).collect()
        };
        assert_eq!((ranges.count(), firsts(&ranges)), (3, vec![5, 9, 0]));
        let ranges = DatabaseRanges::new(&cuts, &DatabaseVolumes::default(), true);
        assert_eq!(firsts(&ranges), [0, 5, 9]);
    }

    #[test]
    fn a_range_stays_with_the_host_that_reads_it() {
        let mut ranges = DatabaseRanges::new(&[(0, 5, 10), (5, 9, 30)], &DatabaseVolumes::default(), true);
        assert!(ranges.suits_host(0, 7));
        ranges.assign_host(0, 7);
        ranges.assign_host(0, 8);
        assert!(ranges.suits_host(0, 7) && !ranges.suits_host(0, 8) && ranges.suits_host(1, 8));
    }
}
