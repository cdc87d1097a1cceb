//! The alignment of a record, decoded in one pass over CIGAR and SEQ, and the tags that metrics use.

use godwit_model::{RawRecord, flags};

/// A gapless block of an alignment.
#[derive(Clone, Copy, Debug)]
pub struct AlignmentBlock {
    /// 0-based offset of the block's first base in SEQ.
    pub read_start: usize,
    /// Offset of the block's first base from POS, reference bases.
    pub reference_offset: usize,
    /// Length of the block, bases.
    pub bases: usize,
}

/// The properties of a record's alignment.
#[derive(Clone, Copy, Debug)]
pub struct Alignment<'a> {
    /// FLAG of the record with the decided duplicate bit.
    pub flag: u16,
    /// Bases of SEQ as 4-bit codes (SAMv1 §4.2.3), one per byte, in the order of the record.
    pub codes: &'a [u8],
    /// Alignment blocks: the M, = and X operations of the CIGAR.
    pub blocks: &'a [AlignmentBlock],
    /// Number of reference bases that the alignment covers.
    pub reference_bases: i64,
    /// Number of read bases in M, I, = and X operations.
    pub unclipped_read_bases: u64,
    /// Number of soft-clipped bases.
    pub soft_clipped: u64,
    /// Number of hard-clipped bases.
    pub hard_clipped: u64,
    /// Number of I and D operations.
    pub indels: u64,
    /// Number of bases in I and D operations.
    pub indel_bases: u64,
    /// The tags that metrics use.
    pub tags: RecordTags<'a>,
}

impl Alignment<'_> {
    /// Returns the 1-based sequencing cycle of the base with the 0-based index `at` (htsjdk 4.2.0
    /// `CoordMath.getCycle`).
    pub(super) fn cycle(&self, at: usize) -> u64 {
        if self.flag & flags::REVERSE == 0 { at as u64 + 1 } else { self.codes.len().saturating_sub(at) as u64 }
    }

    /// Returns the number of bases in alignment blocks.
    pub fn aligned_bases(&self) -> u64 {
        self.blocks.iter().map(|block| block.bases as u64).sum()
    }
}

/// A buffer for the decoded alignment of one record at a time.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::qc::AlignmentBuffer;
///
/// # let words = [
/// #     0, 999, 4681 << 16 | 60 << 8 | 4, 0 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
/// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// # ];
/// # let bytes = words.map(i32::to_le_bytes).concat();
/// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
/// // `record` has the bases ACGTACGT and the CIGAR 8M.
/// let mut buffer = AlignmentBuffer::default();
/// let alignment = buffer.decode(record, record.flag());
/// assert_eq!(alignment.codes, [1, 2, 4, 8, 1, 2, 4, 8]);
/// assert_eq!((alignment.blocks.len(), alignment.aligned_bases()), (1, 8));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct AlignmentBuffer {
    codes: Vec<u8>,
    blocks: Vec<AlignmentBlock>,
}

impl AlignmentBuffer {
    /// Decodes the alignment and the tags of a record. `flag` replaces the FLAG in the packed record; the two may differ
    /// in the duplicate bit.
    pub fn decode<'a>(&'a mut self, record: RawRecord<'a>, flag: u16) -> Alignment<'a> {
        let packed = record.packed_bases();
        self.codes.resize(2 * packed.len(), 0);
        for (pair, byte) in self.codes.as_chunks_mut().0.iter_mut().zip(packed) {
            *pair = [byte >> 4, byte & 15];
        }
        self.codes.truncate(record.sequence_length());
        self.blocks.clear();
        let mut alignment = Alignment {
            flag,
            codes: &self.codes,
            blocks: &[],
            reference_bases: 0,
            unclipped_read_bases: 0,
            soft_clipped: 0,
            hard_clipped: 0,
            indels: 0,
            indel_bases: 0,
            tags: RecordTags::from_record(record),
        };
        scan_cigar(record, &mut alignment, &mut self.blocks);
        alignment.blocks = &self.blocks;
        alignment
    }
}

fn scan_cigar(record: RawRecord, alignment: &mut Alignment, blocks: &mut Vec<AlignmentBlock>) {
    let (mut read, mut reference) = (0, 0);
    for op in record.cigar() {
        let bases = op.bases() as usize;
        match op.code() {
            0 | 7 | 8 => blocks.push(AlignmentBlock { read_start: read, reference_offset: reference, bases }),
            1 | 2 => {
                alignment.indels += 1;
                alignment.indel_bases += bases as u64;
            }
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

/// The values of the tags that metrics use.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordTags<'a> {
    /// True if the record has the tag `XN:i:1`, which marks noise.
    pub is_noise: bool,
    /// Value of the tag `MQ`, the mapping quality of the mate.
    pub mate_mapping_quality: Option<i64>,
    /// True if the record has a tag `SA`.
    pub has_supplementary: bool,
    /// Value of the tag `NM`, the edit distance to the reference; 0 if absent.
    pub edit_distance: i64,
    /// Value of the tag `RG`, the identifier of the read group.
    pub read_group: Option<&'a [u8]>,
    /// Value of the tag `OQ`, the original qualities as letters of FASTQ.
    pub original_qualities: Option<&'a [u8]>,
}

impl<'a> RecordTags<'a> {
    /// Reads the tags of a record in one pass.
    fn from_record(record: RawRecord<'a>) -> Self {
        let (mut tags, mut has_read_group) = (Self::default(), false);
        for tag in record.iter_tags() {
            match &tag.name {
                b"NM" => tags.edit_distance = tag.integer().unwrap_or(0),
                b"MQ" => tags.mate_mapping_quality = tag.integer(),
                b"SA" => tags.has_supplementary = true,
                b"XN" => tags.is_noise = tag.integer() == Some(1),
                // As [`RawRecord::read_group`], the first tag decides.
                b"RG" if !has_read_group => {
                    has_read_group = true;
                    tags.read_group = (tag.type_code == b'Z').then_some(tag.value);
                }
                b"OQ" if tag.type_code == b'Z' => tags.original_qualities = Some(tag.value),
                _ => {}
            }
        }
        tags
    }
}
