//! The encoder of segments. It encodes a text as edits of the reference, or as text if that is shorter.

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::super::bases::{Bases, BitVector, LetterSplitter, NonAcgtInterval};
use super::super::copy_source::{ContigMapping, CopySpace};
use super::super::edit_script::{ColumnCoders, Edit, ScriptInput, ScriptOutput, code_script};
use super::super::edit_script_builder::{EditScript, EditScriptBuilder};
use super::super::error::DeltaError;
use super::super::fasta_layout::split_text;
use super::super::kmer_index::KmerIndex;
use super::super::letter_masks::{CaseCoding, code_non_acgt, code_positions, expected_case};
use super::super::range_coder::RangeEncoder;
use super::super::reference::Reference;
use super::super::zstd_bytes::{self, ESTIMATE_LEVEL, TEXT_LEVEL, trailing_prefix};
use super::{ContigDeclaration, SegmentHeader};

/// If edits take less than 1/200 of a text with few records, zstd would not be shorter, so text is not tried.
const SMALL_EDITS_RATIO: usize = 200;
/// Smallest possible size of a text at the best zstd level, in percent of its size at the level for estimates.
const TEXT_ESTIMATE_PERCENT: usize = 80;

/// The text of a segment that is to be encoded.
#[derive(Debug)]
pub(in super::super) struct SegmentText {
    pub(in super::super) text: Arc<Vec<u8>>,
    /// True if the text starts inside a line.
    pub(in super::super) starts_inside_line: bool,
    /// Text of the preceding segment, to which zstd may refer; `None` for the first segment.
    pub(in super::super) previous: Option<Arc<Vec<u8>>>,
}

/// An encoded segment, in the shorter of the two forms.
#[derive(Debug)]
pub(in super::super) enum EncodedSegment {
    /// Edits of the reference. The header does not yet declare the reference sequences.
    Edits {
        header: Box<SegmentHeader>,
        body: Vec<u8>,
        /// Indices of the reference sequences from which the segment copies.
        contigs: BTreeSet<usize>,
    },
    /// Text that zstd compressed. If `repeats_earlier` is true, it refers to the preceding text.
    Text { text_bytes: u64, text_checksum: u64, repeats_earlier: bool, body: Vec<u8> },
}

impl EncodedSegment {
    /// Returns the approximate size of the encoded segment, bytes.
    fn encoded_bytes(&self) -> usize {
        match self {
            Self::Edits { header, body, .. } => header.encode().len() + body.len(),
            Self::Text { body, .. } => body.len(),
        }
    }
}

/// An encoder of segments as edits of a reference.
#[derive(Debug)]
pub(in super::super) struct SegmentEncoder<'r> {
    reference: &'r Reference,
    kmer_index: &'r KmerIndex,
    contigs: Vec<ContigMapping>,
    fast: bool,
}

/// A header without sizes and layout of the text, a body, the indices of the copied reference sequences, and the
/// decoded script.
type EncodedColumns = (SegmentHeader, Vec<u8>, BTreeSet<usize>, ScriptOutput);

/// Case of the letters, and intervals of letters other than ACGT.
struct LetterMasks {
    soft_mask: Option<BitVector>,
    non_acgt: Vec<NonAcgtInterval>,
}

impl<'r> SegmentEncoder<'r> {
    pub(in super::super) fn new(reference: &'r Reference, kmer_index: &'r KmerIndex, fast: bool) -> Self {
        let contigs = reference.contigs.iter().map(|contig| {
            let span = contig.base_range();
            ContigMapping { start: span.start, bases: span.len(), local_start: span.start }
        });
        // Omit empty sequences: no bases are copied from them, and the mappings of sequences must have different
        // starts.
        let contigs = contigs.filter(|contig| contig.bases > 0).collect();
        Self { reference, kmer_index, contigs, fast }
    }

