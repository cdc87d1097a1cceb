//! Bits of the SAM FLAG field: SAMv1 §1.4 (2023-05-24), "FLAG: Combination of bitwise FLAGs".

/// The template has several segments (the read is one read of a pair).
pub const PAIRED: u16 = 0x1;
/// Each segment of the template is properly aligned according to the aligner.
pub const PROPER_PAIR: u16 = 0x2;
/// The read is unmapped.
pub const UNMAPPED: u16 = 0x4;
/// The mate is unmapped.
pub const MATE_UNMAPPED: u16 = 0x8;
/// SEQ is reverse complemented.
pub const REVERSE: u16 = 0x10;
/// SEQ of the mate is reverse complemented.
pub const MATE_REVERSE: u16 = 0x20;
/// The read is the first segment of the template.
pub const FIRST: u16 = 0x40;
/// The read is the last segment of the template.
pub const LAST: u16 = 0x80;
/// The record is a secondary alignment.
pub const SECONDARY: u16 = 0x100;
/// The read failed the vendor's quality checks.
pub const QC_FAIL: u16 = 0x200;
/// The read is a PCR or optical duplicate.
pub const DUPLICATE: u16 = 0x400;
/// The record is a supplementary alignment.
pub const SUPPLEMENTARY: u16 = 0x800;
/// The two bits that are unset in the FLAG of every primary record.
///
/// # Examples
///
/// ```
/// use godwit_model::flags;
///
/// let is_primary = |flag: u16| flag & flags::NOT_PRIMARY == 0;
/// assert!(is_primary(flags::PAIRED | flags::FIRST));
/// assert!(!is_primary(flags::PAIRED | flags::FIRST | flags::SUPPLEMENTARY));
/// ```
pub const NOT_PRIMARY: u16 = SECONDARY | SUPPLEMENTARY;
