//! Intervals that can be asked which of them overlap another, and which are nearest to it.
//!
//! Sorted by where they begin, with the greatest end of each 16, of each 256 and so on: what overlaps is found by passing over
//! all groups that end too early. No interval need be one: where the end lies before the start, the two bounds still mean what
//! the comparisons of a statement mean.

use std::ops::ControlFlow;

/// Ends under one greatest end.
const FANOUT: usize = 16;

/// Bounds of an interval, and which row it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) low: i64,
    pub(crate) high: i64,
    pub(crate) row: u32,
}

/// Intervals of one key, mostly a contig.
#[derive(Debug, Default)]
pub(crate) struct IntervalIndex {
    /// By `low`, then by row.
    lows: Vec<i64>,
    rows: Vec<u32>,
    /// The greatest `high` of each 1, 16, 256 and so on entries.
    highs: Vec<Vec<i64>>,
    /// `high` and row, ascending; empty where nobody asks for the nearest.
    by_high: Vec<(i64, u32)>,
}

/// Bytes that an entry takes in the index, at most.
pub(crate) const BYTES_PER_ENTRY: usize = 64;

impl IntervalIndex {
    /// An index; `with_nearest` for [`IntervalIndex::nearest`].
    pub(crate) fn new(mut entries: Vec<Entry>, with_nearest: bool) -> Self {
        entries.sort_unstable_by_key(|entry| (entry.low, entry.row));
        let mut highs = vec![entries.iter().map(|entry| entry.high).collect::<Vec<i64>>()];
        while highs[highs.len() - 1].len() > 1 {
            let last = &highs[highs.len() - 1];
            highs.push(last.chunks(FANOUT).map(|chunk| chunk.iter().copied().max().unwrap_or(i64::MIN)).collect());
        }
        let mut by_high = Vec::new();
        if with_nearest {
            by_high = entries.iter().map(|entry| (entry.high, entry.row)).collect();
            by_high.sort_unstable();
        }
        let lows = entries.iter().map(|entry| entry.low).collect();
        Self { lows, rows: entries.iter().map(|entry| entry.row).collect(), highs, by_high }
    }

    /// Calls `found` for the row of each entry with `entry.low < high` and `entry.high > low`, in the order of their lows, until
    /// it breaks.
    pub(crate) fn overlapping(&self, low: i64, high: i64, mut found: impl FnMut(u32) -> ControlFlow<()>) {
        let end = self.lows.partition_point(|start| *start < high);
        if end > 0 {
            let _ = self.visit(self.highs.len() - 1, 0, end, low, &mut found);
        }
    }

    /// Looks below the `at`th greatest end of a level, at the entries before `end`.
    fn visit(
        &self,
        level: usize,
        at: usize,
        end: usize,
        low: i64,
        found: &mut impl FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let first = at << (FANOUT.trailing_zeros() as usize * level);
        if first >= end || self.highs[level][at] <= low {
            return ControlFlow::Continue(());
        }
        if level == 0 {
            return found(self.rows[at]);
        }
        let children = self.highs[level - 1].len();
        for child in at * FANOUT..((at + 1) * FANOUT).min(children) {
            self.visit(level - 1, child, end, low, found)?;
        }
        ControlFlow::Continue(())
    }

    /// Puts into `rows` those that overlap `[low, high)`, or where there are none, those that are nearest to it, all at one
    /// distance. Returns the distance: 0 for overlapping ones, 1 for neighbours that touch; `None` where there is no entry.
    pub(crate) fn nearest(&self, low: i64, high: i64, rows: &mut Vec<u32>) -> Option<i64> {
        rows.clear();
        self.overlapping(low, high, |row| {
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
        Some(distance)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let bounds = prop::collection::vec((0i64..300, 0i64..40), 0..700);
        bounds.prop_map(|bounds| {
            let entry = |(row, (low, length)): (u32, (i64, i64))| Entry { low, high: low + length, row };
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
            IntervalIndex::new(entries, false).overlapping(low, high, |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn the_nearest_are_all_at_the_least_distance(entries in entries(), low in -5i64..310, length in 1i64..50) {
            let high = low + length;
            let distance = |entry: &Entry| {
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
