//! An encoder of SAM lines into packed records, with the same result as `sam_parse1` and `bam_write1` of htslib 1.16.
//!
//! Some silent repairs of htslib are made here, too: a record without contig, position or CIGAR becomes unmapped. Plus
//! signs, leading zeros and a hexadecimal FLAG are accepted, as in htslib. Other lines that htslib changes silently are
//! rejected: unknown contigs, numbers out of range, blanks in numbers, and bytes after the value of a tag. Every record
//! of a job passes through this code, so it makes no allocations and no UTF-8 checks.

use std::collections::HashMap;

use godwit_model::{Genome, flags, reg2bin};
use memchr::memchr;

use super::MAX_LINE_BYTES;
use super::bases;
use super::error::{SamError, excerpt};
use super::field_cursor::FieldCursor;
use super::tags;

/// Bytes of the fixed fields before the read name in a BAM record.
pub(super) const FIXED_BYTES: usize = 32;
/// Maximum number of CIGAR operations in the CIGAR field of a BAM record.
pub(super) const MAX_CIGAR_OPS: usize = 0xffff;
/// Exclusive upper limit of the length of a CIGAR operation, for which BAM has 28 bits.
const CIGAR_OP_BASES_LIMIT: u64 = 1 << 28;
/// The code for a byte that is not a CIGAR operation.
const INVALID_CIGAR_OP: u8 = 0xff;
/// BAM code of each CIGAR operation, indexed by its letter.
const CIGAR_OP_CODES: [u8; 256] = cigar_op_codes();

const fn cigar_op_codes() -> [u8; 256] {
    let mut ops = [INVALID_CIGAR_OP; 256];
    let order = b"MIDNSHP=X";
    let mut code = 0;
    while code < order.len() {
        ops[order[code] as usize] = code as u8;
        code += 1;
    }
    ops
}

/// An encoder of SAM lines into packed records, for the contigs of one genome. Each thread should have its own encoder,
/// because it keeps buffers and the last contig between lines.
///
/// # Examples
///
/// ```
/// use godwit_formats::sam::LineEncoder;
/// use godwit_model::{Contig, Genome, RawRecord};
/// let genome = Genome::new(vec![Contig { name: "chr1".into(), length: 1000, alternate: false }])?;
/// let mut records = Vec::new();
/// LineEncoder::new(&genome).encode(b"read\t16\tchr1\t7\t60\t3M\t*\t0\t0\tACG\tIII\tNM:i:0", &mut records)?;
/// let record = RawRecord::from_bytes(&records, 1)?;
/// assert_eq!((record.position(), record.tag(*b"NM")), (6, Some((b'C', &[0][..]))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct LineEncoder {
    contigs: HashMap<Box<[u8]>, i32>,
    last_name: Vec<u8>,
    last_contig: i32,
    long_cigar: Vec<u8>,
}

/// The number of operations of a CIGAR, and sums of their lengths.
#[derive(Default)]
struct CigarSums {
    op_count: usize,
    /// Total length of the operations that consume bases of the read.
    read_bases: u64,
    /// Total length of the operations that consume bases of the reference.
    reference_bases: u64,
    /// Total length of all operations, including clips and pads.
    bases: u64,
}

/// The fixed fields of a BAM record.
pub(super) struct FixedFields {
    pub(super) contig: i32,
    pub(super) position: i32,
    pub(super) name_bytes: usize,
    pub(super) mapping_quality: u8,
    pub(super) bin: u16,
    pub(super) cigar_op_count: u16,
    pub(super) flag: u16,
    pub(super) base_count: usize,
    pub(super) mate_contig: i32,
    pub(super) mate_position: i32,
    pub(super) template_length: i32,
}

