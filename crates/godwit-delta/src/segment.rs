//! Segments of a packed file: a segment is a piece of text that is encoded as edits of a reference.
//!
//! A segment has a header, which describes its FASTA records, and a body of columns. A region is found by the headers
//! alone, without reading the bodies.

mod segment_encoder;

use godwit_io::varint::{VarintReader, append_varint};
use xxhash_rust::xxh3::xxh3_64;

use super::copy_source::CopySpace;
use super::edit_script::{ColumnCoders, MAX_CONTEXT_BASES, SCRIPT_COLUMNS, ScriptInput, code_script};
use super::fasta_layout::FastaLayout;
use super::letter_masks::{
    CaseCoding, apply_letter_masks, code_non_acgt, code_positions, expected_case, soft_mask_from_changes,
};
use super::range_coder::RangeDecoder;
use super::reference::{DIGEST_BYTES, Digest};
use super::zstd_bytes::{append_compressed_bytes, read_compressed_bytes};

pub(super) use segment_encoder::{EncodedSegment, SegmentEncoder, SegmentText};

/// Largest size of the text of a segment, bytes.
pub(super) const MAX_TEXT_BYTES: u64 = 32 << 20;
/// Number of columns: those of the edit script, one for the case of letters, and one for letters other than ACGT.
const BODY_COLUMNS: usize = SCRIPT_COLUMNS + 2;

/// A sequence of the reference. A file declares it in the first segment that copies from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContigDeclaration {
    /// Position of the first base among the concatenated bases of the reference.
    pub(super) start: u64,
    pub(super) bases: u64,
    pub(super) case_checksum: u64,
    pub(super) digest: Digest,
}

/// The header of a segment, without the digest of the reference, which is in the header of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// Size of the text of the segment, bytes.
    pub(super) text_bytes: u64,
    /// XXH3 checksum of the text.
    pub(super) text_checksum: u64,
    pub(super) case_coding: CaseCoding,
    /// Number of preceding bases from which an inserted base is predicted.
    context_bases: u32,
    step_count: u64,
    case_change_count: u64,
    non_acgt_count: u64,
    /// Reference sequences that no earlier segment declared.
    pub(super) contig_declarations: Vec<ContigDeclaration>,
    pub(super) layout: FastaLayout,
}

