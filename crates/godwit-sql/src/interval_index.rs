//! An index of intervals that finds the intervals that overlap a given interval, or the nearest ones.
//!
//! Entries are sorted by their start. The index also stores the greatest end of each group of 16, 256 and so on
//! entries, so that a lookup skips groups that end before the given interval. An entry may end before it starts: its
//! two bounds are compared as the SQL statement specifies.

use std::ops::ControlFlow;

/// Number of entries or groups that form a group on the next level.
const FANOUT: usize = 16;

/// The bounds of an interval, and the index of the row that contains it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntervalEntry {
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) row: u32,
}

/// An index of the intervals with equal join keys, usually the intervals of one contig.
#[derive(Debug, Default)]
pub(crate) struct IntervalIndex {
    /// The `low` bound of each entry. Entries are sorted by `low` and then by row.
    lows: Vec<i64>,
    rows: Vec<u32>,
    /// For each level, the greatest `high` bounds of groups of 1, 16, 256 and so on entries.
    max_highs: Vec<Vec<i64>>,
    /// Pairs of `high` bound and row, ascending; empty if nearest lookups are disabled.
    by_high: Vec<(i64, u32)>,
}

/// Upper limit of the memory that an entry needs in the index, bytes.
pub(crate) const BYTES_PER_ENTRY: usize = 64;

impl IntervalIndex {
    /// Builds an index. [`IntervalIndex::nearest`] may be called only if `with_nearest` is true.
    pub(crate) fn new(mut entries: Vec<IntervalEntry>, with_nearest: bool) -> Self {
        entries.sort_unstable_by_key(|entry| (entry.low, entry.row));
        let mut max_highs = vec![entries.iter().map(|entry| entry.high).collect::<Vec<i64>>()];
        while max_highs[max_highs.len() - 1].len() > 1 {
            let last = &max_highs[max_highs.len() - 1];
            max_highs.push(last.chunks(FANOUT).map(|chunk| chunk.iter().copied().max().unwrap_or(i64::MIN)).collect());
        }
        let mut by_high = Vec::new();
        if with_nearest {
            by_high = entries.iter().map(|entry| (entry.high, entry.row)).collect();
            by_high.sort_unstable();
        }
        let lows = entries.iter().map(|entry| entry.low).collect();
        Self { lows, rows: entries.iter().map(|entry| entry.row).collect(), max_highs, by_high }
    }

    /// Calls `found` with the row of each entry for which `entry.low < high` and `entry.high > low`, in the order of
    /// their `low` bounds. Stops if `found` returns `ControlFlow::Break`.
    pub(crate) fn for_each_overlap(&self, low: i64, high: i64, mut found: impl FnMut(u32) -> ControlFlow<()>) {
        let end = self.lows.partition_point(|start| *start < high);
        if end > 0 {
            let _ = self.visit_subtree(self.max_highs.len() - 1, 0, end, low, &mut found);
        }
    }

    /// Visits the overlapping entries in group `at` of a level, up to entry index `end`.
    fn visit_subtree(
        &self,
        level: usize,
        at: usize,
        end: usize,
        low: i64,
        found: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let first = at << (FANOUT.trailing_zeros() as usize * level);
        if first >= end || self.max_highs[level][at] <= low {
            return ControlFlow::Continue(());
        }
        if level == 0 {
            return found(self.rows[at]);
        }
        let children = self.max_highs[level - 1].len();
        for child in at * FANOUT..((at + 1) * FANOUT).min(children) {
            self.visit_subtree(level - 1, child, end, low, found)?;
        }
        ControlFlow::Continue(())
    }

    /// Fills `rows` with the rows of all entries that overlap `[low, high)`. If no entry overlaps, fills `rows` with
    /// all entries at the shortest distance. Returns the distance, which is 0 for overlapping and 1 for adjacent
    /// entries; `None` if the index is empty.
    pub(crate) fn nearest(&self, low: i64, high: i64, rows: &mut Vec<u32>) -> Option<i64> {
        rows.clear();
        self.for_each_overlap(low, high, |row| {
            rows.push(row);
            ControlFlow::Continue(())
        });
        if !rows.is_empty() {
            return Some(0);
        }
        let behind = self.lows.partition_point(|start| *start < high);
        let before = self.by_high.partition_point(|(end, _)| *end <= low);
        let next = self.lows.get(behind).map(|start| (*start, start.saturating_sub(high).saturating_add(1)));
        let last = before.checked_sub(1).map(|at| self.by_high[at].0);
        let last = last.map(|end| (end, low.saturating_sub(end).saturating_add(1)));
        let distance = next.iter().chain(&last).map(|(_, distance)| *distance).min()?;
        if let Some((end, _)) = last.filter(|(_, found)| *found == distance) {
            let first = self.by_high.partition_point(|(found, _)| *found < end);
            rows.extend(self.by_high[first..before].iter().map(|(_, row)| *row));
        }
        if let Some((start, _)) = next.filter(|(_, found)| *found == distance) {
            let same = self.lows[behind..].partition_point(|found| *found == start);
            rows.extend(&self.rows[behind..behind + same]);
        }
        // If both intervals have no bases and are at the same place, the entry is before and behind.
        rows.sort_unstable();
        rows.dedup();
        Some(distance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<IntervalEntry>> {
        let bounds = prop::collection::vec((0i64..300, 0i64..40), 0..700);
        bounds.prop_map(|bounds| {
            let entry = |(row, (low, length)): (u32, (i64, i64))| IntervalEntry { low, high: low + length, row };
            (0..).zip(bounds).map(entry).collect()
        })
    }

    proptest! {
        #[test]
        fn what_overlaps_is_what_the_comparisons_say(entries in entries(), low in -5i64..310, length in -3i64..50) {
            let high = low + length;
            let mut expected: Vec<u32> =
                entries.iter().filter(|entry| entry.low < high && entry.high > low).map(|entry| entry.row).collect();
            let mut found = Vec::new();
            IntervalIndex::new(entries, false).for_each_overlap(low, high, |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn the_nearest_are_all_at_the_least_distance(entries in entries(), low in -5i64..310, length in 0i64..50) {
            let high = low + length;
            let distance = |entry: &IntervalEntry| {
                if entry.low < high && entry.high > low { 0 } else { (entry.low - high).max(low - entry.high) + 1 }
            };
            let least = entries.iter().map(distance).min();
            let mut expected: Vec<u32> =
                entries.iter().filter(|entry| Some(distance(entry)) == least).map(|entry| entry.row).collect();
            let mut found = Vec::new();
            prop_assert_eq!(IntervalIndex::new(entries, true).nearest(low, high, &mut found), least);
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }
    }
}
