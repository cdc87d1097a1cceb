//! Parts of a packed genome: which sequences are in it, and regions of them, without unpacking the rest.
//!
//! Heads of chunks say what is in them; only chunks that hold the region are decoded. Where text is packed as text there are
//! no heads of use, so that it is gone through.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use godwit_model::Region;

use super::chunk::{ChunkReader, ChunkStart, END, FileHead, Start, Totals};
use super::error::DeltaError;
use super::layout::{Layout, parse};
use super::reference::{Digest, Reference};
use super::unpack::{Known, What, only_text};
use super::zstd_bytes::prefix_of;

/// Bases in a line of what is written, as `samtools faidx` (1.16) does.
const LINE_BASES: usize = 60;

/// A packed file whose heads were read.
pub struct PackedGenome<'r> {
    path: PathBuf,
    reader: ChunkReader<BufReader<File>>,
    known: Option<Known<'r>>,
    reference: Option<Digest>,
    parts: Vec<Part>,
    sequences: Vec<PackedSequence>,
    text_bytes: u64,
    /// The text that was decoded last, and of which part.
    last_text: Option<(usize, Vec<u8>)>,
}

/// A chunk.
struct Part {
    start: Option<ChunkStart>,
    what: Option<What>,
}

/// A sequence of a packed genome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedSequence {
    /// The title up to the first white space.
    pub name: String,
    /// Residues.
    pub residues: u64,
    /// Where they are: part, first residue there, residues.
    pieces: Vec<(usize, u64, u64)>,
}

impl<'r> PackedGenome<'r> {
    /// Reads the heads of a packed file.
    ///
    /// # Errors
    /// [`DeltaError::Io`], and as for [`unpack`](super::unpack()).
    pub fn open(path: &Path, reference: Option<&'r Reference>) -> Result<Self, DeltaError> {
        let file = File::open(path).map_err(DeltaError::at(path))?;
        let (reader, start) = ChunkReader::start(BufReader::new(file))?;
        let mut genome = Self {
            path: path.to_owned(),
            reader,
            known: None,
            reference: None,
            parts: Vec::new(),
            sequences: Vec::new(),
            text_bytes: 0,
            last_text: None,
        };
        match start {
            Start::Text => {
                let text = only_text(&mut genome.reader)?;
                genome.text_bytes = text.len() as u64;
                let layout = parse(&text, false, &mut Vec::new());
                genome.note(&layout);
                genome.last_text = Some((0, text));
                genome.parts.push(Part { start: None, what: None });
            }
            Start::Chunks(head) => genome.read_heads(head, reference)?,
        }
        Ok(genome)
    }

    fn read_heads(&mut self, head: FileHead, reference: Option<&'r Reference>) -> Result<(), DeltaError> {
        self.reference = Some(head.reference);
        self.known = Some(Known::new(head, reference)?);
        let mut totals = Totals::default();
        let mut inside = false;
        loop {
            let start = self.reader.next_start()?;
            if start.tag == END {
                self.text_bytes = totals.text_bytes;
                return self.reader.end(&start, &totals);
            }
            let what = What::decode(start.tag, &start.head, start.offset)?;
            if let Some(known) = &mut self.known {
                known.admit(&what, start.offset)?;
            }
            totals.text_bytes += what.text_bytes();
            totals.chunks += 1;
            let part = self.parts.len();
            self.parts.push(Part { start: Some(start.clone()), what: Some(what.clone()) });
            match &what {
                What::Edits(head) => {
                    self.note(&head.layout);
                    inside = head.layout.is_open();
                }
                What::Text(..) => {
                    let layout = parse(self.text_of(part)?, inside, &mut Vec::new());
                    self.note(&layout);
                    inside = layout.is_open();
                }
            }
            self.reader.pass(&start)?;
        }
    }

    /// Notes the sequences of the last part.
    fn note(&mut self, layout: &Layout) {
        let part = self.parts.len().saturating_sub(1);
        let mut first = 0;
        for record in layout.records() {
            if let Some(title) = record.title {
                let name = title.split(u8::is_ascii_whitespace).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                self.sequences.push(PackedSequence { name, residues: 0, pieces: Vec::new() });
            }
            if let Some(sequence) = self.sequences.last_mut().filter(|_| record.residues > 0) {
                sequence.residues += record.residues;
                sequence.pieces.push((part, first, record.residues));
            }
            first += record.residues;
        }
    }

