//! The packed record: one BAM record (SAMv1 §4.2, 2023-05-24) without its leading `block_size`.
//!
//! Sort, marking and writing look at a few fields and carry the rest; [`RawRecord`] reads those fields where they lie.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// Letters of the bases by their 4-bit codes (SAMv1 §4.2.3).
pub const BASE_LETTERS: &[u8; 16] = b"=ACMGRSVTWYHKDBN";

use crate::flags;

/// Bytes before the read name in a BAM record.
const FIXED_BYTES: usize = 32;

/// Coordinate order of records as one integer: contig (unplaced last), position, strand. It is the order of
/// `samtools sort` 1.16, which looks at FLAG 0x10 on unmapped reads too; ties keep the order of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable, Serialize, Deserialize)]
#[repr(transparent)]
pub struct SortKey(pub u64);

impl SortKey {
    /// Not above any key.
    pub const FIRST: Self = Self(0);
    /// Not above any key of a record without a contig, and above every other key.
    pub const UNPLACED: Self = Self((u32::MAX as u64) << 32);

    /// The key of a record at a 0-based position (-1: none) of a contig (-1: none).
    #[inline]
    pub fn new(contig: i32, position: i32, reverse: bool) -> Self {
        let place = (position.wrapping_add(1) as u32) << 1 | u32::from(reverse);
        Self(u64::from(contig as u32) << 32 | u64::from(place))
    }

    /// The contig, -1 for none.
    #[inline]
    pub fn contig(self) -> i32 {
        (self.0 >> 32) as u32 as i32
    }

    /// The 0-based position, -1 for none.
    #[inline]
    pub fn position(self) -> i32 {
        ((self.0 as u32 >> 1) as i32).wrapping_sub(1)
    }

    /// The smallest key at the same position.
    #[inline]
    pub fn forward_of_position(self) -> Self {
        Self(self.0 & !1)
    }
}

/// One CIGAR operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CigarOp(pub u32);

impl CigarOp {
    /// Number of bases.
    #[inline]
    pub fn bases(self) -> u32 {
        self.0 >> 4
    }

    /// The operation, an index into `MIDNSHP=X`.
    #[inline]
    pub fn code(self) -> u8 {
        (self.0 & 0xf) as u8
    }

    /// Consumes reference: M, D, N, = and X.
    #[inline]
    pub fn consumes_reference(self) -> bool {
        0b1_1000_1101 >> self.code() & 1 == 1
    }

    /// Consumes the read: M, I, S, = and X.
    #[inline]
    pub fn consumes_read(self) -> bool {
        0b1_1001_0011 >> self.code() & 1 == 1
    }

    /// Soft or hard clip.
    #[inline]
    pub fn is_clip(self) -> bool {
        matches!(self.code(), 4 | 5)
    }
}

/// One tag of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// Its two letters.
    pub name: [u8; 2],
    /// Its type: one of `AcCsSiIfdZHB`; `d` is htslib's, for a number of 64 bits.
    pub kind: u8,
    /// Its value, as [`RawRecord::tag`] gives it.
    pub value: &'a [u8],
    /// Where the tag starts in the record's bytes.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

