//! A compressed file as one stream of bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::access_point::{AccessPointMode, AccessPointSpacing, ResumePoint};
use super::error::BgzfError;
use super::peek_reader::Input;
use super::read_ahead::{ExpectedFormat, ReadAhead, STDIN_PATH};
use crate::random_access::{RandomAccess, SequentialReader};

/// A reader of untrusted compressed files, decompressed ahead on threads of its own: sizes and checksums are verified, and
/// a BGZF file without end-of-file block is an error.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    read_ahead: ReadAhead,
    /// Data not consumed yet: `buffer[position..]`.
    buffer: Vec<u8>,
    position: usize,
}

/// Data of a compressed file, from the reader's position to the end.
pub trait BgzfBufRead {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns the data not consumed yet; empty only at the end of a whole file.
    ///
    /// # Errors
    /// [`BgzfError`] about the data ahead.
    fn data(&mut self) -> Result<&[u8], BgzfError>;

    /// Consumes data that [`BgzfBufRead::data`] returned.
    fn consume(&mut self, bytes: usize);

    /// Appends `bytes` bytes to `out`, or as many as are left. Returns their number.
    ///
    /// # Errors
    /// As [`BgzfBufRead::data`].
    fn append_to(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<usize, BgzfError> {
        let mut missing = bytes;
        while missing > 0 {
            let data = self.data()?;
            if data.is_empty() {
                break;
            }
            let take = data.len().min(missing);
            out.extend_from_slice(&data[..take]);
            self.consume(take);
            missing -= take;
        }
        Ok(bytes - missing)
    }
}

/// Opens a text file, plain, gzip or BGZF, detected by content. BGZF is decompressed on `threads` threads, at least one, in
/// order.
///
/// # Errors
/// [`BgzfError::Io`], [`BgzfError::Thread`]. Later reads report errors inside the file.
pub fn open_text(path: &Path, threads: usize) -> Result<Reader, BgzfError> {
    Reader::open_with(path, threads, ExpectedFormat::Text { lenient: false }, AccessPointMode::Disabled)
}

/// Opens a source with random access as [`open_text`] does, and reads it in order.
///
/// # Errors
/// [`BgzfError::Thread`]. Later reads report errors inside the source.
pub fn open_text_source(source: &Arc<dyn RandomAccess>, threads: usize) -> Result<Reader, BgzfError> {
    let input = Input::Sequential(SequentialReader::new(source.clone()));
    let ahead =
        ReadAhead::from_input(input, threads, ExpectedFormat::Text { lenient: false }, AccessPointMode::Disabled);
    Ok(Reader::new(source.path(), ahead.map_err(|error| error.into_bgzf_error(source.path()))?))
}

impl Reader {
    /// Opens a file that is BGZF throughout, decompressed on `threads` threads, at least one.
    ///
    /// # Errors
    /// [`BgzfError::Io`], [`BgzfError::Thread`]. Later reads report errors inside the file.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BgzfError> {
        Self::open_with(path, threads, ExpectedFormat::Bgzf, AccessPointMode::Disabled)
    }

