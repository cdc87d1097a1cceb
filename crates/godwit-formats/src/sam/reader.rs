//! SAM files: the header, then chunks of whole lines that several threads can encode.

use std::path::{Path, PathBuf};

use memchr::{memchr, memchr_iter, memrchr};

use super::error::{ReadError, UnusableHeader};
use super::header::Header;
use crate::bgzf::{self, Unpacked as _, open_text};

/// Longest line accepted: as long as a record can be.
const MAX_LINE_BYTES: usize = 512 << 20;
/// Least bytes asked of the file at once.
const READ_BYTES: usize = 64 << 10;

/// Kinds of files that hold alignments, by content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFormat {
    /// SAM text, plain or compressed.
    Sam,
    /// BAM.
    Bam,
    /// CRAM.
    Cram,
    /// Nothing that holds alignments; empty files too.
    Unknown,
}

/// Tells by its first bytes what a file holds, without consuming them. What cannot be read is unknown; reading it on
/// tells why.
pub fn sniff(input: &mut bgzf::Reader) -> InputFormat {
    input.peek();
    let is_plain = input.is_plain();
    format_of(input.peek(), is_plain)
}

/// Tells what a file holds by its first bytes, those of its text where it is compressed.
pub(crate) fn format_of(head: &[u8], is_plain: bool) -> InputFormat {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // A FASTQ title starts with @ as well, and names may have two letters, but not those of a header's first line with a
    // tag behind them.
    let is_header = matches!(line, [b'@', a, b, b'\t', _, _, b':', ..] if matches!(&[*a, *b], b"HD" | b"SQ" | b"RG" | b"PG"))
        || line.starts_with(b"@CO\t");
    // SAMv1 §1.4: eleven fields, the second a number; @ starts no read name.
    let is_record = !line.starts_with(b"@")
        && memchr_iter(b'\t', line).count() >= 10
        && line.split(|byte| *byte == b'\t').nth(1).is_some_and(|flag| flag.iter().all(u8::is_ascii_digit));
    match head {
        [b'B', b'A', b'M', 1, ..] => InputFormat::Bam,
        [b'C', b'R', b'A', b'M', ..] if is_plain => InputFormat::Cram,
        _ if is_header || is_record => InputFormat::Sam,
        _ => InputFormat::Unknown,
    }
}

/// Whole lines of a SAM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChunk {
    /// 1-based number of the first line in the file, header lines counted.
    pub first_line: u64,
    /// The lines with their line feeds; the file's last line may lack it.
    pub bytes: Vec<u8>,
}

impl LineChunk {
    /// The lines in order, without line feeds.
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

/// Reads a SAM file, plain, gzip or BGZF.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    input: bgzf::Reader,
    header: Header,
    /// Start of the next chunk: at most one line unless the header was just read.
    carry: Vec<u8>,
    /// Memory of a chunk that is done with, for the next one: fresh pages cost as much as reading into them.
    spare: Vec<u8>,
    next_line: u64,
    ended: bool,
}

impl Reader {
    /// Opens a file and reads its header. BGZF is decompressed on that many threads of its own.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn open(path: &Path, threads: usize) -> Result<Self, ReadError> {
        Self::new(open_text(path, threads)?)
    }

    /// As [`Reader::open`] for a file that is open and of which nothing was consumed.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn new(input: bgzf::Reader) -> Result<Self, ReadError> {
        let path = input.path().to_owned();
        let mut reader = Self {
            path,
            input,
            header: Header::default(),
            carry: Vec::new(),
            spare: Vec::new(),
            next_line: 1,
            ended: false,
        };
        reader.read_header()?;
        Ok(reader)
    }

    /// BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.input.checksum()
    }

    /// The header; empty where the file has none.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// About `max_bytes` of whole lines, at least one; `None` at the end of the file. A last line without line feed
    /// counts as whole, as for samtools.
    ///
    /// # Errors
    /// [`ReadError`]; what is in the lines is not looked at.
    pub fn next_lines(&mut self, max_bytes: usize) -> Result<Option<LineChunk>, ReadError> {
        let mut bytes = std::mem::take(&mut self.carry);
        let mut wanted = max_bytes.max(1);
        while !self.ended {
            if bytes.len() < wanted {
                self.read_more(&mut bytes, wanted)?;
                continue;
            }
            if let Some(last) = memrchr(b'\n', &bytes) {
                self.carry = std::mem::take(&mut self.spare);
                self.carry.clear();
                self.carry.extend_from_slice(&bytes[last + 1..]);
                bytes.truncate(last + 1);
                break;
            }
            if bytes.len() >= MAX_LINE_BYTES {
                return Err(self.line_too_long());
            }
            wanted = bytes.len() * 2;
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let first_line = self.next_line;
        self.next_line += memchr_iter(b'\n', &bytes).count() as u64;
        Ok(Some(LineChunk { first_line, bytes }))
    }

    /// The file that is read.
    pub fn input(&self) -> &bgzf::Reader {
        &self.input
    }

    /// Whether the file is plain text.
    pub fn is_plain(&self) -> bool {
        self.input.is_plain()
    }

    /// Takes back the memory of a chunk that is done with, for a later one.
    pub fn recycle(&mut self, chunk: Vec<u8>) {
        self.spare = chunk;
    }

    /// Takes the lines that start with `@` off the file.
    fn read_header(&mut self) -> Result<(), ReadError> {
        let mut bytes = Vec::new();
        let mut start = 0;
        loop {
            while let Some(end) = memchr(b'\n', &bytes[start..]).map(|end| start + end)
                && bytes[start] == b'@'
            {
                self.push_header_line(&bytes[start..end])?;
                start = end + 1;
            }
            // Only a header line that is not whole yet, or no line at all, calls for more.
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
                return Err(self.line_too_long());
            }
            bytes.drain(..start);
            start = 0;
            let wanted = (bytes.len() * 2).max(READ_BYTES);
            self.read_more(&mut bytes, wanted)?;
        }
        bytes.drain(..start);
        self.carry = bytes;
        Ok(())
    }

    fn push_header_line(&mut self, line: &[u8]) -> Result<(), ReadError> {
        self.next_line += 1;
        Ok(self.header.push_line(line).map_err(|source| UnusableHeader { path: self.path.clone(), source })?)
    }

    /// Reads up to a length of `wanted`, or to the end of the file.
    fn read_more(&mut self, bytes: &mut Vec<u8>, wanted: usize) -> Result<(), ReadError> {
        let missing = wanted.saturating_sub(bytes.len()).max(READ_BYTES);
        self.ended = self.input.append_to(bytes, missing)? < missing;
        Ok(())
    }

    fn line_too_long(&self) -> ReadError {
        ReadError::LineLength { path: self.path.clone(), line: self.next_line, limit: MAX_LINE_BYTES }
    }
}
