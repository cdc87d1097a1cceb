//! One record as the sequencer's read.

use godwit_model::{BASE_LETTERS, RawRecord, Tag, flags};

use super::error::ReadProblem;
use crate::fastq::trim_read_number;

/// The highest quality that FASTQ can express: `~`.
const MAX_QUALITY: u8 = 93;
/// Replaces missing qualities: 1, as with `samtools fastq`.
const DEFAULT_QUALITY: u8 = b'!' + 1;
/// Marks a record without qualities.
const MISSING_QUALITIES: u8 = 0xff;

/// A read as in FASTQ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Name, without `/1` or `/2`.
    pub name: Vec<u8>,
    /// Tags as SAM prints them, tabs between them.
    pub comment: Vec<u8>,
    /// Bases as sequenced.
    pub sequence: Vec<u8>,
    /// Phred+33, as many as bases.
    pub quality: Vec<u8>,
}

impl Read {
    /// Replaces the read by that of a record, with the tags among `tags` in the record's order.
    pub(super) fn fill_from_record(&mut self, record: RawRecord<'_>, tags: &[[u8; 2]]) -> Result<(), ReadProblem> {
        let flag = record.flag();
        let numbered = (flag & flags::FIRST != 0) != (flag & flags::LAST != 0);
        self.name.clear();
        // samtools adds /1 or /2 by FLAG, and bwa removes one such suffix: the result is the unchanged name, or where
        // nothing was added the name without a suffix of its own.
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
        if qualities.first() == Some(&MISSING_QUALITIES) {
            self.quality.resize(qualities.len(), DEFAULT_QUALITY);
            return Ok(());
        }
        if let Some(at) = qualities.iter().position(|quality| *quality > MAX_QUALITY) {
            return Err(ReadProblem::Quality { quality: at + 1, found: qualities[at] });
        }
        self.quality.extend(qualities.iter().map(|quality| quality + b'!'));
        Ok(())
    }

    /// Appends a tag in SAM text.
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

/// Returns the value of an integer tag; `None` for another type.
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

/// Returns the complement of a letter. The bits of a code stand for A, C, G and T, so the complement has them reversed.
fn complement(letter: u8) -> u8 {
    let code = BASE_LETTERS.iter().position(|other| *other == letter).unwrap_or(15) as u8;
    BASE_LETTERS[usize::from(code.reverse_bits() >> 4)]
}
