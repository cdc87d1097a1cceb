//! Converts aligned records of the library to BAM's packing, with the fields and tags that bwa 0.7.17 would print.

use std::io::Write;

use godwit_engines::aligner::{BlockHeader, StreamEncoder};
use godwit_formats::sam::{RecordValues, SamError, append_float_tag, append_integer_tag, append_tags, append_text_tag};
use godwit_mem::{BlockRecords, Error, Read};
use godwit_model::flags;

use crate::library::EmittedRecord;

/// For each letter of a read, the letter that bwa prints: A, C, G or T in upper case, and N for every other letter.
const FORWARD_LETTERS: [u8; 256] = letter_table(*b"ACGT");
/// For each letter of a read, the complement that bwa prints for a read on the reverse strand.
const COMPLEMENT_LETTERS: [u8; 256] = letter_table(*b"TGCA");

const fn letter_table(of_acgt: [u8; 4]) -> [u8; 256] {
    let mut letters = [b'N'; 256];
    let mut base = 0;
    while base < 4 {
        let letter = b"ACGT"[base];
        letters[letter as usize] = of_acgt[base];
        letters[letter.to_ascii_lowercase() as usize] = of_acgt[base];
        base += 1;
    }
    letters
}

/// The BAM-packed records of the reads of a segment.
#[derive(Default)]
pub struct PackedRecords {
    bytes: Vec<u8>,
    /// End offset in `bytes` of each record.
    ends: Vec<usize>,
}

/// A packer of the records of a segment, which reuses its buffers between records.
#[derive(Default)]
pub struct RecordPacker {
    packed: PackedRecords,
    sequence: Vec<u8>,
    quality: Vec<u8>,
}

impl RecordPacker {
    /// Packs a record of `read`. `read_group` is the ID of the read group, or empty if there is none.
    ///
    /// # Errors
    /// [`SamError`] if a value does not fit into a BAM record; the packer must not be used afterwards.
    pub fn push(&mut self, record: &EmittedRecord<'_>, read: &Read<'_>, read_group: &[u8]) -> Result<(), SamError> {
        let numbers = record.fields();
        self.set_sequence(record, read);
        let out = &mut self.packed.bytes;
        RecordValues {
            name: read.name,
            flag: numbers.flag,
            contig: numbers.tid,
            position: numbers.pos,
            mapping_quality: numbers.mapq,
            cigar: record.cigar(),
            mate_contig: numbers.next_tid,
            mate_position: numbers.next_pos,
            template_length: numbers.tlen,
            sequence: &self.sequence,
            quality: read.quality.map(|_| self.quality.as_slice()),
        }
        .append_record(out)?;
        // Append the tags in the order of bwa 0.7.17 (`mem_aln2sam` in bwamem.c), which writes neither MQ nor HN.
        if numbers.has_nm != 0 {
            append_integer_tag(*b"NM", numbers.nm, out);
        }
        let text = |name, value: Option<&[u8]>, out: &mut Vec<u8>| {
            if let Some(value) = value {
                append_text_tag(name, value, out);
            }
        };
        text(*b"MD", record.md_tag(), out);
        text(*b"MC", record.mc_tag(), out);
        if numbers.has_as != 0 {
            append_integer_tag(*b"AS", numbers.score, out);
        }
        if numbers.has_xs != 0 {
            append_integer_tag(*b"XS", numbers.sub, out);
        }
        text(*b"RG", (!read_group.is_empty()).then_some(read_group), out);
        text(*b"SA", record.sa_tag(), out);
        if numbers.has_pa != 0 {
            append_float_tag(*b"pa", numbers.pa, out);
        }
        text(*b"XA", record.xa_tag(), out);
        if let Some(comment) = read.comment {
            append_tags(comment, out)?;
        }
        self.packed.ends.push(out.len());
        Ok(())
    }

    /// Sets the bases and qualities of the record: the range of the read that is not hard-clipped, in the record's
    /// orientation.
    fn set_sequence(&mut self, record: &EmittedRecord<'_>, read: &Read<'_>) {
        let numbers = record.fields();
        let bound = |at: i32| usize::try_from(at).unwrap_or(0).min(read.sequence.len());
        let (start, end) = (bound(numbers.query_start), bound(numbers.query_end));
        let visible_sequence = read.sequence.get(start..end).unwrap_or_default();
        let qualities = read.quality.and_then(|quality| quality.get(start..end)).unwrap_or_default();
        self.sequence.clear();
        self.quality.clear();
        if numbers.flag & flags::REVERSE == 0 {
            self.sequence.extend(visible_sequence.iter().map(|letter| FORWARD_LETTERS[usize::from(*letter)]));
            self.quality.extend_from_slice(qualities);
        } else {
            self.sequence.extend(visible_sequence.iter().rev().map(|letter| COMPLEMENT_LETTERS[usize::from(*letter)]));
            self.quality.extend(qualities.iter().rev());
        }
    }

    /// Returns the records that were packed so far, and resets the packer.
    pub fn take_records(&mut self) -> PackedRecords {
        std::mem::take(&mut self.packed)
    }
}

/// The BAM-packed records of a block, by segment.
pub struct PackedBlock {
    /// Number of reads in the block.
    pub reads: u64,
    /// The records of each segment, in the order of the reads.
    pub segments: Vec<PackedRecords>,
}

impl BlockRecords for PackedBlock {
    fn write<W: Write>(self, _: &BlockHeader, streams: &mut StreamEncoder<'_, W>) -> Result<u64, Error> {
        for PackedRecords { bytes, ends } in self.segments {
            let mut start = 0;
            for end in ends {
                streams.push_packed(&bytes[start..end])?;
                start = end;
            }
        }
        Ok(self.reads)
    }
}