impl LineEncoder {
    /// Creates an encoder for records on the contigs of this genome, which are numbered in order.
    pub fn new(genome: &Genome) -> Self {
        let named = |(index, contig): (usize, &godwit_model::Contig)| (contig.name.as_bytes().into(), index as i32);
        let contigs = genome.contigs().iter().enumerate().map(named).collect();
        Self { contigs, last_name: Vec::new(), last_contig: -1, long_cigar: Vec::new() }
    }

    /// Appends the packed record of a line (without `block_size`) to `out`; after an error, `out` is unchanged. A line
    /// feed at the end of the line, and a carriage return before it, are ignored.
    ///
    /// # Errors
    /// [`SamError`] with the invalid field. No input makes this function panic.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::{LineEncoder, SamError};
    /// use godwit_model::{Contig, Genome};
    ///
    /// let genome = Genome::new(vec![Contig { name: "chr1".to_owned(), length: 1000, alternate: false }])?;
    /// let mut records = Vec::new();
    /// let line = b"r1\t0\tchr2\t7\t60\t4M\t*\t0\t0\tACGT\tIIII";
    /// let error = LineEncoder::new(&genome).encode(line, &mut records).unwrap_err();
    /// assert_eq!(error, SamError::Contig { field: "RNAME", contig: "chr2".to_owned() });
    /// assert!(records.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn encode(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<(), SamError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE_BYTES {
            return Err(SamError::LineLength { bytes: line.len(), limit: MAX_LINE_BYTES });
        }
        let start = out.len();
        let encoded = self.append_record(line, out);
        if encoded.is_err() {
            out.truncate(start);
        }
        encoded
    }

    fn append_record(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<(), SamError> {
        let start = out.len();
        out.reserve(FIXED_BYTES + line.len());
        out.extend_from_slice(&[0; FIXED_BYTES]);
        let mut cursor = FieldCursor::new(line);
        let name = check_name(cursor.take_field("QNAME")?)?;
        out.extend_from_slice(name);
        out.push(0);
        let mut flag = cursor.take_flag()?;
        let mut contig = self.contig_index("RNAME", cursor.take_field("RNAME")?)?;
        let position = cursor.take_unsigned("POS", i32::MAX as u32)? as i32 - 1;
        if position < 0 {
            contig = -1;
        }
        if contig < 0 {
            flag |= flags::UNMAPPED;
        }
        let mapping_quality = cursor.take_unsigned("MAPQ", 255)? as u8;
        let cigar_start = out.len();
        let cigar = append_cigar(cursor.take_field("CIGAR")?, out)?;
        if cigar.op_count == 0 {
            flag |= flags::UNMAPPED;
        }
        if !fits_bam_positions(position, cigar.reference_bases, cigar.bases) {
            return Err(SamError::EndPosition { bases: cigar.bases, pos_1based: i64::from(position) + 1 });
        }
        // The bin of an unmapped record, or of a record that covers no reference bases, is that of a single base.
        let span = if flag & flags::UNMAPPED == 0 { cigar.reference_bases.max(1) } else { 1 };
        let bin = reg2bin(i64::from(position), i64::from(position) + span as i64);
        if cigar.op_count > MAX_CIGAR_OPS {
            self.replace_long_cigar(cigar_start, &cigar, out)?;
        }
        let mate = cursor.take_field("RNEXT")?;
        let mut mate_contig = if mate == b"=" { contig } else { self.contig_index("RNEXT", mate)? };
        let mate_position = cursor.take_unsigned("PNEXT", i32::MAX as u32)? as i32 - 1;
        if mate_position < 0 {
            mate_contig = -1;
        }
        let template_length = cursor.take_signed("TLEN")?;
        let base_count = append_sequence(&mut cursor, &cigar, out)?;
        tags::append_all_tags(&mut cursor, out)?;
        let mut cigar_op_count = cigar.op_count as u16;
        if cigar.op_count > MAX_CIGAR_OPS {
            cigar_op_count = 2;
            self.append_cigar_tag(cigar_start, base_count, out)?;
        }
        let fixed = FixedFields {
            contig,
            position,
            name_bytes: name.len() + 1,
            mapping_quality,
            bin,
            cigar_op_count,
            flag,
            base_count,
            mate_contig,
            mate_position,
            template_length,
        };
        out[start..start + FIXED_BYTES].copy_from_slice(&fixed.to_bytes());
        Ok(())
    }

    /// Returns the index of a contig by name; -1 for `*`.
    #[inline]
    fn contig_index(&mut self, field: &'static str, name: &[u8]) -> Result<i32, SamError> {
        if name == self.last_name {
            return Ok(self.last_contig);
        }
        if name == b"*" {
            return Ok(-1);
        }
        let Some(contig) = self.contigs.get(name).copied() else {
            return Err(SamError::Contig { field, contig: excerpt(name) });
        };
        self.last_name.clear();
        self.last_name.extend_from_slice(name);
        self.last_contig = contig;
        Ok(contig)
    }

    /// Moves the CIGAR operations to a buffer and writes the placeholder `<k>S<m>N` (SAMv1 §4.2.2) instead. Its first
    /// half, `<k>S`, is written later.
    #[cold]
    fn replace_long_cigar(&mut self, start: usize, cigar: &CigarSums, out: &mut Vec<u8>) -> Result<(), SamError> {
        if cigar.reference_bases >= CIGAR_OP_BASES_LIMIT {
            return Err(SamError::LongCigar { bases: cigar.reference_bases });
        }
        self.long_cigar.clear();
        self.long_cigar.extend_from_slice(&out[start..]);
        out.truncate(start);
        out.extend_from_slice(&[0; 4]);
        // `<m>N`: the number of reference bases that the CIGAR covers.
        out.extend_from_slice(&((cigar.reference_bases as u32) << 4 | 3).to_le_bytes());
        Ok(())
    }

    /// Writes the `<k>S` of the placeholder, and appends the CIGAR operations as a last tag `CG:B,I`.
    #[cold]
    fn append_cigar_tag(&mut self, start: usize, bases: usize, out: &mut Vec<u8>) -> Result<(), SamError> {
        if bases as u64 >= CIGAR_OP_BASES_LIMIT {
            return Err(SamError::LongCigar { bases: bases as u64 });
        }
        out[start..start + 4].copy_from_slice(&((bases as u32) << 4 | 4).to_le_bytes());
        out.extend_from_slice(b"CGBI");
        out.extend_from_slice(&((self.long_cigar.len() / 4) as u32).to_le_bytes());
        out.extend_from_slice(&self.long_cigar);
        Ok(())
    }
}

