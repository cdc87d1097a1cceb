//! A sequential reader of FASTA files, with bounded memory however long lines are.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::FaiRecord;
use super::error::FastaError;
use crate::bgzf::{self, BgzfBufRead as _, open_text};

/// Bytes per read call; also the longest run of bases returned.
const READ_BYTES: usize = 256 << 10;
/// Maximum bytes of a title.
const MAX_TITLE_BYTES: usize = 1 << 20;

/// State of the lines of the current contig.
#[derive(Debug, Default)]
struct ContigLines {
    /// Bases of the current line, as far as it was read.
    line_bases: u64,
    /// True if a line shorter than the first, or a blank one, was read: no more bases may follow.
    is_last_line_seen: bool,
}

/// A line, or part of one.
struct LinePart {
    bases: usize,
    /// Bases and the line's end.
    bytes: usize,
    ends_line: bool,
}

/// A reader of the contigs of a FASTA file: names, then runs of bases. Lines may have any length.
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
    /// Text read and not consumed: `buffer[buffer_start..]`.
    buffer: Vec<u8>,
    buffer_start: usize,
    /// Offset in the text of `buffer[buffer_start]`.
    offset: u64,
    /// 1-based number of the line of `buffer[buffer_start]`.
    line: u64,
    ended: bool,
    /// True if all lines of a contig but the last must have one length.
    even_lines: bool,
    names: HashSet<String>,
    contigs: Vec<FaiRecord>,
    /// Set while the bases of a contig are read.
    lines: Option<ContigLines>,
}

impl Reader {
    /// Opens a file. BGZF is decompressed on `threads` threads.
    ///
    /// # Errors
    /// [`FastaError::Bgzf`].
    pub fn open(path: &Path, threads: usize) -> Result<Self, FastaError> {
        Ok(Self::new(open_text(path, threads)?))
    }

    /// Reads an open file of which nothing was consumed.
    pub fn new(input: bgzf::Reader) -> Self {
        Self {
            path: input.path().to_owned(),
            input,
            buffer: Vec::new(),
            buffer_start: 0,
            offset: 0,
            line: 1,
            ended: false,
            even_lines: false,
            names: HashSet::new(),
            contigs: Vec::new(),
            lines: None,
        }
    }

    /// Rejects from here on lines of different length, which a `.fai` cannot describe.
    pub(super) fn require_even_lines(&mut self) {
        self.even_lines = true;
    }

    /// Returns the name of the next contig; `None` at the end of the file. Unread bases of the previous contig are checked
    /// and skipped.
    ///
    /// # Errors
    /// [`FastaError`].
    pub fn next_contig(&mut self) -> Result<Option<String>, FastaError> {
        while self.next_bases()?.is_some() {}
        loop {
            self.fill_buffer(1)?;
            match self.buffer.get(self.buffer_start) {
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
        self.lines = Some(ContigLines::default());
        Ok(Some(name))
    }

    /// Returns the next run of bases of the contig, letters only, at least one; `None` at its end.
    ///
    /// # Errors
    /// [`FastaError`].
    pub fn next_bases(&mut self) -> Result<Option<&[u8]>, FastaError> {
        loop {
            self.fill_buffer(1)?;
            let Some(lines) = &self.lines else { return Ok(None) };
            let first = self.buffer.get(self.buffer_start);
            if lines.line_bases == 0 && first.is_none_or(|byte| *byte == b'>') {
                self.end_contig()?;
                return Ok(None);
            }
            let piece = self.peek_line_part()?;
            let run = self.buffer_start..self.buffer_start + piece.bases;
            self.consume_line_part(&piece)?;
            if piece.bases > 0 {
                return Ok(Some(&self.buffer[run]));
            }
        }
    }

    /// Returns the `.fai` records so far: after the last contig, and with even lines, the whole `.fai`.
    pub(super) fn into_fai_records(self) -> Vec<FaiRecord> {
        self.contigs
    }

    /// Returns the next part of the line.
    fn peek_line_part(&mut self) -> Result<LinePart, FastaError> {
        loop {
            let ahead = &self.buffer[self.buffer_start..];
            let newline = memchr(b'\n', ahead);
            if newline.is_some() || self.ended {
                let line = &ahead[..newline.unwrap_or(ahead.len())];
                let bases = line.strip_suffix(b"\r").unwrap_or(line).len();
                return Ok(LinePart { bases, bytes: line.len() + usize::from(newline.is_some()), ends_line: true });
            }
            // The last byte is held back, because it may be a carriage return that belongs to the line's end.
            if ahead.len() > 1 {
                return Ok(LinePart { bases: ahead.len() - 1, bytes: ahead.len() - 1, ends_line: false });
            }
            self.fill_buffer(2)?;
        }
    }

    /// Checks, counts and consumes a part of a line.
    fn consume_line_part(&mut self, piece: &LinePart) -> Result<(), FastaError> {
        let run = &self.buffer[self.buffer_start..self.buffer_start + piece.bases];
        if !run.iter().fold(true, |letters, byte| letters & byte.is_ascii_alphabetic()) {
            let byte = run.iter().copied().find(|byte| !byte.is_ascii_alphabetic()).unwrap_or_default();
            return Err(FastaError::Base { path: self.path.clone(), line: self.line, byte });
        }
        let (Some(lines), Some(contig)) = (&mut self.lines, self.contigs.last_mut()) else { return Ok(()) };
        lines.line_bases += piece.bases as u64;
        contig.bases += piece.bases as u64;
        if piece.ends_line {
            // samtools faidx counts one byte of line end where the file ends without one.
            let at_end = self.buffer_start + piece.bytes == self.buffer.len() && self.buffer.last() != Some(&b'\n');
            let end_bytes = (piece.bytes - piece.bases + usize::from(at_end)) as u64;
            let bases = std::mem::take(&mut lines.line_bases);
            let bytes = bases + end_bytes;
            let is_first = contig.line_bases == 0;
            let fits = is_first || (bases <= contig.line_bases && bytes <= contig.line_bytes);
            if self.even_lines && bases > 0 && (lines.is_last_line_seen || !fits) {
                let name = contig.name.clone();
                return Err(FastaError::RaggedLines { path: self.path.clone(), name, line: self.line });
            }
            if is_first {
                (contig.line_bases, contig.line_bytes) = (bases, bytes);
            }
            lines.is_last_line_seen = bases == 0 || bytes < contig.line_bytes;
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

    /// Reads and consumes the title line ahead.
    fn read_title(&mut self) -> Result<String, FastaError> {
        let bytes = loop {
            let ahead = self.buffer.len() - self.buffer_start;
            match memchr(b'\n', &self.buffer[self.buffer_start..]) {
                Some(newline) => break newline + 1,
                None if self.ended => break ahead,
                None if ahead > MAX_TITLE_BYTES => {
                    return Err(FastaError::Name { path: self.path.clone(), line: self.line });
                }
                None => self.fill_buffer(ahead + 1)?,
            }
        };
        let title = &self.buffer[self.buffer_start + 1..self.buffer_start + bytes];
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
        self.buffer_start += bytes;
        self.offset += bytes as u64;
        self.line += u64::from(ends_line);
    }

    /// Reads until `needed` bytes are buffered, or the file ends.
    fn fill_buffer(&mut self, needed: usize) -> Result<(), FastaError> {
        while !self.ended && self.buffer.len() - self.buffer_start < needed {
            self.buffer.drain(..self.buffer_start);
            self.buffer_start = 0;
            self.ended = self.input.append_to(&mut self.buffer, READ_BYTES)? == 0;
        }
        Ok(())
    }
}
