//! Conversion of one SAM record into the read that the sequencer reported.

use godwit_model::{BASE_LETTERS, RawRecord, Tag, flags};

use super::error::ReadProblem;

/// The highest base quality that FASTQ can express; its character is `~`.
const MAX_QUALITY: u8 = 93;
/// The Phred+33 character for missing qualities, quality 33, as `samtools fastq` 1.16.1 writes it; its option `-v`, with
/// the documented default 1, has no effect on it (observed).
const DEFAULT_QUALITY: u8 = b'B';

/// A read with the fields of a FASTQ record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Name of the read, without the suffix `/1` or `/2`.
    pub name: Vec<u8>,
    /// The requested tags in the text form of SAM, separated by tabs.
    pub comment: Vec<u8>,
    /// Bases in the orientation in which they were sequenced.
    pub sequence: Vec<u8>,
    /// Qualities as Phred+33 characters, one for each base.
    pub quality: Vec<u8>,
}

impl Read {
    /// Replaces this read by the read of `record`. Of the tags of the record, those in `tags` become the comment, in
    /// the order of the record.
    pub(super) fn fill_from_record(&mut self, record: RawRecord<'_>, tags: &[[u8; 2]]) -> Result<(), ReadProblem> {
        let flag = record.flag();
        let numbered = (flag & flags::FIRST != 0) != (flag & flags::LAST != 0);
        self.name.clear();
        // samtools adds /1 or /2 if FLAG says which mate the read is, and bwa removes one such suffix, so the name
        // stays unchanged. Without such a FLAG samtools adds nothing, and bwa removes the suffix that the name may
        // have.
        self.name.extend_from_slice(if numbered { record.name() } else { trim_read_number(record.name()) });
        if let Some(&found) = self.name.iter().find(|byte| !byte.is_ascii_graphic()) {
            return Err(ReadProblem::Name { found });
        }
        self.fill_sequence(record)?;
        self.fill_quality(record)?;
        if flag & flags::REVERSE != 0 {
            self.sequence.reverse();
            self.sequence.iter_mut().for_each(|base| *base = complement(*base));
            self.quality.reverse();
        }
        self.comment.clear();
        if !tags.is_empty() {
            for tag in record.iter_tags().filter(|tag| tags.contains(&tag.name)) {
                self.append_tag_text(&tag)?;
            }
        }
        Ok(())
    }

    fn fill_sequence(&mut self, record: RawRecord<'_>) -> Result<(), ReadProblem> {
        self.sequence.clear();
        for byte in record.packed_bases() {
            self.sequence.extend([BASE_LETTERS[usize::from(byte >> 4)], BASE_LETTERS[usize::from(byte & 15)]]);
        }
        self.sequence.truncate(record.sequence_length());
        match self.sequence.iter().position(|base| *base == b'=') {
            Some(at) => Err(ReadProblem::Base { base: at + 1 }),
            None => Ok(()),
        }
    }

    fn fill_quality(&mut self, record: RawRecord<'_>) -> Result<(), ReadProblem> {
        let qualities = record.qualities();
        self.quality.clear();
        if !record.has_qualities() {
            self.quality.resize(qualities.len(), DEFAULT_QUALITY);
            return Ok(());
        }
        if let Some(at) = qualities.iter().position(|quality| *quality > MAX_QUALITY) {
            return Err(ReadProblem::Quality { quality: at + 1, found: qualities[at] });
        }
        self.quality.extend(qualities.iter().map(|quality| quality + b'!'));
        Ok(())
    }

    /// Appends a tag in the text form of SAM.
    fn append_tag_text(&mut self, tag: &Tag<'_>) -> Result<(), ReadProblem> {
        let refused = || ReadProblem::Tag { tag: String::from_utf8_lossy(&tag.name).into_owned() };
        let printable = |bytes: &[u8]| bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
        let (kind, text) = match tag.type_code {
            b'A' | b'Z' | b'H' if printable(tag.value) => (tag.type_code, tag.value.to_vec()),
            _ => (b'i', integer_value(tag.type_code, tag.value).ok_or_else(refused)?.to_string().into_bytes()),
        };
        if !self.comment.is_empty() {
            self.comment.push(b'\t');
        }
        self.comment.extend([tag.name[0], tag.name[1], b':', kind, b':']);
        self.comment.extend(text);
        Ok(())
    }
}

/// Returns a name without its last `/digit`, if it has more than two bytes (bwa 0.7.17 bwa.c, `trim_readno`).
#[inline]
pub(crate) fn trim_read_number(name: &[u8]) -> &[u8] {
    match name {
        [_, .., b'/', digit] if digit.is_ascii_digit() => &name[..name.len() - 2],
        _ => name,
    }
}

/// Returns the value of an integer tag, or `None` if the tag has another type.
fn integer_value(kind: u8, value: &[u8]) -> Option<i64> {
    Some(match (kind, value) {
        (b'c', &[a]) => i64::from(a as i8),
        (b'C', &[a]) => i64::from(a),
        (b's', &[a, b]) => i64::from(i16::from_le_bytes([a, b])),
        (b'S', &[a, b]) => i64::from(u16::from_le_bytes([a, b])),
        (b'i', &[a, b, c, d]) => i64::from(i32::from_le_bytes([a, b, c, d])),
        (b'I', &[a, b, c, d]) => i64::from(u32::from_le_bytes([a, b, c, d])),
        _ => return None,
    })
}

/// Returns the complement of a base letter. The four bits of a base code stand for A, C, G and T, so the code of the
/// complement has the bits in reverse order.
fn complement(letter: u8) -> u8 {
    let code = BASE_LETTERS.iter().position(|other| *other == letter).unwrap_or(15) as u8;
    BASE_LETTERS[usize::from(code.reverse_bits() >> 4)]
}
