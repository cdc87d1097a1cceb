//! A sequential reader of plain, gzip and BGZF files, which decompresses on separate threads.

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

/// A sequential reader of files from untrusted sources, which threads of the reader decompress ahead of the caller. It
/// verifies lengths and checksums; a BGZF file without an end-of-file block is an error.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    read_ahead: ReadAhead,
    /// A buffer of decompressed data, of which the bytes from `position` on are not consumed yet.
    buffer: Vec<u8>,
    position: usize,
}

/// The decompressed data of a file, from the reader's position to the end.
pub trait BgzfBufRead {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns decompressed data that is not consumed yet; the slice is empty only at the end of a complete file.
    ///
    /// # Errors
    /// [`BgzfError`] if the next data of the file cannot be read or decompressed.
    fn data(&mut self) -> Result<&[u8], BgzfError>;

    /// Marks the first `bytes` bytes that [`BgzfBufRead::data`] returned as consumed.
    fn consume(&mut self, bytes: usize);

    /// Appends the next `bytes` bytes to `out`, or all that remain if the file has fewer, and returns how many.
    ///
    /// # Errors
    /// The errors of [`BgzfBufRead::data`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::{BgzfBufRead, open_text};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("bases.txt");
    /// std::fs::write(&path, "ACGTAC")?;
    /// let mut input = open_text(&path, 1)?;
    /// let mut bases = Vec::new();
    /// assert_eq!(input.append_to(&mut bases, 4)?, 4);
    /// assert_eq!(bases, b"ACGT");
    /// assert_eq!(input.append_to(&mut bases, 4)?, 2);
    /// # Ok(())
    /// # }
    /// ```
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

/// Opens a text file in plain, gzip or BGZF form, which is detected from the content. BGZF is decompressed on `threads`
/// threads (at least one); the data keeps its order.
///
/// # Errors
/// [`BgzfError::Io`] if the file cannot be opened, [`BgzfError::Thread`] if a thread cannot be started. Errors in the
/// content are returned by later reads.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_io::bgzf::{Writer, open_text};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("reads.fq.gz");
/// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
/// file.write_bytes(b"@r1\nACGT\n+\nIIII\n")?;
/// file.finish_file()?;
/// assert_eq!(std::io::read_to_string(open_text(&path, 2)?)?, "@r1\nACGT\n+\nIIII\n");
/// # Ok(())
/// # }
/// ```
pub fn open_text(path: &Path, threads: usize) -> Result<Reader, BgzfError> {
    Reader::open_with(path, threads, ExpectedFormat::Text { lenient: false }, AccessPointMode::Disabled)
}

/// Reads a source with random access sequentially from its start; the compression is detected as in [`open_text`].
///
/// # Errors
/// [`BgzfError::Thread`] if a thread cannot be started. Errors in the content are returned by later reads.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use godwit_io::bgzf::open_text_source;
/// use godwit_io::random_access::{LocalFile, RandomAccess};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("targets.bed");
/// std::fs::write(&path, "chr20\t999\t2000\n")?;
/// let source: Arc<dyn RandomAccess> = Arc::new(LocalFile::open(&path)?);
/// let mut input = open_text_source(&source, 1)?;
/// assert_eq!(input.data()?, b"chr20\t999\t2000\n");
/// assert!(input.is_plain());
/// # Ok(())
/// # }
/// ```
pub fn open_text_source(source: &Arc<dyn RandomAccess>, threads: usize) -> Result<Reader, BgzfError> {
    let input = Input::Sequential(SequentialReader::new(source.clone()));
    let ahead =
        ReadAhead::from_input(input, threads, ExpectedFormat::Text { lenient: false }, AccessPointMode::Disabled);
    Ok(Reader::new(source.path(), ahead.map_err(|error| error.into_bgzf_error(source.path()))?))
}

impl Reader {
    /// Opens a file that consists of BGZF blocks only. It is decompressed on `threads` threads (at least one).
    ///
    /// # Errors
    /// [`BgzfError::Io`] if the file cannot be opened, [`BgzfError::Thread`] if a thread cannot be started. Errors in
    /// the content are returned by later reads.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::{BgzfError, Reader, Writer};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("truncated.bam");
    /// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
    /// file.write_bytes(b"BAM\x01")?;
    /// // The end-of-file block is missing.
    /// file.finish_blocks()?;
    ///
    /// let mut reader = Reader::open(&path, 1)?;
    /// assert_eq!(reader.data()?, b"BAM\x01");
    /// reader.consume(4);
    /// assert!(matches!(reader.data(), Err(BgzfError::MissingEof { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(path: &Path, threads: usize) -> Result<Self, BgzfError> {
        Self::open_with(path, threads, ExpectedFormat::Bgzf, AccessPointMode::Disabled)
    }

    /// Opens a BAM file, or a text file as [`open_text`] does; the format is detected from the content.
    /// [`STDIN_PATH`] is standard input. If `lenient`, BGZF text without an end-of-file block is
    /// accepted.
    ///
    /// # Errors
    /// The errors of [`Reader::open`].
    pub fn open_any(path: &Path, threads: usize, lenient: bool) -> Result<Self, BgzfError> {
        Self::open_with(path, threads, ExpectedFormat::Any { lenient }, AccessPointMode::Disabled)
    }

