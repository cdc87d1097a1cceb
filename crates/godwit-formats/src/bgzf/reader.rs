//! A compressed file as one run of bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::error::BgzfError;
use super::point::{Points, Spacing, Start};
use super::read_ahead::{Accept, ReadAhead, STDIN};
use super::source::Input;
use crate::random_access::{FrontToBack, RandomAccess};

/// Reads the data of a file that nobody vouched for, decompressed ahead on threads of its own: sizes and checksums are
/// checked, and the end of BGZF is an error where the end-of-file block is missing.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    ahead: ReadAhead,
    /// Data not consumed yet: `chunk[position..]`.
    chunk: Vec<u8>,
    position: usize,
}

/// Data of a compressed file, from wherever its reader stands to the end.
pub trait Unpacked {
    /// The file.
    fn path(&self) -> &Path;

    /// Data not consumed yet; empty only at the end of a whole file.
    ///
    /// # Errors
    /// [`BgzfError`] about what lies ahead.
    fn data(&mut self) -> Result<&[u8], BgzfError>;

    /// Passes over data that [`Unpacked::data`] returned.
    fn consume(&mut self, bytes: usize);

    /// Appends that many bytes to `out`, or as many as there are. Returns their number.
    ///
    /// # Errors
    /// As [`Unpacked::data`].
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

/// Opens a text file, plain, gzip or BGZF, told apart by content. BGZF is decompressed on that many threads, at least
/// one, in order.
///
/// # Errors
/// [`BgzfError::Io`], [`BgzfError::Thread`]. What is wrong inside the file comes from reading.
pub fn open_text(path: &Path, threads: usize) -> Result<Reader, BgzfError> {
    Reader::start(path, threads, Accept::Text { lenient: false }, Points::Unused)
}

/// As [`open_text`] for what lies anywhere, read from front to back.
///
/// # Errors
/// [`BgzfError::Thread`]. What is wrong inside comes from reading.
pub fn open_text_of(source: &Arc<dyn RandomAccess>, threads: usize) -> Result<Reader, BgzfError> {
    let input = Input::Anywhere(FrontToBack::new(source.clone()));
    let ahead = ReadAhead::start(input, threads, Accept::Text { lenient: false }, Points::Unused);
    Ok(Reader::new(source.path(), ahead.map_err(|fault| fault.into_error(source.path()))?))
}

impl Reader {
    /// Opens a file that is BGZF throughout, decompressed on that many threads, at least one.
    ///
    /// # Errors
    /// [`BgzfError::Io`], [`BgzfError::Thread`]. What is wrong inside the file comes from reading.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BgzfError> {
        Self::start(path, threads, Accept::Bgzf, Points::Unused)
    }

    /// Opens BAM, or text as [`open_text`] does, told apart by content. [`STDIN`](super::STDIN) is standard input.
    /// `lenient` accepts BGZF text without its empty last block.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open_any(path: &Path, threads: usize, lenient: bool) -> Result<Self, BgzfError> {
        Self::start(path, threads, Accept::Any { lenient }, Points::Unused)
    }

    /// Opens a file of text as [`Reader::open_any`] does, for a [`LaneReader`](crate::fastq::LaneReader) that tells where
    /// reading can begin another time; at such a start if there is one. What lies before it is compared by its hash alone.
    ///
    /// # Errors
    /// As [`Reader::open`]; from reading also [`BgzfError::Changed`], before any text.
    pub fn open_noting(path: &Path, threads: usize, lenient: bool, start: Option<&Start>) -> Result<Self, BgzfError> {
        Self::start(path, threads, Accept::Any { lenient }, Points::Noted(Spacing::default(), start))
    }

    /// Reads what is open already, as the pipe of another program, as [`Reader::open_any`] does. `name` stands for it in
    /// errors.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_file(name: &Path, file: File, threads: usize) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::start(Input::File(file), threads, Accept::Any { lenient: false }, Points::Unused);
        Ok(Self::new(name, ahead.map_err(|fault| fault.into_error(name))?))
    }

    pub(crate) fn start(path: &Path, threads: usize, accept: Accept, points: Points) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::open(path, threads, accept, points).map_err(|fault| fault.into_error(path))?;
        Ok(Self::new(path, ahead))
    }

    fn new(path: &Path, ahead: ReadAhead) -> Self {
        Self { path: path.to_owned(), ahead, chunk: Vec::new(), position: 0 }
    }

    /// Makes reading fail soon after the flag is set, whatever it waits for.
    pub fn cancel_with(&mut self, cancelled: Arc<AtomicBool>) {
        self.ahead.cancel_with(cancelled);
    }

    /// The file, to be read on from the first byte not consumed.
    pub(crate) fn into_read_ahead(mut self) -> (PathBuf, ReadAhead) {
        self.chunk.drain(..self.position);
        self.ahead.give_back(self.chunk);
        (self.path, self.ahead)
    }

    /// Bytes taken from the file so far, as they are on disk.
    pub fn compressed_bytes_read(&self) -> u64 {
        self.ahead.bytes_read()
    }

    /// Bytes of the file up to the first byte not consumed, estimated within a chunk: what is buffered does not count.
    pub fn compressed_bytes_consumed(&self) -> u64 {
        let span = self.ahead.span();
        let share = self.position as f64 / self.chunk.len().max(1) as f64;
        span.start + ((span.end - span.start) as f64 * share) as u64
    }

    /// Bytes of the file on disk; `None` for a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        self.ahead.bytes_total()
    }

    /// Whether the path would not give the same bytes a second time: it is a pipe, or standard input.
    pub fn is_read_once(&self) -> bool {
        self.ahead.bytes_total().is_none() || self.path == Path::new(STDIN)
    }

    /// Whether it is encrypted, so that other programs cannot read it.
    pub fn is_decrypted(&self) -> bool {
        self.ahead.is_decrypted()
    }

    /// Whether the file has to be BGZF to its end, as BAM. Known once something was read.
    pub fn is_bgzf(&self) -> bool {
        self.ahead.is_bgzf()
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is not compressed. Known once something was read.
    pub fn is_plain(&self) -> bool {
        self.ahead.is_plain()
    }

    /// BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read.
    pub fn checksum(&self) -> Option<String> {
        self.ahead.checksum()
    }

    /// Data not consumed yet; empty only at the end of a whole file.
    ///
    /// # Errors
    /// [`BgzfError`] about what lies ahead.
    pub fn data(&mut self) -> Result<&[u8], BgzfError> {
        if self.position == self.chunk.len() {
            let next = self.ahead.next().map_err(|fault| fault.into_error(&self.path))?;
            self.ahead.recycle(std::mem::replace(&mut self.chunk, next.unwrap_or_default()));
            self.position = 0;
        }
        Ok(&self.chunk[self.position..])
    }

    /// Data not consumed yet, to be looked at; empty too where reading on fails, which [`Reader::data`] then tells.
    pub fn peek(&mut self) -> &[u8] {
        if self.position == self.chunk.len() {
            match self.ahead.next() {
                Ok(next) => (self.chunk, self.position) = (next.unwrap_or_default(), 0),
                Err(fault) => self.ahead.give_back_fault(fault),
            }
        }
        &self.chunk[self.position..]
    }

    /// Passes over data that [`Reader::data`] returned.
    pub fn consume(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.chunk.len());
    }
}

impl Unpacked for Reader {
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
