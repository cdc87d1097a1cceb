//! Barcodes of reads, compared in the same way as Picard 3.4.0 `MarkDuplicates` does (`buildReadEnds`,
//! `EstimateLibraryComplexity.getReadBarcodeValue`, `UmiUtil`): by 32-bit hashes of their text. Two barcodes with equal
//! hashes therefore count as equal.

use bytemuck::{Pod, Zeroable};
use godwit_model::{CigarOp, RawRecord, flags};

/// The tags that hold barcodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BarcodeTags {
    /// Tag of the barcode that mates share (`BARCODE_TAG`).
    pub molecule: Option<[u8; 2]>,
    /// Tag of the barcode of read 1 alone (`READ_ONE_BARCODE_TAG`).
    pub read1: Option<[u8; 2]>,
    /// Tag of the barcode of read 2 alone (`READ_TWO_BARCODE_TAG`).
    pub read2: Option<[u8; 2]>,
    /// True if the shared barcode has the form `X-Y` with a part for each strand (`DUPLEX_UMI`). The parts are swapped
    /// for molecules of the bottom strand.
    pub duplex: bool,
}

/// The hashed barcodes of a read or a pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Barcodes {
    /// Hash of the barcode that mates share.
    pub molecule: i32,
    /// Hash of the barcode of read 1; 0 if there is none.
    pub read1: i32,
    /// Hash of the barcode of read 2; 0 if there is none.
    pub read2: i32,
}

/// The error for a barcode that Picard rejects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tag {tag} of the read {read}: {problem}")]
pub struct BarcodeError {
    /// Name of the read.
    pub read: String,
    /// Name of the tag.
    pub tag: String,
    /// The reason for the rejection.
    pub problem: BarcodeProblem,
}

/// The reason why a barcode is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BarcodeProblem {
    /// The tag is a number, a character or an array instead of text.
    #[error("it is not text (type Z)")]
    NotText,
    /// The barcode has characters other than A, C, G, T, N and `-`.
    #[error("a barcode consists of A, C, G, T, N and -")]
    InvalidLetters,
    /// A duplex barcode has no hyphen or more than one hyphen.
    #[error("a duplex barcode is of the form X-Y, for example AT-GA")]
    NotDuplex,
    /// The strand of the molecule is unknown, because the record does not have the tag `MC`.
    #[error(
        "the strand of its molecule depends on the mate's CIGAR, and the read has no tag MC; add it with samtools \
         fixmate -m"
    )]
    MissingMateCigar,
}

/// The strand of the molecule that a read comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoleculeStrand {
    /// Read 1 has the smaller contig or 5' position.
    Top,
    /// Read 2 has the smaller contig or 5' position.
    Bottom,
}

impl BarcodeTags {
    /// Reports whether any barcode tag is set.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_kernels::markdup::BarcodeTags;
    ///
    /// let tags = BarcodeTags { molecule: Some(*b"RX"), ..BarcodeTags::default() };
    /// assert!(tags.has_any());
    /// assert!(!BarcodeTags::default().has_any());
    /// ```
    pub fn has_any(&self) -> bool {
        self.molecule.or(self.read1).or(self.read2).is_some()
    }

    /// Returns the hashed barcodes of a record. With duplex barcodes, the record must be mapped.
    ///
    /// # Errors
    /// [`BarcodeError`] for a barcode that Picard rejects.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_kernels::markdup::{BarcodeTags, Barcodes};
    ///
    /// # let words = [
    /// #     0, 999, 4681 << 16 | 60 << 8 | 4, 0 << 16 | 1, 8, -1, -1, 0, i32::from_le_bytes(*b"r01\0"),
    /// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
    /// # ];
    /// # let mut bytes = words.map(i32::to_le_bytes).concat();
    /// # bytes.extend(b"RXZACGT\0");
    /// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
    /// // A record with the tag RX:Z:ACGT. The hash is 31 plus that of Java's `String.hashCode`.
    /// let tags = BarcodeTags { molecule: Some(*b"RX"), ..BarcodeTags::default() };
    /// assert_eq!(tags.barcodes_of_record(record)?, Barcodes { molecule: 31 + 2_003_087, read1: 0, read2: 0 });
    /// # Ok(())
    /// # }
    /// ```
    pub fn barcodes_of_record(&self, record: RawRecord) -> Result<Barcodes, BarcodeError> {
        let barcode_error = |tag: [u8; 2]| {
            move |problem| BarcodeError {
                read: String::from_utf8_lossy(record.name()).into_owned(),
                tag: String::from_utf8_lossy(&tag).into_owned(),
                problem,
            }
        };
        let molecule = match self.molecule {
            Some(tag) => self.molecule_hash(record, tag).map_err(barcode_error(tag))?,
            None => 0,
        };
        let own_barcode_hash = |tag: Option<[u8; 2]>| match tag {
            Some(tag) => text_tag(record, tag).map_err(barcode_error(tag)).map(|text| text.map_or(0, java_hash)),
            None => Ok(0),
        };
        // Java's `Objects.hash` of one value is 31 plus the hash of the value; the hash of null is 0.
        let mut barcodes = Barcodes { molecule: molecule.wrapping_add(31), read1: 0, read2: 0 };
        let flag = record.flag();
        if flag & flags::PAIRED == 0 || flag & flags::FIRST != 0 {
            barcodes.read1 = own_barcode_hash(self.read1)?;
        } else {
            barcodes.read2 = own_barcode_hash(self.read2)?;
        }
        Ok(barcodes)
    }

