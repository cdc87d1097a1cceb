//! The encoder of segments: edits, or text where edits would be longer.

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

/// Text of few records never packs this small as text: if edits do, text is not tried.
const SMALL_EDITS_RATIO: usize = 200;
/// Lower bound of the size as text at the best level, in percent of the estimate.
const TEXT_ESTIMATE_PERCENT: usize = 80;

/// The text of a segment.
#[derive(Debug)]
pub(in super::super) struct SegmentText {
    pub(in super::super) text: Arc<Vec<u8>>,
    /// The text starts inside a line.
    pub(in super::super) starts_inside_line: bool,
    /// The text of the segment before.
    pub(in super::super) previous: Option<Arc<Vec<u8>>>,
}

/// An encoded segment.
#[derive(Debug)]
pub(in super::super) enum EncodedSegment {
    /// Edits. Sequences are yet to be declared.
    Edits {
        header: Box<SegmentHeader>,
        body: Vec<u8>,
        /// Indices of the sequences that are copied from.
        contigs: BTreeSet<usize>,
    },
    /// Text, which may repeat the text before.
    Text { text_bytes: u64, text_checksum: u64, repeats_earlier: bool, body: Vec<u8> },
}

impl EncodedSegment {
    /// Returns the approximate size, bytes.
    fn encoded_bytes(&self) -> usize {
        match self {
            Self::Edits { header, body, .. } => header.encode().len() + body.len(),
            Self::Text { body, .. } => body.len(),
        }
    }
}

/// An encoder of segments against a reference.
#[derive(Debug)]
pub(in super::super) struct SegmentEncoder<'r> {
    reference: &'r Reference,
    kmer_index: &'r KmerIndex,
    contigs: Vec<ContigMapping>,
    fast: bool,
}

/// Header without text, body, sequences that are copied from, and the decoded script.
type EncodedColumns = (SegmentHeader, Vec<u8>, BTreeSet<usize>, ScriptOutput);

/// Case of letters, and letters other than ACGT.
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
        // Positions are mapped by start; empty sequences are never looked up.
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

    /// Returns the declaration of a sequence.
    pub(in super::super) fn contig_declaration(&self, contig: usize) -> ContigDeclaration {
        let contig = &self.reference.contigs[contig];
        let (start, bases) = (contig.start, contig.bases);
        ContigDeclaration { start, bases, case_checksum: contig.case_checksum, digest: contig.digest }
    }

    /// Encodes as edits or as text, whichever is shorter. Decoded edits are compared with the text.
    ///
    /// # Errors
    /// [`DeltaError::RoundTripMismatch`] if they differ, which is a bug.
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

    /// Encodes as edits; `None` if few letters are bases, or if edits would take too long or too many bytes.
    fn encode_edits(&self, text: &[u8], starts_inside_line: bool) -> Result<Option<EncodedSegment>, DeltaError> {
        let mut residues = Vec::with_capacity(text.len());
        let layout = split_text(text, starts_inside_line, &mut residues);
        let mut splitter = LetterSplitter::with_capacity(residues.len());
        for some in residues.chunks(1 << 20) {
            splitter.push_letters(some);
            // Intervals of other letters are an eighth of the letters: protein, or not FASTA.
            if splitter.non_acgt().len() * 8 > splitter.count() {
                return Ok(None);
            }
        }
        let count = residues.len();
        residues.clear();
        let (bases, soft_mask, non_acgt) = splitter.finish();
        let marks = LetterMasks { soft_mask, non_acgt };
        // The decoded letters reuse the memory of the residues: fresh memory costs as much as the work on it.
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

    /// Encodes the columns of a body; also returns a header without text and the decoded script. Returns `None` in fast mode
    /// if most bases are inserted.
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
        // Most time is spent on inserted bases.
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

    /// Returns the shorter coding of the case.
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

/// Returns the number of bases that predict an inserted base: each context needs enough samples.
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
