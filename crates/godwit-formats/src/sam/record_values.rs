//! A record packed from its values, as [`LineEncoder`](super::LineEncoder) packs the SAM line with the same values.
//!
//! For aligners that return values instead of text: one call appends the fixed part and the sequence, one call each tag.
//! Tags follow in the order of the calls. Nothing is repaired here; the values are those that the aligner would print.

use godwit_model::{flags, reg2bin};

use super::bases;
use super::error::SamError;
use super::field_cursor::FieldCursor;
use super::line_encoder::{FIXED_BYTES, FixedFields, MAX_CIGAR_OPS, check_name};
use super::tags;

/// The mandatory fields of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordValues<'a> {
    /// QNAME.
    pub name: &'a [u8],
    /// FLAG.
    pub flag: u16,
    /// Index of the contig, -1 for none.
    pub contig: i32,
    /// 0-based position, -1 for none.
    pub position: i32,
    /// MAPQ.
    pub mapping_quality: u8,
    /// Operations as BAM stores them (SAMv1 §4.2), empty for `*`.
    pub cigar: &'a [u32],
    /// Index of the mate's contig, -1 for none.
    pub mate_contig: i32,
    /// 0-based position of the mate, -1 for none.
    pub mate_position: i32,
    /// TLEN.
    pub template_length: i32,
    /// SEQ as letters, in the orientation of the record; empty for `*`.
    pub sequence: &'a [u8],
    /// QUAL as SAM has it, as long as the sequence; `None` for `*`.
    pub quality: Option<&'a [u8]>,
}

impl RecordValues<'_> {
    /// Appends the packed record without tags (and without `block_size`) to `out`.
    ///
    /// # Errors
    /// [`SamError`] for a name, a base or a quality that BAM cannot hold, and for more than 65,535 operations; `out` then
    /// holds a part of the record.
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

    /// Returns the bin; an unmapped record, or one without reference bases, has the bin of a single base.
    fn bin(&self) -> u16 {
        let mapped = self.flag & flags::UNMAPPED == 0;
        // M, D, N, = and X.
        let reference_bases =
            |operation: &u32| i64::from(operation >> 4) * i64::from(0b1_1000_1101u16 >> (operation & 0xf) & 1);
        let span = if mapped { self.cigar.iter().map(reference_bases).sum::<i64>().max(1) } else { 1 };
        reg2bin(i64::from(self.position), i64::from(self.position) + span)
    }
}

/// Appends a tag of type `i`, in the smallest type that holds the value.
pub fn append_integer_tag(name: [u8; 2], value: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&name);
    tags::append_integer_value(value, out);
}

/// Appends a tag of type `Z`. The value has no NUL.
pub fn append_text_tag(name: [u8; 2], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[name[0], name[1], b'Z']);
    out.extend_from_slice(value);
    out.push(0);
}

/// Appends a tag of type `f`.
pub fn append_float_tag(name: [u8; 2], value: f32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[name[0], name[1], b'f']);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Appends tags given as SAM text, `NAME:TYPE:VALUE` separated by tabs.
///
/// # Errors
/// [`SamError::Tag`] for the first invalid tag; `out` then holds a part.
pub fn append_tags(text: &[u8], out: &mut Vec<u8>) -> Result<(), SamError> {
    tags::append_all_tags(&mut FieldCursor::new(text), out)
}

#[cfg(test)]
mod tests {
    use godwit_model::{Contig, Genome};
    use proptest::prelude::*;

    use super::*;
    use crate::sam::LineEncoder;

    /// Returns the line with the same values.
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
