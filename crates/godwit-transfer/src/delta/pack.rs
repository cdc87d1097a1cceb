//! Text in, packed file out: cut into segments, encoded on several threads, written in order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use memchr::memrchr;
use xxhash_rust::xxh3::xxh3_64;

use super::anchors::Anchors;
use super::chunk::{ChunkWriter, EDITS, FileHead, TEXT, TEXT_MAGIC, TextHead};
use super::error::DeltaError;
use super::ordered::InOrder;
use super::reference::Reference;
use super::segment::{Encoded, Encoder, MAX_TEXT_BYTES, Piece};
use super::varint::put_varint;
use super::zstd_bytes::{GUESS_LEVEL, LEVEL, compress};

/// Bytes of text in a segment: what a thread holds, and what is decoded for one region.
const SEGMENT_BYTES: usize = 8 << 20;

/// Text so short that it is packed both ways.
const SMALL_BYTES: u64 = 256 << 10;
/// A packed file so short that its start and end count.
const SMALL_PACKED_BYTES: u64 = 1000;

/// How to pack.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Threads that encode; each holds a few times a segment.
    pub threads: usize,
    /// Bytes of text in a segment, up to 32 MiB: more packs better by a little, less makes regions quicker.
    pub segment_bytes: usize,
    /// Rather quick than small where text is not like the reference.
    pub quick: bool,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self { threads: 1, segment_bytes: SEGMENT_BYTES, quick: false }
    }
}

/// What was packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// Bytes of text.
    pub text_bytes: u64,
    /// Bytes of the packed file.
    pub packed_bytes: u64,
    /// Segments of edits.
    pub segments_of_edits: u64,
    /// Segments that stayed text, because edits would have been longer.
    pub segments_of_text: u64,
}

/// Packs text against a reference. Any bytes are packed, and come back as they were; a FASTA file of genomes like the reference
/// is what becomes small.
///
/// # Errors
/// [`DeltaError::Stream`] for both ends, [`DeltaError::Cancelled`], [`DeltaError::NotExact`].
pub fn pack(
    input: &mut dyn Read,
    output: &mut dyn Write,
    reference: &Reference,
    anchors: &Anchors,
    options: &PackOptions,
    cancelled: &AtomicBool,
) -> Result<PackSummary, DeltaError> {
    let mut cutter = Cutter::new(input, options.segment_bytes);
    let encoder = Encoder::new(reference, anchors, options.quick);
    let first = cutter.next_piece()?;
    let second = cutter.next_piece()?;
    let head = FileHead { reference: reference.digest, reference_bases: reference.bases() };
    if second.is_none() {
        return pack_one(first, output, &encoder, &head);
    }
    std::thread::scope(|scope| {
        let work = |piece: Piece| encoder.encode(&piece);
        let mut encoding = InOrder::start(scope, options.threads, work)?;
        let mut file = PackedFile::start(output, &encoder, &head)?;
        let mut pieces = first.into_iter().chain(second);
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            let Some(piece) = pieces.next().map_or_else(|| cutter.next_piece(), |piece| Ok(Some(piece)))? else {
                break;
            };
            encoding.push(piece);
            if encoding.is_full()
                && let Some(encoded) = encoding.pop()
            {
                file.write(encoded?)?;
            }
        }
        while let Some(encoded) = encoding.pop() {
            file.write(encoded?)?;
        }
        file.finish()
    })
}