    /// Opens BAM, or text as [`open_text`] does, detected by content. [`STDIN_PATH`](super::STDIN_PATH) is standard input.
    /// `lenient` accepts BGZF text without its empty last block.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_any(path: &Path, threads: usize, lenient: bool) -> Result<Self, BgzfError> {
        Self::open_with(path, threads, ExpectedFormat::Any { lenient }, AccessPointMode::Disabled)
    }

    /// Opens a file of text as [`Reader::open_any`] does, for a [`LaneReader`](crate::fastq::LaneReader) that returns
    /// resume points; from a resume point if one is given. Only the hash of the bytes before it is compared.
    ///
    /// # Errors
    /// As [`Reader::open`]; reads also fail with [`BgzfError::Changed`], before any text.
    pub fn open_resumable(
        path: &Path,
        threads: usize,
        lenient: bool,
        resume_point: Option<&ResumePoint>,
    ) -> Result<Self, BgzfError> {
        Self::open_with(
            path,
            threads,
            ExpectedFormat::Any { lenient },
            AccessPointMode::Enabled(AccessPointSpacing::default(), resume_point),
        )
    }

    /// Reads an open file, such as the pipe of another program, as [`Reader::open_any`] does. Errors contain `name`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_file(name: &Path, file: File, threads: usize) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::from_input(
            Input::File(file),
            threads,
            ExpectedFormat::Any { lenient: false },
            AccessPointMode::Disabled,
        );
        Ok(Self::new(name, ahead.map_err(|error| error.into_bgzf_error(name))?))
    }

    pub(crate) fn open_with(
        path: &Path,
        threads: usize,
        expected_format: ExpectedFormat,
        access_points: AccessPointMode,
    ) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::open(path, threads, expected_format, access_points)
            .map_err(|error| error.into_bgzf_error(path))?;
        Ok(Self::new(path, ahead))
    }

    fn new(path: &Path, read_ahead: ReadAhead) -> Self {
        Self { path: path.to_owned(), read_ahead, buffer: Vec::new(), position: 0 }
    }

    /// Makes reading fail soon after the flag is set, even while it waits.
    pub fn set_cancel_flag(&mut self, cancelled: Arc<AtomicBool>) {
        self.read_ahead.set_cancel_flag(cancelled);
    }

    /// Returns the file, to be read on from the first byte not consumed.
    pub(crate) fn into_read_ahead(mut self) -> (PathBuf, ReadAhead) {
        self.buffer.drain(..self.position);
        self.read_ahead.unread(self.buffer);
        (self.path, self.read_ahead)
    }

    /// Returns the bytes read from the file so far, as they are on disk.
    pub fn compressed_bytes_read(&self) -> u64 {
        self.read_ahead.compressed_bytes_read()
    }

    /// Returns the bytes of the file up to the first byte not consumed, estimated within a buffer: buffered bytes do not
    /// count.
    pub fn compressed_bytes_consumed(&self) -> u64 {
        let range = self.read_ahead.compressed_range();
        let fraction = self.position as f64 / self.buffer.len().max(1) as f64;
        range.start + ((range.end - range.start) as f64 * fraction) as u64
    }

    /// Returns the bytes of the file on disk; `None` for a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        self.read_ahead.compressed_bytes_total()
    }

    /// Reports whether the path cannot be read a second time: it is a pipe, or standard input.
    pub fn is_single_pass(&self) -> bool {
        self.read_ahead.compressed_bytes_total().is_none() || self.path == Path::new(STDIN_PATH)
    }

    /// Reports whether the file is encrypted, so that other programs cannot read it.
    pub fn is_decrypted(&self) -> bool {
        self.read_ahead.is_decrypted()
    }

    /// Reports whether the file must be BGZF to its end, as BAM. Valid after a first read.
    pub fn is_bgzf(&self) -> bool {
        self.read_ahead.is_bgzf()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports whether the file is not compressed. Valid after a first read.
    pub fn is_plain(&self) -> bool {
        self.read_ahead.is_plain()
    }

    /// Returns the BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.read_ahead.checksum()
    }

    /// Returns the data not consumed yet; empty only at the end of a whole file.
    ///
    /// # Errors
    /// [`BgzfError`] about the data ahead.
    pub fn data(&mut self) -> Result<&[u8], BgzfError> {
        if self.position == self.buffer.len() {
            let next = self.read_ahead.next().map_err(|error| error.into_bgzf_error(&self.path))?;
            self.read_ahead.recycle(std::mem::replace(&mut self.buffer, next.unwrap_or_default()));
            self.position = 0;
        }
        Ok(&self.buffer[self.position..])
    }

    /// Returns the data not consumed yet, without consuming it; also empty where reading fails, which [`Reader::data`] then
    /// reports.
    pub fn peek(&mut self) -> &[u8] {
        if self.position == self.buffer.len() {
            match self.read_ahead.next() {
                Ok(next) => (self.buffer, self.position) = (next.unwrap_or_default(), 0),
                Err(error) => self.read_ahead.unread_error(error),
            }
        }
        &self.buffer[self.position..]
    }

    /// Consumes data that [`Reader::data`] returned.
    pub fn consume(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.buffer.len());
    }
}

impl BgzfBufRead for Reader {
    fn path(&self) -> &Path {
        &self.path
    }

    fn data(&mut self) -> Result<&[u8], BgzfError> {
        Self::data(self)
    }

    fn consume(&mut self, bytes: usize) {
        Self::consume(self, bytes);
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let data = self.data().map_err(io::Error::other)?;
        let take = data.len().min(buffer.len());
        buffer[..take].copy_from_slice(&data[..take]);
        self.consume(take);
        Ok(take)
    }
}