impl SegmentHeader {
    /// Encodes the header. [`SegmentHeader::decode`] is the inverse.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        append_varint(&mut out, self.text_bytes);
        out.extend(self.text_checksum.to_le_bytes());
        append_varint(&mut out, self.case_coding as u64);
        append_varint(&mut out, self.context_bases.into());
        for count in
            [self.step_count, self.case_change_count, self.non_acgt_count, self.contig_declarations.len() as u64]
        {
            append_varint(&mut out, count);
        }
        for declared in &self.contig_declarations {
            append_varint(&mut out, declared.start);
            append_varint(&mut out, declared.bases << 1 | u64::from(declared.case_checksum != 0));
            if declared.case_checksum != 0 {
                out.extend(declared.case_checksum.to_le_bytes());
            }
            out.extend(declared.digest.0);
        }
        append_compressed_bytes(&mut out, &self.layout.encode());
        append_compressed_bytes(&mut out, self.layout.titles());
        out
    }

    /// Decodes the header of a segment; `None` if it is invalid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = VarintReader::new(bytes);
        let text_bytes = cursor.read_varint().filter(|bytes| *bytes <= MAX_TEXT_BYTES)?;
        let text_checksum = u64::from_le_bytes(cursor.read_array()?);
        let case_coding = *CaseCoding::ALL.get(usize::try_from(cursor.read_varint()?).ok()?)?;
        let context_bases = u32::try_from(cursor.read_varint()?).ok().filter(|order| *order <= MAX_CONTEXT_BASES)?;
        let mut count = || cursor.read_varint().filter(|count| *count <= MAX_TEXT_BYTES);
        let [step_count, case_change_count, non_acgt_count, declared_count] = [count()?, count()?, count()?, count()?];
        let mut contig_declarations = Vec::new();
        for _ in 0..declared_count {
            let start = cursor.read_varint()?;
            let bases = cursor.read_varint()?;
            let case_checksum = if bases & 1 == 1 { u64::from_le_bytes(cursor.read_array()?) } else { 0 };
            let digest = Digest(cursor.read_array::<DIGEST_BYTES>()?);
            contig_declarations.push(ContigDeclaration { start, bases: bases >> 1, case_checksum, digest });
        }
        // A line takes at least one byte of text, and at most 20 bytes in the encoded layout.
        let lines = read_compressed_bytes(&mut cursor, 20 + 20 * text_bytes)?;
        let titles = read_compressed_bytes(&mut cursor, text_bytes)?;
        let layout = FastaLayout::decode(&lines, titles, text_bytes)?;
        let residues = layout.residue_count()?;
        let head = Self {
            text_bytes,
            text_checksum,
            case_coding,
            context_bases,
            step_count,
            case_change_count,
            non_acgt_count,
            contig_declarations,
            layout,
        };
        (cursor.is_empty() && head.is_compact(residues)).then_some(head)
    }

    /// Reports whether a segment of `residues` residues has few edits and masks. If it has many, packing it as text is
    /// shorter. The limit also bounds the memory of a reader to a few times the size of the text.
    pub(super) fn is_compact(&self, residues: u64) -> bool {
        self.step_count * 4 <= residues + 256
            && self.case_change_count * 8 <= residues + 256
            && self.non_acgt_count * 8 <= residues + 256
    }

    /// Returns the residues of the segment, with their case and letters other than ACGT; `None` if the body does not
    /// match the header.
    pub(super) fn decode_residues(&self, body: &[u8], space: CopySpace) -> Option<Vec<u8>> {
        let columns = split_columns(body)?;
        let base_count = usize::try_from(self.layout.residue_count()?).ok()?;
        let mut coder = RangeDecoder::new(columns[SCRIPT_COLUMNS + 1]);
        let others = code_non_acgt(&mut coder, None, usize::try_from(self.non_acgt_count).ok()?, base_count)?;
        let script = std::array::from_fn(|at| columns[at]);
        let task = ScriptInput {
            space,
            base_count,
            step_count: usize::try_from(self.step_count).ok()?,
            encoder_input: None,
            non_acgt: &others,
            context_bases: self.context_bases,
            records_copies: self.case_coding == CaseCoding::AgainstReference,
        };
        let mut outcome = code_script(&task, &mut ColumnCoders::decoders(script), Vec::new())?;
        let mut coder = RangeDecoder::new(columns[SCRIPT_COLUMNS]);
        let toggles = code_positions(&mut coder, None, usize::try_from(self.case_change_count).ok()?, base_count)?;
        let lower = match self.case_coding {
            CaseCoding::AllUpper => None,
            CaseCoding::ChangePositions => Some(soft_mask_from_changes(&toggles, base_count)),
            CaseCoding::AgainstReference => {
                let mut lower = soft_mask_from_changes(&toggles, base_count);
                lower.xor(&expected_case(&outcome.copied_intervals, space.soft_mask?, base_count));
                Some(lower)
            }
        };
        apply_letter_masks(&mut outcome.letters, &others, lower.as_ref());
        Some(outcome.letters)
    }

    /// Returns the text of the segment; `None` if its size or checksum differs from the header.
    pub(super) fn decode_text(&self, body: &[u8], space: CopySpace) -> Option<Vec<u8>> {
        let text = self.layout.join_text(&self.decode_residues(body, space)?)?;
        (text.len() as u64 == self.text_bytes && xxh3_64(&text) == self.text_checksum).then_some(text)
    }

    /// Joins the columns to the body of a segment.
    fn join_columns(columns: [Vec<u8>; BODY_COLUMNS]) -> Vec<u8> {
        let mut body = Vec::new();
        columns.iter().for_each(|column| append_varint(&mut body, column.len() as u64));
        columns.iter().for_each(|column| body.extend(column));
        body
    }
}

fn split_columns(body: &[u8]) -> Option<[&[u8]; BODY_COLUMNS]> {
    let mut cursor = VarintReader::new(body);
    let mut lengths = [0; BODY_COLUMNS];
    for length in &mut lengths {
        *length = usize::try_from(cursor.read_varint()?).ok()?;
    }
    let mut columns = [&[][..]; BODY_COLUMNS];
    for (column, length) in columns.iter_mut().zip(lengths) {
        *column = cursor.read_bytes(length)?;
    }
    cursor.is_empty().then_some(columns)
}
