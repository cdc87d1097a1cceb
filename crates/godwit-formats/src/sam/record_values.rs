//! Packed records made from values, with the same result as [`LineEncoder`](super::LineEncoder) for the SAM line with
//! these values.
//!
//! This module serves aligners that return values instead of SAM text. One call appends the fixed fields, the name, the
//! CIGAR and the sequence; one further call appends each tag, in the order of the calls. The values must be those that
//! the aligner would print; nothing is repaired.

use godwit_model::{flags, reg2bin};

use super::bases;
use super::error::SamError;
use super::field_cursor::FieldCursor;
use super::line_encoder::{FIXED_BYTES, FixedFields, MAX_CIGAR_OPS, check_name};
use super::tags;

/// The mandatory fields of a SAM record as values.
#[derive(Clone, Copy, Debug)]
pub struct RecordValues<'a> {
    /// Read name (QNAME).
    pub name: &'a [u8],
    /// Bit flags (FLAG).
    pub flag: u16,
    /// Index of the contig; -1 if the record has no contig.
    pub contig: i32,
    /// 0-based position; -1 if the record has no position.
    pub position: i32,
    /// Mapping quality (MAPQ).
    pub mapping_quality: u8,
    /// CIGAR operations as numbers in the form of BAM (SAMv1 §4.2); empty for `*`.
    pub cigar: &'a [u32],
    /// Index of the contig of the mate; -1 if the mate has no contig.
    pub mate_contig: i32,
    /// 0-based position of the mate; -1 if the mate has no position.
    pub mate_position: i32,
    /// Template length (TLEN).
    pub template_length: i32,
    /// Bases (SEQ) as letters, in the orientation of the record; empty for `*`.
    pub sequence: &'a [u8],
    /// Qualities (QUAL) as Phred+33 characters, as many as bases; `None` for `*`.
    pub quality: Option<&'a [u8]>,
}

impl RecordValues<'_> {
    /// Appends the packed record, without `block_size` and without tags, to `out`.
    ///
    /// # Errors
    /// [`SamError`] if BAM cannot express the name, a base or a quality, or if there are more than 65,535 CIGAR
    /// operations. `out` may then contain a part of the record.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::sam::RecordValues;
    /// use godwit_model::RawRecord;
    ///
    /// let values = RecordValues {
    ///     name: b"r1", flag: 0, contig: 0, position: 999, mapping_quality: 60, cigar: &[4 << 4],
    ///     mate_contig: -1, mate_position: -1, template_length: 0, sequence: b"ACGT", quality: Some(b"IIII"),
    /// };
    /// let mut bytes = Vec::new();
    /// values.append_record(&mut bytes)?;
    /// let record = RawRecord::from_bytes(&bytes, 1)?;
    /// assert_eq!((record.name(), record.end_position(values.flag)), (&b"r1"[..], 1003));
    /// assert_eq!(record.packed_bases(), [0x12, 0x48]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn append_record(&self, out: &mut Vec<u8>) -> Result<(), SamError> {
        let name = check_name(self.name)?;
        if self.cigar.len() > MAX_CIGAR_OPS {
            return Err(SamError::Operations { operations: self.cigar.len(), limit: MAX_CIGAR_OPS });
        }
        let base_count = self.sequence.len();
        let qualities = self.quality.map_or(base_count, <[u8]>::len);
        if qualities != base_count {
            return Err(SamError::QualityCount { bases: base_count, qualities });
        }
        let fixed = FixedFields {
            contig: self.contig,
            position: self.position,
            name_bytes: name.len() + 1,
            mapping_quality: self.mapping_quality,
            bin: self.bin(),
            cigar_op_count: self.cigar.len() as u16,
            flag: self.flag,
            base_count,
            mate_contig: self.mate_contig,
            mate_position: self.mate_position,
            template_length: self.template_length,
        };
        out.reserve(FIXED_BYTES + name.len() + 1 + 4 * self.cigar.len() + 2 * base_count);
        out.extend_from_slice(&fixed.to_bytes());
        out.extend_from_slice(name);
        out.push(0);
        for operation in self.cigar {
            out.extend_from_slice(&operation.to_le_bytes());
        }
        bases::pack_bases(self.sequence, out).map_err(|byte| SamError::Base { byte })?;
        match self.quality {
            Some(quality) => bases::append_phred_scores(quality, out).map_err(|byte| SamError::Quality { byte }),
            None => {
                out.resize(out.len() + base_count, 0xff);
                Ok(())
            }
        }
    }

    /// Returns the bin of the record. The bin of an unmapped record, or of a record that covers no reference bases, is
    /// that of a single base.
    fn bin(&self) -> u16 {
        let mapped = self.flag & flags::UNMAPPED == 0;
        // Bit mask of the operations that consume the reference: M, D, N, = and X.
        let reference_bases =
            |operation: &u32| i64::from(operation >> 4) * i64::from(0b1_1000_1101u16 >> (operation & 0xf) & 1);
        let span = if mapped { self.cigar.iter().map(reference_bases).sum::<i64>().max(1) } else { 1 };
        reg2bin(i64::from(self.position), i64::from(self.position) + span)
    }
}

