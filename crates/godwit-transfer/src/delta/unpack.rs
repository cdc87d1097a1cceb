//! Packed file in, text out: decoded on several threads, written in order.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::bases::Bases;
use super::chunk::{Chunk, ChunkReader, EDITS, FileHead, Start, TEXT, TEXT_MAGIC, TextHead, Totals};
use super::error::DeltaError;
use super::marks::CaseKind;
use super::ordered::InOrder;
use super::pack::short_checksum;
use super::place::{Contig, Space};
use super::reference::{Digest, Reference};
use super::segment::{Declared, Head, MAX_TEXT_BYTES};
use super::varint::{Cursor, put_varint};
use super::zstd_bytes::{decompress, prefix_of};

/// What was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackSummary {
    /// Bytes of text.
    pub text_bytes: u64,
    /// Bytes of the packed file.
    pub packed_bytes: u64,
}

/// Unpacks a packed file. The reference may be left out where nothing was copied from it. What was written is right up to where it
/// fails; it is whole only after a success.
///
/// # Errors
/// [`DeltaError::NotPacked`], [`DeltaError::Damaged`], [`DeltaError::Truncated`], [`DeltaError::WrongReference`] and the like;
/// [`DeltaError::Stream`]; [`DeltaError::Cancelled`].
pub fn unpack(
    input: &mut dyn Read,
    output: &mut dyn Write,
    reference: Option<&Reference>,
    threads: usize,
    cancelled: &AtomicBool,
) -> Result<UnpackSummary, DeltaError> {
    let (mut reader, start) = ChunkReader::start(input)?;
    let mut write =
        |text: &[u8]| output.write_all(text).map_err(|source| DeltaError::Stream { what: "write the output", source });
    let head = match start {
        Start::Chunks(head) => head,
        Start::Text => {
            let text = only_text(&mut reader)?;
            write(&text)?;
            return Ok(UnpackSummary { text_bytes: text.len() as u64, packed_bytes: reader.offset });
        }
    };
    let mut known = Known::new(head, reference)?;
    let mut totals = Totals::default();
    std::thread::scope(|scope| {
        let mut decoding = InOrder::start(scope, threads, |job: Job| job.run())?;
        let mut last: Vec<u8> = Vec::new();
        while let Some(chunk) = reader.next_chunk(&totals)? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            let Chunk { tag, head, body, offset } = chunk;
            let mut what = What::decode(tag, &head, offset)?;
            known.admit(&what, offset)?;
            totals.text_bytes += what.text_bytes();
            totals.chunks += 1;
            let waits = matches!(&what, What::Text(head, _) if head.repeats_earlier);
            while (waits || decoding.is_full())
                && let Some(text) = decoding.pop()
            {
                last = text?;
                write(&last)?;
            }
            if let What::Text(_, before) = &mut what
                && waits
            {
                *before = prefix_of(&last).to_vec();
            }
            decoding.push(known.job(what, body, offset));
        }
        while let Some(text) = decoding.pop() {
            write(&text?)?;
        }
        Ok(())
    })?;
    output.flush().map_err(|source| DeltaError::Stream { what: "write the output", source })?;
    Ok(UnpackSummary { text_bytes: totals.text_bytes, packed_bytes: reader.offset })
}

/// The text of a file that is nothing else, behind its magic.
pub(super) fn only_text<R: Read>(reader: &mut ChunkReader<R>) -> Result<Vec<u8>, DeltaError> {
    let rest = reader.rest(2 * MAX_TEXT_BYTES)?;
    let truncated = DeltaError::Truncated { offset: reader.offset };
    let Some((bytes, known)) = rest.split_last_chunk::<4>() else { return Err(truncated) };
    if short_checksum(&[&TEXT_MAGIC, bytes].concat()) != *known {
        return Err(DeltaError::Damaged { offset: 0, what: "it has another checksum, or is cut off" });
    }
    let mut cursor = Cursor::new(bytes);
    let text = cursor.varint().filter(|bytes| *bytes <= MAX_TEXT_BYTES).and_then(|text_bytes| {
        let mut head = Vec::new();
        put_varint(&mut head, text_bytes);
        match &bytes[head.len()..] {
            [] if text_bytes == 0 => Some(Vec::new()),
            frame => decompress(frame, text_bytes as usize, &[]),
        }
    });
    text.ok_or(DeltaError::Damaged { offset: 4, what: "its text cannot be decompressed" })
}

/// The sequences that were declared so far, and where the reference at hand has them.
pub(super) struct Known<'r> {
    head: FileHead,
    reference: Option<&'r Reference>,
    by_digest: HashMap<Digest, usize>,
    contigs: Arc<Vec<Contig>>,
    /// Whether a declared sequence has other case here.
    other_case: bool,
    no_bases: Arc<Bases>,
}

