//! Everything that is counted record by record, whatever their order.

use std::io;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::alignment_summary::{AlignmentSummary, ReferenceBases, SummaryTags};
use super::cycles::{Cycles, End};
use super::histogram::Histogram;
use super::insert_size::InsertSizes;
use super::samtools_stats::{SamtoolsStats, StatsRead};

/// Two 4-bit codes as two bytes, for each packed byte.
const UNPACKED: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [(byte >> 4) as u8, (byte & 15) as u8];
        byte += 1;
    }
    pairs
};

/// Bases aligned without a gap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// Offset in SEQ.
    pub(super) read_start: usize,
    /// Offset from POS.
    pub(super) reference_offset: usize,
    /// Length.
    pub(super) bases: usize,
}

/// What one look at a record's CIGAR and SEQ gives.
pub(super) struct Alignment<'a> {
    /// FLAG, duplicates decided.
    pub(super) flag: u16,
    /// SEQ as one 4-bit code per byte.
    pub(super) codes: &'a [u8],
    /// M, = and X operations.
    pub(super) blocks: &'a [Block],
    /// Reference bases the alignment spans.
    pub(super) reference_bases: i64,
    /// Bases of M, I, = and X.
    pub(super) unclipped_read_bases: u64,
    pub(super) soft_clipped: u64,
    pub(super) hard_clipped: u64,
    /// Number of I and D operations.
    pub(super) indels: u64,
}

impl Alignment<'_> {
    /// The 1-based cycle of a base (htsjdk 4.2.0 `CoordMath.getCycle`).
    pub(super) fn cycle(&self, at: usize) -> u64 {
        if self.flag & flags::REVERSE == 0 { at as u64 + 1 } else { self.codes.len().saturating_sub(at) as u64 }
    }
}

/// Counts of records in any order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecordCounts {
    /// Picard's insert sizes.
    pub inserts: InsertSizes,
    /// Picard's alignment summary.
    pub summary: AlignmentSummary,
    /// What `samtools stats` counts.
    pub stats: SamtoolsStats,
    /// Bases and qualities by cycle.
    pub cycles: Cycles,
    /// Mapping qualities of mapped primary records.
    pub mapping_qualities: Histogram,
    #[serde(skip)]
    codes: Vec<u8>,
    #[serde(skip)]
    blocks: Vec<Block>,
}

impl RecordCounts {
    /// Counts a record whose FLAG is `flag`, which may differ from the packed one in the duplicate bit.
    ///
    /// # Errors
    /// Those of `reference`.
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
        look_at_cigar(record, &mut alignment, &mut self.blocks);
        alignment.blocks = &self.blocks;
        let (tags, mismatches) = look_at_tags(record);
        self.inserts.add(record, flag, alignment.reference_bases);
        self.summary.add(record, &alignment, tags, reference)?;
        let read = StatsRead { end: End::of(flag), mismatches };
        self.stats.add(record, &alignment, read);
        let primary = flag & flags::NOT_PRIMARY == 0;
        if primary {
            self.cycles.add(record, &self.codes, read.end, flag & flags::REVERSE != 0);
        }
        if primary && flag & flags::UNMAPPED == 0 {
            self.mapping_qualities.add(u64::from(record.mapping_quality()));
        }
        Ok(())
    }

    /// Adds the counts of another part.
    pub fn merge(&mut self, other: &Self) {
        self.inserts.merge(&other.inserts);
        self.summary.merge(&other.summary);
        self.stats.merge(&other.stats);
        self.cycles.merge(&other.cycles);
        self.mapping_qualities.merge(&other.mapping_qualities);
    }

    fn unpack_bases(&mut self, record: RawRecord) {
        self.codes.clear();
        self.codes.extend(record.packed_bases().iter().flat_map(|byte| UNPACKED[usize::from(*byte)]));
        self.codes.truncate(record.bases());
    }
}

fn look_at_cigar(record: RawRecord, alignment: &mut Alignment, blocks: &mut Vec<Block>) {
    blocks.clear();
    let (mut read, mut reference) = (0, 0);
    for op in record.cigar() {
        let bases = op.bases() as usize;
        match op.code() {
            0 | 7 | 8 => blocks.push(Block { read_start: read, reference_offset: reference, bases }),
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

/// What the summary wants to know, and the value of `NM`.
fn look_at_tags(record: RawRecord) -> (SummaryTags, i64) {
    let (mut tags, mut mismatches) = (SummaryTags::default(), 0);
    for tag in record.each_tag() {
        match &tag.name {
            b"NM" => mismatches = integer(tag.kind, tag.value).unwrap_or(0),
            b"MQ" => tags.mate_quality = integer(tag.kind, tag.value),
            b"SA" => tags.split = true,
            b"XN" => tags.noise = integer(tag.kind, tag.value) == Some(1),
            _ => {}
        }
    }
    (tags, mismatches)
}

/// How many pairs of bytes pass. Sums of at most 255 in a byte, so that the compiler compares many bytes at once.
#[inline]
pub(super) fn count_pairs(one: &[u8], other: &[u8], test: impl Fn(u8, u8) -> bool) -> u64 {
    let chunks = one.chunks(255).zip(other.chunks(255));
    let count = |(one, other): (&[u8], &[u8])| {
        let pairs = one.iter().zip(other);
        u64::from(pairs.fold(0u8, |count, (a, b)| count.wrapping_add(u8::from(test(*a, *b)))))
    };
    chunks.map(count).sum()
}

fn integer(kind: u8, value: &[u8]) -> Option<i64> {
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
