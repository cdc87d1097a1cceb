//! Regions of contigs, merged where they touch.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use godwit_formats::intervals::read_bed;
use godwit_model::{Region, RegionError};

use crate::error::HaplotypeError;

/// Merged intervals of contigs, 0-based and half-open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Regions {
    by_contig: HashMap<String, BTreeMap<i32, i32>>,
}

impl Regions {
    /// Reads a BED file.
    pub(crate) fn read_bed(path: &Path) -> Result<Self, HaplotypeError> {
        let mut regions = Self::default();
        for interval in read_bed(path)? {
            let limit = |position: u32| i32::try_from(position).unwrap_or(i32::MAX);
            regions.add(&interval.contig, limit(interval.start), limit(interval.end));
        }
        Ok(regions)
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
        Ok(regions)
    }

    /// Adds an interval, and merges it with those that it overlaps or touches.
    fn add(&mut self, contig: &str, mut start: i32, mut end: i32) {
        let intervals = self.by_contig.entry(contig.to_owned()).or_default();
        let before = intervals.range(..=start).next_back().map(|(start, end)| (*start, *end));
        if let Some((other_start, other_end)) = before.filter(|(_, other_end)| start <= *other_end) {
            if end <= other_end {
                return;
            }
            start = other_start;
        }
        let inside: Vec<(i32, i32)> = intervals.range(start..=end).map(|(start, end)| (*start, *end)).collect();
        for (other_start, other_end) in inside {
            end = end.max(other_end);
            intervals.remove(&other_start);
        }
        intervals.insert(start, end);
    }

    /// Returns whether the contig has a region.
    pub(crate) fn has_contig(&self, contig: &str) -> bool {
        self.by_contig.contains_key(contig)
    }

    /// Returns whether a region overlaps an interval. An empty interval has to be inside a region, not at its end.
    pub(crate) fn overlaps(&self, contig: &str, start: i32, end: i32) -> bool {
        let Some(intervals) = self.by_contig.get(contig) else { return false };
        intervals.range(..end).next_back().is_some_and(|(_, region_end)| start < *region_end)
    }

    /// Returns the number of bases in all regions.
    pub(crate) fn base_count(&self) -> u64 {
        self.by_contig.values().flatten().map(|(start, end)| u64::from(end.abs_diff(*start))).sum()
    }
}