impl<'a> Tag<'a> {
    /// The number of a tag of type `c`, `C`, `s`, `S`, `i` or `I`.
    #[inline]
    pub fn integer(&self) -> Option<i64> {
        Some(match (self.kind, self.value) {
            (b'c', [a]) => i64::from(*a as i8),
            (b'C', [a]) => i64::from(*a),
            (b's', [a, b]) => i64::from(i16::from_le_bytes([*a, *b])),
            (b'S', [a, b]) => i64::from(u16::from_le_bytes([*a, *b])),
            (b'i', [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
            (b'I', [a, b, c, d]) => i64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            _ => return None,
        })
    }

    /// The number of a tag of type `f` or `d`, or of an integer.
    pub fn float(&self) -> Option<f64> {
        match (self.kind, self.value) {
            (b'f', [a, b, c, d]) => Some(f64::from(f32::from_le_bytes([*a, *b, *c, *d]))),
            (b'd', value) => value.try_into().ok().map(f64::from_le_bytes),
            _ => self.integer().map(|number| number as f64),
        }
    }

    /// The text of a tag of type `Z`, `H` or `A` that is UTF-8.
    pub fn text(&self) -> Option<&'a str> {
        matches!(self.kind, b'Z' | b'H' | b'A').then(|| std::str::from_utf8(self.value).ok()).flatten()
    }
}

/// Why bytes are not a BAM record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Shorter than its fixed fields or than the lengths in them say.
    #[error("a BAM record of {bytes} bytes is too short for its fields, which take {needed}")]
    Truncated {
        /// Bytes there are.
        bytes: usize,
        /// Bytes its fields take.
        needed: usize,
    },
    /// The read name is empty or not ended by NUL.
    #[error("the read name of a BAM record is not ended by NUL")]
    Name,
    /// A contig index outside the header.
    #[error("a BAM record is on contig {contig}, but the header has {contigs}")]
    Contig {
        /// The index in the record.
        contig: i32,
        /// Contigs in the header.
        contigs: usize,
    },
}

/// A view of one packed record.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a>(&'a [u8]);

impl<'a> RawRecord<'a> {
    /// A view after checking that every length in the record fits its bytes and every contig is one of `contigs`.
    ///
    /// # Errors
    /// [`RecordError`] naming what does not fit.
    pub fn checked(bytes: &'a [u8], contigs: usize) -> Result<Self, RecordError> {
        if bytes.len() < FIXED_BYTES {
            return Err(RecordError::Truncated { bytes: bytes.len(), needed: FIXED_BYTES });
        }
        let record = Self(bytes);
        let needed = record.tags_offset();
        if needed > bytes.len() {
            return Err(RecordError::Truncated { bytes: bytes.len(), needed });
        }
        let name_end = FIXED_BYTES + record.name_bytes();
        if record.name_bytes() == 0 || bytes[name_end - 1] != 0 {
            return Err(RecordError::Name);
        }
        for contig in [record.contig(), record.mate_contig()] {
            if contig < -1 || contig >= contigs as i32 {
                return Err(RecordError::Contig { contig, contigs });
            }
        }
        Ok(record)
    }

