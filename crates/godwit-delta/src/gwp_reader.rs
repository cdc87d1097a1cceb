//! Random access to a packed genome: reads its sequences or regions of them without unpacking the whole file.
//!
//! The headers of chunks with edits describe their sequences, so only the chunks that contain a region are decoded.
//! Chunks that were packed as text lack such headers; opening the file decodes them to find their sequences.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use godwit_model::Region;

use super::error::DeltaError;
use super::fasta_layout::{FastaLayout, split_text};
use super::gwp_chunk::{END_TAG, GwpChunkHeader, GwpChunkReader, GwpFileKind, GwpHeader, GwpTotals};
use super::reference::{Digest, Reference};
use super::unpack::{ChunkContent, DeclaredContigs, read_text_file};
use super::zstd_bytes::trailing_prefix;

/// Bases per line of the output, as in `samtools faidx` (1.16).
const OUTPUT_LINE_BASES: usize = 60;

/// A reader of a packed file, which parses all headers when it opens the file.
pub struct GwpReader<'r> {
    path: PathBuf,
    reader: GwpChunkReader<BufReader<File>>,
    declared_contigs: Option<DeclaredContigs<'r>>,
    reference_digest: Option<Digest>,
    chunks: Vec<GwpChunkEntry>,
    sequences: Vec<GwpSequence>,
    text_bytes: u64,
    /// Index and text of the chunk that was decoded last.
    last_decoded: Option<(usize, Vec<u8>)>,
}

/// A chunk of the file: its position and its parsed content, or `None` for both if the file is a single text.
struct GwpChunkEntry {
    chunk_header: Option<GwpChunkHeader>,
    content: Option<ChunkContent>,
}

/// A sequence of a packed genome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GwpSequence {
    /// The title of the FASTA record up to the first white space.
    pub name: String,
    /// Number of residues of the sequence.
    pub residue_count: u64,
    /// The chunks with residues of the sequence: index of the chunk, first residue within the chunk, and number of
    /// residues.
    chunk_ranges: Vec<(usize, u64, u64)>,
}

