//! FASTA files from front to back, with bounded memory however long lines are.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::FaiRecord;
use super::error::FastaError;
use crate::bgzf::{self, Unpacked as _, open_text};

/// Bytes asked of the file at once; also the longest run of bases handed out.
const READ_BYTES: usize = 256 << 10;
/// Longest title accepted.
const MAX_TITLE_BYTES: usize = 1 << 20;

/// Lines of the contig being read.
#[derive(Debug, Default)]
struct Lines {
    /// Bases of the line being read, as far as it was read.
    line_bases: u64,
    /// A line shorter than the first, or a blank one, was seen: no more bases may come.
    last_seen: bool,
}

/// Part of a line, or a line.
struct Piece {
    bases: usize,
    /// Bases and the line's end.
    bytes: usize,
    ends_line: bool,
}

/// Streams the contigs of a FASTA file: names, then runs of bases. Lines may have any length.
///
/// ```
/// use godwit_formats::fasta::Reader;
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.fa");
/// std::fs::write(&path, ">chr1 first\nACGT\nAC\n>chr2\nTT\n")?;
/// let mut reader = Reader::open(&path, 1)?;
/// while let Some(name) = reader.next_contig()? {
///     let mut bases = Vec::new();
///     while let Some(run) = reader.next_bases()? {
///         bases.extend_from_slice(run);
///     }
///     assert!(name == "chr2" || bases == b"ACGTAC");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    input: bgzf::Reader,
    /// Text read and not consumed: `buffer[start..]`.
    buffer: Vec<u8>,
    start: usize,
    /// Offset in the text of `buffer[start]`.
    offset: u64,
    /// 1-based number of the line that `buffer[start]` is on.
    line: u64,
    ended: bool,
    /// Lines of a contig must have one length, but for the last.
    even_lines: bool,
    names: HashSet<String>,
    contigs: Vec<FaiRecord>,
    /// Set while a contig's bases are read.
    lines: Option<Lines>,
}

impl Reader {
    /// Opens a file. BGZF is decompressed on that many threads of its own.
    ///
    /// # Errors
    /// [`FastaError::Bgzf`].
    pub fn open(path: &Path, threads: usize) -> Result<Self, FastaError> {
        Ok(Self::new(open_text(path, threads)?))
    }

    /// As [`Reader::open`] for a file that is open and of which nothing was consumed.
    pub fn new(input: bgzf::Reader) -> Self {
        Self {
            path: input.path().to_owned(),
            input,
            buffer: Vec::new(),
            start: 0,
            offset: 0,
            line: 1,
            ended: false,
            even_lines: false,
            names: HashSet::new(),
            contigs: Vec::new(),
            lines: None,
        }
    }

    /// From here on refuses what a `.fai` cannot describe: lines of different length.
    pub(super) fn require_even_lines(&mut self) {
        self.even_lines = true;
    }

    /// The name of the next contig; `None` at the end of the file. Bases of the one before that were not asked for are
    /// checked and passed over.
    ///
    /// # Errors
    /// [`FastaError`].
    pub fn next_contig(&mut self) -> Result<Option<String>, FastaError> {
        while self.next_bases()?.is_some() {}
        loop {
            self.fill(1)?;
            match self.buffer.get(self.start) {
                Some(b'>') => break,
                Some(b'\n') => self.advance(1, true),
                Some(b'\r') => self.advance(1, false),
                Some(_) => return Err(FastaError::NotFasta { path: self.path.clone(), line: self.line }),
                None if self.contigs.is_empty() => return Err(FastaError::Empty { path: self.path.clone() }),
                None => return Ok(None),
            }
        }
        let name = self.read_title()?;
        let offset = self.offset;
        self.contigs.push(FaiRecord { name: name.clone(), bases: 0, offset, line_bases: 0, line_bytes: 0 });
        self.lines = Some(Lines::default());
        Ok(Some(name))
    }

    /// The next run of bases of the contig, letters only, at least one; `None` at its end.
    ///
    /// # Errors
    /// [`FastaError`].
    pub fn next_bases(&mut self) -> Result<Option<&[u8]>, FastaError> {
        loop {
            self.fill(1)?;
            let Some(lines) = &self.lines else { return Ok(None) };
            let first = self.buffer.get(self.start);
            if lines.line_bases == 0 && first.is_none_or(|byte| *byte == b'>') {
                self.end_contig()?;
                return Ok(None);
            }
            let piece = self.piece()?;
            let run = self.start..self.start + piece.bases;
            self.take_piece(&piece)?;
            if piece.bases > 0 {
                return Ok(Some(&self.buffer[run]));
            }
        }
    }

