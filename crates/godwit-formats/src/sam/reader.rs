//! A reader of SAM files: the header, then buffers of complete lines that several threads can encode.

use std::path::{Path, PathBuf};

use godwit_io::bgzf::{self, BgzfBufRead as _, open_text};
use memchr::{memchr, memchr_iter, memrchr};

use super::MAX_LINE_BYTES;
use super::error::{FileHeaderError, SamReadError};
use super::header::Header;

/// Minimum bytes of text per read call.
const READ_BYTES: usize = 64 << 10;

/// The format of an alignment file, detected from its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignmentFormat {
    /// SAM alignments as text, plain or compressed.
    Sam,
    /// BAM alignments.
    Bam,
    /// CRAM alignments.
    Cram,
    /// Another format, an empty file, or a file that cannot be read.
    Unknown,
}

/// Detects the format of a file from its first bytes, without consuming them. If the file cannot be read, the result is
/// `Unknown`, and the next read returns the error.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf;
/// use godwit_formats::sam::{AlignmentFormat, detect_format};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("reads");
/// std::fs::write(&path, "r1\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII\n")?;
/// let mut input = bgzf::open_text(&path, 1)?;
/// assert_eq!(detect_format(&mut input), AlignmentFormat::Sam);
/// assert!(input.data()?.starts_with(b"r1\t4\t"));
/// # Ok(())
/// # }
/// ```
pub fn detect_format(input: &mut bgzf::Reader) -> AlignmentFormat {
    input.peek();
    let is_plain = input.is_plain();
    detect_format_in_bytes(input.peek(), is_plain)
}

/// Detects the format from the first bytes of a file, which are the decompressed bytes if the file is compressed.
pub(crate) fn detect_format_in_bytes(head: &[u8], is_plain: bool) -> AlignmentFormat {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A FASTQ title also starts with @ and may continue with two letters. It does not contain the type of a SAM header
    // line that is followed by a tab and a tag.
    let is_header = matches!(line, [b'@', a, b, b'\t', _, _, b':', ..] if matches!(&[*a, *b], b"HD" | b"SQ" | b"RG" | b"PG"))
        || line.starts_with(b"@CO\t");
    // A SAM record has at least eleven fields, of which the second is a number, and its read name does not start with @
    // (SAMv1 §1.4).
    let is_record = !line.starts_with(b"@")
        && memchr_iter(b'\t', line).count() >= 10
        && line.split(|byte| *byte == b'\t').nth(1).is_some_and(|flag| flag.iter().all(u8::is_ascii_digit));
    match head {
        [b'B', b'A', b'M', 1, ..] => AlignmentFormat::Bam,
        [b'C', b'R', b'A', b'M', ..] if is_plain => AlignmentFormat::Cram,
        _ if is_header || is_record => AlignmentFormat::Sam,
        _ => AlignmentFormat::Unknown,
    }
}

/// Consecutive complete lines of a SAM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamLines {
    /// 1-based number of the first line in the file; header lines are counted.
    pub first_line_number: u64,
    /// Text of the lines, with their line feeds. The last line of the file may lack the line feed.
    pub bytes: Vec<u8>,
}

impl SamLines {
    /// Returns the lines in order, without line feeds.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = rest.get(end + 1..).unwrap_or_default();
            Some(line)
        })
    }
}

/// A reader of a SAM file in plain, gzip or BGZF form.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_formats::sam::Reader;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("a.sam");
/// std::fs::write(&path, "@SQ\tSN:chr1\tLN:1000\nr1\t0\tchr1\t7\t60\t4M\t*\t0\t0\tACGT\tIIII\n")?;
/// let mut reader = Reader::open(&path, 1)?;
/// assert_eq!(reader.header().text(), b"@SQ\tSN:chr1\tLN:1000\n");
/// let lines = reader.next_lines(1 << 20)?.unwrap();
/// assert_eq!((lines.first_line_number, lines.lines().count()), (2, 1));
/// assert_eq!(reader.next_lines(1 << 20)?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    input: bgzf::Reader,
    header: Header,
    /// Text that was read already and begins the next buffer. It is at most one incomplete line, except after the
    /// header was read.
    carried_bytes: Vec<u8>,
    /// A used buffer whose memory the next buffer reuses, because new memory pages cost as much time as reading into
    /// them.
    recycled_buffer: Vec<u8>,
    next_line_number: u64,
    ended: bool,
}

