//! Regions of contigs, merged where they touch.

use std::collections::HashMap;
use std::path::Path;

use godwit_formats::intervals::{BedInterval, IntervalError, read_bed};
use godwit_formats::text_lines::TextLineError;
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
        for BedInterval { contig, start, end, .. } in read_bed(path)? {
            regions.add_region(&Region { contig, start, end });
        }
        Ok(regions.merge())
    }

    /// Reads a BED file of target regions. `contig_bases` returns the length of a contig of the reference, and `None` for
    /// other contigs.
    ///
    /// # Errors
    /// [`HaplotypeError::Bed`] if the file is invalid, or a region starts after the end of its contig.
    pub(crate) fn read_target_bed(
        path: &Path,
        contig_bases: impl Fn(&str) -> Option<u64>,
    ) -> Result<Self, HaplotypeError> {
        let mut regions = Self::default();
        for BedInterval { contig, start, end, line } in read_bed(path)? {
            let region = Region { contig, start, end };
            let checked = contig_bases(&region.contig).map_or(Ok(()), |bases| region.check_start(bases));
            if let Err(error) = checked {
                let error = TextLineError::Line { path: path.to_owned(), line, problem: error.to_string() };
                return Err(IntervalError::from(error).into());
            }
            regions.add_region(&region);
        }
        Ok(regions.merge())
    }

    /// Parses a list of regions such as `chr20:1001-2000,chrX`, whose contigs are those of the reference. `contig_bases`
    /// returns the length of a contig of the reference, and `None` for other contigs.
    ///
    /// # Errors
    /// [`RegionError`] if the text is not a region, a contig does not exist, or a region starts after the end of its
    /// contig.
    pub(crate) fn parse(text: &str, contig_bases: impl Fn(&str) -> Option<u64>) -> Result<Self, RegionError> {
        let mut regions = Self::default();
        for region in Region::parse_list(text, |contig| Some(contig_bases(contig).is_some()))? {
            region.check_start(contig_bases(&region.contig).unwrap_or_default())?;
            regions.add_region(&region);
        }
        Ok(regions.merge())
    }

    fn add_region(&mut self, region: &Region) {
        let limit = |position: u32| i32::try_from(position).unwrap_or(i32::MAX);
        self.add(&region.contig, limit(region.start), limit(region.end));
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
