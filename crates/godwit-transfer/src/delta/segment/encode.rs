//! A piece of text becomes edits, or stays text where those would be longer.

use std::collections::BTreeSet;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use super::super::align::{Aligner, Script};
use super::super::anchors::Anchors;
use super::super::bases::{Bases, Bits, OtherRun, Splitter};
use super::super::error::DeltaError;
use super::super::layout::parse;
use super::super::marks::{CaseKind, code_others, code_places, expected_case};
use super::super::place::{Contig, Space};
use super::super::range_coder::Encoder as RangeEncoder;
use super::super::reference::Reference;
use super::super::script::{Columns, Edit, Outcome, Task, run};
use super::super::zstd_bytes::{self, GUESS_LEVEL, LEVEL, prefix_of};
use super::{Declared, Head};

/// Text of few records is not packed this small as text: where edits take less, nobody looks.
const SURELY_SMALL: usize = 200;
/// The share of what a guess says, in percent, that text at its best does not get below.
const GUESS_PERCENT: usize = 80;

/// A piece of text.
#[derive(Debug)]
pub(in super::super) struct Piece {
    pub(in super::super) text: Arc<Vec<u8>>,
    /// Whether it starts inside a line.
    pub(in super::super) inside: bool,
    /// The piece before.
    pub(in super::super) before: Option<Arc<Vec<u8>>>,
}

/// What a piece became.
#[derive(Debug)]
pub(in super::super) enum Encoded {
    /// Edits. Sequences are yet to be declared.
    Edits {
        head: Box<Head>,
        body: Vec<u8>,
        /// Sequences that are copied from.
        used: BTreeSet<usize>,
    },
    /// Text, which may repeat the piece before.
    Text { text_bytes: u64, text_checksum: u64, repeats_earlier: bool, body: Vec<u8> },
}

impl Encoded {
    /// About the bytes it takes.
    fn bytes(&self) -> usize {
        match self {
            Self::Edits { head, body, .. } => head.encode().len() + body.len(),
            Self::Text { body, .. } => body.len(),
        }
    }
}

/// Encodes against a reference.
#[derive(Debug)]
pub(in super::super) struct Encoder<'r> {
    reference: &'r Reference,
    anchors: &'r Anchors,
    contigs: Vec<Contig>,
    quick: bool,
}

/// A head without text, a body, the sequences it is copied from, and what a reader makes of it.
type Columned = (Head, Vec<u8>, BTreeSet<usize>, Outcome);

/// What letters are besides bases.
struct Marks {
    lower: Option<Bits>,
    others: Vec<OtherRun>,
}

impl<'r> Encoder<'r> {
    pub(in super::super) fn new(reference: &'r Reference, anchors: &'r Anchors, quick: bool) -> Self {
        let contigs = reference.contigs.iter().map(|contig| {
            let span = contig.span();
            Contig { start: span.start, bases: span.len(), local: span.start }
        });
        // Places are looked up by start; what has no bases is never looked for.
        let contigs = contigs.filter(|contig| contig.bases > 0).collect();
        Self { reference, anchors, contigs, quick }
    }

