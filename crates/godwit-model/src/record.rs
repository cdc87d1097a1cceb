//! Packed records: BAM records (SAMv1 §4.2, 2023-05-24) without the leading `block_size`.
//!
//! Sorting, duplicate marking and writing use only a few fields of a record and copy its other bytes unchanged.
//! [`RawRecord`] decodes these fields in place.

mod sort_key;

pub use sort_key::SortKey;

/// Letters of the bases, indexed by their 4-bit codes (SAMv1 §4.2.3).
///
/// # Examples
///
/// ```
/// use godwit_model::BASE_LETTERS;
///
/// let packed = [0x12_u8, 0x48];
/// let codes = packed.into_iter().flat_map(|byte| [byte >> 4, byte & 15]);
/// let letters: String = codes.map(|code| char::from(BASE_LETTERS[usize::from(code)])).collect();
/// assert_eq!(letters, "ACGT");
/// ```
pub const BASE_LETTERS: &[u8; 16] = b"=ACMGRSVTWYHKDBN";

use crate::flags;

/// Number of bytes before the read name in a BAM record.
const FIXED_BYTES: usize = 32;

/// One CIGAR operation.
///
/// # Examples
///
/// ```
/// use godwit_model::CigarOp;
///
/// // 3D, as BAM encodes it.
/// let deletion = CigarOp(3 << 4 | 2);
/// assert_eq!((deletion.bases(), deletion.code()), (3, 2));
/// assert!(deletion.consumes_reference() && !deletion.consumes_read());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CigarOp(pub u32);

impl CigarOp {
    /// Returns the number of bases of the operation.
    #[inline]
    pub fn bases(self) -> u32 {
        self.0 >> 4
    }

    /// Returns the operation code, an index into `MIDNSHP=X`.
    #[inline]
    pub fn code(self) -> u8 {
        (self.0 & 0xf) as u8
    }

    /// Returns whether the operation consumes reference bases, as M, D, N, = and X do.
    #[inline]
    pub fn consumes_reference(self) -> bool {
        0b1_1000_1101 >> self.code() & 1 == 1
    }

    /// Returns whether the operation consumes read bases, as M, I, S, = and X do.
    #[inline]
    pub fn consumes_read(self) -> bool {
        0b1_1001_0011 >> self.code() & 1 == 1
    }

    /// Reports whether the operation is a soft or hard clip.
    #[inline]
    pub fn is_clip(self) -> bool {
        matches!(self.code(), 4 | 5)
    }
}

/// A tag (optional field) of a BAM record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'a> {
    /// The two characters of the tag name.
    pub name: [u8; 2],
    /// Type code: one of `AcCsSiIfdZHB`; `d` is htslib's code for a 64-bit float.
    pub type_code: u8,
    /// Value of the tag, as [`RawRecord::tag`] returns it.
    pub value: &'a [u8],
    /// Byte offset of the first byte of the tag from the start of the record.
    pub start: usize,
    /// Byte offset one past the last byte of the tag from the start of the record.
    pub end: usize,
}

impl<'a> Tag<'a> {
    /// Returns the value of an integer tag (type `c`, `C`, `s`, `S`, `i` or `I`), or `None` for a tag of another type.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::iter_packed_tags;
    ///
    /// let values: Vec<_> = iter_packed_tags(b"NMC\x02ASs\x97\0RGZlane1\0").map(|tag| tag.integer()).collect();
    /// assert_eq!(values, [Some(2), Some(151), None]);
    /// ```
    #[inline]
    pub fn integer(&self) -> Option<i64> {
        Some(match (self.type_code, self.value) {
            (b'c', [a]) => i64::from(*a as i8),
            (b'C', [a]) => i64::from(*a),
            (b's', [a, b]) => i64::from(i16::from_le_bytes([*a, *b])),
            (b'S', [a, b]) => i64::from(u16::from_le_bytes([*a, *b])),
            (b'i', [a, b, c, d]) => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
            (b'I', [a, b, c, d]) => i64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            _ => return None,
        })
    }

    /// Returns the value of a number tag (type `f`, `d` or an integer type), or `None` for a tag of another type.
    pub fn float(&self) -> Option<f64> {
        match (self.type_code, self.value) {
            (b'f', [a, b, c, d]) => Some(f64::from(f32::from_le_bytes([*a, *b, *c, *d]))),
            (b'd', value) => value.try_into().ok().map(f64::from_le_bytes),
            _ => self.integer().map(|number| number as f64),
        }
    }