    /// The text of a part, and of those before it that it repeats.
    fn text_of(&mut self, part: usize) -> Result<&[u8], DeltaError> {
        let mut first = part;
        let is_last = |at: usize, last: &Option<(usize, Vec<u8>)>| last.as_ref().is_some_and(|(known, _)| *known == at);
        while !is_last(first, &self.last_text)
            && matches!(&self.parts[first].what, Some(What::Text(head, _)) if head.repeats_earlier)
            && first > 0
        {
            first -= 1;
        }
        for at in first..=part {
            if is_last(at, &self.last_text) {
                continue;
            }
            let Part { start: Some(start), what: Some(what) } = &self.parts[at] else { continue };
            let (start, mut what) = (start.clone(), what.clone());
            if let (What::Text(head, before), Some((_, last))) = (&mut what, &self.last_text)
                && head.repeats_earlier
            {
                *before = prefix_of(last).to_vec();
            }
            let body = self.reader.body_of(&start)?;
            let known = self.known.as_ref().expect("chunks have a head before them");
            self.last_text = Some((at, known.job(what, body, start.offset).run()?));
        }
        Ok(self.last_text.as_ref().map_or(&[], |(_, text)| text))
    }

    /// The residues of a part.
    fn residues_of(&mut self, part: usize) -> Result<Vec<u8>, DeltaError> {
        if let Part { start: Some(start), what: Some(what @ What::Edits(head)) } = &self.parts[part] {
            let (start, what, head) = (start.clone(), what.clone(), head.clone());
            let body = self.reader.body_of(&start)?;
            let known = self.known.as_ref().expect("chunks have a head before them");
            return known.job(what, body, start.offset).residues(&head);
        }
        let inside = part.checked_sub(1).map(|before| self.is_open(before)).transpose()?.unwrap_or(false);
        let mut residues = Vec::new();
        parse(self.text_of(part)?, inside, &mut residues);
        Ok(residues)
    }

    /// Whether a part ends inside a line.
    fn is_open(&mut self, part: usize) -> Result<bool, DeltaError> {
        match &self.parts[part].what {
            Some(What::Edits(head)) => Ok(head.layout.is_open()),
            _ => Ok(self.text_of(part)?.last() != Some(&b'\n')),
        }
    }

    /// The packed file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The sequences, in the order of the FASTA file.
    pub fn sequences(&self) -> &[PackedSequence] {
        &self.sequences
    }

    /// Digest of the reference it was packed with; `None` where it was not needed.
    pub fn reference(&self) -> Option<Digest> {
        self.reference
    }

    /// Bytes of the text it was packed from.
    pub fn text_bytes(&self) -> u64 {
        self.text_bytes
    }

    /// Letters `[start, end)` of a sequence, as far as it has them.
    ///
    /// # Errors
    /// [`DeltaError::NoSuchContig`], and as for [`unpack`](super::unpack()).
    pub fn letters(&mut self, name: &str, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let found = self.sequences.iter().find(|sequence| sequence.name == name).cloned();
        let sequence = found.ok_or_else(|| DeltaError::NoSuchContig { contig: name.to_owned() })?;
        self.letters_of(sequence, start, end)
    }

    fn letters_of(&mut self, sequence: PackedSequence, start: u64, end: u64) -> Result<Vec<u8>, DeltaError> {
        let mut letters = Vec::new();
        let mut first = 0;
        for (part, at, residues) in sequence.pieces {
            let (from, to) = (start.max(first), end.min(first + residues));
            if from < to {
                let all = self.residues_of(part)?;
                letters.extend_from_slice(&all[(at + from - first) as usize..(at + to - first) as usize]);
            }
            first += residues;
        }
        Ok(letters)
    }

    /// Returns whether a sequence of that name exists.
    pub fn has_sequence(&self, name: &str) -> bool {
        self.sequences.iter().any(|sequence| sequence.name == name)
    }

    /// Writes a region as FASTA, as `samtools faidx` does: the region as title, lines of 60 bases. `title` comes before it.
    ///
    /// # Errors
    /// [`DeltaError::NoSuchContig`], [`DeltaError::BeyondEnd`], and as for [`unpack`](super::unpack()).
    pub fn write_region(&mut self, region: &Region, title: &str, out: &mut dyn Write) -> Result<u64, DeltaError> {
        let found = self.sequences.iter().find(|sequence| sequence.name == region.contig).cloned();
        let Some(sequence) = found else { return Err(DeltaError::NoSuchContig { contig: region.contig.clone() }) };
        let (start, end) = (u64::from(region.start), u64::from(region.end).min(sequence.residues));
        if start > 0 && start >= sequence.residues {
            return Err(DeltaError::BeyondEnd { region: region.to_string(), bases: sequence.residues });
        }
        let bases = self.letters_of(sequence, start, end)?;
        let mut text = format!(">{title}{}\n", region.title()).into_bytes();
        for line in bases.chunks(LINE_BASES) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        out.write_all(&text).map_err(|source| DeltaError::Stream { what: "write the output", source })?;
        Ok(bases.len() as u64)
    }
}