    /// A view of bytes that were checked before, or that godwit encoded itself.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.len() >= FIXED_BYTES);
        Self(bytes)
    }

    #[inline]
    fn u16_at(self, offset: usize) -> u16 {
        u16::from_le_bytes([self.0[offset], self.0[offset + 1]])
    }

    #[inline]
    fn i32_at(self, offset: usize) -> i32 {
        let bytes = &self.0[offset..offset + 4];
        i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// The packed bytes.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Contig index, -1 for none.
    #[inline]
    pub fn contig(self) -> i32 {
        self.i32_at(0)
    }

    /// 0-based leftmost position, -1 for none. Old programs wrote other negative numbers for none.
    #[inline]
    pub fn position(self) -> i32 {
        self.i32_at(4).max(-1)
    }

    /// Mapping quality.
    #[inline]
    pub fn mapping_quality(self) -> u8 {
        self.0[9]
    }

    /// FLAG.
    #[inline]
    pub fn flag(self) -> u16 {
        self.u16_at(14)
    }

    /// The mate's contig index, -1 for none.
    #[inline]
    pub fn mate_contig(self) -> i32 {
        self.i32_at(20)
    }

    /// The mate's 0-based position, -1 for none. Old programs wrote other negative numbers for none.
    #[inline]
    pub fn mate_position(self) -> i32 {
        self.i32_at(24).max(-1)
    }

    /// TLEN, signed.
    #[inline]
    pub fn template_length(self) -> i32 {
        self.i32_at(28)
    }

    /// Operations of the CIGAR field; 2 for one that is in the `CG` tag.
    #[inline]
    pub fn cigar_operations(self) -> usize {
        usize::from(self.u16_at(12))
    }

    /// Number of bases in SEQ.
    #[inline]
    pub fn bases(self) -> usize {
        self.i32_at(16).max(0) as usize
    }

    fn name_bytes(self) -> usize {
        usize::from(self.0[8])
    }

    fn cigar_offset(self) -> usize {
        FIXED_BYTES + self.name_bytes()
    }

    fn sequence_offset(self) -> usize {
        self.cigar_offset() + 4 * usize::from(self.u16_at(12))
    }

    fn quality_offset(self) -> usize {
        self.sequence_offset() + self.bases().div_ceil(2)
    }

    fn tags_offset(self) -> usize {
        self.quality_offset() + self.bases()
    }

    /// The read name, without its NUL.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        &self.0[FIXED_BYTES..FIXED_BYTES + self.name_bytes() - 1]
    }

    /// SEQ as BAM packs it: two bases a byte, high nibble first; [`BASE_LETTERS`] has their letters (SAMv1 §4.2.3).
    #[inline]
    pub fn packed_bases(self) -> &'a [u8] {
        &self.0[self.sequence_offset()..self.quality_offset()]
    }

    /// Base qualities (no offset); a first byte of 0xff means there are none.
    #[inline]
    pub fn qualities(self) -> &'a [u8] {
        &self.0[self.quality_offset()..self.tags_offset()]
    }

    /// The tags, packed.
    #[inline]
    pub fn tags(self) -> &'a [u8] {
        &self.0[self.tags_offset()..]
    }

    /// The CIGAR; one of more than 65,535 operations is read from its `CG` tag (SAMv1 §4.2.2).
    #[inline]
    pub fn cigar(self) -> impl DoubleEndedIterator<Item = CigarOp> + 'a {
        self.cigar_bytes().chunks_exact(4).map(|op| CigarOp(u32::from_le_bytes([op[0], op[1], op[2], op[3]])))
    }

    /// Whether the CIGAR was too long for its place and is in the `CG` tag.
    #[inline]
    pub fn has_cigar_in_tag(self) -> bool {
        self.sequence_offset() - self.cigar_offset() == 8
            && self.cigar_bytes().as_ptr() != self.0[self.cigar_offset()..].as_ptr()
    }

    /// One past the last 0-based position that the record covers: one base where it is unmapped or its CIGAR covers
    /// none, as in `samtools view` with a region (htslib 1.16 `bam_endpos`).
    #[inline]
    pub fn end_position(self, flag: u16) -> i32 {
        let mapped = flag & flags::UNMAPPED == 0;
        let bases = if mapped { self.reference_bases().max(1) as i32 } else { 1 };
        self.position().saturating_add(bases)
    }

    #[inline]
    fn cigar_bytes(self) -> &'a [u8] {
        let inline = &self.0[self.cigar_offset()..self.sequence_offset()];
        if inline.len() == 8 {
            let op = |at: usize| CigarOp(self.i32_at(self.cigar_offset() + at) as u32);
            let placeholder = op(0).code() == 4 && op(0).bases() as usize == self.bases() && op(4).code() == 3;
            // `CG:B,I`: type and subtype, four bytes of count, then the operations. htslib 1.16 (`bam_tag2cigar`) leaves
            // a tag alone that has fewer operations than the placeholder.
            if placeholder
                && let Some((b'B', value)) = self.tag(*b"CG")
                && value.first() == Some(&b'I')
                && value.len() >= 5 + inline.len()
            {
                return &value[5..];
            }
        }
        inline
    }

    /// Type and value of a tag; the value of a `Z` or `H` tag comes without its NUL, of a `B` tag with its subtype and
    /// count in front. `None` where there is no such tag or the tags are malformed before it.
    pub fn tag(self, name: [u8; 2]) -> Option<(u8, &'a [u8])> {
        self.each_tag().find(|tag| tag.name == name).map(|tag| (tag.kind, tag.value))
    }

    /// The tags in order; ends early where one is malformed.
    #[inline]
    pub fn each_tag(self) -> impl Iterator<Item = Tag<'a>> {
        tags_from(self.0, self.tags_offset())
    }

    /// The read group: the value of the `RG:Z` tag.
    #[inline]
    pub fn read_group(self) -> Option<&'a [u8]> {
        self.tag(*b"RG").filter(|(kind, _)| *kind == b'Z').map(|(_, value)| value)
    }

    /// Reference bases the alignment spans, 0 without a CIGAR.
    #[inline]
    pub fn reference_bases(self) -> u32 {
        self.cigar().filter(|op| op.consumes_reference()).fold(0u32, |sum, op| sum.wrapping_add(op.bases()))
    }

    /// 0-based position of the 5' end with soft and hard clips undone: the first base of a forward read, the last base
    /// of a reverse one (htsjdk 4.2.0 `getUnclippedStart`, `getUnclippedEnd`). Negative before the contig's start.
    #[inline]
    pub fn unclipped_five_prime(self) -> i32 {
        if self.flag() & flags::REVERSE == 0 {
            let clipped: u32 = self.cigar().take_while(|op| op.is_clip()).map(CigarOp::bases).sum();
            self.position().wrapping_sub(clipped as i32)
        } else {
            let clipped: u32 = self.cigar().rev().take_while(|op| op.is_clip()).map(CigarOp::bases).sum();
            self.position().wrapping_add(self.reference_bases() as i32).wrapping_sub(1).wrapping_add(clipped as i32)
        }
    }

    /// Place in coordinate order.
    #[inline]
    pub fn sort_key(self) -> SortKey {
        SortKey::new(self.contig(), self.position(), self.flag() & flags::REVERSE != 0)
    }
}

