//! A piece of text as edits of a reference, and back.
//!
//! A segment has a head, which says what records are in it, and a body of columns. Heads can be read alone, so that a region is
//! found without the rest.

mod encode;

use xxhash_rust::xxh3::xxh3_64;

use super::layout::Layout;
use super::marks::{CaseKind, code_others, code_places, dress, expected_case, from_toggles};
use super::place::Space;
use super::range_coder::Decoder;
use super::reference::{DIGEST_BYTES, Digest};
use super::script::{COLUMNS, Columns, MAX_ORDER, Task, run};
use super::varint::{Cursor, put_varint};
use super::zstd_bytes::{put_bytes, take_bytes};

pub(super) use encode::{Encoded, Encoder, Piece};

/// Bytes of text in a segment at most.
pub(super) const MAX_TEXT_BYTES: u64 = 32 << 20;
/// Columns besides those of the script: the case, and what is no base.
const ALL_COLUMNS: usize = COLUMNS + 2;

/// A sequence of the reference that is copied from, as it is declared before its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    /// Where it starts among the bases of the reference.
    pub(super) start: u64,
    pub(super) bases: u64,
    pub(super) case_checksum: u64,
    pub(super) digest: Digest,
}

/// The head of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes of its text.
    pub(super) text_bytes: u64,
    /// XXH3 of its text.
    pub(super) text_checksum: u64,
    pub(super) case: CaseKind,
    /// Bases that inserted ones are predicted by.
    order: u32,
    steps: u64,
    toggles: u64,
    others: u64,
    /// Sequences that no earlier segment declared.
    pub(super) declared: Vec<Declared>,
    pub(super) layout: Layout,
}

impl Head {
    /// What [`Head::decode`] reads.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.text_bytes);
        out.extend(self.text_checksum.to_le_bytes());
        put_varint(&mut out, self.case as u64);
        put_varint(&mut out, self.order.into());
        for count in [self.steps, self.toggles, self.others, self.declared.len() as u64] {
            put_varint(&mut out, count);
        }
        for declared in &self.declared {
            put_varint(&mut out, declared.start);
            put_varint(&mut out, declared.bases << 1 | u64::from(declared.case_checksum != 0));
            if declared.case_checksum != 0 {
                out.extend(declared.case_checksum.to_le_bytes());
            }
            out.extend(declared.digest.0);
        }
        put_bytes(&mut out, &self.layout.encode());
        put_bytes(&mut out, self.layout.titles());
        out
    }

    /// Reads a head; `None` where it is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor::new(bytes);
        let text_bytes = cursor.varint().filter(|bytes| *bytes <= MAX_TEXT_BYTES)?;
        let text_checksum = u64::from_le_bytes(cursor.array()?);
        let case = *CaseKind::ALL.get(usize::try_from(cursor.varint()?).ok()?)?;
        let order = u32::try_from(cursor.varint()?).ok().filter(|order| *order <= MAX_ORDER)?;
        let mut count = || cursor.varint().filter(|count| *count <= MAX_TEXT_BYTES);
        let [steps, toggles, others, declared_count] = [count()?, count()?, count()?, count()?];
        let mut declared = Vec::new();
        for _ in 0..declared_count {
            let start = cursor.varint()?;
            let bases = cursor.varint()?;
            let case_checksum = if bases & 1 == 1 { u64::from_le_bytes(cursor.array()?) } else { 0 };
            let digest = Digest(cursor.array::<DIGEST_BYTES>()?);
            declared.push(Declared { start, bases: bases >> 1, case_checksum, digest });
        }
        // A line takes a byte of text at least, and so many bytes in the list of lines at most.
        let lines = take_bytes(&mut cursor, 20 + 20 * text_bytes)?;
        let titles = take_bytes(&mut cursor, text_bytes)?;
        let layout = Layout::decode(&lines, titles, text_bytes)?;
        let residues = layout.residues()?;
        let head = Self { text_bytes, text_checksum, case, order, steps, toggles, others, declared, layout };
        (cursor.is_empty() && head.is_worth_it(residues)).then_some(head)
    }

    /// Whether edits and marks are few for that many residues. Where they are not, text is shorter; and a reader is asked for no
    /// more memory than a few times the text.
    pub(super) fn is_worth_it(&self, residues: u64) -> bool {
        self.steps * 4 <= residues + 256 && self.toggles * 8 <= residues + 256 && self.others * 8 <= residues + 256
    }

    /// Residues of the segment, as they are in the text; `None` where the body does not go with the head.
    pub(super) fn residues(&self, body: &[u8], space: Space) -> Option<Vec<u8>> {
        let columns = columns_of(body)?;
        let count = usize::try_from(self.layout.residues()?).ok()?;
        let mut coder = Decoder::new(columns[COLUMNS + 1]);
        let others = code_others(&mut coder, None, usize::try_from(self.others).ok()?, count)?;
        let script = std::array::from_fn(|at| columns[at]);
        let task = Task {
            space,
            count,
            steps: usize::try_from(self.steps).ok()?,
            known: None,
            others: &others,
            order: self.order,
            notes_copies: self.case == CaseKind::AgainstReference,
        };
        let mut outcome = run(&task, &mut Columns::to_read(script), Vec::new())?;
        let mut coder = Decoder::new(columns[COLUMNS]);
        let toggles = code_places(&mut coder, None, usize::try_from(self.toggles).ok()?, count)?;
        let lower = match self.case {
            CaseKind::Upper => None,
            CaseKind::Changes => Some(from_toggles(&toggles, count)),
            CaseKind::AgainstReference => {
                let mut lower = from_toggles(&toggles, count);
                lower.xor(&expected_case(&outcome.copies, space.lower?, count));
                Some(lower)
            }
        };
        dress(&mut outcome.letters, &others, lower.as_ref());
        Some(outcome.letters)
    }

    /// The text; `None` where it is another than was packed.
    pub(super) fn text(&self, body: &[u8], space: Space) -> Option<Vec<u8>> {
        let text = self.layout.write(&self.residues(body, space)?)?;
        (text.len() as u64 == self.text_bytes && xxh3_64(&text) == self.text_checksum).then_some(text)
    }

    /// Columns as a body.
    fn body(columns: [Vec<u8>; ALL_COLUMNS]) -> Vec<u8> {
        let mut body = Vec::new();
        columns.iter().for_each(|column| put_varint(&mut body, column.len() as u64));
        columns.iter().for_each(|column| body.extend(column));
        body
    }
}

fn columns_of(body: &[u8]) -> Option<[&[u8]; ALL_COLUMNS]> {
    let mut cursor = Cursor::new(body);
    let mut lengths = [0; ALL_COLUMNS];
    for length in &mut lengths {
        *length = usize::try_from(cursor.varint()?).ok()?;
    }
    let mut columns = [&[][..]; ALL_COLUMNS];
    for (column, length) in columns.iter_mut().zip(lengths) {
        *column = cursor.bytes(length)?;
    }
    cursor.is_empty().then_some(columns)
}
