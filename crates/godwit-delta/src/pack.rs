//! Packing of a genome: the text is split into segments, which several threads encode and which are written in order.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_io::varint::append_varint;
use memchr::memrchr;
use xxhash_rust::xxh3::xxh3_64;

use super::error::DeltaError;
use super::gwp_chunk::{EDITS_TAG, GWP_TEXT_MAGIC, GwpChunkWriter, GwpHeader, TEXT_TAG, TextChunkHeader};
use super::kmer_index::KmerIndex;
use super::ordered_workers::OrderedThreadPool;
use super::reference::Reference;
use super::segment::{EncodedSegment, MAX_TEXT_BYTES, SegmentEncoder, SegmentText};
use super::zstd_bytes::{ESTIMATE_LEVEL, TEXT_LEVEL, compress};

/// Default size of the text of a segment, bytes. A thread encodes one segment at a time, and reading a region decodes
/// whole segments.
const SEGMENT_BYTES: usize = 8 << 20;

/// A text below this size is encoded both as edits and as text, and the shorter form is written. Bytes.
const SMALL_TEXT_BYTES: u64 = 256 << 10;
/// Size of packed files, bytes, below which the header and the end of the file take most of the space.
const SMALL_PACKED_BYTES: u64 = 1000;

/// Options for packing a genome.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Number of threads that encode segments. Memory: a few segments for each thread.
    pub threads: usize,
    /// Size of the text of a segment, at most 32 MiB. Larger segments make packed files slightly smaller; smaller ones
    /// make reading a region faster.
    pub segment_bytes: usize,
    /// True if text that is unlike the reference is compressed faster, at the price of larger files.
    pub fast: bool,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self { threads: 1, segment_bytes: SEGMENT_BYTES, fast: false }
    }
}

/// Counts of a packed file that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackSummary {
    /// Size of the unpacked text, bytes.
    pub text_bytes: u64,
    /// Size of the packed file, bytes.
    pub packed_bytes: u64,
    /// Number of segments that were packed as edits of the reference.
    pub edit_segments: u64,
    /// Number of segments that were packed as text, because edits would have taken more bytes.
    pub text_segments: u64,
}

/// Packs text as its differences from a reference. Any bytes can be packed and are restored exactly; FASTA files of
/// genomes that resemble the reference become small.
///
/// # Errors
/// [`DeltaError::Stream`] if input or output fails, [`DeltaError::Cancelled`] if `cancelled` is set,
/// [`DeltaError::Thread`] if a thread cannot be started, [`DeltaError::RoundTripMismatch`] if a bug makes the packed
/// bytes wrong.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicBool;
///
/// use godwit_delta::{MutationRates, PackOptions, Reference, ReferenceCachePolicy, mutate_fasta, pack};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("reference.fa");
/// # let mut bytes = vec![0; 20_000];
/// # blake3::Hasher::new().finalize_xof().fill(&mut bytes);
/// # let bases: String = bytes.iter().map(|byte| char::from(b"ACGT"[usize::from(byte % 4)])).collect();
/// let text = format!(">chr1\n{bases}\n");
/// std::fs::write(&path, &text)?;
/// let reference = Reference::open(&path, ReferenceCachePolicy::Disabled, 1)?;
/// let anchors = reference.kmer_index(1)?;
///
/// let mut genome = Vec::new();
/// mutate_fasta(&mut text.as_bytes(), &mut genome, &MutationRates::human(7))?;
/// let (mut packed, options, cancelled) = (Vec::new(), PackOptions::default(), AtomicBool::new(false));
/// let summary = pack(&mut &genome[..], &mut packed, &reference, &anchors, &options, &cancelled)?;
/// assert_eq!(summary.text_bytes, genome.len() as u64);
/// assert!(summary.packed_bytes < summary.text_bytes / 20);
/// # Ok(())
/// # }
/// ```
pub fn pack(
    input: &mut dyn Read,
    output: &mut dyn Write,
    reference: &Reference,
    anchors: &KmerIndex,
    options: &PackOptions,
    cancelled: &AtomicBool,
) -> Result<PackSummary, DeltaError> {
    let mut cutter = SegmentCutter::new(input, options.segment_bytes);
    let encoder = SegmentEncoder::new(reference, anchors, options.fast);
    let first = cutter.next_segment()?;
    let second = cutter.next_segment()?;
    let head = GwpHeader { reference: reference.digest, reference_bases: reference.bases() };
    if second.is_none() {
        return pack_single_segment(first, output, &encoder, &head);
    }
    std::thread::scope(|scope| {
        let work = |piece: SegmentText| encoder.encode_segment(&piece);
        let mut encoding = OrderedThreadPool::start(scope, options.threads, work)?;
        let mut file = GwpFileWriter::create(output, &encoder, &head)?;
        let mut pieces = first.into_iter().chain(second);
        loop {
            if cancelled.load(Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            let Some(piece) = pieces.next().map_or_else(|| cutter.next_segment(), |piece| Ok(Some(piece)))? else {
                break;
            };
            encoding.submit(piece);
            if encoding.is_full()
                && let Some(encoded) = encoding.next_result()
            {
                file.write_segment(encoded?)?;
            }
        }
        while let Some(encoded) = encoding.next_result() {
            file.write_segment(encoded?)?;
        }
        file.finish()
    })
}

/// Packs a text of at most one segment. Writes chunks, or a text-only file if that is shorter, as it is for most small
/// texts.
fn pack_single_segment(
    piece: Option<SegmentText>,
    output: &mut dyn Write,
    encoder: &SegmentEncoder,
    head: &GwpHeader,
) -> Result<PackSummary, DeltaError> {
    let text = piece.as_ref().map(|piece| Arc::clone(&piece.text)).unwrap_or_default();
    let text_bytes = text.len() as u64;
    let encoded = piece.map(|piece| encoder.encode_segment(&piece)).transpose()?;
    let text_body = match encoded {
        Some(EncodedSegment::Text { body, .. }) => body,
        Some(edits) => {
            let mut packed = Vec::new();
            let mut file = GwpFileWriter::create(&mut packed, encoder, head)?;
            file.write_segment(edits)?;
            let summary = file.finish()?;
            // When a segment is encoded, the estimated size of edits does not include the header and end of the file.
            // These matter in a small file, so compare the total sizes here.
            let packed_bytes = summary.packed_bytes;
            let repeats = || compress(&text, ESTIMATE_LEVEL, &[]).len() as u64 <= 4 * packed_bytes;
            let is_close = text_bytes < SMALL_TEXT_BYTES || (packed_bytes < SMALL_PACKED_BYTES && repeats());
            let body = is_close.then(|| compress(&text, TEXT_LEVEL, &[]));
            match body.filter(|body| (body.len() as u64) < summary.packed_bytes) {
                Some(body) => body,
                None => {
                    output.write_all(&packed).and_then(|()| output.flush()).map_err(write_error)?;
                    return Ok(summary);
                }
            }
        }
        None => Vec::new(),
    };
    let mut packed = GWP_TEXT_MAGIC.to_vec();
    append_varint(&mut packed, text_bytes);
    packed.extend(text_body);
    packed.extend(text_file_checksum(&packed));
    output.write_all(&packed).and_then(|()| output.flush()).map_err(write_error)?;
    let packed_bytes = packed.len() as u64;
    Ok(PackSummary { text_bytes, packed_bytes, edit_segments: 0, text_segments: 1 })
}

fn write_error(source: std::io::Error) -> DeltaError {
    DeltaError::Stream { operation: "write the output", source }
}

/// Returns the checksum of a text-only file: the lower four bytes of its XXH3, as in a zstd frame.
pub(super) fn text_file_checksum(bytes: &[u8]) -> [u8; 4] {
    (xxh3_64(bytes) as u32).to_le_bytes()
}

/// A writer of a packed file that consists of chunks.
struct GwpFileWriter<'a, W> {
    chunk_writer: GwpChunkWriter<W>,
    encoder: &'a SegmentEncoder<'a>,
    is_contig_declared: Vec<bool>,
    summary: PackSummary,
}

