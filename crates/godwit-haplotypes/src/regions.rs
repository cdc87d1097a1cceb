//! Regions of contigs, merged where they touch.

use std::collections::HashMap;
use std::path::Path;

use godwit_formats::intervals::read_bed;
use godwit_model::{Region, RegionError};

use crate::error::HaplotypeError;

/// Merged intervals of contigs, 0-based and half-open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    by_contig: HashMap<String, Vec<(i32, i32)>>,
}

impl Regions {
    /// Reads a BED file.
    pub(crate) fn read_bed(path: &Path) -> Result<Self, HaplotypeError> {
        let mut regions = Self::default();
        for interval in read_bed(path)? {
            let limit = |position: u32| i32::try_from(position).unwrap_or(i32::MAX);
            regions.add(&interval.contig, limit(interval.start), limit(interval.end));
        }
        Ok(regions.merge())
    }

    /// Parses a list of regions such as `chr20:1001-2000,chrX`, whose contigs are those of the reference.
    ///
    /// # Errors
    /// [`RegionError`] if the text is not a region, or a contig does not exist.
    pub(crate) fn parse(text: &str, has_contig: impl Fn(&str) -> bool) -> Result<Self, RegionError> {
        let mut regions = Self::default();
        for region in Region::parse_list(text, |contig| Some(has_contig(contig)))? {
            let limit = |position: u32| i32::try_from(position).unwrap_or(i32::MAX);
            regions.add(&region.contig, limit(region.start), limit(region.end));
        }
        Ok(regions.merge())
    }

    fn add(&mut self, contig: &str, start: i32, end: i32) {
        match self.by_contig.get_mut(contig) {
            Some(intervals) => intervals.push((start, end)),
            None => {
                self.by_contig.insert(contig.to_owned(), vec![(start, end)]);
            }
        }
    }

    /// Sorts the intervals, and merges those that overlap or touch.
    fn merge(mut self) -> Self {
        for intervals in self.by_contig.values_mut() {
            intervals.sort_unstable();
            intervals.dedup_by(|next, last| {
                let is_merged = next.0 <= last.1;
                last.1 = if is_merged { last.1.max(next.1) } else { last.1 };
                is_merged
            });
            intervals.shrink_to_fit();
        }
        self
    }

    /// Returns whether the contig has a region.
    pub(crate) fn has_contig(&self, contig: &str) -> bool {
        self.by_contig.contains_key(contig)
    }

    /// Returns the regions of a contig in ascending order.
    pub(crate) fn on_contig(&self, contig: &str) -> &[(i32, i32)] {
        self.by_contig.get(contig).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a region overlaps an interval, as [`is_overlapped`].
    pub(crate) fn overlaps(&self, contig: &str, start: i32, end: i32) -> bool {
        is_overlapped(self.on_contig(contig), start, end)
    }

    /// Returns the number of bases in all regions.
    pub(crate) fn base_count(&self) -> u64 {
        self.by_contig.values().flatten().map(|(start, end)| u64::from(end.abs_diff(*start))).sum()
    }
}

/// Returns whether one of the merged regions of a contig overlaps an interval. An empty interval has to be inside a
/// region, not at its end.
pub(crate) fn is_overlapped(regions: &[(i32, i32)], start: i32, end: i32) -> bool {
    let before = regions.partition_point(|(region_start, _)| *region_start < end);
    regions[..before].last().is_some_and(|(_, region_end)| start < *region_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_touch_are_one() {
        let mut regions = Regions::default();
        for (start, end) in [(50, 60), (10, 20), (15, 18), (20, 30), (5, 5)] {
            regions.add("c1", start, end);
        }
        let regions = regions.merge();
        assert_eq!(regions.on_contig("c1"), [(5, 5), (10, 30), (50, 60)]);
        assert_eq!((regions.base_count(), regions.has_contig("c2")), (30, false));
        let found = [(9, 10), (9, 11), (30, 31), (20, 20), (10, 10), (30, 30)];
        let found = found.map(|(start, end)| regions.overlaps("c1", start, end));
        assert_eq!(found, [false, true, false, true, false, false]);
    }
}