impl FixedFields {
    /// Returns the bytes of the fields `refID` to `tlen` (SAMv1 §4.2).
    pub(super) fn to_bytes(&self) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[..4].copy_from_slice(&self.contig.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.position.to_le_bytes());
        bytes[8] = self.name_bytes as u8;
        bytes[9] = self.mapping_quality;
        bytes[10..12].copy_from_slice(&self.bin.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cigar_op_count.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.flag.to_le_bytes());
        bytes[16..20].copy_from_slice(&(self.base_count as u32).to_le_bytes());
        bytes[20..24].copy_from_slice(&self.mate_contig.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.mate_position.to_le_bytes());
        bytes[28..].copy_from_slice(&self.template_length.to_le_bytes());
        bytes
    }
}

#[inline]
pub(super) fn check_name(name: &[u8]) -> Result<&[u8], SamError> {
    if name.len() > 254 {
        return Err(SamError::NameLength { bytes: name.len() });
    }
    // SAMv1 §1.4 also forbids blanks in read names, but names with blanks are common, and valid in BAM.
    if !name.iter().fold(true, |good, byte| good & (b' '..=b'~').contains(byte)) {
        return Err(SamError::NameByte { name: excerpt(name) });
    }
    Ok(name)
}

#[inline]
fn append_cigar(text: &[u8], out: &mut Vec<u8>) -> Result<CigarSums, SamError> {
    let mut sums = CigarSums::default();
    if text == b"*" {
        return Ok(sums);
    }
    let malformed = || SamError::Cigar { cigar: excerpt(text) };
    let (mut bases, mut digits) = (0u64, 0);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            bases = bases * 10 + u64::from(digit);
            digits += 1;
            if bases >= CIGAR_OP_BASES_LIMIT {
                return Err(malformed());
            }
            continue;
        }
        let op = CIGAR_OP_CODES[usize::from(*byte)];
        if op == INVALID_CIGAR_OP || digits == 0 {
            return Err(malformed());
        }
        out.extend_from_slice(&((bases as u32) << 4 | u32::from(op)).to_le_bytes());
        sums.op_count += 1;
        sums.bases += bases;
        // Bit masks of operation codes: M, I, S, = and X consume the read; M, D, N, = and X consume the reference.
        sums.read_bases += bases * u64::from(0b1_1001_0011u16 >> op & 1);
        sums.reference_bases += bases * u64::from(0b1_1000_1101u16 >> op & 1);
        (bases, digits) = (0, 0);
    }
    if digits > 0 { Err(malformed()) } else { Ok(sums) }
}