impl<'r> Known<'r> {
    /// Nothing yet.
    pub(super) fn new(head: FileHead, reference: Option<&'r Reference>) -> Result<Self, DeltaError> {
        if head.reference_bases >= 1 << 46 {
            return Err(DeltaError::Damaged { offset: 4, what: "its reference is longer than can be" });
        }
        let contigs = reference.map_or(&[][..], |reference| &reference.contigs);
        let by_digest = contigs.iter().enumerate().map(|(at, contig)| (contig.digest, at)).collect();
        let no_bases = Arc::new(Bases::from_words(vec![0; Bases::words_for(0)], 0).expect("there are enough words"));
        Ok(Self { head, reference, by_digest, contigs: Arc::default(), other_case: false, no_bases })
    }

    /// Takes what a segment declares.
    pub(super) fn declare(&mut self, declared: &[Declared], offset: u64) -> Result<(), DeltaError> {
        if declared.is_empty() {
            return Ok(());
        }
        let wanted = || self.head.reference.to_string();
        let Some(reference) = self.reference else { return Err(DeltaError::NoReference { wanted: wanted() }) };
        let mut contigs = (*self.contigs).clone();
        for declared in declared {
            let Some(at) = self.by_digest.get(&declared.digest) else {
                return Err(DeltaError::WrongReference {
                    wanted: wanted(),
                    path: reference.path.clone(),
                    given: reference.digest.to_string(),
                    missing: format!("SQ.{}", declared.digest),
                });
            };
            let contig = &reference.contigs[*at];
            let end = declared.start.checked_add(declared.bases);
            if contig.bases != declared.bases || end.is_none_or(|end| end > self.head.reference_bases) {
                return Err(DeltaError::Damaged { offset, what: "a sequence of the reference has another length" });
            }
            self.other_case |= contig.case_checksum != declared.case_checksum;
            let (start, span) = (declared.start as usize, contig.span());
            contigs.push(Contig { start, bases: span.len(), local: span.start });
        }
        contigs.sort_by_key(|contig| contig.start);
        self.contigs = Arc::new(contigs);
        Ok(())
    }

    /// Takes what the next chunk declares.
    pub(super) fn admit(&mut self, what: &What, offset: u64) -> Result<(), DeltaError> {
        let What::Edits(head) = what else { return Ok(()) };
        self.declare(&head.declared, offset)?;
        if head.case == CaseKind::AgainstReference && self.other_case {
            let path = self.reference.map(|reference| reference.path.clone()).unwrap_or_default();
            return Err(DeltaError::WrongCase { path });
        }
        Ok(())
    }

    /// A chunk to be decoded, which was admitted.
    pub(super) fn job(&self, what: What, body: Vec<u8>, offset: u64) -> Job<'r> {
        let (contigs, no_bases) = (Arc::clone(&self.contigs), Arc::clone(&self.no_bases));
        Job {
            what,
            body,
            offset,
            contigs,
            own: self.head.reference_bases as usize,
            reference: self.reference,
            no_bases,
        }
    }
}

/// What a chunk holds.
#[derive(Clone, Debug)]
pub(super) enum What {
    Edits(Arc<Head>),
    /// And the text before it, where that is repeated.
    Text(TextHead, Vec<u8>),
}

impl What {
    /// Reads the head of a chunk.
    pub(super) fn decode(tag: u8, head: &[u8], offset: u64) -> Result<Self, DeltaError> {
        let damaged = DeltaError::Damaged { offset, what: "the head of a chunk makes no sense" };
        match tag {
            EDITS => Head::decode(head).map(|head| Self::Edits(Arc::new(head))).ok_or(damaged),
            TEXT => TextHead::decode(head).map(|head| Self::Text(head, Vec::new())).ok_or(damaged),
            _ => Err(DeltaError::Damaged { offset, what: "a chunk is of no known kind" }),
        }
    }

    /// Bytes of its text.
    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            Self::Edits(head) => head.text_bytes,
            Self::Text(head, _) => head.text_bytes,
        }
    }
}

/// A chunk to be decoded.
pub(super) struct Job<'r> {
    pub(super) what: What,
    body: Vec<u8>,
    offset: u64,
    contigs: Arc<Vec<Contig>>,
    own: usize,
    reference: Option<&'r Reference>,
    no_bases: Arc<Bases>,
}

impl Job<'_> {
    fn space(&self) -> Space<'_> {
        let bases = self.reference.map_or(&*self.no_bases, |reference| &reference.bases);
        let lower = self.reference.and_then(|reference| reference.lower.as_ref());
        Space { contigs: &self.contigs, own: self.own, bases, lower }
    }

    /// The text of the chunk.
    pub(super) fn run(&self) -> Result<Vec<u8>, DeltaError> {
        let text = match &self.what {
            What::Edits(head) => head.text(&self.body, self.space()),
            What::Text(head, before) => decompress(&self.body, head.text_bytes as usize, before)
                .filter(|text| xxh3_64(text) == head.text_checksum),
        };
        text.ok_or(DeltaError::Damaged { offset: self.offset, what: "a chunk does not become the text it was" })
    }

    /// The residues of a chunk of edits. They are checked by the checksum of the body alone.
    pub(super) fn residues(&self, head: &Head) -> Result<Vec<u8>, DeltaError> {
        let residues = head.residues(&self.body, self.space());
        residues.ok_or(DeltaError::Damaged { offset: self.offset, what: "a chunk does not become the text it was" })
    }
}