impl<'r> GwpReader<'r> {
    /// Opens a packed file and reads its headers.
    ///
    /// # Errors
    /// [`DeltaError::Io`] if the file cannot be opened, and the errors of [`unpack`](super::unpack()).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::fs::File;
    /// use std::sync::atomic::AtomicBool;
    ///
    /// use godwit_delta::{GwpReader, PackOptions, Reference, ReferenceCachePolicy, pack};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// let path = directory.path().join("sample1.gwp");
    /// let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// let (mut file, options, cancelled) = (File::create(&path)?, PackOptions::default(), AtomicBool::new(false));
    /// pack(&mut &genome[..], &mut file, &reference, &anchors, &options, &cancelled)?;
    ///
    /// let reader = GwpReader::open(&path, Some(&reference))?;
    /// assert_eq!(reader.text_bytes(), genome.len() as u64);
    /// assert_eq!((reader.sequences()[0].name.as_str(), reader.sequences()[0].residue_count), ("chr1", 34));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path, reference: Option<&'r Reference>) -> Result<Self, DeltaError> {
        let file = File::open(path).map_err(DeltaError::io_error(path))?;
        let (reader, start) = GwpChunkReader::open(BufReader::new(file))?;
        let mut genome = Self {
            path: path.to_owned(),
            reader,
            declared_contigs: None,
            reference_digest: None,
            chunks: Vec::new(),
            sequences: Vec::new(),
            text_bytes: 0,
            last_decoded: None,
        };
        match start {
            GwpFileKind::Text => {
                let text = read_text_file(&mut genome.reader)?;
                genome.text_bytes = text.len() as u64;
                let layout = split_text(&text, false, &mut Vec::new());
                genome.add_sequences(&layout);
                genome.last_decoded = Some((0, text));
                genome.chunks.push(GwpChunkEntry { chunk_header: None, content: None });
            }
            GwpFileKind::Chunks(head) => genome.read_headers(head, reference)?,
        }
        Ok(genome)
    }

    fn read_headers(&mut self, head: GwpHeader, reference: Option<&'r Reference>) -> Result<(), DeltaError> {
        self.reference_digest = Some(head.reference);
        self.declared_contigs = Some(DeclaredContigs::new(head, reference)?);
        let mut totals = GwpTotals::default();
        let mut inside = false;
        loop {
            let start = self.reader.next_header()?;
            if start.tag == END_TAG {
                self.text_bytes = totals.text_bytes;
                return self.reader.check_end(&start, &totals);
            }
            let what = ChunkContent::decode(start.tag, &start.header, start.offset)?;
            if let Some(known) = &mut self.declared_contigs {
                known.add_chunk(&what, start.offset)?;
            }
            totals.text_bytes += what.text_bytes();
            totals.chunk_count += 1;
            let part = self.chunks.len();
            self.chunks.push(GwpChunkEntry { chunk_header: Some(start.clone()), content: Some(what.clone()) });
            match &what {
                ChunkContent::Edits(head) => {
                    self.add_sequences(&head.layout);
                    inside = head.layout.lacks_final_newline();
                }
                ChunkContent::Text(..) => {
                    let layout = split_text(self.chunk_text(part)?, inside, &mut Vec::new());
                    self.add_sequences(&layout);
                    inside = layout.lacks_final_newline();
                }
            }
            self.reader.skip_body(&start)?;
        }
    }

    /// Adds the sequences of the last chunk of `chunks`, which `layout` describes.
    fn add_sequences(&mut self, layout: &FastaLayout) {
        let part = self.chunks.len().saturating_sub(1);
        let mut first = 0;
        for record in layout.records() {
            if let Some(title) = record.title {
                let name = title.split(u8::is_ascii_whitespace).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                self.sequences.push(GwpSequence { name, residue_count: 0, chunk_ranges: Vec::new() });
            }
            if let Some(sequence) = self.sequences.last_mut().filter(|_| record.residue_count > 0) {
                sequence.residue_count += record.residue_count;
                sequence.chunk_ranges.push((part, first, record.residue_count));
            }
            first += record.residue_count;
        }
    }

    /// Decodes the text of a chunk. If zstd refers to the text of preceding chunks, decodes these first.
    fn chunk_text(&mut self, part: usize) -> Result<&[u8], DeltaError> {
        let mut first = part;
        let is_last = |at: usize, last: &Option<(usize, Vec<u8>)>| last.as_ref().is_some_and(|(known, _)| *known == at);
        while !is_last(first, &self.last_decoded)
            && matches!(&self.chunks[first].content, Some(ChunkContent::Text(head, _)) if head.repeats_earlier)
            && first > 0
        {
            first -= 1;
        }
        for at in first..=part {
            if is_last(at, &self.last_decoded) {
                continue;
            }
            let GwpChunkEntry { chunk_header: Some(start), content: Some(what) } = &self.chunks[at] else { continue };
            let (start, mut what) = (start.clone(), what.clone());
            if let (ChunkContent::Text(head, before), Some((_, last))) = (&mut what, &self.last_decoded)
                && head.repeats_earlier
            {
                *before = trailing_prefix(last).to_vec();
            }
            let body = self.reader.read_body_at(&start)?;
            let known = self.declared_contigs.as_ref().expect("chunks have a head before them");
            self.last_decoded = Some((at, known.decode_job(what, body, start.offset).decode_text()?));
        }
        Ok(self.last_decoded.as_ref().map_or(&[], |(_, text)| text))
    }

    /// Decodes the residues of a chunk, without titles and line ends.
    fn chunk_residues(&mut self, part: usize) -> Result<Vec<u8>, DeltaError> {
        if let GwpChunkEntry { chunk_header: Some(start), content: Some(what @ ChunkContent::Edits(head)) } =
            &self.chunks[part]
        {
            let (start, what, head) = (start.clone(), what.clone(), head.clone());
            let body = self.reader.read_body_at(&start)?;
            let known = self.declared_contigs.as_ref().expect("chunks have a head before them");
            return known.decode_job(what, body, start.offset).decode_residues(&head);
        }
        let inside = part.checked_sub(1).map(|before| self.ends_inside_line(before)).transpose()?.unwrap_or(false);
        let mut residues = Vec::new();
        split_text(self.chunk_text(part)?, inside, &mut residues);
        Ok(residues)
    }

    /// Reports whether the text of a chunk ends inside a line.
    fn ends_inside_line(&mut self, part: usize) -> Result<bool, DeltaError> {
        match &self.chunks[part].content {
            Some(ChunkContent::Edits(head)) => Ok(head.layout.lacks_final_newline()),
            _ => Ok(self.chunk_text(part)?.last() != Some(&b'\n')),
        }
    }

    /// Returns the path of the packed file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the sequences of the genome, in the order of the FASTA file.
    pub fn sequences(&self) -> &[GwpSequence] {
        &self.sequences
    }

    /// Returns the digest of the reference; `None` for a file that contains only text and so has no reference.
    pub fn reference_digest(&self) -> Option<Digest> {
        self.reference_digest
    }

    /// Returns the size of the unpacked text, bytes.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Returns the letters `[start, end)` of a sequence, 0-based, at most up to the end of the sequence.
    ///
    /// # Errors
    /// [`DeltaError::ContigNotFound`] if the genome lacks the sequence, and the errors of [`unpack`](super::unpack()).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::fs::File;
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy, pack};
    /// use godwit_delta::{DeltaError, GwpReader};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let path = directory.path().join("sample1.gwp");
    /// # let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// # let (mut file, options, cancelled) = (File::create(&path)?, PackOptions::default(), AtomicBool::new(false));
    /// # pack(&mut &genome[..], &mut file, &reference, &anchors, &options, &cancelled)?;
    /// // `sample1.gwp` has the sequence ACGTTGCATTAG..
    /// let mut reader = GwpReader::open(&path, Some(&reference))?;
    /// assert_eq!(reader.letters("chr1", 4, 10)?, b"TGCATT");
    /// assert!(matches!(reader.letters("chr2", 4, 10), Err(DeltaError::ContigNotFound { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn letters(&mut self, name: &str, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let found = self.sequences.iter().find(|sequence| sequence.name == name).cloned();
        let sequence = found.ok_or_else(|| DeltaError::ContigNotFound { contig: name.to_owned() })?;
        self.sequence_letters(sequence, start, end)
    }

    fn sequence_letters(&mut self, sequence: GwpSequence, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let mut letters = Vec::new();
        let mut first = 0;
        for (part, at, residues) in sequence.chunk_ranges {
            let (from, to) = (start.max(first), end.min(first + residues));
            if from < to {
                let all = self.chunk_residues(part)?;
                letters.extend_from_slice(&all[(at + from - first) as usize..(at + to - first) as usize]);
            }
            first += residues;
        }
        Ok(letters)
    }

    /// Reports whether the genome has a sequence of this name.
    pub fn has_sequence(&self, name: &str) -> bool {
        self.sequences.iter().any(|sequence| sequence.name == name)
    }

    /// Writes a region as FASTA, as `samtools faidx` does: a title line, which consists of `title` and the region, then
    /// lines of 60 bases. Returns the number of bases.
    ///
    /// # Errors
    /// [`DeltaError::ContigNotFound`] if the genome lacks the sequence, [`DeltaError::BeyondEnd`] if the region starts
    /// after its end, and the errors of [`unpack`](super::unpack()).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::fs::File;
    /// # use std::sync::atomic::AtomicBool;
    /// # use godwit_delta::{PackOptions, Reference, ReferenceCachePolicy, pack};
    /// use godwit_model::Region;
    /// use godwit_delta::GwpReader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let fasta = directory.path().join("reference.fa");
    /// # std::fs::write(&fasta, ">chr1\nACGTTGCATTAGACCAGTTGACCATTGACCAGAT\n")?;
    /// # let reference = Reference::open(&fasta, ReferenceCachePolicy::Disabled, 1)?;
    /// # let anchors = reference.kmer_index(1)?;
    /// # let path = directory.path().join("sample1.gwp");
    /// # let genome = b">chr1\nACGTTGCATTAGACCAGTTGACCTTTGACCAGAT\n";
    /// # let (mut file, options, cancelled) = (File::create(&path)?, PackOptions::default(), AtomicBool::new(false));
    /// # pack(&mut &genome[..], &mut file, &reference, &anchors, &options, &cancelled)?;
    /// // `sample1.gwp` has the sequence ACGTTGCATTAG..
    /// let mut reader = GwpReader::open(&path, Some(&reference))?;
    /// let region = Region { contig: "chr1".to_owned(), start: 4, end: 10 };
    /// let mut fasta = Vec::new();
    /// assert_eq!(reader.write_region(&region, "", &mut fasta)?, 6);
    /// assert_eq!(fasta, b">chr1:5-10\nTGCATT\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_region(&mut self, region: &Region, title: &str, out: &mut dyn Write) -> Result<u64, DeltaError> {
        let found = self.sequences.iter().find(|sequence| sequence.name == region.contig).cloned();
        let Some(sequence) = found else { return Err(DeltaError::ContigNotFound { contig: region.contig.clone() }) };
        let (start, end) = (u64::from(region.start), u64::from(region.end).min(sequence.residue_count));
        if start > 0 && start >= sequence.residue_count {
            return Err(DeltaError::BeyondEnd { region: region.to_string(), bases: sequence.residue_count });
        }
        let bases = self.sequence_letters(sequence, start, end)?;
        let mut text = format!(">{title}{}\n", region.title()).into_bytes();
        for line in bases.chunks(OUTPUT_LINE_BASES) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        out.write_all(&text).map_err(|source| DeltaError::Stream { operation: "write the output", source })?;
        Ok(bases.len() as u64)
    }
}
