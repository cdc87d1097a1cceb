//! Bases and qualities by cycle of the sequencer.

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

/// The segment of its template that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateSegment {
    /// The first or the only segment.
    First = 0,
    /// The last segment.
    Last = 1,
    /// Neither, or both.
    Other = 2,
}

impl TemplateSegment {
    pub(super) fn from_flag(flag: u16) -> Self {
        match (flag & flags::PAIRED != 0, flag & flags::FIRST != 0, flag & flags::LAST != 0) {
            (false, ..) | (true, true, false) => Self::First,
            (true, false, true) => Self::Last,
            _ => Self::Other,
        }
    }
}

/// Counts of 4-bit base codes of one cycle.
pub(super) type BaseCounts = [u64; 16];
/// Counts of qualities of one cycle.
pub(super) type QualityCounts = [u64; 256];

/// Counts for each cycle, 0-based; index 0 is for first reads, 1 for last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCounts {
    /// Bases as stored in the record, by segment and strand (forward, reverse).
    pub(super) bases: [[Vec<BaseCounts>; 2]; 2],
    /// Qualities by segment.
    #[serde(with = "qualities")]
    pub(super) qualities: [Vec<QualityCounts>; 2],
}

impl CycleCounts {
    /// Counts a read. `codes` are its bases, one per byte, in the order of the record.
    #[inline]
    pub(super) fn add(&mut self, record: RawRecord, codes: &[u8], end: TemplateSegment, reverse: bool) {
        if end == TemplateSegment::Other {
            return;
        }
        let bases = &mut self.bases[end as usize][usize::from(reverse)];
        if bases.len() < codes.len() {
            bases.resize(codes.len(), [0; 16]);
        }
        let qualities = &mut self.qualities[end as usize];
        if qualities.len() < codes.len() {
            qualities.resize(codes.len(), [0; 256]);
        }
        let cycle_counts = bases.iter_mut().zip(qualities.iter_mut());
        let codes_and_qualities = codes.iter().zip(record.qualities());
        if reverse {
            for ((bases, qualities), (code, quality)) in cycle_counts.zip(codes_and_qualities.rev()) {
                bases[usize::from(code & 15)] += 1;
                qualities[usize::from(*quality)] += 1;
            }
        } else {
            for ((bases, qualities), (code, quality)) in cycle_counts.zip(codes_and_qualities) {
                bases[usize::from(code & 15)] += 1;
                qualities[usize::from(*quality)] += 1;
            }
        }
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bases.iter_mut().flatten().zip(other.bases.iter().flatten()) {
            add_cycle_counts(mine, theirs);
        }
        for (mine, theirs) in self.qualities.iter_mut().zip(&other.qualities) {
            add_cycle_counts(mine, theirs);
        }
    }

    /// Returns the mean quality of each cycle of first (0) or last (1) reads.
    pub fn mean_qualities(&self, end: usize) -> Vec<f64> {
        let mean = |counts: &QualityCounts| {
            let sum: u64 = counts.iter().enumerate().map(|(quality, count)| quality as u64 * count).sum();
            sum as f64 / counts.iter().sum::<u64>().max(1) as f64
        };
        self.qualities[end].iter().map(mean).collect()
    }

    /// Returns the fraction of G and C among the A, C, G and T of each cycle of first (0) or last (1) reads, 0 to 1.
    pub fn gc_fractions(&self, end: usize) -> Vec<f64> {
        let cycles = self.bases[end][0].len().max(self.bases[end][1].len());
        let share = |cycle| {
            let counts = self.stored_base_counts(end, cycle);
            let gc = counts[2] + counts[4];
            gc as f64 / (gc + counts[1] + counts[8]).max(1) as f64
        };
        (0..cycles).map(share).collect()
    }

    /// Returns the bases of a cycle as stored in records, both strands together.
    pub(super) fn stored_base_counts(&self, end: usize, cycle: usize) -> BaseCounts {
        let [forward, reverse] = &self.bases[end];
        let (forward, reverse) = (forward.get(cycle), reverse.get(cycle));
        std::array::from_fn(|code| forward.map_or(0, |counts| counts[code]) + reverse.map_or(0, |counts| counts[code]))
    }

    /// Returns the A, C, G and T of a cycle as the sequencer read them.
    pub(super) fn sequenced_base_counts(&self, end: usize, cycle: usize) -> [u64; 4] {
        let [forward, reverse] = &self.bases[end];
        let (forward, reverse) = (forward.get(cycle), reverse.get(cycle));
        [(1, 8), (2, 4), (4, 2), (8, 1)].map(|(code, complement): (usize, usize)| {
            forward.map_or(0, |counts| counts[code]) + reverse.map_or(0, |counts| counts[complement])
        })
    }
}

/// Serializes qualities as lists without trailing zeros.
mod qualities {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::QualityCounts;

    pub(super) fn serialize<S: Serializer>(ends: &[Vec<QualityCounts>; 2], to: S) -> Result<S::Ok, S::Error> {
        let used = |counts: &QualityCounts| counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let cycles = |end: &Vec<QualityCounts>| end.iter().map(|counts| counts[..used(counts)].to_vec()).collect();
        let ends: [Vec<Vec<u64>>; 2] = [cycles(&ends[0]), cycles(&ends[1])];
        ends.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Vec<QualityCounts>; 2], D::Error> {
        let cycle = |counts: &Vec<u64>| {
            let mut all = [0; 256];
            let used = all.get_mut(..counts.len()).ok_or_else(|| D::Error::custom("more than 256 qualities"))?;
            used.copy_from_slice(counts);
            Ok(all)
        };
        let [first, last] = <[Vec<Vec<u64>>; 2]>::deserialize(from)?;
        let end = |cycles: Vec<Vec<u64>>| cycles.iter().map(cycle).collect::<Result<_, _>>();
        Ok([end(first)?, end(last)?])
    }
}

fn add_cycle_counts<const N: usize>(mine: &mut Vec<[u64; N]>, theirs: &[[u64; N]]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), [0; N]);
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
    }
}
