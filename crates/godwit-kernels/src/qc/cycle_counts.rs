//! Counts of bases and qualities for each cycle of the sequencer.

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

/// The segment of a template that a record belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateSegment {
    /// The first segment, or the only segment.
    First = 0,
    /// The last segment.
    Last = 1,
    /// A segment whose FLAG marks it as neither first nor last, or as both.
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

/// Number of bases of one cycle for each 4-bit base code.
pub(super) type BaseCounts = [u64; 16];
/// Number of possible qualities.
const QUALITIES: usize = 256;
/// Number of bases of one cycle for each base quality, and one unused cache line: an odd number of lines, so that the counts
/// of one quality are in different sets of the processor's cache in each cycle.
pub(super) type QualityCounts = [u64; QUALITIES + 8];
/// The counts of a cycle without bases.
pub(super) const NO_QUALITIES: QualityCounts = [0; QUALITIES + 8];

/// The counts of bases and qualities for each 0-based cycle. Index 0 of the arrays is for first reads, index 1 for last
/// reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleCounts {
    /// Counts of bases as stored in the records, by segment and by strand (forward, reverse).
    pub(super) bases: [[Vec<BaseCounts>; 2]; 2],
    /// Counts of qualities, by segment.
    #[serde(with = "qualities")]
    pub(super) qualities: [Vec<QualityCounts>; 2],
}

impl CycleCounts {
    /// Counts a read. `codes` holds its 4-bit base codes, one per byte, in the order of the record.
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
            qualities.resize(codes.len(), NO_QUALITIES);
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

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bases.iter_mut().flatten().zip(other.bases.iter().flatten()) {
            add_cycle_counts(mine, theirs);
        }
        for (mine, theirs) in self.qualities.iter_mut().zip(&other.qualities) {
            add_cycle_counts(mine, theirs);
        }
    }

    /// Returns the mean quality of each cycle. `end` is 0 for first reads and 1 for last reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::{AlignmentBuffer, RecordCounts};
    /// # use godwit_kernels::qc::ReferenceBases;
    ///
    /// # struct NoReference;
    /// # impl ReferenceBases for NoReference {
    /// #     fn codes(&mut self, _: i32, _: u32, _: u32) -> std::io::Result<&[u8]> {
    /// #         Ok(&[])
    /// #     }
    /// # }
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // `record` is a first read of eight bases of quality 30.
    /// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
    /// counts.add(record, &buffer.decode(record, record.flag()), None::<&mut NoReference>)?;
    /// assert_eq!(counts.cycles.mean_qualities(0), [30.0; 8]);
    /// assert!(counts.cycles.mean_qualities(1).is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn mean_qualities(&self, end: usize) -> Vec<f64> {
        let mean = |counts: &QualityCounts| {
            let sum: u64 = counts.iter().enumerate().map(|(quality, count)| quality as u64 * count).sum();
            sum as f64 / counts.iter().sum::<u64>().max(1) as f64
        };
        self.qualities[end].iter().map(mean).collect()
    }

    /// Returns the fraction of G and C (0 to 1) among A, C, G and T for each cycle. `end` is 0 for first reads and 1
    /// for last reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::qc::{AlignmentBuffer, RecordCounts};
    /// # use godwit_kernels::qc::ReferenceBases;
    ///
    /// # struct NoReference;
    /// # impl ReferenceBases for NoReference {
    /// #     fn codes(&mut self, _: i32, _: u32, _: u32) -> std::io::Result<&[u8]> {
    /// #         Ok(&[])
    /// #     }
    /// # }
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 99 << 16 | 1, 8, 0, 1_291, 300, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // `record` is a first read with the bases ACGTACGT.
    /// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
    /// counts.add(record, &buffer.decode(record, record.flag()), None::<&mut NoReference>)?;
    /// assert_eq!(counts.cycles.gc_fractions(0), [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn gc_fractions(&self, end: usize) -> Vec<f64> {
        let cycles = self.bases[end][0].len().max(self.bases[end][1].len());
        let share = |cycle| {
            let counts = self.stored_base_counts(end, cycle);
            let gc = counts[2] + counts[4];
            gc as f64 / (gc + counts[1] + counts[8]).max(1) as f64
        };
        (0..cycles).map(share).collect()
    }

    /// Returns the counts of the bases of a cycle as stored in the records, for both strands together.
    pub(super) fn stored_base_counts(&self, end: usize, cycle: usize) -> BaseCounts {
        let [forward, reverse] = &self.bases[end];
        let (forward, reverse) = (forward.get(cycle), reverse.get(cycle));
        std::array::from_fn(|code| forward.map_or(0, |counts| counts[code]) + reverse.map_or(0, |counts| counts[code]))
    }

    /// Returns the counts of A, C, G and T of a cycle as sequenced: bases of reverse records are complemented.
    pub(super) fn sequenced_base_counts(&self, end: usize, cycle: usize) -> [u64; 4] {
        let [forward, reverse] = &self.bases[end];
        let (forward, reverse) = (forward.get(cycle), reverse.get(cycle));
        [(1, 8), (2, 4), (4, 2), (8, 1)].map(|(code, complement): (usize, usize)| {
            forward.map_or(0, |counts| counts[code]) + reverse.map_or(0, |counts| counts[complement])
        })
    }
}

/// Serialization of quality counts as lists without trailing zeros.
mod qualities {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{NO_QUALITIES, QUALITIES, QualityCounts};

    pub(super) fn serialize<S: Serializer>(ends: &[Vec<QualityCounts>; 2], to: S) -> Result<S::Ok, S::Error> {
        let used = |counts: &QualityCounts| counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let cycles = |end: &Vec<QualityCounts>| end.iter().map(|counts| counts[..used(counts)].to_vec()).collect();
        let ends: [Vec<Vec<u64>>; 2] = [cycles(&ends[0]), cycles(&ends[1])];
        ends.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[Vec<QualityCounts>; 2], D::Error> {
        let cycle = |counts: &Vec<u64>| {
            let mut all = NO_QUALITIES;
            let used = all[..QUALITIES].get_mut(..counts.len());
            let used = used.ok_or_else(|| D::Error::custom("more than 256 qualities"))?;
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
