//! Validation of packed records.

use godwit_model::{RawRecord, RecordError};

/// A reason why a packed record is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// A record cannot have its size.
    #[error("its size is {bytes} bytes")]
    Size {
        /// `block_size`.
        bytes: u32,
    },
    /// Its lengths, name or contigs are inconsistent.
    #[error(transparent)]
    Fields(#[from] RecordError),
    /// A field has an impossible value.
    #[error("its {field} is {value}")]
    Value {
        /// The field.
        field: &'static str,
        /// The value.
        value: i64,
    },
    /// The alignment ends beyond the positions that BAM can hold, or its operations have more bases than that.
    #[error("its CIGAR of {bases} bases at 0-based position {position} ends beyond position 2147483647")]
    EndPosition {
        /// Bases of all operations.
        bases: u64,
        /// 0-based position.
        position: i32,
    },
    /// CIGAR and SEQ disagree.
    #[error("its CIGAR consumes {cigar_bases} bases, but it has {bases}")]
    CigarBases {
        /// Bases of M, I, S, = and X.
        cigar_bases: u64,
        /// Bases of SEQ.
        bases: usize,
    },
    /// The tags do not follow each other up to the end of the record.
    #[error("its tags are malformed at byte {offset} of the record")]
    Tags {
        /// Offset of the tag.
        offset: usize,
    },
}

/// Reports whether an alignment ends within the positions that BAM can hold (the last base of a contig of 2^31 - 1 bases
/// included), and whether its operations together have at most that many bases. `position`: 0-based, -1 for none.
pub(crate) fn fits_bam_positions(position: i32, reference_bases: u64, bases: u64) -> bool {
    let limit = i32::MAX as u64;
    bases <= limit && position.max(0) as u64 + reference_bases <= limit && (position < i32::MAX)
}

/// Checks everything that readers of packed records rely on: lengths, contigs, positions, CIGAR (also one in a `CG`
/// tag), and every tag up to the end of the record.
///
/// # Errors
/// [`RecordProblem`], the first found.
pub fn check_record(bytes: &[u8], contigs: usize) -> Result<RawRecord<'_>, RecordProblem> {
    let record = RawRecord::from_bytes(bytes, contigs)?;
    let sequence_bases = i32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    if sequence_bases < 0 {
        return Err(RecordProblem::Value { field: "number of bases", value: i64::from(sequence_bases) });
    }
    check_tags(record)?;
    let (mut bases, mut read_bases, mut reference_bases) = (0, 0, 0);
    for op in record.cigar() {
        if op.code() > 8 {
            return Err(RecordProblem::Value { field: "CIGAR operation", value: i64::from(op.code()) });
        }
        bases += u64::from(op.bases());
        read_bases += if op.consumes_read() { u64::from(op.bases()) } else { 0 };
        reference_bases += if op.consumes_reference() { u64::from(op.bases()) } else { 0 };
    }
    if !fits_bam_positions(record.position(), reference_bases, bases) {
        return Err(RecordProblem::EndPosition { bases, position: record.position() });
    }
    if bases > 0 && record.sequence_length() > 0 && read_bases != record.sequence_length() as u64 {
        return Err(RecordProblem::CigarBases { cigar_bases: read_bases, bases: record.sequence_length() });
    }
    Ok(record)
}

/// Checks that the tags end where the record does.
fn check_tags(record: RawRecord<'_>) -> Result<(), RecordProblem> {
    let bytes = record.bytes().len();
    let end = record.iter_tags().last().map_or(bytes - record.tag_bytes().len(), |tag| tag.end);
    if end == bytes { Ok(()) } else { Err(RecordProblem::Tags { offset: end }) }
}