    fn space(&self) -> Space<'_> {
        let Reference { bases, lower, .. } = self.reference;
        Space { contigs: &self.contigs, own: bases.count(), bases, lower: lower.as_ref() }
    }

    /// Sequences of the reference.
    pub(in super::super) fn contigs(&self) -> usize {
        self.reference.contigs.len()
    }

    /// What is to be said of a sequence.
    pub(in super::super) fn declare(&self, contig: usize) -> Declared {
        let contig = &self.reference.contigs[contig];
        let (start, bases) = (contig.start, contig.bases);
        Declared { start, bases, case_checksum: contig.case_checksum, digest: contig.digest }
    }

    /// The shorter of edits and text. What edits make is compared with the piece.
    ///
    /// # Errors
    /// [`DeltaError::NotExact`].
    pub(in super::super) fn encode(&self, piece: &Piece) -> Result<Encoded, DeltaError> {
        let text = &piece.text[..];
        let level = if self.quick { GUESS_LEVEL } else { LEVEL };
        let Some(edits) = self.edits(text, piece.inside)? else { return Ok(as_text(piece, level)) };
        let bytes = edits.bytes();
        let is_plain = matches!(&edits, Encoded::Edits { head, .. } if head.layout.is_plain(text.len()));
        if is_plain && bytes * SURELY_SMALL < text.len() {
            return Ok(edits);
        }
        let guess = zstd_bytes::compress(text, GUESS_LEVEL, &[]);
        if bytes * 100 < guess.len() * GUESS_PERCENT && text.len() > 1 << 20 {
            return Ok(edits);
        }
        let as_text = as_text(piece, level);
        Ok(if as_text.bytes() < bytes { as_text } else { edits })
    }

    /// The edits; `None` where these are hardly letters of bases.
    fn edits(&self, text: &[u8], inside: bool) -> Result<Option<Encoded>, DeltaError> {
        let mut residues = Vec::with_capacity(text.len());
        let layout = parse(text, inside, &mut residues);
        let mut splitter = Splitter::with_capacity(residues.len());
        for some in residues.chunks(1 << 20) {
            splitter.push(some);
            // An eighth of a text in runs of its own: protein, or no FASTA.
            if splitter.others().len() * 8 > splitter.count() {
                return Ok(None);
            }
        }
        let count = residues.len();
        residues.clear();
        let (bases, lower, others) = splitter.finish();
        let marks = Marks { lower, others };
        // What the reader would make is made where the residues were: fresh memory costs as much as the work on it.
        let Some((mut head, body, used, outcome)) = self.columns(bases, &marks, residues)? else { return Ok(None) };
        if !head.is_worth_it(count as u64) {
            return Ok(None);
        }
        head.text_bytes = text.len() as u64;
        head.text_checksum = xxh3_64(text);
        head.layout = layout;
        let mut again = outcome.letters;
        super::dress(&mut again, &marks.others, marks.lower.as_ref());
        if !head.layout.is_of(&again, text) {
            return Err(DeltaError::NotExact);
        }
        Ok(Some(Encoded::Edits { head: Box::new(head), body, used }))
    }

    /// The columns of a body, a head without text, and what a reader would make of the script; `None` where it is quicker not to ask.
    fn columns(&self, bases: Bases, marks: &Marks, letters: Vec<u8>) -> Result<Option<Columned>, DeltaError> {
        let Marks { lower, others } = marks;
        let space = self.space();
        let count = bases.count();
        let Script { steps, target, inserted } = Aligner::new(space, self.anchors, bases, others).run();
        // Inserted bases are what takes long.
        if self.quick && inserted * 2 > count {
            return Ok(None);
        }
        let order = order_for(inserted);
        let notes_copies = lower.is_some() && space.lower.is_some();
        let known = Some((&steps[..], &target));
        let task = Task { space, count, steps: steps.len(), known, others, order, notes_copies };
        let mut columns = Columns::to_write();
        let outcome = run(&task, &mut columns, letters).ok_or(DeltaError::NotExact)?;
        let (case, toggles) = self.case(lower.as_ref(), &outcome, count);
        let mut case_coder = RangeEncoder::new();
        code_places(&mut case_coder, Some(&toggles), toggles.len(), count).ok_or(DeltaError::NotExact)?;
        let mut others_coder = RangeEncoder::new();
        code_others(&mut others_coder, Some(others), others.len(), count).ok_or(DeltaError::NotExact)?;
        let [kinds, gaps, substitutes, lengths, jumps, inserts] = columns.finish();
        let marks = [case_coder, others_coder].map(RangeEncoder::finish);
        let [case_column, others_column] = marks;
        let body = Head::body([kinds, gaps, substitutes, lengths, jumps, inserts, case_column, others_column]);
        let head = Head {
            text_bytes: 0,
            text_checksum: 0,
            case,
            order,
            steps: steps.len() as u64,
            toggles: toggles.len() as u64,
            others: others.len() as u64,
            declared: Vec::new(),
            layout: super::Layout::default(),
        };
        let own = space.own;
        let jumps = steps.iter().filter_map(|step| match step.edit {
            Edit::Jump(place) => Some(place.position - usize::from(place.reverse)).filter(|base| *base < own),
            _ => None,
        });
        let used = jumps.map(|base| self.reference.contig_at(base)).collect();
        Ok(Some((head, body, used, outcome)))
    }

    /// The shorter way to tell the case.
    fn case(&self, lower: Option<&Bits>, outcome: &Outcome, count: usize) -> (CaseKind, Vec<usize>) {
        let Some(lower) = lower else { return (CaseKind::Upper, Vec::new()) };
        let changes: Vec<usize> = lower.toggles().collect();
        if let Some(known) = &self.reference.lower {
            let mut unexpected = expected_case(&outcome.copies, known, count);
            unexpected.xor(lower);
            let toggles: Vec<usize> = unexpected.toggles().collect();
            if toggles.len() < changes.len() {
                return (CaseKind::AgainstReference, toggles);
            }
        }
        (CaseKind::Changes, changes)
    }
}

/// Bases that inserted ones are predicted by: what is learned of each context has to pay.
fn order_for(inserted: usize) -> u32 {
    match inserted {
        0..4_000 => 1,
        4_000..60_000 => 2,
        60_000..1_000_000 => 3,
        1_000_000..6_000_000 => 6,
        _ => 8,
    }
}

fn as_text(piece: &Piece, level: i32) -> Encoded {
    let before = piece.before.as_ref().map_or(&[][..], |before| prefix_of(before));
    Encoded::Text {
        text_bytes: piece.text.len() as u64,
        text_checksum: xxh3_64(&piece.text),
        repeats_earlier: !before.is_empty(),
        body: zstd_bytes::compress(&piece.text, level, before),
    }
}