    /// Returns the value of a text tag (type `Z`, `H` or `A`), or `None` for another type or invalid UTF-8.
    pub fn text(&self) -> Option<&'a str> {
        matches!(self.type_code, b'Z' | b'H' | b'A').then(|| std::str::from_utf8(self.value).ok()).flatten()
    }
}

/// An invalid BAM record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record is shorter than its fixed fields, or shorter than the lengths in its fixed fields require.
    #[error("a BAM record of {bytes} bytes is too short for its fields, which take {needed}")]
    Truncated {
        /// Length of the record, bytes.
        bytes: usize,
        /// Length that the fields of the record require, bytes.
        needed: usize,
    },
    /// The read name is empty or does not end with NUL.
    #[error("the read name of a BAM record does not end with NUL")]
    InvalidName,
    /// A contig index in the record is not one of the contigs in the header.
    #[error("a BAM record is on contig number {contig} (0-based), but the header lists {contigs} contigs")]
    ContigOutOfRange {
        /// The contig index in the record.
        contig: i32,
        /// Number of contigs in the header.
        contigs: usize,
    },
}

/// A view of one packed record.
///
/// # Examples
///
/// ```
/// use godwit_model::{RawRecord, flags};
///
/// // Fixed fields, name, CIGAR 8M, SEQ ACGTACGT and qualities of a reverse read at the 0-based position 999.
/// let words = [
///     0, 999, 4681 << 16 | 60 << 8 | 4, 16 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
///     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// ];
/// let bytes = words.map(i32::to_le_bytes).concat();
/// let record = RawRecord::from_bytes(&bytes, 1)?;
/// assert_eq!((record.contig(), record.position(), record.mapping_quality()), (0, 999, 60));
/// assert_eq!(record.flag(), flags::REVERSE);
/// assert_eq!(record.name(), b"r01");
/// # Ok::<(), godwit_model::RecordError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a>(&'a [u8]);

impl<'a> RawRecord<'a> {
    /// Creates a view of a record. Checks that the fields fit the bytes of the record and that every contig index is
    /// below `contigs`.
    ///
    /// # Errors
    /// [`RecordError`] that names the first field that is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::{RawRecord, RecordError};
    ///
    /// let error = RawRecord::from_bytes(b"BAM\x01", 1).unwrap_err();
    /// assert_eq!(error, RecordError::Truncated { bytes: 4, needed: 32 });
    /// ```
    pub fn from_bytes(bytes: &'a [u8], contigs: usize) -> Result<Self, RecordError> {
        if bytes.len() < FIXED_BYTES {
            return Err(RecordError::Truncated { bytes: bytes.len(), needed: FIXED_BYTES });
        }
        let record = Self(bytes);
        let needed = record.tags_offset();
        if needed > bytes.len() {
            return Err(RecordError::Truncated { bytes: bytes.len(), needed });
        }
        let name_end = FIXED_BYTES + record.name_length();
        if record.name_length() == 0 || bytes[name_end - 1] != 0 {
            return Err(RecordError::InvalidName);
        }
        for contig in [record.contig(), record.mate_contig()] {
            if contig < -1 || contig >= contigs as i32 {
                return Err(RecordError::ContigOutOfRange { contig, contigs });
            }
        }
        Ok(record)
    }

    /// Creates a view of a record that was checked before or that godwit encoded itself, without checks.
    #[inline]
    pub fn from_trusted_bytes(bytes: &'a [u8]) -> Self {
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

    /// Returns the bytes of the record.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the contig index, or -1 if the record does not have a contig.
    #[inline]
    pub fn contig(self) -> i32 {
        self.i32_at(0)
    }

    /// Returns the 0-based leftmost position, or -1 if absent. Old programs wrote other negative numbers for an absent
    /// position.
    #[inline]
    pub fn position(self) -> i32 {
        self.i32_at(4).max(-1)
    }

    /// Returns MAPQ.
    #[inline]
    pub fn mapping_quality(self) -> u8 {
        self.0[9]
    }

    /// Returns FLAG.
    #[inline]
    pub fn flag(self) -> u16 {
        self.u16_at(14)
    }

    /// Returns the contig index of the mate, or -1 if absent.
    #[inline]
    pub fn mate_contig(self) -> i32 {
        self.i32_at(20)
    }

    /// Returns the 0-based position of the mate, or -1 if absent. Old programs wrote other negative numbers for an
    /// absent position.
    #[inline]
    pub fn mate_position(self) -> i32 {
        self.i32_at(24).max(-1)
    }

    /// Returns TLEN (signed).
    #[inline]
    pub fn template_length(self) -> i32 {
        self.i32_at(28)
    }

    /// Returns the number of operations in the CIGAR field. The number is 2 if the actual CIGAR is in the `CG` tag.
    #[inline]
    pub fn cigar_operation_count(self) -> usize {
        usize::from(self.u16_at(12))
    }

    /// Returns the number of bases in SEQ.
    #[inline]
    pub fn sequence_length(self) -> usize {
        self.i32_at(16).max(0) as usize
    }

    fn name_length(self) -> usize {
        usize::from(self.0[8])
    }

    fn cigar_offset(self) -> usize {
        FIXED_BYTES + self.name_length()
    }

    fn sequence_offset(self) -> usize {
        self.cigar_offset() + 4 * usize::from(self.u16_at(12))
    }

    fn quality_offset(self) -> usize {
        self.sequence_offset() + self.sequence_length().div_ceil(2)
    }

    fn tags_offset(self) -> usize {
        self.quality_offset() + self.sequence_length()
    }

    /// Returns the read name without its NUL.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        &self.0[FIXED_BYTES..FIXED_BYTES + self.name_length() - 1]
    }

