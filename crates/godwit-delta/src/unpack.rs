//! Unpacking of a packed file: several threads decode the chunks, and the text is written in order.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use godwit_io::varint::{VarintReader, append_varint};
use xxhash_rust::xxh3::xxh3_64;

use super::bases::Bases;
use super::copy_source::{ContigMapping, CopySpace};
use super::error::DeltaError;
use super::gwp_chunk::{
    EDITS_TAG, GWP_TEXT_MAGIC, GwpChunk, GwpChunkReader, GwpFileKind, GwpHeader, GwpTotals, TEXT_TAG, TextChunkHeader,
};
use super::letter_masks::CaseCoding;
use super::ordered_workers::OrderedThreadPool;
use super::pack::text_file_checksum;
use super::reference::{Digest, Reference};
use super::segment::{ContigDeclaration, MAX_TEXT_BYTES, SegmentHeader};
use super::zstd_bytes::{decompress, trailing_prefix};

/// Counts of a packed file that was unpacked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnpackSummary {
    /// Size of the unpacked text, bytes.
    pub text_bytes: u64,
    /// Size of the packed file, bytes.
    pub packed_bytes: u64,
}

/// Unpacks a packed file. `reference` may be `None` if the file copies nothing from a reference. If an error occurs,
/// the text that was already written is correct but incomplete.
///
/// # Errors
/// [`DeltaError::NotGwp`] if the input is not a packed file; [`DeltaError::Damaged`] and [`DeltaError::Truncated`] if
/// it is defective; [`DeltaError::UnsupportedVersion`]; [`DeltaError::WrongReference`],
/// [`DeltaError::MissingReference`] and [`DeltaError::CaseMismatch`] if the reference does not match;
/// [`DeltaError::Stream`] if input or output fails; [`DeltaError::Thread`]; [`DeltaError::Cancelled`].
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::atomic::AtomicBool;
///
/// use godwit_delta::{DeltaError, PackOptions, Reference, ReferenceCachePolicy, pack, unpack};
///
/// # let directory = tempfile::tempdir()?;
/// # let fasta = directory.path().join("reference.fa");
/// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
/// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
/// # let anchors = reference.kmer_index(1)?;
/// # let options = PackOptions::default();
/// let cancelled = AtomicBool::new(false);
/// let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
/// let mut packed = Vec::new();
/// pack(&mut &genome[..], &mut packed, &reference, &anchors, &options, &cancelled)?;
///
/// let mut unpacked = Vec::new();
/// let summary = unpack(&mut &packed[..], &mut unpacked, Some(&reference), 1, &cancelled)?;
/// assert_eq!(unpacked, genome);
/// assert_eq!(summary.packed_bytes, packed.len() as u64);
///
/// let error = unpack(&mut &genome[..], &mut Vec::new(), None, 1, &cancelled).unwrap_err();
/// assert!(matches!(error, DeltaError::NotGwp));
/// # Ok(())
/// # }
/// ```
pub fn unpack(
    input: &mut dyn Read,
    output: &mut dyn Write,
    reference: Option<&Reference>,
    threads: usize,
    cancelled: &AtomicBool,
) -> Result<UnpackSummary, DeltaError> {
    let (mut reader, start) = GwpChunkReader::open(input)?;
    let mut write = |text: &[u8]| {
        output.write_all(text).map_err(|source| DeltaError::Stream { operation: "write the output", source })
    };
    let head = match start {
        GwpFileKind::Chunks(head) => head,
        GwpFileKind::Text => {
            let text = read_text_file(&mut reader)?;
            write(&text)?;
            return Ok(UnpackSummary { text_bytes: text.len() as u64, packed_bytes: reader.offset });
        }
    };
    let mut known = DeclaredContigs::new(head, reference)?;
    let mut totals = GwpTotals::default();
    std::thread::scope(|scope| {
        let mut decoding = OrderedThreadPool::start(scope, threads, |job: DecodeJob| job.decode_text())?;
        let mut last: Vec<u8> = Vec::new();
        while let Some(chunk) = reader.next_chunk(&totals)? {
            if cancelled.load(Ordering::Relaxed) {
                return Err(DeltaError::Cancelled);
            }
            let GwpChunk { tag, header, body, offset } = chunk;
            let mut what = ChunkContent::decode(tag, &header, offset)?;
            known.add_chunk(&what, offset)?;
            totals.text_bytes += what.text_bytes();
            totals.chunk_count += 1;
            let waits = matches!(&what, ChunkContent::Text(head, _) if head.repeats_earlier);
            while (waits || decoding.is_full())
                && let Some(text) = decoding.next_result()
            {
                last = text?;
                write(&last)?;
            }
            if let ChunkContent::Text(_, before) = &mut what
                && waits
            {
                *before = trailing_prefix(&last).to_vec();
            }
            decoding.submit(known.decode_job(what, body, offset));
        }
        while let Some(text) = decoding.next_result() {
            write(&text?)?;
        }
        Ok(())
    })?;
    output.flush().map_err(|source| DeltaError::Stream { operation: "write the output", source })?;
    Ok(UnpackSummary { text_bytes: totals.text_bytes, packed_bytes: reader.offset })
}

