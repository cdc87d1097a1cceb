//! Converts between records in BAM's packing and htslib's memory layout.
//!
//! htslib pads read names to a multiple of four bytes, keeps the fixed fields in a separate struct, and never moves a
//! long CIGAR to a `CG` tag.

use godwit_model::{RawRecord, reg2bin};

/// Maximum number of operations in the CIGAR field of a BAM record; a longer CIGAR is in a `CG` tag.
const MAX_INLINE_OPS: usize = 0xffff;

/// The fixed fields of a record, as in htslib's `bam1_core_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordCore {
    pub(super) contig: i32,
    pub(super) position: i64,
    pub(super) bin: u16,
    pub(super) mapping_quality: u8,
    /// Number of padding bytes after the NUL of the read name.
    pub(super) padding: u8,
    pub(super) flag: u16,
    /// Size in bytes of the read name, including NUL and padding.
    pub(super) name_bytes: u16,
    pub(super) cigar_ops: u32,
    pub(super) bases: i32,
    pub(super) mate_contig: i32,
    pub(super) mate_position: i64,
    pub(super) template_length: i64,
}

/// Converts a record to htslib's layout, with `flag` in place of its own FLAG. Returns the fixed fields, and replaces
/// `data` by the variable fields.
pub(super) fn to_htslib_layout(record: RawRecord, flag: u16, data: &mut Vec<u8>) -> RecordCore {
    data.clear();
    let name = record.name();
    data.extend_from_slice(name);
    data.push(0);
    let padding = data.len().next_multiple_of(4) - data.len();
    data.resize(data.len() + padding, 0);
    let name_bytes = data.len() as u16;
    for op in record.cigar() {
        data.extend_from_slice(&op.0.to_le_bytes());
    }
    let cigar_ops = ((data.len() - usize::from(name_bytes)) / 4) as u32;
    data.extend_from_slice(record.packed_bases());
    data.extend_from_slice(record.qualities());
    match record.iter_tags().find(|tag| record.has_cigar_in_tag() && &tag.name == b"CG") {
        Some(tag) => {
            let start = record.bytes().len() - record.tag_bytes().len();
            data.extend_from_slice(&record.bytes()[start..tag.start]);
            data.extend_from_slice(&record.bytes()[tag.end..]);
        }
        None => data.extend_from_slice(record.tag_bytes()),
    }
    let (position, end) = (i64::from(record.position()), i64::from(record.end_position(flag)));
    RecordCore {
        contig: record.contig(),
        position,
        bin: reg2bin(position, end),
        mapping_quality: record.mapping_quality(),
        padding: padding as u8,
        flag,
        name_bytes,
        cigar_ops,
        bases: record.sequence_length() as i32,
        mate_contig: record.mate_contig(),
        mate_position: i64::from(record.mate_position()),
        template_length: i64::from(record.template_length()),
    }
}

/// Converts a record from htslib's layout and appends it to `out` in BAM's packing. Returns `None` if a length or
/// position is out of range.
pub(super) fn pack_record(core: &RecordCore, data: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let name_bytes = usize::from(core.name_bytes);
    let name = data.get(..name_bytes.checked_sub(usize::from(core.padding))?)?;
    let cigar = data.get(name_bytes..name_bytes + 4 * core.cigar_ops as usize)?;
    let rest = data.get(name_bytes + cigar.len()..)?;
    let bases = usize::try_from(core.bases).ok()?;
    let tags = rest.get(bases.div_ceil(2) + bases..)?;
    let is_long = core.cigar_ops as usize > MAX_INLINE_OPS;
    let ops = || cigar.chunks_exact(4).map(|op| u32::from_le_bytes([op[0], op[1], op[2], op[3]]));
    for field in [core.contig, i32::try_from(core.position).ok()?] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&[u8::try_from(name.len()).ok()?, core.mapping_quality]);
    out.extend_from_slice(&core.bin.to_le_bytes());
    out.extend_from_slice(&(if is_long { 2 } else { core.cigar_ops as u16 }).to_le_bytes());
    out.extend_from_slice(&core.flag.to_le_bytes());
    let mate_position = i32::try_from(core.mate_position).ok()?;
    for field in [core.bases, core.mate_contig, mate_position, i32::try_from(core.template_length).ok()?] {
        out.extend_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(name);
    if is_long {
        // SAMv1 §4.2.2: the CIGAR field contains `<bases>S<reference bases>N`, and the CIGAR itself is in a CG tag.
        let reference_bases: u64 =
            ops().filter(|op| 0b1_1000_1101 >> (op & 15) & 1 == 1).map(|op| u64::from(op >> 4)).sum();
        let placeholder = [(bases as u32) << 4 | 4, u32::try_from(reference_bases).ok()? << 4 | 3];
        placeholder.iter().for_each(|op| out.extend_from_slice(&op.to_le_bytes()));
    } else {
        out.extend_from_slice(cigar);
    }
    out.extend_from_slice(&rest[..rest.len() - tags.len()]);
    out.extend_from_slice(tags);
    if is_long {
        out.extend_from_slice(b"CGBI");
        out.extend_from_slice(&core.cigar_ops.to_le_bytes());
        out.extend_from_slice(cigar);
    }
    Some(())
}