impl Reader {
    /// Opens a SAM file and reads its header. BGZF is decompressed on `threads` threads.
    ///
    /// # Errors
    /// [`SamReadError`] if the file cannot be read, or its header is invalid.
    pub fn open(path: &Path, threads: usize) -> Result<Self, SamReadError> {
        Self::new(open_text(path, threads)?)
    }

    /// Reads the header of an open SAM file from which nothing has been consumed.
    ///
    /// # Errors
    /// [`SamReadError`] if the file cannot be read, or its header is invalid.
    pub fn new(input: bgzf::Reader) -> Result<Self, SamReadError> {
        let path = input.path().to_owned();
        let mut reader = Self {
            path,
            input,
            header: Header::default(),
            carried_bytes: Vec::new(),
            recycled_buffer: Vec::new(),
            next_line_number: 1,
            ended: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// Returns the BLAKE3 hash of the file as it is on disk, in hexadecimal digits; `None` before the end of the file
    /// has been read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// Returns the header, which is empty if the file has no header lines.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns about `max_bytes` of complete lines, at least one line, or `None` at the end of the file. A last line
    /// without a line feed is complete, as in samtools.
    ///
    /// # Errors
    /// [`SamReadError`] if the file cannot be read or a line is too long. The content of the lines is not checked.
    pub fn next_lines(&mut self, max_bytes: usize) -> Result<Option<SamLines>, SamReadError> {
        let mut bytes = std::mem::take(&mut self.carried_bytes);
        let mut target_bytes = max_bytes.max(1);
        while !self.ended {
            if bytes.len() < target_bytes {
                self.read_more(&mut bytes, target_bytes)?;
                continue;
            }
            if let Some(last) = memrchr(b'\n', &bytes) {
                self.carried_bytes = std::mem::take(&mut self.recycled_buffer);
                self.carried_bytes.clear();
                self.carried_bytes.extend_from_slice(&bytes[last + 1..]);
                bytes.truncate(last + 1);
                break;
            }
            if bytes.len() >= MAX_LINE_BYTES {
                return Err(self.line_too_long_error());
            }
            target_bytes = bytes.len() * 2;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let first_line_number = self.next_line_number;
        self.next_line_number += memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some(SamLines { first_line_number, bytes }))
    }

    /// Returns the reader of the decompressed file.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// Returns whether the file is not compressed.
    pub fn is_plain(&self) -> bool {
        self.input.is_plain()
    }

    /// Takes back a used buffer, so that the next lines reuse its memory.
    pub fn recycle(&mut self, chunk: Vec<u8>) {
        self.recycled_buffer = chunk;
    }

    /// Reads the header, which consists of the lines that start with `@`.
    fn read_header(&mut self) -> Result<(), SamReadError> {
        let mut bytes = Vec::new();
        let mut start = 0;
        loop {
            while let Some(end) = memchr(b'\n', &bytes[start..]).map(|end| start + end)
                && bytes[start] == b'@'
            {
                self.push_header_line(&bytes[start..end])?;
                start = end + 1;
            }
            // Read more text only if a header line is incomplete, or nothing has been read yet.
            if bytes.get(start).is_some_and(|byte| *byte != b'@') {
                break;
            }
            if self.ended {
                if start < bytes.len() {
                    self.push_header_line(&bytes[start..])?;
                    start = bytes.len();
                }
                break;
            }
            if bytes.len() - start >= MAX_LINE_BYTES {
                return Err(self.line_too_long_error());
            }
            bytes.drain(..start);
            start = 0;
            let target_bytes = (bytes.len() * 2).max(READ_BYTES);
            self.read_more(&mut bytes, target_bytes)?;
        }
        bytes.drain(..start);
        self.carried_bytes = bytes;
        Ok(())
    }

    fn push_header_line(&mut self, line: &[u8]) -> Result<(), SamReadError> {
        self.next_line_number += 1;
        Ok(self.header.push_line(line).map_err(|source| FileHeaderError { path: self.path.clone(), source })?)
    }

    /// Appends text to `bytes` until its length is at least `target_bytes`, or the file ends.
    fn read_more(&mut self, bytes: &mut Vec<u8>, target_bytes: usize) -> Result<(), SamReadError> {
        let missing = target_bytes.saturating_sub(bytes.len()).max(READ_BYTES);
        self.ended = self.input.append_to(bytes, missing)? < missing;
        Ok(())
    }

    fn line_too_long_error(&self) -> SamReadError {
        SamReadError::LineLength { path: self.path.clone(), line: self.next_line_number, limit: MAX_LINE_BYTES }
    }
}
