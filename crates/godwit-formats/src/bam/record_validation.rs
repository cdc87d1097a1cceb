//! Validation of packed BAM records.

use godwit_model::{RawRecord, RecordError};

use crate::sam::fits_bam_positions;

/// A reason why a packed record is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    /// The size of the record is outside the allowed range.
    #[error("its size is {bytes} bytes")]
    Size {
        /// Value of the field `block_size`.
        bytes: u32,
    },
    /// The lengths, the name or the contigs of the record are inconsistent.
    #[error(transparent)]
    Fields(#[from] RecordError),
    /// A field of the record has an impossible value.
    #[error("its {field} is {value}")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: i64,
    },
    /// The alignment ends beyond the last position that BAM can express, or the operations of the CIGAR have more bases
    /// than that.
    #[error("its CIGAR of {bases} bases at 0-based position {position} ends beyond position 2147483647")]
    EndPosition {
        /// Number of bases of all CIGAR operations.
        bases: u64,
        /// 0-based position of the record.
        position: i32,
    },
    /// The number of bases that the CIGAR consumes differs from the length of SEQ.
    #[error("its CIGAR consumes {cigar_bases} bases, but it has {bases}")]
    CigarBases {
        /// Number of bases of the CIGAR operations M, I, S, = and X.
        cigar_bases: u64,
        /// Length of SEQ in bases.
        bases: usize,
    },
    /// The tags are not contiguous up to the end of the record.
    #[error("its tags are malformed at byte {offset} of the record")]
    Tags {
        /// Offset of the malformed tag in the record.
        offset: usize,
    },
}

/// Checks everything on which readers of packed records rely: lengths, contigs, positions, the CIGAR (including one in
/// a `CG` tag), and every tag up to the end of the record.
///
/// # Errors
/// [`RecordProblem`]: the first problem found.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::bam::{RecordProblem, check_record};
/// use godwit_formats::sam::LineEncoder;
/// use godwit_model::{Contig, Genome, RecordError};
///
/// let genome = Genome::new(vec![Contig { name: "chr1".to_owned(), length: 1000, alternate: false }])?;
/// let mut record = Vec::new();
/// LineEncoder::new(&genome).encode(b"r1\t0\tchr1\t7\t60\t4M\t*\t0\t0\tACGT\tIIII", &mut record)?;
/// assert_eq!(check_record(&record, 1)?.position(), 6);
///
/// let problem = check_record(&record[..20], 1).unwrap_err();
/// assert_eq!(problem, RecordProblem::Fields(RecordError::Truncated { bytes: 20, needed: 32 }));
/// # Ok(())
/// # }
/// ```
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

/// Checks that the last tag ends at the end of the record.
fn check_tags(record: RawRecord<'_>) -> Result<(), RecordProblem> {
    let bytes = record.bytes().len();
    let end = record.iter_tags().last().map_or(bytes - record.tag_bytes().len(), |tag| tag.end);
    if end == bytes { Ok(()) } else { Err(RecordProblem::Tags { offset: end }) }
}