    fn molecule_hash(&self, record: RawRecord, tag: [u8; 2]) -> Result<i32, BarcodeProblem> {
        let Some(barcode) = text_tag(record, tag)? else { return Ok(0) };
        if !barcode.iter().all(|letter| b"ATCGNatcgn-".contains(letter)) {
            return Err(BarcodeProblem::InvalidLetters);
        }
        if !self.duplex {
            return Ok(java_hash(barcode));
        }
        // Java's `split` drops empty strings at the end.
        let mut parts: Vec<&[u8]> = barcode.split(|letter| *letter == b'-').collect();
        while parts.len() > 1 && parts.last().is_some_and(|part| part.is_empty()) {
            parts.pop();
        }
        let [x, y] = parts[..] else { return Err(BarcodeProblem::NotDuplex) };
        match molecule_strand(record)? {
            Some(MoleculeStrand::Bottom) => Ok(java_hash(&[y, b"-", x].concat())),
            _ => Ok(java_hash(barcode)),
        }
    }
}

/// Returns the hash that Java's `String.hashCode` computes.
fn java_hash(text: &[u8]) -> i32 {
    text.iter().fold(0i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(*byte)))
}

fn text_tag(record: RawRecord<'_>, tag: [u8; 2]) -> Result<Option<&[u8]>, BarcodeProblem> {
    match record.tag(tag) {
        None => Ok(None),
        Some((b'Z', value)) => Ok(Some(value)),
        Some(_) => Err(BarcodeProblem::NotText),
    }
}

/// Returns the strand of the molecule that a read comes from: top if read 1 has the smaller contig or, on the same
/// contig, the smaller unclipped 5' position. Returns `None` for an unmapped read and for a read without a mapped mate.
///
/// # Errors
/// [`BarcodeProblem::MissingMateCigar`] if the 5' position of the mate is needed, but the tag `MC` is missing or
/// invalid.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_kernels::markdup::{MoleculeStrand, molecule_strand};
///
/// # let words = [
/// #     0, 999, 4681 << 16 | 60 << 8 | 4, 65 << 16 | 1, 8, 1, 499, 0, i32::from_le_bytes(*b"r01\0"),
/// #     8 << 4, 0x4812_4812, 0x1e1e_1e1e, 0x1e1e_1e1e,
/// # ];
/// # let bytes = words.map(i32::to_le_bytes).concat();
/// # let record = godwit_model::RawRecord::from_bytes(&bytes, 2)?;
/// // Read 1 of a pair on the first contig; its mate is on the second one.
/// assert_eq!(molecule_strand(record)?, Some(MoleculeStrand::Top));
/// # Ok(())
/// # }
/// ```
pub fn molecule_strand(record: RawRecord) -> Result<Option<MoleculeStrand>, BarcodeProblem> {
    let flag = record.flag();
    if flag & flags::PAIRED == 0 || flag & (flags::UNMAPPED | flags::MATE_UNMAPPED) != 0 {
        return Ok(None);
    }
    let comes_first = if record.contig() != record.mate_contig() {
        record.contig() < record.mate_contig()
    } else {
        record.unclipped_five_prime() <= mate_five_prime(record).ok_or(BarcodeProblem::MissingMateCigar)?
    };
    let is_first = flag & flags::FIRST != 0;
    Ok(Some(if is_first == comes_first { MoleculeStrand::Top } else { MoleculeStrand::Bottom }))
}

/// Returns the 0-based unclipped 5' position of the mate, computed from the CIGAR of the mate in the tag `MC`.
fn mate_five_prime(record: RawRecord) -> Option<i32> {
    let (b'Z', text) = record.tag(*b"MC")? else { return None };
    let cigar = parse_cigar(text)?;
    let clipped = |op: &&CigarOp| op.is_clip();
    let sum = |bases: u32, op: &CigarOp| bases.wrapping_add(op.bases());
    if record.flag() & flags::MATE_REVERSE == 0 {
        let clip = cigar.iter().take_while(clipped).fold(0, sum);
        return Some(record.mate_position().wrapping_sub(clip as i32));
    }
    let clip = cigar.iter().rev().take_while(clipped).fold(0, sum);
    let span = cigar.iter().filter(|op| op.consumes_reference()).fold(0, sum);
    Some(record.mate_position().wrapping_add(span as i32).wrapping_sub(1).wrapping_add(clip as i32))
}

fn parse_cigar(text: &[u8]) -> Option<Vec<CigarOp>> {
    if text == b"*" {
        return Some(Vec::new());
    }
    let (mut ops, mut bases, mut digits) = (Vec::new(), 0u32, 0);
    for byte in text {
        if byte.is_ascii_digit() {
            bases = bases.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
            digits += 1;
        } else {
            let code = b"MIDNSHP=X".iter().position(|letter| letter == byte).filter(|_| digits > 0)?;
            ops.push(CigarOp(bases.checked_mul(16)? | code as u32));
            (bases, digits) = (0, 0);
        }
    }
    (digits == 0).then_some(ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        assert_eq!(java_hash(b""), 0);
        assert_eq!(java_hash(b"ACGT"), 2_003_087);
        // Two strings with equal hashes count as one barcode.
        assert_eq!(java_hash(b"Aa"), java_hash(b"BB"));
        assert_eq!(
            java_hash(b"ACGTACGTACGTACGT"),
            b"ACGTACGTACGTACGT".iter().fold(0i64, |hash, byte| (hash * 31 + i64::from(*byte)) & 0xffff_ffff) as u32
                as i32
        );
    }

    #[test]
    fn broken_cigars_are_none() {
        for text in ["M", "5", "5Q", "99999999999M"] {
            assert_eq!(parse_cigar(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_cigar(b"3S10M").unwrap().len(), 2);
    }
}
