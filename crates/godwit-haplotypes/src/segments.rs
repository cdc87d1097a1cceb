//! Cuts a contig into segments: runs of records of both sides between two gaps without records.
//!
//! The memory of a comparison grows with a segment instead of a contig. A gap is wide enough that no record on one side
//! of it changes how a record on the other side counts, unless a path of the search extends across it; the search reports
//! this, and the segment is then made longer.

use std::ops::Range;

use crate::contig_records::ContigRecords;
use crate::record::Record;
use crate::search::{CALLS, TRUTH};

/// A run of records of both sides.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Numbers of the records of each side.
    pub(crate) records: [Range<usize>; 2],
    /// Start of the next record of either side; `None` for the last segment of the contig.
    pub(crate) end: Option<i32>,
}

/// Returns the segment that begins with the record `first` of each side. It has at least `min_records` records, and ends
/// before the first gap of `gap_bases` bases after them.
pub(crate) fn next_segment(
    sides: &[ContigRecords; 2],
    first: [usize; 2],
    min_records: usize,
    gap_bases: i32,
) -> Segment {
    let record = |side: usize, number: usize| (number < sides[side].len()).then(|| sides[side].record(number));
    let mut ends = first;
    let mut next: [Option<Record>; 2] = [record(CALLS, first[CALLS]), record(TRUTH, first[TRUTH])];
    let mut last_end = i32::MIN;
    let mut count = 0;
    loop {
        let start = |side: usize| next[side].map(|record| record.start);
        let side = match (start(CALLS), start(TRUTH)) {
            (Some(call), Some(truth)) => {
                if call <= truth {
                    CALLS
                } else {
                    TRUTH
                }
            }
            (Some(_), None) => CALLS,
            (None, Some(_)) => TRUTH,
            (None, None) => break,
        };
        let Some(found) = next[side] else { break };
        if count >= min_records && found.start >= last_end.saturating_add(gap_bases) {
            return Segment { records: [first[0]..ends[0], first[1]..ends[1]], end: Some(found.start) };
        }
        last_end = last_end.max(found.end());
        count += 1;
        ends[side] += 1;
        next[side] = record(side, ends[side]);
    }
    Segment { records: [first[0]..ends[0], first[1]..ends[1]], end: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(spans: &[(i32, usize)]) -> ContigRecords {
        let mut records = ContigRecords::default();
        for (start, bases) in spans {
            let line = format!("c\t{}\t.\t{}\tA\t.\t.\t.", start + 1, "C".repeat(*bases));
            records.push(line.as_bytes(), &Record::parse(line.as_bytes()).unwrap());
        }
        records.finish_start();
        records
    }

    #[test]
    fn a_segment_ends_before_a_gap_in_the_records_of_both_sides() {
        let sides = [records(&[(10, 1), (20, 30), (60, 1)]), records(&[(12, 1), (49, 1), (100, 1)])];
        let mut first = [0, 0];
        let mut found = Vec::new();
        loop {
            let segment = next_segment(&sides, first, 1, 10);
            first = [segment.records[0].end, segment.records[1].end];
            found.push((first, segment.end));
            if segment.end.is_none() {
                break;
            }
        }
        // The record at 20 extends to 50, so the gap before 60 is the first one of ten bases.
        assert_eq!(found, [([2, 2], Some(60)), ([3, 2], Some(100)), ([3, 3], None)]);
        let whole = next_segment(&sides, [0, 0], 100, 10);
        assert_eq!((whole.records, whole.end), ([0..3, 0..3], None));
    }
}