/// Returns whether BAM can express the end of an alignment. The alignment must end at or before the last base of a
/// contig of 2^31 - 1 bases. Its operations together must not have more bases than that. `position` is 0-based, or -1
/// for no position.
pub(crate) fn fits_bam_positions(position: i32, reference_bases: u64, bases: u64) -> bool {
    let limit = i32::MAX as u64;
    bases <= limit && position.max(0) as u64 + reference_bases <= limit && (position < i32::MAX)
}

/// Appends SEQ and QUAL to the record and moves the cursor to the first tag. Returns the number of bases.
#[inline]
fn append_sequence(cursor: &mut FieldCursor<'_>, cigar: &CigarSums, out: &mut Vec<u8>) -> Result<usize, SamError> {
    // bwa 0.7.17 prints a read of length 0 with an empty SEQ. htslib 1.16 treats it like `*`.
    let sequence = if cursor.rest().starts_with(b"\t") { cursor.take_bytes(0) } else { cursor.take_field("SEQ")? };
    let bases = if sequence == b"*" { 0 } else { sequence.len() };
    // SEQ must agree with the CIGAR unless it is `*`.
    if sequence != b"*" && cigar.op_count > 0 && cigar.read_bases != bases as u64 {
        return Err(SamError::CigarBases { cigar_bases: cigar.read_bases, bases });
    }
    if bases == 0 {
        let qualities = cursor.take_last_field("QUAL")?;
        let is_absent = qualities == b"*";
        return if is_absent { Ok(0) } else { Err(SamError::QualityCount { bases: 0, qualities: qualities.len() }) };
    }
    bases::pack_bases(sequence, out).map_err(|byte| SamError::Base { byte })?;
    let rest = cursor.rest();
    if matches!(rest, [b'*'] | [b'*', b'\t', ..]) {
        cursor.take_bytes(1);
        out.resize(out.len() + bases, 0xff);
        return Ok(bases);
    }
    // In a valid line, QUAL is as long as SEQ, so its end is known without a search.
    if rest.len() < bases || rest.get(bases).is_some_and(|byte| *byte != b'\t') {
        let qualities = cursor.take_last_field("QUAL")?.len();
        return Err(SamError::QualityCount { bases, qualities });
    }
    let qualities = cursor.take_bytes(bases);
    match bases::append_phred_scores(qualities, out) {
        Ok(()) => Ok(bases),
        Err(b'\t') => {
            let qualities = memchr(b'\t', qualities).unwrap_or(bases);
            Err(SamError::QualityCount { bases, qualities })
        }
        Err(byte) => Err(SamError::Quality { byte }),
    }
}