    fn copy_space(&self) -> CopySpace<'_> {
        let Reference { bases, soft_mask, .. } = self.reference;
        CopySpace { contigs: &self.contigs, self_start: bases.count(), bases, soft_mask: soft_mask.as_ref() }
    }

    /// Returns the number of sequences of the reference.
    pub(in super::super) fn contig_count(&self) -> usize {
        self.reference.contigs.len()
    }

    /// Returns the declaration of the reference sequence with this index.
    pub(in super::super) fn contig_declaration(&self, contig: usize) -> ContigDeclaration {
        let contig = &self.reference.contigs[contig];
        let (start, bases) = (contig.start, contig.bases);
        ContigDeclaration { start, bases, case_checksum: contig.case_checksum, digest: contig.digest }
    }

    /// Encodes a segment as edits or as text, whichever is shorter. Decodes the edits again and compares them with the
    /// text.
    ///
    /// # Errors
    /// [`DeltaError::RoundTripMismatch`] if the decoded edits differ from the text, which is a bug.
    pub(in super::super) fn encode_segment(&self, piece: &SegmentText) -> Result<EncodedSegment, DeltaError> {
        let text = &piece.text[..];
        let level = if self.fast { ESTIMATE_LEVEL } else { TEXT_LEVEL };
        let Some(edits) = self.encode_edits(text, piece.starts_inside_line)? else {
            return Ok(encode_as_text(piece, level));
        };
        let bytes = edits.encoded_bytes();
        let is_plain =
            matches!(&edits, EncodedSegment::Edits { header, .. } if header.layout.has_few_lines(text.len()));
        if is_plain && bytes * SMALL_EDITS_RATIO < text.len() {
            return Ok(edits);
        }
        let guess = zstd_bytes::compress(text, ESTIMATE_LEVEL, &[]);
        if bytes * 100 < guess.len() * TEXT_ESTIMATE_PERCENT && text.len() > 1 << 20 {
            return Ok(edits);
        }
        let as_text = encode_as_text(piece, level);
        Ok(if as_text.encoded_bytes() < bytes { as_text } else { edits })
    }

    /// Encodes a text as edits. Returns `None` if many letters are not bases, or if edits would take too long or too
    /// many bytes.
    fn encode_edits(&self, text: &[u8], starts_inside_line: bool) -> Result<Option<EncodedSegment>, DeltaError> {
        let mut residues = Vec::with_capacity(text.len());
        let layout = split_text(text, starts_inside_line, &mut residues);
        let mut splitter = LetterSplitter::with_capacity(residues.len());
        for some in residues.chunks(1 << 20) {
            splitter.push_letters(some);
            // A text with so many intervals of letters other than ACGT is a protein sequence, or is not FASTA.
            if splitter.non_acgt().len() * 8 > splitter.count() {
                return Ok(None);
            }
        }
        let count = residues.len();
        residues.clear();
        let (bases, soft_mask, non_acgt) = splitter.finish();
        let marks = LetterMasks { soft_mask, non_acgt };
        // The decoded letters reuse the memory of the residues, because the pages of new memory cost as much time as
        // decoding.
        let Some((mut head, body, contigs, outcome)) = self.encode_columns(bases, &marks, residues)? else {
            return Ok(None);
        };
        if !head.is_compact(count as u64) {
            return Ok(None);
        }
        head.text_bytes = text.len() as u64;
        head.text_checksum = xxh3_64(text);
        head.layout = layout;
        let mut again = outcome.letters;
        super::apply_letter_masks(&mut again, &marks.non_acgt, marks.soft_mask.as_ref());
        if !head.layout.matches_text(&again, text) {
            return Err(DeltaError::RoundTripMismatch);
        }
        Ok(Some(EncodedSegment::Edits { header: Box::new(head), body, contigs }))
    }

    /// Encodes the columns of a body. Also returns a header without sizes and layout, and the decoded script. Returns
    /// `None` in fast mode if most bases are inserted.
    fn encode_columns(
        &self,
        bases: Bases,
        marks: &LetterMasks,
        letters: Vec<u8>,
    ) -> Result<Option<EncodedColumns>, DeltaError> {
        let LetterMasks { soft_mask, non_acgt } = marks;
        let space = self.copy_space();
        let base_count = bases.count();
        let EditScript { steps, target, inserted_bases } =
            EditScriptBuilder::new(space, self.kmer_index, bases, non_acgt).build();
        // Encoding inserted bases takes most of the time.
        if self.fast && inserted_bases * 2 > base_count {
            return Ok(None);
        }
        let context_bases = context_bases_for(inserted_bases);
        let records_copies = soft_mask.is_some() && space.soft_mask.is_some();
        let encoder_input = Some((&steps[..], &target));
        let task = ScriptInput {
            space,
            base_count,
            step_count: steps.len(),
            encoder_input,
            non_acgt,
            context_bases,
            records_copies,
        };
        let mut columns = ColumnCoders::encoders();
        let outcome = code_script(&task, &mut columns, letters).ok_or(DeltaError::RoundTripMismatch)?;
        let (case_coding, toggles) = self.choose_case_coding(soft_mask.as_ref(), &outcome, base_count);
        let mut case_coder = RangeEncoder::new();
        code_positions(&mut case_coder, Some(&toggles), toggles.len(), base_count)
            .ok_or(DeltaError::RoundTripMismatch)?;
        let mut others_coder = RangeEncoder::new();
        code_non_acgt(&mut others_coder, Some(non_acgt), non_acgt.len(), base_count)
            .ok_or(DeltaError::RoundTripMismatch)?;
        let [kinds, gaps, substitutes, lengths, jumps, inserts] = columns.finish();
        let marks = [case_coder, others_coder].map(RangeEncoder::finish);
        let [case_column, others_column] = marks;
        let body = SegmentHeader::join_columns([
            kinds,
            gaps,
            substitutes,
            lengths,
            jumps,
            inserts,
            case_column,
            others_column,
        ]);
        let head = SegmentHeader {
            text_bytes: 0,
            text_checksum: 0,
            case_coding,
            context_bases,
            step_count: steps.len() as u64,
            case_change_count: toggles.len() as u64,
            non_acgt_count: non_acgt.len() as u64,
            contig_declarations: Vec::new(),
            layout: super::FastaLayout::default(),
        };
        let own = space.self_start;
        let jumps = steps.iter().filter_map(|step| match step.edit {
            Edit::Jump(place) => Some(place.position - usize::from(place.reverse)).filter(|base| *base < own),
            _ => None,
        });
        let used = jumps.map(|base| self.reference.contig_index_at(base)).collect();
        Ok(Some((head, body, used, outcome)))
    }

    /// Returns the shorter encoding of the case, and the positions to encode.
    fn choose_case_coding(
        &self,
        soft_mask: Option<&BitVector>,
        outcome: &ScriptOutput,
        count: usize,
    ) -> (CaseCoding, Vec<usize>) {
        let Some(lower) = soft_mask else { return (CaseCoding::AllUpper, Vec::new()) };
        let changes: Vec<usize> = lower.change_positions().collect();
        if let Some(known) = &self.reference.soft_mask {
            let mut unexpected = expected_case(&outcome.copied_intervals, known, count);
            unexpected.xor(lower);
            let toggles: Vec<usize> = unexpected.change_positions().collect();
            if toggles.len() < changes.len() {
                return (CaseCoding::AgainstReference, toggles);
            }
        }
        (CaseCoding::ChangePositions, changes)
    }
}

/// Returns the number of preceding bases from which an inserted base is predicted. Each of the contexts needs enough
/// inserted bases to adapt its model.
fn context_bases_for(inserted: usize) -> u32 {
    match inserted {
        0..4_000 => 1,
        4_000..60_000 => 2,
        60_000..1_000_000 => 3,
        1_000_000..6_000_000 => 6,
        _ => 8,
    }
}

fn encode_as_text(piece: &SegmentText, level: i32) -> EncodedSegment {
    let before = piece.previous.as_ref().map_or(&[][..], |before| trailing_prefix(before));
    EncodedSegment::Text {
        text_bytes: piece.text.len() as u64,
        text_checksum: xxh3_64(&piece.text),
        repeats_earlier: !before.is_empty(),
        body: zstd_bytes::compress(&piece.text, level, before),
    }
}
