//! A reader of bases at any position of a plain or BGZF FASTA file, by means of its `.fai` index.

use std::io;
use std::path::Path;
use std::sync::Arc;

use godwit_io::random_access::RandomAccess;
use godwit_model::BASE_LETTERS;

use super::error::FastaError;
use super::{FaiRecord, open_text};

/// Number of bases per read. More are read than requested, because most callers request ascending positions.
const WINDOW_BASES: u64 = 64 << 10;

/// 4-bit code of each letter (SAMv1 §4.2.3), indexed by its byte; 0 for letters that are not bases.
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

/// A reader of bases at any position. It buffers one window of bases, so ascending requests are fastest.
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
    /// Opens a plain or BGZF FASTA file whose `.fai` records are `contigs`. The other methods take indexes of this
    /// list.
    ///
    /// # Errors
    /// [`FastaError::Compressed`] if the file is gzip but not BGZF, [`FastaError::Bgzf`] if it cannot be read.
    pub fn open(path: &Path, contigs: Arc<[FaiRecord]>) -> Result<Self, FastaError> {
        let text = open_text(path)?;
        Ok(Self { text, contigs, contig: usize::MAX, start: 0, codes: Vec::new(), text_buffer: Vec::new() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.text.path()
    }

    /// Checks that every contig agrees with its `.fai` record. A line end must precede its first base, and a line end
    /// or the end of the file must follow its last base. The last window of bases must be readable.
    ///
    /// # Errors
    /// The errors of [`IndexedReader::base_codes`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::fasta::{IndexedReader, build_fai};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.fa");
    /// std::fs::write(&path, ">chr1\nACGT\nAC\n")?;
    /// let mut records = build_fai(&path)?;
    /// assert!(IndexedReader::open(&path, records.clone().into())?.check_index().is_ok());
    /// records[0].offset += 1;
    /// assert!(IndexedReader::open(&path, records.into())?.check_index().is_err());
    /// # Ok(())
    /// # }
    /// ```
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

    /// Returns the 4-bit codes (SAMv1 §4.2.3) of the bases in `[start, end)`, 0-based. The result is shorter if the
    /// contig ends before `end`, and empty if the contig does not exist. Letters that are not bases have code 0.
    ///
    /// # Errors
    /// The errors of the file system; [`io::ErrorKind::InvalidData`] if the file does not agree with its index.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_formats::fasta::{IndexedReader, build_fai};
    /// use godwit_model::BASE_LETTERS;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.fa");
    /// std::fs::write(&path, ">chr1\nACGT\nNACG\n")?;
    /// let mut reader = IndexedReader::open(&path, build_fai(&path)?.into())?;
    /// let codes = reader.base_codes(0, 3, 6)?;
    /// let letters: Vec<u8> = codes.iter().map(|code| BASE_LETTERS[usize::from(*code)]).collect();
    /// assert_eq!(letters, b"TNA");
    /// # Ok(())
    /// # }
    /// ```
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
        // Split the text into lines by the line length of the index, so that no search for line ends is needed.
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

/// Splits `text` after the first `bytes` bytes, or at its end if it is shorter.
fn split_at_most(text: &[u8], bytes: u64) -> (&[u8], &[u8]) {
    text.split_at(usize::try_from(bytes).map_or(text.len(), |bytes| bytes.min(text.len())))
}

/// Returns the number of white-space characters.
fn count_whitespace(text: &[u8]) -> usize {
    text.iter().filter(|letter| letter.is_ascii_whitespace()).count()
}

fn index_mismatch_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the reference does not fit its .fai index")
}
