//! A sequential reader of FASTA files. The memory it uses does not depend on the length of lines.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use godwit_io::bgzf::{self, BgzfBufRead as _, open_text};
use memchr::memchr;

use super::FaiRecord;
use super::error::FastaError;

/// Bytes per read call. A returned run of bases is not longer than this.
const READ_BYTES: usize = 256 << 10;
/// Maximum bytes of a title line.
const MAX_TITLE_BYTES: usize = 1 << 20;

/// State of the check that the lines of the current contig have one length.
#[derive(Debug, Default)]
struct ContigLines {
    /// Number of bases of the current line that have been read.
    line_bases: u64,
    /// True after a blank line or a line shorter than the first. No bases may follow such a line.
    is_last_line_seen: bool,
}

/// A line of bases, or a part of a line.
struct LinePart {
    bases: usize,
    /// Bytes of the bases and, if the part ends the line, of the line end.
    bytes: usize,
    ends_line: bool,
}

/// A reader of the contigs of a FASTA file, which returns the name of each contig, then its bases in runs. Lines may
/// have any length.
///
/// # Examples
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
    /// Uncompressed text, of which the bytes from `buffer_start` on are not consumed yet.
    buffer: Vec<u8>,
    buffer_start: usize,
    /// Offset in the uncompressed text of the byte at `buffer_start`.
    offset: u64,
    /// 1-based number of the line that contains the byte at `buffer_start`.
    line: u64,
    ended: bool,
    /// True if all lines of a contig except the last must have the same length.
    even_lines: bool,
    names: HashSet<String>,
    contigs: Vec<FaiRecord>,
    /// State of the current contig; `None` if no contig is being read.
    lines: Option<ContigLines>,
}

impl Reader {
    /// Opens a FASTA file. BGZF is decompressed on `threads` threads.
    ///
    /// # Errors
    /// [`FastaError::Bgzf`] if the file cannot be opened.
    pub fn open(path: &Path, threads: usize) -> Result<Self, FastaError> {
        Ok(Self::new(open_text(path, threads)?))
    }

    /// Creates a reader of an open file from which nothing has been consumed.
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

    /// Makes later reads reject contigs with lines of different length, which a `.fai` index cannot describe.
    pub(super) fn require_even_lines(&mut self) {
        self.even_lines = true;
    }

    /// Returns the name of the next contig, or `None` at the end of the file. Skips the bases of the previous contig
    /// that were not read, but checks them too.
    ///
    /// # Errors
    /// [`FastaError`] if the file cannot be read, or the title or a skipped base is invalid.
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

    /// Returns the next bases of the current contig, at least one and only letters, or `None` at the end of the contig.
    ///
    /// # Errors
    /// [`FastaError`] if the file cannot be read, or a base or the layout of the lines is invalid.
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

    /// Returns the `.fai` records of the contigs read so far. They form a complete `.fai` index if all contigs were
    /// read and [`Reader::require_even_lines`] was called.
    pub(super) fn into_fai_records(self) -> Vec<FaiRecord> {
        self.contigs
    }

    /// Returns the extent of the buffered part of the current line, without consuming it.
    fn peek_line_part(&mut self) -> Result<LinePart, FastaError> {
        loop {
            let ahead = &self.buffer[self.buffer_start..];
            let newline = memchr(b'\n', ahead);
            if newline.is_some() || self.ended {
                let line = &ahead[..newline.unwrap_or(ahead.len())];
                let bases = line.strip_suffix(b"\r").unwrap_or(line).len();
                return Ok(LinePart { bases, bytes: line.len() + usize::from(newline.is_some()), ends_line: true });
            }
            // Do not return the last byte yet, because it may be a carriage return, which belongs to the line end.
            if ahead.len() > 1 {
                return Ok(LinePart { bases: ahead.len() - 1, bytes: ahead.len() - 1, ends_line: false });
            }
            self.fill_buffer(2)?;
        }
    }

    /// Checks a part of a line, adds it to the counts of the contig, and consumes it.
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
            // If the file ends without a line end, samtools faidx counts one byte for it.
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

    /// Consumes the title line of a contig and returns the contig name.
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

    /// Reads until at least `needed` bytes are buffered, or the file ends.
    fn fill_buffer(&mut self, needed: usize) -> Result<(), FastaError> {
        while !self.ended && self.buffer.len() - self.buffer_start < needed {
            self.buffer.drain(..self.buffer_start);
            self.buffer_start = 0;
            self.ended = self.input.append_to(&mut self.buffer, READ_BYTES)? == 0;
        }
        Ok(())
    }
}
