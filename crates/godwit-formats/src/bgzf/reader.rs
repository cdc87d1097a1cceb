//! A compressed file as one run of bytes.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::error::BgzfError;
use super::read_ahead::{Accept, ReadAhead};

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

/// Opens a text file, plain, gzip or BGZF, told apart by content. BGZF is decompressed on that many threads, at least
/// one, in order.
///
/// # Errors
/// [`BgzfError::Io`], [`BgzfError::Thread`]. What is wrong inside the file comes from reading.
pub fn open_text(path: &Path, threads: usize) -> Result<Reader, BgzfError> {
    Reader::start(path, threads, Accept::Text { lenient: false })
}

impl Reader {
    /// Opens a file that is BGZF throughout, decompressed on that many threads, at least one.
    ///
    /// # Errors
    /// [`BgzfError::Io`], [`BgzfError::Thread`]. What is wrong inside the file comes from reading.
    pub fn open(path: &Path, threads: usize) -> Result<Self, BgzfError> {
        Self::start(path, threads, Accept::Bgzf)
    }

    fn start(path: &Path, threads: usize, accept: Accept) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::open(path, threads, accept).map_err(|fault| fault.into_error(path))?;
        Ok(Self { path: path.to_owned(), ahead, chunk: Vec::new(), position: 0 })
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

    /// Passes over data that [`Reader::data`] returned.
    pub fn consume(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.chunk.len());
    }

    /// Appends that many bytes to `out`, or as many as there are. Returns their number.
    ///
    /// # Errors
    /// As [`Reader::data`].
    pub fn append_to(&mut self, out: &mut Vec<u8>, bytes: usize) -> Result<usize, BgzfError> {
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

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let data = self.data().map_err(io::Error::other)?;
        let take = data.len().min(buffer.len());
        buffer[..take].copy_from_slice(&data[..take]);
        self.consume(take);
        Ok(take)
    }
}