/// Packs what is one segment, or nothing: as chunks, or as text where that is shorter, which small files mostly are.
fn pack_one(
    piece: Option<Piece>,
    output: &mut dyn Write,
    encoder: &Encoder,
    head: &FileHead,
) -> Result<PackSummary, DeltaError> {
    let text = piece.as_ref().map(|piece| Arc::clone(&piece.text)).unwrap_or_default();
    let text_bytes = text.len() as u64;
    let encoded = piece.map(|piece| encoder.encode(&piece)).transpose()?;
    let text_body = match encoded {
        Some(Encoded::Text { body, .. }) => body,
        Some(edits) => {
            let mut packed = Vec::new();
            let mut file = PackedFile::start(&mut packed, encoder, head)?;
            file.write(edits)?;
            let summary = file.finish()?;
            // What edits are compared with leaves out the start and the end of a file, which count in a small one.
            let packed_bytes = summary.packed_bytes;
            let repeats = || compress(&text, GUESS_LEVEL, &[]).len() as u64 <= 4 * packed_bytes;
            let is_close = text_bytes < SMALL_BYTES || (packed_bytes < SMALL_PACKED_BYTES && repeats());
            let body = is_close.then(|| compress(&text, LEVEL, &[]));
            match body.filter(|body| (body.len() as u64) < summary.packed_bytes) {
                Some(body) => body,
                None => {
                    output.write_all(&packed).and_then(|()| output.flush()).map_err(write_failed)?;
                    return Ok(summary);
                }
            }
        }
        None => Vec::new(),
    };
    let mut packed = TEXT_MAGIC.to_vec();
    put_varint(&mut packed, text_bytes);
    packed.extend(text_body);
    packed.extend(short_checksum(&packed));
    output.write_all(&packed).and_then(|()| output.flush()).map_err(write_failed)?;
    let packed_bytes = packed.len() as u64;
    Ok(PackSummary { text_bytes, packed_bytes, segments_of_edits: 0, segments_of_text: 1 })
}

fn write_failed(source: std::io::Error) -> DeltaError {
    DeltaError::Stream { what: "write the output", source }
}

/// The checksum at the end of a file that is nothing but text: four bytes, as many as zstd has.
pub(super) fn short_checksum(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

/// A file of chunks that is written.
struct PackedFile<'a, W> {
    out: ChunkWriter<W>,
    encoder: &'a Encoder<'a>,
    declared: Vec<bool>,
    summary: PackSummary,
}

impl<'a, W: Write> PackedFile<'a, W> {
    fn start(output: W, encoder: &'a Encoder, head: &FileHead) -> Result<Self, DeltaError> {
        let out = ChunkWriter::start(output, head)?;
        Ok(Self { out, encoder, declared: vec![false; encoder.contigs()], summary: PackSummary::default() })
    }

    fn write(&mut self, encoded: Encoded) -> Result<(), DeltaError> {
        match encoded {
            Encoded::Edits { mut head, body, used } => {
                for contig in used {
                    if !std::mem::replace(&mut self.declared[contig], true) {
                        head.declared.push(self.encoder.declare(contig));
                    }
                }
                self.summary.text_bytes += head.text_bytes;
                self.summary.segments_of_edits += 1;
                self.out.write(EDITS, &head.encode(), &body)
            }
            Encoded::Text { text_bytes, text_checksum, repeats_earlier, body } => {
                self.summary.text_bytes += text_bytes;
                self.summary.segments_of_text += 1;
                let head = TextHead { text_bytes, text_checksum, repeats_earlier };
                self.out.write(TEXT, &head.encode(), &body)
            }
        }
    }

    fn finish(self) -> Result<PackSummary, DeltaError> {
        let packed_bytes = self.out.finish(self.summary.text_bytes)?;
        Ok(PackSummary { packed_bytes, ..self.summary })
    }
}

/// Cuts text into pieces, behind a line where one ends.
struct Cutter<'i> {
    input: &'i mut dyn Read,
    piece_bytes: usize,
    /// Text behind the last piece.
    left: Vec<u8>,
    inside: bool,
    before: Option<Arc<Vec<u8>>>,
}

impl<'i> Cutter<'i> {
    fn new(input: &'i mut dyn Read, piece_bytes: usize) -> Self {
        let piece_bytes = piece_bytes.clamp(1, MAX_TEXT_BYTES as usize);
        Self { input, piece_bytes, left: Vec::new(), inside: false, before: None }
    }

    fn next_piece(&mut self) -> Result<Option<Piece>, DeltaError> {
        let mut text = Vec::with_capacity(self.piece_bytes);
        text.append(&mut self.left);
        let missing = (self.piece_bytes - text.len()) as u64;
        let read = Read::take(&mut *self.input, missing).read_to_end(&mut text);
        read.map_err(|source| DeltaError::Stream { what: "read the input", source })?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() == self.piece_bytes
            && let Some(last) = memrchr(b'\n', &text)
        {
            self.left = text.split_off(last + 1);
        }
        let inside = std::mem::replace(&mut self.inside, text.last() != Some(&b'\n'));
        let text = Arc::new(text);
        let before = self.before.replace(Arc::clone(&text));
        Ok(Some(Piece { text, inside, before }))
    }
}