    /// Returns SEQ in the encoding of BAM (SAMv1 §4.2.3): two bases per byte, the first in the high four bits.
    /// [`BASE_LETTERS`] has the letters of the codes.
    #[inline]
    pub fn packed_bases(self) -> &'a [u8] {
        &self.0[self.sequence_offset()..self.quality_offset()]
    }

    /// Returns the base qualities without an offset. All are 0xff if [`RawRecord::has_qualities`] is false.
    #[inline]
    pub fn qualities(self) -> &'a [u8] {
        &self.0[self.quality_offset()..self.tags_offset()]
    }

    /// Returns false if the record has bases without qualities: the first quality byte is 0xff (SAMv1 §4.2.3). A record
    /// without bases needs no qualities, and returns true.
    #[inline]
    pub fn has_qualities(self) -> bool {
        self.qualities().first() != Some(&0xff)
    }

    /// Returns the tags in BAM encoding.
    #[inline]
    pub fn tag_bytes(self) -> &'a [u8] {
        &self.0[self.tags_offset()..]
    }

    /// Returns the CIGAR operations. A CIGAR of more than 65,535 operations is read from the `CG` tag (SAMv1 §4.2.2).
    ///
    /// # Examples
    ///
    /// ```
    /// # use godwit_model::RawRecord;
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 16 << 16 | 3, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     5 << 4, 1 << 4 | 1, 2 << 4 | 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// // A record with the CIGAR 5M1I2S.
    /// let record = RawRecord::from_bytes(&bytes, 1)?;
    /// let operations: Vec<_> = record.cigar().map(|op| (op.bases(), op.code())).collect();
    /// assert_eq!(operations, [(5, 0), (1, 1), (2, 4)]);
    /// # Ok::<(), godwit_model::RecordError>(())
    /// ```
    #[inline]
    pub fn cigar(self) -> impl DoubleEndedIterator<Item = CigarOp> + 'a {
        self.cigar_bytes().chunks_exact(4).map(|op| CigarOp(u32::from_le_bytes([op[0], op[1], op[2], op[3]])))
    }

    /// Returns whether the CIGAR is in the `CG` tag, because it was too long for the CIGAR field.
    #[inline]
    pub fn has_cigar_in_tag(self) -> bool {
        self.sequence_offset() - self.cigar_offset() == 8
            && self.cigar_bytes().as_ptr() != self.0[self.cigar_offset()..].as_ptr()
    }

    /// Returns the 0-based position one past the last base that the record covers. If the record is unmapped or its
    /// CIGAR does not cover a base, it counts as one base, as in `samtools view` with a region (htslib 1.16
    /// `bam_endpos`).
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
            let placeholder =
                op(0).code() == 4 && op(0).bases() as usize == self.sequence_length() && op(4).code() == 3;
            // The value of a `CG:B,I` tag is the subtype (one byte), the count (four bytes) and the operations. htslib
            // 1.16 (`bam_tag2cigar`) ignores a tag that has fewer operations than the placeholder.
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

    /// Returns the type and the value of a tag, or `None` if the tag is absent or follows a malformed tag. The value of
    /// a `Z` or `H` tag excludes the NUL; the value of a `B` tag starts with its subtype and count.
    ///
    /// # Examples
    ///
    /// ```
    /// # use godwit_model::RawRecord;
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 16 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let mut bytes = words.map(i32::to_le_bytes).concat();
    /// # bytes.extend(b"NMC\x01RGZlane1\0");
    /// // A record with the tags NM:i:1 and RG:Z:lane1.
    /// let record = RawRecord::from_bytes(&bytes, 1)?;
    /// assert_eq!(record.tag(*b"RG"), Some((b'Z', &b"lane1"[..])));
    /// assert_eq!(record.tag(*b"MD"), None);
    /// # Ok::<(), godwit_model::RecordError>(())
    /// ```
    pub fn tag(self, name: [u8; 2]) -> Option<(u8, &'a [u8])> {
        self.iter_tags().find(|tag| tag.name == name).map(|tag| (tag.type_code, tag.value))
    }

    /// Returns an iterator over the tags of the record in order. It ends early at a malformed tag.
    #[inline]
    pub fn iter_tags(self) -> impl Iterator<Item = Tag<'a>> {
        iter_tags_at(self.0, self.tags_offset())
    }

    /// Returns the read group: the value of the `RG:Z` tag.
    #[inline]
    pub fn read_group(self) -> Option<&'a [u8]> {
        self.tag(*b"RG").filter(|(kind, _)| *kind == b'Z').map(|(_, value)| value)
    }

    /// Returns the number of reference bases that the alignment covers; 0 if the record does not have a CIGAR.
    #[inline]
    pub fn reference_bases(self) -> u32 {
        self.cigar().filter(|op| op.consumes_reference()).fold(0u32, |sum, op| sum.wrapping_add(op.bases()))
    }

    /// Returns the 0-based position of the unclipped 5' end: the first base of a forward read, or the last base of a
    /// reverse read (htsjdk 4.2.0 `getUnclippedStart`, `getUnclippedEnd`). The position is negative if that base is
    /// before the start of the contig.
    ///
    /// # Examples
    ///
    /// ```
    /// # use godwit_model::RawRecord;
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 16 << 16 | 2, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     6 << 4, 2 << 4 | 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let bytes = words.map(i32::to_le_bytes).concat();
    /// // A reverse read at the 0-based position 999 with the CIGAR 6M2S.
    /// let record = RawRecord::from_bytes(&bytes, 1)?;
    /// assert_eq!(record.unclipped_five_prime(), 1_006);
    /// # Ok::<(), godwit_model::RecordError>(())
    /// ```
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

    /// Returns the key of the record in coordinate order.
    #[inline]
    pub fn sort_key(self) -> SortKey {
        SortKey::new(self.contig(), self.position(), self.flag() & flags::REVERSE != 0)
    }
}

