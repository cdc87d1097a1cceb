//! Regions of contigs, merged where they touch.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use godwit_formats::bed;

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
        for interval in bed::read(path)? {
            let limit = |position: u32| i32::try_from(position).unwrap_or(i32::MAX);
            regions.add(&interval.contig, limit(interval.start), limit(interval.end));
        }
        Ok(regions)
    }

    /// Parses a region: `CONTIG`, `CONTIG:START` or `CONTIG:START-END`, 1-based and closed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (contig, range) = text.rsplit_once(':').unwrap_or((text, ""));
        let number = |digits: &str| digits.replace(',', "").parse::<i32>().ok().filter(|number| *number > 0);
        let (start, end) = match range.split_once('-') {
            None if range.is_empty() => (0, i32::MAX),
            None => (number(range)? - 1, i32::MAX),
            Some((start, end)) => (number(start)? - 1, number(end)?),
        };
        let mut regions = Self::default();
        regions.add(contig, start, end);
        (!contig.is_empty() && start < end).then_some(regions)
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
