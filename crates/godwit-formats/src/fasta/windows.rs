//! Bases of a FASTA file, plain or BGZF, at any place: found by its index.

use std::io;
use std::path::Path;
use std::sync::Arc;

use godwit_model::BASE_LETTERS;

use super::error::FastaError;
use super::{FaiRecord, open_text};
use crate::random_access::RandomAccess;

/// Bases read at once: neighbours of what was asked for, because it is mostly asked for in order.
const WINDOW_BASES: u64 = 64 << 10;

/// 4-bit code of each letter (SAMv1 §4.2.3); 0 for letters that stand for no base.
const CODES: [u8; 256] = {
    let mut codes = [0; 256];
    let mut code = 1;
    while code < BASE_LETTERS.len() {
        codes[BASE_LETTERS[code] as usize] = code as u8;
        codes[BASE_LETTERS[code].to_ascii_lowercase() as usize] = code as u8;
        code += 1;
    }
    codes
};

/// Hands out bases of contigs, best in ascending order: one window is held.
#[derive(Clone, Debug)]
pub struct Windows {
    text: Arc<dyn RandomAccess>,
    contigs: Arc<[FaiRecord]>,
    contig: usize,
    start: u64,
    codes: Vec<u8>,
    raw: Vec<u8>,
}

impl Windows {
    /// Opens a FASTA file, plain or BGZF, whose contigs are `contigs`; they are called by their place in this list.
    ///
    /// # Errors
    /// [`FastaError::Compressed`] for gzip that is not BGZF, [`FastaError::Bgzf`].
    pub fn open(path: &Path, contigs: Arc<[FaiRecord]>) -> Result<Self, FastaError> {
        let text = open_text(path)?;
        Ok(Self { text, contigs, contig: usize::MAX, start: 0, codes: Vec::new(), raw: Vec::new() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.text.path()
    }

    /// Checks that every contig is where its record says: behind the end of a line, up to the end of a line, with a window of
    /// bases before that.
    ///
    /// # Errors
    /// As [`Windows::codes`].
    pub fn check(&mut self) -> io::Result<()> {
        let is_line_end = |byte: &[u8]| matches!(byte, [b'\n' | b'\r']);
        for contig in 0..self.contigs.len() {
            let (offset, bases) = (self.contigs[contig].offset, self.contigs[contig].bases);
            let behind = self.contigs[contig].place(bases.saturating_sub(1)).map(|last| last + 1);
            let (mut before, mut after) = ([0], [0]);
            let (Some(start), Some(end)) = (offset.checked_sub(1), behind) else { return Err(unfit()) };
            let found = self.text.read_at(&mut before, start)?;
            let ends = self.text.read_at(&mut after, end)?;
            if !is_line_end(&before[..found]) || (ends > 0 && !is_line_end(&after)) {
                return Err(unfit());
            }
            self.codes(contig, bases.saturating_sub(WINDOW_BASES), bases)?;
        }
        Ok(())
    }

    /// 4-bit codes (SAMv1 §4.2.3) of the bases in `[start, end)`, 0-based; fewer where the contig ends, none of a contig
    /// that is not there. Letters that stand for no base have code 0.
    ///
    /// # Errors
    /// What the file system reports; [`io::ErrorKind::InvalidData`] where the file does not fit its index.
    pub fn codes(&mut self, contig: usize, start: u64, end: u64) -> io::Result<&[u8]> {
        let length = self.contigs.get(contig).map_or(0, |record| record.bases);
        let (start, end) = (start.min(length), end.min(length));
        let held = contig == self.contig && start >= self.start && end <= self.start + self.codes.len() as u64;
        if !held {
            self.read(contig, start, end.max(start + WINDOW_BASES).min(length))?;
        }
        let from = (start - self.start) as usize;
        Ok(&self.codes[from..from + (end.max(start) - start) as usize])
    }

    fn read(&mut self, contig: usize, start: u64, end: u64) -> io::Result<()> {
        (self.contig, self.start) = (contig, start);
        self.codes.clear();
        let Some(record) = self.contigs.get(contig).filter(|_| end > start) else { return Ok(()) };
        let (Some(first), Some(last)) = (record.place(start), record.place(end - 1)) else { return Err(unfit()) };
        self.raw.resize((last + 1 - first) as usize, 0);
        let count = self.text.read_at(&mut self.raw, first)?;
        self.raw.truncate(count);
        // Line by line: the index has the length of a line, so no letter is searched for a line end.
        let (mut rest, mut bases_to_line_end) = (&self.raw[..], record.line_bases - start % record.line_bases);
        while !rest.is_empty() {
            let (letters, behind) = split(rest, bases_to_line_end);
            let (line_end, next) = split(behind, record.line_bytes - record.line_bases);
            if spaces(letters) > 0 || spaces(line_end) < line_end.len() {
                return Err(unfit());
            }
            self.codes.extend(letters.iter().map(|letter| CODES[usize::from(*letter)]));
            (rest, bases_to_line_end) = (next, record.line_bases);
        }
        if self.codes.len() as u64 == end - start { Ok(()) } else { Err(unfit()) }
    }
}

/// Splits off the first `bytes`, or all where there are fewer.
fn split(text: &[u8], bytes: u64) -> (&[u8], &[u8]) {
    text.split_at(usize::try_from(bytes).map_or(text.len(), |bytes| bytes.min(text.len())))
}

/// Number of white-space letters.
fn spaces(text: &[u8]) -> usize {
    text.iter().filter(|letter| letter.is_ascii_whitespace()).count()
}

fn unfit() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reference does not fit its .fai index")
}
