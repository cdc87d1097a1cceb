//! SAM files: the header, then buffers of whole lines that several threads can encode.

use std::path::{Path, PathBuf};

use memchr::{memchr, memchr_iter, memrchr};

use super::error::{FileHeaderError, SamReadError};
use super::header::Header;
use crate::bgzf::{self, BgzfBufRead as _, open_text};

/// Maximum bytes of a line: the limit of a record.
const MAX_LINE_BYTES: usize = 512 << 20;
/// Minimum bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Formats of files that hold alignments, by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignmentFormat {
    /// SAM text, plain or compressed.
    Sam,
    /// BAM.
    Bam,
    /// CRAM.
    Cram,
    /// Another format, or an empty file.
    Unknown,
}

/// Detects the format by the first bytes, without consuming them. A file that cannot be read is unknown; the next read
/// reports the error.
pub fn detect_format(input: &mut bgzf::Reader) -> AlignmentFormat {
    input.peek();
    let is_plain = input.is_plain();
    detect_format_in_bytes(input.peek(), is_plain)
}

/// Detects the format by the first bytes, those of the text where the file is compressed.
pub(crate) fn detect_format_in_bytes(head: &[u8], is_plain: bool) -> AlignmentFormat {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A FASTQ title starts with @ as well, and names may have two letters, but not those of a header's first line with a
    // tag behind them.
    let is_header = matches!(line, [b'@', a, b, b'\t', _, _, b':', ..] if matches!(&[*a, *b], b"HD" | b"SQ" | b"RG" | b"PG"))
        || line.starts_with(b"@CO\t");
    // SAMv1 §1.4: eleven fields, the second a number; read names do not start with @.
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

/// Whole lines of a SAM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamLines {
    /// 1-based number of the first line in the file, header lines counted.
    pub first_line_number: u64,
    /// The lines with their line feeds; the file's last line may lack it.
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

/// A reader of a SAM file, plain, gzip or BGZF.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    input: bgzf::Reader,
    header: Header,
    /// Start of the next buffer: at most one line unless the header was just read.
    carried_bytes: Vec<u8>,
    /// Memory of a used buffer, for the next one: fresh pages cost as much as reading into them.
    recycled_buffer: Vec<u8>,
    next_line_number: u64,
    ended: bool,
}

impl Reader {
    /// Opens a file and reads its header. BGZF is decompressed on `threads` threads.
    ///
    /// # Errors
    /// [`SamReadError`].
    pub fn open(path: &Path, threads: usize) -> Result<Self, SamReadError> {
        Self::new(open_text(path, threads)?)
    }

    /// Reads the header of an open file of which nothing was consumed.
    ///
    /// # Errors
    /// [`SamReadError`].
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

    /// Returns the BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// Returns the header; empty where the file has none.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns about `max_bytes` of whole lines, at least one; `None` at the end of the file. A last line without line feed
    /// counts as whole, as for samtools.
    ///
    /// # Errors
    /// [`SamReadError`]; the content of lines is not checked.
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

    /// Returns the input.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// Reports whether the file is plain text.
    pub fn is_plain(&self) -> bool {
        self.input.is_plain()
    }

    /// Recycles the memory of a used buffer.
    pub fn recycle(&mut self, chunk: Vec<u8>) {
        self.recycled_buffer = chunk;
    }

    /// Reads the lines that start with `@`.
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
            // More is read only for an incomplete header line, or before the first line.
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

    /// Reads up to a length of `target_bytes`, or to the end of the file.
    fn read_more(&mut self, bytes: &mut Vec<u8>, target_bytes: usize) -> Result<(), SamReadError> {
        let missing = target_bytes.saturating_sub(bytes.len()).max(READ_BYTES);
        self.ended = self.input.append_to(bytes, missing)? < missing;
        Ok(())
    }

    fn line_too_long_error(&self) -> SamReadError {
        SamReadError::LineLength { path: self.path.clone(), line: self.next_line_number, limit: MAX_LINE_BYTES }
    }
}
