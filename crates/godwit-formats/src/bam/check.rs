//! Whether a packed record can be trusted.

use godwit_model::{RawRecord, RecordError};

/// Why a packed record cannot be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// Its size is none a record can have.
    #[error("its size is {bytes} bytes")]
    Size {
        /// `block_size`.
        bytes: u32,
    },
    /// Its lengths, name or contigs do not fit.
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
    /// The alignment leaves the positions that BAM can hold, or its operations are more bases than these.
    #[error("its CIGAR of {bases} bases at 0-based position {position} ends beyond position 2147483647")]
    Span {
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

/// Returns whether an alignment ends within the positions that BAM can hold, the last base of a contig of 2^31 - 1 bases included,
/// and whether its operations together are no more bases than that. `position`: 0-based, -1 for none.
pub(crate) fn fits_positions(position: i32, reference_bases: u64, bases: u64) -> bool {
    let limit = i32::MAX as u64;
    bases <= limit && position.max(0) as u64 + reference_bases <= limit && (position < i32::MAX)
}

/// Checks everything that readers of packed records rely on: lengths, contigs, positions, CIGAR (also one in a `CG`
/// tag), and every tag up to the end of the record.
///
/// # Errors
/// [`RecordProblem`], the first found.
pub fn check_record(bytes: &[u8], contigs: usize) -> Result<RawRecord<'_>, RecordProblem> {
    let record = RawRecord::checked(bytes, contigs)?;
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
    if !fits_positions(record.position(), reference_bases, bases) {
        return Err(RecordProblem::Span { bases, position: record.position() });
    }
    if bases > 0 && record.bases() > 0 && read_bases != record.bases() as u64 {
        return Err(RecordProblem::CigarBases { cigar_bases: read_bases, bases: record.bases() });
    }
    Ok(record)
}

/// The walk over the tags has to end where the record does.
fn check_tags(record: RawRecord<'_>) -> Result<(), RecordProblem> {
    let bytes = record.bytes().len();
    let end = record.each_tag().last().map_or(bytes - record.tags().len(), |tag| tag.end);
    if end == bytes { Ok(()) } else { Err(RecordProblem::Tags { offset: end }) }
}