    /// Opens a text file as [`Reader::open_any`] does, for a reader of FASTQ that records
    /// resume points. If `resume_point` is given, reading starts there; the file before it is compared only by its
    /// hash.
    ///
    /// # Errors
    /// The errors of [`Reader::open`]. The first read fails with [`BgzfError::Changed`] if the file before the resume
    /// point has changed.
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

    /// Creates a reader of an open file, such as the output pipe of another program; the format is detected as in
    /// [`Reader::open_any`]. Errors contain `name` as the path.
    ///
    /// # Errors
    /// The errors of [`Reader::open`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::path::Path;
    ///
    /// use godwit_io::bgzf::Reader;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n")?;
    /// let file = std::fs::File::open(&path)?;
    /// let reader = Reader::from_file(Path::new("reads.fq"), file, 1)?;
    /// assert_eq!(reader.path(), Path::new("reads.fq"));
    /// assert_eq!(std::io::read_to_string(reader)?, "@r1\nACGT\n+\nIIII\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_file(name: &Path, file: File, threads: usize) -> Result<Self, BgzfError> {
        let ahead = ReadAhead::from_input(
            Input::File(file),
            threads,
            ExpectedFormat::Any { lenient: false },
            AccessPointMode::Disabled,
        );
        Ok(Self::new(name, ahead.map_err(|error| error.into_bgzf_error(name))?))
    }

    /// Opens a file of an expected format, and optionally records access points.
    ///
    /// # Errors
    /// [`BgzfError`] if the file cannot be opened or is not of the format.
    pub fn open_with(
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

    /// Sets a flag with which another thread can cancel reading. Soon after the flag is set to true, reads fail, even a
    /// read that is waiting for data.
    pub fn set_cancel_flag(&mut self, cancelled: Arc<AtomicBool>) {
        self.read_ahead.set_cancel_flag(cancelled);
    }

    /// Converts the reader into its path and its [`ReadAhead`], which continues at the first byte that is not consumed.
    pub fn into_read_ahead(mut self) -> (PathBuf, ReadAhead) {
        self.buffer.drain(..self.position);
        self.read_ahead.unread(self.buffer);
        (self.path, self.read_ahead)
    }

    /// Returns the number of bytes read from the file so far, counted as on disk, before decompression.
    pub fn compressed_bytes_read(&self) -> u64 {
        self.read_ahead.compressed_bytes_read()
    }

    /// Returns the number of bytes of the file on disk up to the first byte that is not consumed. The position within
    /// the current buffer is estimated; buffers that the caller has not reached do not count.
    pub fn compressed_bytes_consumed(&self) -> u64 {
        let range = self.read_ahead.compressed_range();
        let fraction = self.position as f64 / self.buffer.len().max(1) as f64;
        range.start + ((range.end - range.start) as f64 * fraction) as u64
    }

    /// Returns the length of the file on disk in bytes, or `None` for a pipe.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        self.read_ahead.compressed_bytes_total()
    }

    /// Returns whether the path is a pipe or standard input, which cannot be read a second time.
    pub fn is_single_pass(&self) -> bool {
        self.read_ahead.compressed_bytes_total().is_none() || self.path == Path::new(STDIN_PATH)
    }

    /// Returns whether the file is encrypted and decrypted by this reader; other programs cannot read such a file.
    pub fn is_decrypted(&self) -> bool {
        self.read_ahead.is_decrypted()
    }

    /// Returns whether the file may contain only BGZF blocks, as a BAM file. The result is valid after the first read.
    pub fn is_bgzf(&self) -> bool {
        self.read_ahead.is_bgzf()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file is not compressed. The result is valid after the first read.
    pub fn is_plain(&self) -> bool {
        self.read_ahead.is_plain()
    }

    /// Returns the BLAKE3 hash of the file as it is on disk, in hexadecimal digits; `None` before the end of the file
    /// has been read.
    pub fn checksum(&self) -> Option<String> {
        self.read_ahead.checksum()
    }

    /// Returns decompressed data that is not consumed yet; the slice is empty only at the end of a complete file.
    ///
    /// # Errors
    /// [`BgzfError`] if the next data of the file cannot be read or decompressed.
    pub fn data(&mut self) -> Result<&[u8], BgzfError> {
        if self.position == self.buffer.len() {
            let next = self.read_ahead.next_text().map_err(|error| error.into_bgzf_error(&self.path))?;
            self.read_ahead.recycle(std::mem::replace(&mut self.buffer, next.unwrap_or_default()));
            self.position = 0;
        }
        Ok(&self.buffer[self.position..])
    }

    /// Returns decompressed data that is not consumed yet, and does not consume it. If reading fails, the slice is
    /// empty and the next call of [`Reader::data`] returns the error.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::open_text;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("reads.fq");
    /// std::fs::write(&path, "@r1\nACGT\n+\nIIII\n")?;
    /// let mut reader = open_text(&path, 1)?;
    /// assert!(reader.peek().starts_with(b"@"));
    /// assert_eq!(std::io::read_to_string(reader)?, "@r1\nACGT\n+\nIIII\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn peek(&mut self) -> &[u8] {
        if self.position == self.buffer.len() {
            match self.read_ahead.next_text() {
                Ok(next) => (self.buffer, self.position) = (next.unwrap_or_default(), 0),
                Err(error) => self.read_ahead.unread_error(error),
            }
        }
        &self.buffer[self.position..]
    }

    /// Marks the first `bytes` bytes that [`Reader::data`] returned as consumed.
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
