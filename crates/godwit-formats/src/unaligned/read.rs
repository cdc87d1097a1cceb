//! One record as the sequencer's read.

use godwit_model::{BASE_LETTERS, RawRecord, Tag, flags};

use super::error::ReadProblem;
use crate::fastq::trimmed_name;

/// The highest quality that FASTQ can say: `~`.
const MAX_QUALITY: u8 = 93;
/// What stands for qualities that are missing: 1, as with `samtools fastq`.
const MISSING_QUALITY: u8 = b'!' + 1;
/// Marks a record without qualities.
const NO_QUALITIES: u8 = 0xff;

/// A read as FASTQ would have it.
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
    /// Takes over a record, with the tags among `tags` in the record's order.
    pub(super) fn take(&mut self, record: RawRecord<'_>, tags: &[[u8; 2]]) -> Result<(), ReadProblem> {
        let flag = record.flag();
        let numbered = (flag & flags::FIRST != 0) != (flag & flags::LAST != 0);
        self.name.clear();
        // samtools adds /1 or /2 where FLAG says so, and bwa takes one such ending off: what is left is the name as it
        // is, or where nothing was added the name less an ending of its own.
        self.name.extend_from_slice(if numbered { record.name() } else { trimmed_name(record.name()) });
        if let Some(&found) = self.name.iter().find(|byte| !byte.is_ascii_graphic()) {
            return Err(ReadProblem::Name { found });
        }
        self.take_bases(record)?;
        self.take_qualities(record)?;
        if flag & flags::REVERSE != 0 {
            self.sequence.reverse();
            self.sequence.iter_mut().for_each(|base| *base = complement(*base));
            self.quality.reverse();
        }
        self.comment.clear();
        if !tags.is_empty() {
            for tag in record.each_tag().filter(|tag| tags.contains(&tag.name)) {
                self.add_tag(&tag)?;
            }
        }
        Ok(())
    }

    fn take_bases(&mut self, record: RawRecord<'_>) -> Result<(), ReadProblem> {
        self.sequence.clear();
        for byte in record.packed_bases() {
            self.sequence.extend([BASE_LETTERS[usize::from(byte >> 4)], BASE_LETTERS[usize::from(byte & 15)]]);
        }
        self.sequence.truncate(record.bases());
        match self.sequence.iter().position(|base| *base == b'=') {
            Some(at) => Err(ReadProblem::Base { base: at + 1 }),
            None => Ok(()),
        }
    }

    fn take_qualities(&mut self, record: RawRecord<'_>) -> Result<(), ReadProblem> {
        let qualities = record.qualities();
        self.quality.clear();
        if qualities.first() == Some(&NO_QUALITIES) {
            self.quality.resize(qualities.len(), MISSING_QUALITY);
            return Ok(());
        }
        if let Some(at) = qualities.iter().position(|quality| *quality > MAX_QUALITY) {
            return Err(ReadProblem::Quality { quality: at + 1, found: qualities[at] });
        }
        self.quality.extend(qualities.iter().map(|quality| quality + b'!'));
        Ok(())
    }

    /// Appends a tag as SAM prints it.
    fn add_tag(&mut self, tag: &Tag<'_>) -> Result<(), ReadProblem> {
        let refused = || ReadProblem::Tag { tag: String::from_utf8_lossy(&tag.name).into_owned() };
        let printable = |bytes: &[u8]| bytes.iter().all(|byte| (b' '..=b'~').contains(byte));
        let (kind, text) = match tag.kind {
            b'A' | b'Z' | b'H' if printable(tag.value) => (tag.kind, tag.value.to_vec()),
            _ => (b'i', whole_number(tag.kind, tag.value).ok_or_else(refused)?.to_string().into_bytes()),
        };
        if !self.comment.is_empty() {
            self.comment.push(b'\t');
        }
        self.comment.extend([tag.name[0], tag.name[1], b':', kind, b':']);
        self.comment.extend(text);
        Ok(())
    }
}

/// The value of a tag of a whole number.
fn whole_number(kind: u8, value: &[u8]) -> Option<i64> {
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

/// The letter of the other strand. The bits of a code stand for A, C, G and T, so the complement has them reversed.
fn complement(letter: u8) -> u8 {
    let code = BASE_LETTERS.iter().position(|other| *other == letter).unwrap_or(15) as u8;
    BASE_LETTERS[usize::from(code.reverse_bits() >> 4)]
}
