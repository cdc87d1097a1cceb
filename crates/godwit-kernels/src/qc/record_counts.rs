//! Quality counts of records that do not depend on the record order.

use std::io;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::alignment::Alignment;
use super::alignment_summary::{AlignmentSummary, ReferenceBases};
use super::cycle_counts::{CycleCounts, TemplateSegment};
use super::histogram::Histogram;
use super::insert_size::InsertSizeCounts;
use super::samtools_stats::{ReadAttributes, SamtoolsStats};

/// All quality counts that can be collected from records in any order.
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
/// // `record` is a mapped first read of eight bases, with mapping quality 60.
/// let (mut buffer, mut counts) = (AlignmentBuffer::default(), RecordCounts::default());
/// counts.add(record, &buffer.decode(record, record.flag()), None::<&mut NoReference>)?;
/// assert_eq!(counts.stats.bases(), 8);
/// assert_eq!(counts.mapping_qualities.get(60), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordCounts {
    /// Insert sizes, as Picard counts them.
    #[serde(rename = "inserts")]
    pub insert_sizes: InsertSizeCounts,
    /// Alignment summary, as Picard computes it.
    pub summary: AlignmentSummary,
    /// Counts of `samtools stats`.
    pub stats: SamtoolsStats,
    /// Counts of bases and qualities for each sequencing cycle, over primary records.
    pub cycles: CycleCounts,
    /// Histogram of the mapping qualities of mapped primary records.
    pub mapping_qualities: Histogram,
}

impl RecordCounts {
    /// Counts a record.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        alignment: &Alignment,
        reference: Option<&mut R>,
    ) -> io::Result<()> {
        let flag = alignment.flag;
        self.insert_sizes.add(record, flag, alignment.reference_bases);
        self.summary.add(record, alignment, reference)?;
        let (segment, edit_distance) = (TemplateSegment::from_flag(flag), alignment.tags.edit_distance);
        self.stats.add(record, alignment, ReadAttributes { segment, edit_distance });
        let primary = flag & flags::NOT_PRIMARY == 0;
        if primary {
            self.cycles.add(record, alignment.codes, segment, flag & flags::REVERSE != 0);
        }
        if primary && flag & flags::UNMAPPED == 0 {
            self.mapping_qualities.add(u64::from(record.mapping_quality()));
        }
        Ok(())
    }

    /// Adds the counts of other records of the same file.
    pub fn merge(&mut self, other: &Self) {
        self.insert_sizes.merge(&other.insert_sizes);
        self.summary.merge(&other.summary);
        self.stats.merge(&other.stats);
        self.cycles.merge(&other.cycles);
        self.mapping_qualities.merge(&other.mapping_qualities);
    }
}

/// Returns the number of byte pairs for which `test` returns true. Sums of at most 255 results fit one byte, so that
/// the compiler can compare many bytes at once.
#[inline]
pub fn count_byte_pairs(one: &[u8], other: &[u8], test: impl Fn(u8, u8) -> bool) -> u64 {
    let chunks = one.chunks(255).zip(other.chunks(255));
    let count = |(one, other): (&[u8], &[u8])| {
        let pairs = one.iter().zip(other);
        u64::from(pairs.fold(0u8, |count, (a, b)| count.wrapping_add(u8::from(test(*a, *b)))))
    };
    chunks.map(count).sum()
}