/// Tags packed one behind the other, as a record has them; ends early where one is malformed.
pub fn packed_tags(packed: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    tags_from(packed, 0)
}

#[inline]
fn tags_from(bytes: &[u8], mut at: usize) -> impl Iterator<Item = Tag<'_>> {
    std::iter::from_fn(move || {
        let [a, b, kind, value @ ..] = bytes.get(at..)? else { return None };
        let stored = tag_value_bytes(*kind, value)?;
        let text = matches!(kind, b'Z' | b'H');
        let start = at;
        at += 3 + stored;
        Some(Tag { name: [*a, *b], kind: *kind, value: &value[..stored - usize::from(text)], start, end: at })
    })
}

/// Bytes a tag value of this type takes, its NUL or array header included.
fn tag_value_bytes(kind: u8, value: &[u8]) -> Option<usize> {
    let bytes = match kind {
        b'A' | b'c' | b'C' => 1,
        b's' | b'S' => 2,
        b'i' | b'I' | b'f' => 4,
        b'd' => 8,
        b'Z' | b'H' => value.iter().position(|byte| *byte == 0)? + 1,
        b'B' => {
            let element = match value.first()? {
                b'c' | b'C' => 1,
                b's' | b'S' => 2,
                b'i' | b'I' | b'f' => 4,
                _ => return None,
            };
            let count = u32::from_le_bytes(value.get(1..5)?.try_into().ok()?) as usize;
            5 + element * count
        }
        _ => return None,
    };
    (bytes <= value.len()).then_some(bytes)
}

/// The smallest index bin that holds `[start, end)`, 0-based (SAMv1 §5.3, `reg2bin`).
#[inline]
pub fn reg2bin(start: i64, end: i64) -> u16 {
    let end = end - 1;
    for (shift, first_bin) in [(14, 4681), (17, 585), (20, 73), (23, 9), (26, 1)] {
        if start >> shift == end >> shift {
            return (first_bin + (start >> shift)) as u16;
        }
    }
    0
}

#[cfg(test)]
mod tests;