impl<'a, W: Write> GwpFileWriter<'a, W> {
    fn create(output: W, encoder: &'a SegmentEncoder, head: &GwpHeader) -> Result<Self, DeltaError> {
        let chunk_writer = GwpChunkWriter::create(output, head)?;
        Ok(Self {
            chunk_writer,
            encoder,
            is_contig_declared: vec![false; encoder.contig_count()],
            summary: PackSummary::default(),
        })
    }

    fn write_segment(&mut self, encoded: EncodedSegment) -> Result<(), DeltaError> {
        match encoded {
            EncodedSegment::Edits { mut header, body, contigs } => {
                for contig in contigs {
                    if !std::mem::replace(&mut self.is_contig_declared[contig], true) {
                        header.contig_declarations.push(self.encoder.contig_declaration(contig));
                    }
                }
                self.summary.text_bytes += header.text_bytes;
                self.summary.edit_segments += 1;
                self.chunk_writer.write_chunk(EDITS_TAG, &header.encode(), &body)
            }
            EncodedSegment::Text { text_bytes, text_checksum, repeats_earlier, body } => {
                self.summary.text_bytes += text_bytes;
                self.summary.text_segments += 1;
                let head = TextChunkHeader { text_bytes, text_checksum, repeats_earlier };
                self.chunk_writer.write_chunk(TEXT_TAG, &head.encode(), &body)
            }
        }
    }

    fn finish(self) -> Result<PackSummary, DeltaError> {
        let packed_bytes = self.chunk_writer.finish(self.summary.text_bytes)?;
        Ok(PackSummary { packed_bytes, ..self.summary })
    }
}

/// Splits the input into segments. A segment ends after a line end if it contains one.
struct SegmentCutter<'i> {
    input: &'i mut dyn Read,
    segment_bytes: usize,
    /// Text that was read but belongs to the next segment.
    remainder: Vec<u8>,
    starts_inside_line: bool,
    previous_text: Option<Arc<Vec<u8>>>,
}

impl<'i> SegmentCutter<'i> {
    fn new(input: &'i mut dyn Read, piece_bytes: usize) -> Self {
        let segment_bytes = piece_bytes.clamp(1, MAX_TEXT_BYTES as usize);
        Self { input, segment_bytes, remainder: Vec::new(), starts_inside_line: false, previous_text: None }
    }

    fn next_segment(&mut self) -> Result<Option<SegmentText>, DeltaError> {
        let mut text = Vec::with_capacity(self.segment_bytes);
        text.append(&mut self.remainder);
        let missing = (self.segment_bytes - text.len()) as u64;
        let read = Read::take(&mut *self.input, missing).read_to_end(&mut text);
        read.map_err(|source| DeltaError::Stream { operation: "read the input", source })?;
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() == self.segment_bytes
            && let Some(last) = memrchr(b'\n', &text)
        {
            self.remainder = text.split_off(last + 1);
        }
        let starts_inside_line = std::mem::replace(&mut self.starts_inside_line, text.last() != Some(&b'\n'));
        let text = Arc::new(text);
        let previous = self.previous_text.replace(Arc::clone(&text));
        Ok(Some(SegmentText { text, starts_inside_line, previous }))
    }
}