    /// What was read, contig by contig: after the last one, and where lines were even, the whole `.fai`.
    pub(super) fn into_contigs(self) -> Vec<FaiRecord> {
        self.contigs
    }

    /// What lies ahead on the line.
    fn piece(&mut self) -> Result<Piece, FastaError> {
        loop {
            let ahead = &self.buffer[self.start..];
            let newline = memchr(b'\n', ahead);
            if newline.is_some() || self.ended {
                let line = &ahead[..newline.unwrap_or(ahead.len())];
                let bases = line.strip_suffix(b"\r").unwrap_or(line).len();
                return Ok(Piece { bases, bytes: line.len() + usize::from(newline.is_some()), ends_line: true });
            }
            // The last byte stays, because it may be a carriage return that belongs to the line's end.
            if ahead.len() > 1 {
                return Ok(Piece { bases: ahead.len() - 1, bytes: ahead.len() - 1, ends_line: false });
            }
            self.fill(2)?;
        }
    }

    /// Checks, counts and passes over a piece.
    fn take_piece(&mut self, piece: &Piece) -> Result<(), FastaError> {
        let run = &self.buffer[self.start..self.start + piece.bases];
        if !run.iter().fold(true, |letters, byte| letters & byte.is_ascii_alphabetic()) {
            let byte = run.iter().copied().find(|byte| !byte.is_ascii_alphabetic()).unwrap_or_default();
            return Err(FastaError::Base { path: self.path.clone(), line: self.line, byte });
        }
        let (Some(lines), Some(contig)) = (&mut self.lines, self.contigs.last_mut()) else { return Ok(()) };
        lines.line_bases += piece.bases as u64;
        contig.bases += piece.bases as u64;
        if piece.ends_line {
            // samtools faidx counts one byte of line end where the file ends without one.
            let at_end = self.start + piece.bytes == self.buffer.len() && self.buffer.last() != Some(&b'\n');
            let end_bytes = (piece.bytes - piece.bases + usize::from(at_end)) as u64;
            let bases = std::mem::take(&mut lines.line_bases);
            let bytes = bases + end_bytes;
            let is_first = contig.line_bases == 0;
            let fits = is_first || (bases <= contig.line_bases && bytes <= contig.line_bytes);
            if self.even_lines && bases > 0 && (lines.last_seen || !fits) {
                let name = contig.name.clone();
                return Err(FastaError::RaggedLines { path: self.path.clone(), name, line: self.line });
            }
            if is_first {
                (contig.line_bases, contig.line_bytes) = (bases, bytes);
            }
            lines.last_seen = bases == 0 || bytes < contig.line_bytes;
        }
        self.advance(piece.bytes, piece.ends_line);
        Ok(())
    }

    fn end_contig(&mut self) -> Result<(), FastaError> {
        self.lines = None;
        match self.contigs.last() {
            Some(contig) if contig.bases == 0 => {
                Err(FastaError::EmptyContig { path: self.path.clone(), name: contig.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Reads the title line ahead and passes over it.
    fn read_title(&mut self) -> Result<String, FastaError> {
        let bytes = loop {
            let ahead = self.buffer.len() - self.start;
            match memchr(b'\n', &self.buffer[self.start..]) {
                Some(newline) => break newline + 1,
                None if self.ended => break ahead,
                None if ahead > MAX_TITLE_BYTES => {
                    return Err(FastaError::Name { path: self.path.clone(), line: self.line });
                }
                None => self.fill(ahead + 1)?,
            }
        };
        let title = &self.buffer[self.start + 1..self.start + bytes];
        let name = title.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        let printable = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        let Some(name) = std::str::from_utf8(name).ok().filter(|_| printable).map(str::to_owned) else {
            return Err(FastaError::Name { path: self.path.clone(), line: self.line });
        };
        if !self.names.insert(name.clone()) {
            return Err(FastaError::DuplicateName { path: self.path.clone(), line: self.line, name });
        }
        self.advance(bytes, true);
        Ok(name)
    }

    fn advance(&mut self, bytes: usize, ends_line: bool) {
        self.start += bytes;
        self.offset += bytes as u64;
        self.line += u64::from(ends_line);
    }

    /// Reads until that many bytes lie ahead, or the file ends.
    fn fill(&mut self, needed: usize) -> Result<(), FastaError> {
        while !self.ended && self.buffer.len() - self.start < needed {
            self.buffer.drain(..self.start);
            self.start = 0;
            self.ended = self.input.append_to(&mut self.buffer, READ_BYTES)? == 0;
        }
        Ok(())
    }
}