/// Returns an iterator over tags in BAM encoding. It ends early at a malformed tag.
///
/// # Examples
///
/// ```
/// use godwit_model::iter_packed_tags;
///
/// let tags: Vec<_> = iter_packed_tags(b"NMC\x02RGZlane1\0").collect();
/// assert_eq!(tags.len(), 2);
/// assert_eq!((tags[0].name, tags[0].integer()), (*b"NM", Some(2)));
/// assert_eq!((tags[1].name, tags[1].text()), (*b"RG", Some("lane1")));
/// ```
pub fn iter_packed_tags(packed: &[u8]) -> impl Iterator<Item = Tag<'_>> {
    iter_tags_at(packed, 0)
}

#[inline]
fn iter_tags_at(bytes: &[u8], mut at: usize) -> impl Iterator<Item = Tag<'_>> {
    std::iter::from_fn(move || {
        let [a, b, kind, value @ ..] = bytes.get(at..)? else { return None };
        let stored = tag_value_length(*kind, value)?;
        let text = matches!(kind, b'Z' | b'H');
        let start = at;
        at += 3 + stored;
        Some(Tag { name: [*a, *b], type_code: *kind, value: &value[..stored - usize::from(text)], start, end: at })
    })
}

/// Returns the number of bytes of a tag value of this type, including the NUL of a text or the header of an array.
fn tag_value_length(kind: u8, value: &[u8]) -> Option<usize> {
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

/// Returns the smallest bin of a BAI index that contains `[start, end)`, 0-based (SAMv1 §5.3, `reg2bin`).
///
/// # Examples
///
/// ```
/// use godwit_model::reg2bin;
///
/// assert_eq!(reg2bin(999, 1_007), 4681);
/// // The interval crosses a border of the smallest bins, which have 16,384 bases.
/// assert_eq!(reg2bin(16_000, 17_000), 585);
/// ```
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
