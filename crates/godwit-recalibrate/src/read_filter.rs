//! The reads that GATK 4.6.2.0 counts and changes (`BaseRecalibrator`, `WellformedReadFilter`).

use godwit_model::{RawRecord, flags};

/// The code of the CIGAR operation N, a skipped region of the reference.
const SKIPPED_REGION: u8 = 3;
/// The mapping quality that stands for a missing one.
const NO_MAPPING_QUALITY: u8 = 255;

/// Returns whether a read is mapped and has a position.
pub(crate) fn is_mapped(record: RawRecord, flag: u16) -> bool {
    flag & flags::UNMAPPED == 0 && record.contig() >= 0 && record.position() >= 0
}

/// Returns whether a read is well-formed. Others are neither counted nor changed. A well-formed read has a read group,
/// bases, and one quality for each base. If it is mapped, it starts within its contig, and its CIGAR has as many bases
/// as the read and no skipped regions. `contig_lengths`: bases of each contig.
pub(crate) fn is_well_formed(record: RawRecord, flag: u16, contig_lengths: &[u32]) -> bool {
    if record.qualities().is_empty() || !record.has_qualities() || record.read_group().is_none() {
        return false;
    }
    if !is_mapped(record, flag) {
        return true;
    }
    let length = contig_lengths.get(record.contig() as usize).copied().unwrap_or(0);
    let (mut bases, mut skips) = (0usize, false);
    for operation in record.cigar() {
        bases += if operation.consumes_read() { operation.bases() as usize } else { 0 };
        skips |= operation.code() == SKIPPED_REGION;
    }
    (record.position() as u32) < length && !skips && bases == record.sequence_length()
}

/// Returns whether a well-formed read is counted: a mapped, primary or supplementary alignment with a mapping quality
/// above 0 that is not a duplicate and did not fail the checks of the platform.
pub(crate) fn is_counted(record: RawRecord, flag: u16) -> bool {
    flag & (flags::SECONDARY | flags::DUPLICATE | flags::QC_FAIL) == 0
        && !matches!(record.mapping_quality(), 0 | NO_MAPPING_QUALITY)
        && is_mapped(record, flag)
}
