//! Quality counts of records that do not depend on the record order.

use std::io;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::alignment_summary::{AlignmentSummary, ReferenceBases, SummaryTags};
use super::cycle_counts::{CycleCounts, TemplateSegment};
use super::histogram::Histogram;
use super::insert_size::InsertSizeCounts;
use super::samtools_stats::{ReadAttributes, SamtoolsStats};

/// For each packed byte: the two 4-bit base codes that it contains, as two bytes.
const UNPACKED_BASE_CODES: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [(byte >> 4) as u8, (byte & 15) as u8];
        byte += 1;
    }
    pairs
};

/// A gapless block of an alignment.
#[derive(Clone, Copy, Debug)]
pub(super) struct AlignmentBlock {
    /// 0-based offset of the block's first base in SEQ.
    pub(super) read_start: usize,
    /// Offset of the block's first base from POS, reference bases.
    pub(super) reference_offset: usize,
    /// Length of the block, bases.
    pub(super) bases: usize,
}

/// The properties of a record's alignment, computed in one pass over CIGAR and SEQ.
pub(super) struct Alignment<'a> {
    /// FLAG of the record with the decided duplicate bit.
    pub(super) flag: u16,
    /// Bases of SEQ as 4-bit codes, one per byte.
    pub(super) codes: &'a [u8],
    /// Alignment blocks: the M, = and X operations of the CIGAR.
    pub(super) blocks: &'a [AlignmentBlock],
    /// Number of reference bases that the alignment covers.
    pub(super) reference_bases: i64,
    /// Number of read bases in M, I, = and X operations.
    pub(super) unclipped_read_bases: u64,
    pub(super) soft_clipped: u64,
    pub(super) hard_clipped: u64,
    /// Number of I and D operations.
    pub(super) indels: u64,
}

impl Alignment<'_> {
    /// Returns the 1-based sequencing cycle of the base with the 0-based index `at` (htsjdk 4.2.0
    /// `CoordMath.getCycle`).
    pub(super) fn cycle(&self, at: usize) -> u64 {
        if self.flag & flags::REVERSE == 0 { at as u64 + 1 } else { self.codes.len().saturating_sub(at) as u64 }
    }
}

/// All quality counts that can be collected from records in any order.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::qc::RecordCounts;
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
/// let mut counts = RecordCounts::default();
/// counts.add(record, record.flag(), None::<&mut NoReference>)?;
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
    #[serde(skip)]
    codes: Vec<u8>,
    #[serde(skip)]
    blocks: Vec<AlignmentBlock>,
}

impl RecordCounts {
    /// Counts a record. `flag` replaces the FLAG in the packed record; the two may differ in the duplicate bit.
    ///
    /// # Errors
    /// The errors of `reference`.
    pub fn add<R: ReferenceBases>(
        &mut self,
        record: RawRecord,
        flag: u16,
        reference: Option<&mut R>,
    ) -> io::Result<()> {
        self.unpack_bases(record);
        let mut alignment = Alignment {
            flag,
            codes: &self.codes,
            blocks: &[],
            reference_bases: 0,
            unclipped_read_bases: 0,
            soft_clipped: 0,
            hard_clipped: 0,
            indels: 0,
        };
        scan_cigar(record, &mut alignment, &mut self.blocks);
        alignment.blocks = &self.blocks;
        let (tags, edit_distance) = scan_tags(record);
        self.insert_sizes.add(record, flag, alignment.reference_bases);
        self.summary.add(record, &alignment, tags, reference)?;
        let read = ReadAttributes { segment: TemplateSegment::from_flag(flag), edit_distance };
        self.stats.add(record, &alignment, read);
        let primary = flag & flags::NOT_PRIMARY == 0;
        if primary {
            self.cycles.add(record, &self.codes, read.segment, flag & flags::REVERSE != 0);
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

    fn unpack_bases(&mut self, record: RawRecord) {
        self.codes.clear();
        self.codes.extend(record.packed_bases().iter().flat_map(|byte| UNPACKED_BASE_CODES[usize::from(*byte)]));
        self.codes.truncate(record.sequence_length());
    }
}

fn scan_cigar(record: RawRecord, alignment: &mut Alignment, blocks: &mut Vec<AlignmentBlock>) {
    blocks.clear();
    let (mut read, mut reference) = (0, 0);
    for op in record.cigar() {
        let bases = op.bases() as usize;
        match op.code() {
            0 | 7 | 8 => blocks.push(AlignmentBlock { read_start: read, reference_offset: reference, bases }),
            1 | 2 => alignment.indels += 1,
            4 => alignment.soft_clipped += bases as u64,
            5 => alignment.hard_clipped += bases as u64,
            _ => {}
        }
        if op.consumes_read() {
            read += bases;
            alignment.unclipped_read_bases += if op.is_clip() { 0 } else { bases as u64 };
        }
        if op.consumes_reference() {
            reference += bases;
        }
    }
    alignment.reference_bases = reference as i64;
}

/// Returns the tags that the alignment summary uses, and the value of the tag `NM` (0 if absent).
fn scan_tags(record: RawRecord) -> (SummaryTags, i64) {
    let (mut tags, mut mismatches) = (SummaryTags::default(), 0);
    for tag in record.iter_tags() {
        match &tag.name {
            b"NM" => mismatches = tag_integer(tag.type_code, tag.value).unwrap_or(0),
            b"MQ" => tags.mate_mapping_quality = tag_integer(tag.type_code, tag.value),
            b"SA" => tags.has_supplementary = true,
            b"XN" => tags.is_noise = tag_integer(tag.type_code, tag.value) == Some(1),
            _ => {}
        }
    }
    (tags, mismatches)
}

/// Returns the number of byte pairs for which `test` returns true. Sums of at most 255 results fit one byte, so that
/// the compiler can compare many bytes at once.
#[inline]
pub(super) fn count_byte_pairs(one: &[u8], other: &[u8], test: impl Fn(u8, u8) -> bool) -> u64 {
    let chunks = one.chunks(255).zip(other.chunks(255));
    let count = |(one, other): (&[u8], &[u8])| {
        let pairs = one.iter().zip(other);
        u64::from(pairs.fold(0u8, |count, (a, b)| count.wrapping_add(u8::from(test(*a, *b)))))
    };
    chunks.map(count).sum()
}

fn tag_integer(kind: u8, value: &[u8]) -> Option<i64> {
    Some(match (kind, value) {
        (b'c', [byte]) => i64::from(*byte as i8),
        (b'C', [byte]) => i64::from(*byte),
        (b's', [a, b]) => i64::from(i16::from_le_bytes([*a, *b])),
        (b'S', [a, b]) => i64::from(u16::from_le_bytes([*a, *b])),
        (b'i', [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        (b'I', [a, b, c, d]) => i64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => return None,
    })
}