/// Reads a text-only file after its magic bytes, and returns the unpacked text.
pub(super) fn read_text_file<R: Read>(reader: &mut GwpChunkReader<R>) -> Result<Vec<u8>, DeltaError> {
    let rest = reader.read_rest(2 * MAX_TEXT_BYTES)?;
    let truncated = DeltaError::Truncated { offset: reader.offset };
    let Some((bytes, known)) = rest.split_last_chunk::<4>() else { return Err(truncated) };
    if text_file_checksum(&[&GWP_TEXT_MAGIC, bytes].concat()) != *known {
        return Err(DeltaError::Damaged { offset: 0, problem: "checksum mismatch, or the file is truncated" });
    }
    let mut cursor = VarintReader::new(bytes);
    let text = cursor.read_varint().filter(|bytes| *bytes <= MAX_TEXT_BYTES).and_then(|text_bytes| {
        let mut head = Vec::new();
        append_varint(&mut head, text_bytes);
        match &bytes[head.len()..] {
            [] if text_bytes == 0 => Some(Vec::new()),
            frame => decompress(frame, text_bytes as usize, &[]),
        }
    });
    text.ok_or(DeltaError::Damaged { offset: 4, problem: "the compressed text of a chunk cannot be decompressed" })
}

/// The reference sequences that a packed file has declared so far, and their positions in the local reference.
pub(super) struct DeclaredContigs<'r> {
    file_header: GwpHeader,
    reference: Option<&'r Reference>,
    by_digest: HashMap<Digest, usize>,
    mappings: Arc<Vec<ContigMapping>>,
    /// True if the letters of a declared sequence have other case in the local reference.
    has_other_case: bool,
    empty_bases: Arc<Bases>,
}

impl<'r> DeclaredContigs<'r> {
    /// Returns the state before the first declaration of a file.
    pub(super) fn new(file_header: GwpHeader, reference: Option<&'r Reference>) -> Result<Self, DeltaError> {
        if file_header.reference_bases >= 1 << 46 {
            return Err(DeltaError::Damaged { offset: 4, problem: "the reference exceeds the size limit" });
        }
        let contigs = reference.map_or(&[][..], |reference| &reference.contigs);
        let by_digest = contigs.iter().enumerate().map(|(at, contig)| (contig.digest, at)).collect();
        let empty_bases =
            Arc::new(Bases::from_words(vec![0; Bases::word_count(0)], 0).expect("there are enough words"));
        Ok(Self { file_header, reference, by_digest, mappings: Arc::default(), has_other_case: false, empty_bases })
    }

    /// Adds the sequences that a segment declares; fails if the local reference lacks one of them.
    pub(super) fn add_declarations(&mut self, declared: &[ContigDeclaration], offset: u64) -> Result<(), DeltaError> {
        if declared.is_empty() {
            return Ok(());
        }
        let wanted = || self.file_header.reference.to_string();
        let Some(reference) = self.reference else {
            return Err(DeltaError::MissingReference { expected_digest: wanted() });
        };
        let mut contigs = (*self.mappings).clone();
        for declared in declared {
            let Some(at) = self.by_digest.get(&declared.digest) else {
                return Err(DeltaError::WrongReference {
                    expected_digest: wanted(),
                    path: reference.path.clone(),
                    actual_digest: reference.digest.to_string(),
                    missing_sequence: format!("SQ.{}", declared.digest),
                });
            };
            let contig = &reference.contigs[*at];
            let end = declared.start.checked_add(declared.bases);
            if contig.bases != declared.bases || end.is_none_or(|end| end > self.file_header.reference_bases) {
                return Err(DeltaError::Damaged { offset, problem: "a sequence of the reference has another length" });
            }
            self.has_other_case |= contig.case_checksum != declared.case_checksum;
            let (start, span) = (declared.start as usize, contig.base_range());
            contigs.push(ContigMapping { start, bases: span.len(), local_start: span.start });
        }
        contigs.sort_by_key(|contig| contig.start);
        self.mappings = Arc::new(contigs);
        Ok(())
    }