/// Appends an integer tag, in the smallest type of BAM that can express the value.
///
/// # Examples
///
/// ```
/// use godwit_formats::sam::append_integer_tag;
///
/// let mut tags = Vec::new();
/// append_integer_tag(*b"NM", 2, &mut tags);
/// append_integer_tag(*b"AS", -1, &mut tags);
/// append_integer_tag(*b"ms", 300, &mut tags);
/// assert_eq!(tags, b"NMC\x02ASc\xffmsS\x2c\x01");
/// ```
pub fn append_integer_tag(name: [u8; 2], value: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&name);
    tags::append_integer_value(value, out);
}

/// Appends a text tag of type `Z`. The value must not contain a NUL byte.
///
/// # Examples
///
/// ```
/// use godwit_formats::sam::append_text_tag;
///
/// let mut tags = Vec::new();
/// append_text_tag(*b"RG", b"lane1", &mut tags);
/// assert_eq!(tags, b"RGZlane1\0");
/// ```
pub fn append_text_tag(name: [u8; 2], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[name[0], name[1], b'Z']);
    out.extend_from_slice(value);
    out.push(0);
}

/// Appends a floating-point tag of type `f`.
///
/// # Examples
///
/// ```
/// use godwit_formats::sam::append_float_tag;
///
/// let mut tags = Vec::new();
/// append_float_tag(*b"pa", 0.5, &mut tags);
/// assert_eq!(tags, b"paf\0\0\0\x3f");
/// ```
pub fn append_float_tag(name: [u8; 2], value: f32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[name[0], name[1], b'f']);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Converts tags from SAM text (`NAME:TYPE:VALUE`, separated by tabs) and appends them to `out`.
///
/// # Errors
/// [`SamError::Tag`] for the first invalid tag; `out` may then contain some of the tags.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::sam::append_tags;
/// use godwit_model::iter_packed_tags;
///
/// let mut packed = Vec::new();
/// append_tags(b"NM:i:2\tMD:Z:4A5", &mut packed)?;
/// let tags: Vec<_> = iter_packed_tags(&packed).collect();
/// assert_eq!((tags[0].integer(), tags[1].text()), (Some(2), Some("4A5")));
/// assert!(append_tags(b"NM:i:two", &mut packed).is_err());
/// # Ok(())
/// # }
/// ```
pub fn append_tags(text: &[u8], out: &mut Vec<u8>) -> Result<(), SamError> {
    tags::append_all_tags(&mut FieldCursor::new(text), out)
}

#[cfg(test)]
mod tests {
    use godwit_model::{Contig, Genome};
    use proptest::prelude::*;

    use super::*;
    use crate::sam::LineEncoder;

    /// Returns the SAM line with the same values and these tags.
    fn line(values: &RecordValues<'_>, tags: &str) -> String {
        let contig = |index: i32| if index < 0 { "*".to_owned() } else { format!("c{index}") };
        let cigar: String = values
            .cigar
            .iter()
            .map(|operation| format!("{}{}", operation >> 4, char::from(b"MIDNSHP=X"[(operation & 0xf) as usize])))
            .collect();
        let text = |bytes: &[u8]| {
            if bytes.is_empty() { "*".to_owned() } else { String::from_utf8_lossy(bytes).into_owned() }
        };
        [
            text(values.name),
            values.flag.to_string(),
            contig(values.contig),
            (values.position + 1).to_string(),
            values.mapping_quality.to_string(),
            text(cigar.as_bytes()),
            contig(values.mate_contig),
            (values.mate_position + 1).to_string(),
            values.template_length.to_string(),
            text(values.sequence),
            text(values.quality.unwrap_or_default()),
            tags.to_owned(),
        ]
        .join("\t")
    }

