//! Bases of a FASTA file, plain or BGZF, at any position, by its index.

use std::io;
use std::path::Path;
use std::sync::Arc;

use godwit_model::BASE_LETTERS;

use super::error::FastaError;
use super::{FaiRecord, open_text};
use crate::random_access::RandomAccess;

/// Bases per read: more than requested, because requests mostly ascend.
const WINDOW_BASES: u64 = 64 << 10;

/// 4-bit code of each letter (SAMv1 §4.2.3); 0 for letters that are not bases.
const BASE_CODES: [u8; 256] = {
    let mut codes = [0; 256];
    let mut code = 1;
    while code < BASE_LETTERS.len() {
        codes[BASE_LETTERS[code] as usize] = code as u8;
        codes[BASE_LETTERS[code].to_ascii_lowercase() as usize] = code as u8;
        code += 1;
    }
    codes
};

/// A reader of bases of contigs, fastest in ascending order: it buffers one window.
#[derive(Clone, Debug)]
pub struct IndexedReader {
    text: Arc<dyn RandomAccess>,
    contigs: Arc<[FaiRecord]>,
    contig: usize,
    start: u64,
    codes: Vec<u8>,
    text_buffer: Vec<u8>,
}

impl IndexedReader {
    /// Opens a FASTA file, plain or BGZF, with the contigs `contigs`; other methods take indexes of this list.
    ///
    /// # Errors
    /// [`FastaError::Compressed`] for gzip that is not BGZF, [`FastaError::Bgzf`].
    pub fn open(path: &Path, contigs: Arc<[FaiRecord]>) -> Result<Self, FastaError> {
        let text = open_text(path)?;
        Ok(Self { text, contigs, contig: usize::MAX, start: 0, codes: Vec::new(), text_buffer: Vec::new() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.text.path()
    }

    /// Checks every contig against its record: it begins behind the end of a line, and ends at the end of a line, with a
    /// window of bases before that.
    ///
    /// # Errors
    /// As [`IndexedReader::base_codes`].
    pub fn check_index(&mut self) -> io::Result<()> {
        let is_line_end = |byte: &[u8]| matches!(byte, [b'\n' | b'\r']);
        for contig in 0..self.contigs.len() {
            let (offset, bases) = (self.contigs[contig].offset, self.contigs[contig].bases);
            let end_offset = self.contigs[contig].base_offset(bases.saturating_sub(1)).map(|last| last + 1);
            let (mut before, mut after) = ([0], [0]);
            let (Some(start), Some(end)) = (offset.checked_sub(1), end_offset) else {
                return Err(index_mismatch_error());
            };
            let found = self.text.read_at(&mut before, start)?;
            let ends = self.text.read_at(&mut after, end)?;
            if !is_line_end(&before[..found]) || (ends > 0 && !is_line_end(&after)) {
                return Err(index_mismatch_error());
            }
            self.base_codes(contig, bases.saturating_sub(WINDOW_BASES), bases)?;
        }
        Ok(())
    }

    /// Returns the 4-bit codes (SAMv1 §4.2.3) of the bases in `[start, end)`, 0-based; fewer where the contig ends, none
    /// for a contig that does not exist. Letters that are not bases have code 0.
    ///
    /// # Errors
    /// Errors of the file system; [`io::ErrorKind::InvalidData`] where the file does not fit its index.
    pub fn base_codes(&mut self, contig: usize, start: u64, end: u64) -> io::Result<&[u8]> {
        let length = self.contigs.get(contig).map_or(0, |record| record.bases);
        let (start, end) = (start.min(length), end.min(length));
        let held = contig == self.contig && start >= self.start && end <= self.start + self.codes.len() as u64;
        if !held {
            self.read_window(contig, start, end.max(start + WINDOW_BASES).min(length))?;
        }
        let from = (start - self.start) as usize;
        Ok(&self.codes[from..from + (end.max(start) - start) as usize])
    }

    fn read_window(&mut self, contig: usize, start: u64, end: u64) -> io::Result<()> {
        (self.contig, self.start) = (contig, start);
        self.codes.clear();
        let Some(record) = self.contigs.get(contig).filter(|_| end > start) else { return Ok(()) };
        let (Some(first), Some(last)) = (record.base_offset(start), record.base_offset(end - 1)) else {
            return Err(index_mismatch_error());
        };
        self.text_buffer.resize((last + 1 - first) as usize, 0);
        let count = self.text.read_at(&mut self.text_buffer, first)?;
        self.text_buffer.truncate(count);
        // Line by line: the index has the length of a line, so no search for line ends is needed.
        let (mut rest, mut bases_to_line_end) = (&self.text_buffer[..], record.line_bases - start % record.line_bases);
        while !rest.is_empty() {
            let (letters, after_letters) = split_at_most(rest, bases_to_line_end);
            let (line_end, next) = split_at_most(after_letters, record.line_bytes - record.line_bases);
            if count_whitespace(letters) > 0 || count_whitespace(line_end) < line_end.len() {
                return Err(index_mismatch_error());
            }
            self.codes.extend(letters.iter().map(|letter| BASE_CODES[usize::from(*letter)]));
            (rest, bases_to_line_end) = (next, record.line_bases);
        }
        if self.codes.len() as u64 == end - start { Ok(()) } else { Err(index_mismatch_error()) }
    }
}

/// Splits off the first `bytes`, or all where there are fewer.
fn split_at_most(text: &[u8], bytes: u64) -> (&[u8], &[u8]) {
    text.split_at(usize::try_from(bytes).map_or(text.len(), |bytes| bytes.min(text.len())))
}

/// Returns the number of white-space letters.
fn count_whitespace(text: &[u8]) -> usize {
    text.iter().filter(|letter| letter.is_ascii_whitespace()).count()
}

fn index_mismatch_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reference does not fit its .fai index")
}