    /// Adds the sequences that the next chunk declares. Fails if decoding the chunk needs the case of reference
    /// letters, and the local reference has other case.
    pub(super) fn add_chunk(&mut self, what: &ChunkContent, offset: u64) -> Result<(), DeltaError> {
        let ChunkContent::Edits(head) = what else { return Ok(()) };
        self.add_declarations(&head.contig_declarations, offset)?;
        if head.case_coding == CaseCoding::AgainstReference && self.has_other_case {
            let path = self.reference.map(|reference| reference.path.clone()).unwrap_or_default();
            return Err(DeltaError::CaseMismatch { path });
        }
        Ok(())
    }

    /// Returns the job that decodes a chunk. The sequences that the chunk declares must have been added before.
    pub(super) fn decode_job(&self, content: ChunkContent, body: Vec<u8>, offset: u64) -> DecodeJob<'r> {
        let (contigs, empty_bases) = (Arc::clone(&self.mappings), Arc::clone(&self.empty_bases));
        DecodeJob {
            content,
            body,
            offset,
            contigs,
            self_start: self.file_header.reference_bases as usize,
            reference: self.reference,
            empty_bases,
        }
    }
}

/// The parsed header of a chunk.
#[derive(Clone, Debug)]
pub(super) enum ChunkContent {
    Edits(Arc<SegmentHeader>),
    /// A chunk of text, and the end of the preceding text, to which zstd may refer.
    Text(TextChunkHeader, Vec<u8>),
}

impl ChunkContent {
    /// Parses the header of a chunk with this tag at `offset` of the file.
    pub(super) fn decode(tag: u8, head: &[u8], offset: u64) -> Result<Self, DeltaError> {
        let damaged = DeltaError::Damaged { offset, problem: "the header of a chunk is invalid" };
        match tag {
            EDITS_TAG => SegmentHeader::decode(head).map(|head| Self::Edits(Arc::new(head))).ok_or(damaged),
            TEXT_TAG => TextChunkHeader::decode(head).map(|head| Self::Text(head, Vec::new())).ok_or(damaged),
            _ => Err(DeltaError::Damaged { offset, problem: "a chunk has an unknown type" }),
        }
    }

    /// Returns the size of the unpacked text of the chunk, bytes.
    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            Self::Edits(head) => head.text_bytes,
            Self::Text(head, _) => head.text_bytes,
        }
    }
}

/// A job for a decoding thread: a chunk, and the reference sequences from which it copies.
pub(super) struct DecodeJob<'r> {
    pub(super) content: ChunkContent,
    body: Vec<u8>,
    offset: u64,
    contigs: Arc<Vec<ContigMapping>>,
    self_start: usize,
    reference: Option<&'r Reference>,
    empty_bases: Arc<Bases>,
}

impl DecodeJob<'_> {
    fn copy_space(&self) -> CopySpace<'_> {
        let bases = self.reference.map_or(&*self.empty_bases, |reference| &reference.bases);
        let soft_mask = self.reference.and_then(|reference| reference.soft_mask.as_ref());
        CopySpace { contigs: &self.contigs, self_start: self.self_start, bases, soft_mask }
    }

    /// Decodes the text of the chunk and verifies its checksum.
    pub(super) fn decode_text(&self) -> Result<Vec<u8>, DeltaError> {
        let text = match &self.content {
            ChunkContent::Edits(head) => head.decode_text(&self.body, self.copy_space()),
            ChunkContent::Text(head, before) => decompress(&self.body, head.text_bytes as usize, before)
                .filter(|text| xxh3_64(text) == head.text_checksum),
        };
        text.ok_or(DeltaError::Damaged { offset: self.offset, problem: "a chunk does not decode to the packed text" })
    }

    /// Decodes the residues of a chunk of edits. The checksum of the text is not verified, only that of the body when
    /// it was read.
    pub(super) fn decode_residues(&self, head: &SegmentHeader) -> Result<Vec<u8>, DeltaError> {
        let residues = head.decode_residues(&self.body, self.copy_space());
        residues
            .ok_or(DeltaError::Damaged { offset: self.offset, problem: "a chunk does not decode to the packed text" })
    }
}