    fn encode_line(line: &str) -> Vec<u8> {
        let contig = |index: usize| Contig { name: format!("c{index}"), length: 1 << 29, alternate: false };
        let genome = Genome::new((0..3).map(contig).collect()).unwrap();
        let mut out = Vec::new();
        LineEncoder::new(&genome).encode(line.as_bytes(), &mut out).unwrap();
        out
    }

    proptest! {
        #[test]
        fn values_are_packed_as_their_line_is(
            name in "[!-?A-~]{1,30}",
            flag in 0u16..4096,
            contig in 0i32..3,
            position in 0i32..100_000_000,
            mapping_quality: u8,
            mapped: bool,
            clips in (0u32..200, 0u32..200),
            sequence in "[ACGTN]{1,300}",
            has_quality: bool,
            mate in prop::option::of((0i32..3, 0i32..100_000_000)),
            template_length: i32,
            numbers in prop::collection::vec(-70_000i32..70_000, 3),
            text in "[!-~]{0,40}",
        ) {
            let bases = sequence.len() as u32;
            let matched = bases.div_ceil(2);
            let cigar = [clips.0 << 4 | 5, matched << 4, clips.1 << 4 | 2, (bases - matched) << 4 | 4];
            let quality: Vec<u8> = (0..bases).map(|at| b'!' + (at * 7 % 94) as u8).collect();
            let flag = if mapped { flag & !flags::UNMAPPED } else { flag | flags::UNMAPPED };
            let (mate_contig, mate_position) = mate.unwrap_or((-1, -1));
            let values = RecordValues {
                name: name.as_bytes(),
                flag,
                contig,
                position,
                mapping_quality,
                cigar: if mapped { &cigar } else { &[] },
                mate_contig,
                mate_position,
                template_length,
                sequence: sequence.as_bytes(),
                quality: has_quality.then_some(&quality),
            };
            let mut packed = Vec::new();
            values.append_record(&mut packed).unwrap();
            let mut tags = String::new();
            for (name, value) in ["NM", "AS", "XS"].iter().zip(&numbers) {
                append_integer_tag(name.as_bytes().try_into().unwrap(), *value, &mut packed);
                tags += &format!("{name}:i:{value}\t");
            }
            append_text_tag(*b"MD", text.as_bytes(), &mut packed);
            append_float_tag(*b"pa", 0.25, &mut packed);
            append_tags(b"BC:Z:ACGT\tXN:i:300", &mut packed).unwrap();
            tags += &format!("MD:Z:{text}\tpa:f:0.250\tBC:Z:ACGT\tXN:i:300");
            prop_assert_eq!(packed, encode_line(&line(&values, &tags)));
        }
    }

    #[test]
    fn a_record_without_place_bases_or_qualities_is_packed_as_its_line_is() {
        let values = RecordValues {
            name: b"r",
            flag: 4,
            contig: -1,
            position: -1,
            mapping_quality: 0,
            cigar: &[],
            mate_contig: -1,
            mate_position: -1,
            template_length: 0,
            sequence: b"",
            quality: None,
        };
        let mut packed = Vec::new();
        values.append_record(&mut packed).unwrap();
        assert_eq!(packed, encode_line("r\t4\t*\t0\t0\t*\t*\t0\t0\t*\t*"));
    }

    #[test]
    fn what_bam_cannot_hold_is_refused() {
        let good = RecordValues {
            name: b"r",
            flag: 0,
            contig: 0,
            position: 0,
            mapping_quality: 0,
            cigar: &[4 << 4],
            mate_contig: -1,
            mate_position: -1,
            template_length: 0,
            sequence: b"ACGT",
            quality: Some(b"IIII"),
        };
        let refused = |values: RecordValues<'_>| values.append_record(&mut Vec::new()).unwrap_err();
        assert!(matches!(refused(RecordValues { name: &[b'n'; 255], ..good }), SamError::NameLength { .. }));
        assert!(matches!(refused(RecordValues { quality: Some(b"III"), ..good }), SamError::QualityCount { .. }));
        assert!(matches!(refused(RecordValues { quality: Some(b"II I"), ..good }), SamError::Quality { .. }));
        assert!(matches!(refused(RecordValues { sequence: b"AC-T", ..good }), SamError::Base { .. }));
        let operations = vec![1 << 4; 65_536];
        assert!(matches!(refused(RecordValues { cigar: &operations, ..good }), SamError::Operations { .. }));
    }
}
