//! A reader of BGZF files from any virtual offset, on the thread of the caller.
//!
//! Flows in: a virtual offset from an index. Flows out: the data from this offset on, verified block by block. The
//! caller decides how far to read. At the end of the file, a missing end-of-file block is an error.

use std::path::Path;
use std::sync::Arc;

use libdeflater::Decompressor;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES, MAX_BLOCK_BYTES};
use super::error::{BgzfError, InputError};
use super::reader::BgzfBufRead;
use crate::random_access::RandomAccess;

/// Compressed bytes of the first read after a seek: one to three blocks, enough for a lookup.
const INITIAL_READ_BYTES: usize = 64 << 10;
/// Maximum compressed bytes of a read. The size doubles with each sequential read until this limit.
const MAX_READ_BYTES: usize = 1 << 20;

/// The position of a byte in a BGZF file: the file offset of its block times 2^16, plus the byte's offset in the
/// uncompressed data of that block (SAMv1 §4.1.1).
pub type VirtualOffset = u64;

/// A reader of a BGZF file that can seek to virtual offsets.
pub struct SeekReader {
    source: Arc<dyn RandomAccess>,
    decompressor: Decompressor,
    /// A buffer whose bytes from `buffer_start` on are the compressed bytes of the file from `next_block_offset` on.
    buffer: Vec<u8>,
    buffer_start: usize,
    next_read_bytes: usize,
    /// File offset of the block whose uncompressed data is in `data`.
    block_offset: u64,
    /// File offset of the block after the one at `block_offset`.
    next_block_offset: u64,
    data: Vec<u8>,
    position: usize,
    /// True if the block loaded last was the end-of-file block.
    is_after_eof_block: bool,
}

impl std::fmt::Debug for SeekReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeekReader").field("source", &self.source).field("at", &self.virtual_offset()).finish()
    }
}

impl SeekReader {
    /// Creates a reader that is positioned at the start of the file.
    pub fn new(source: Arc<dyn RandomAccess>) -> Self {
        Self {
            source,
            decompressor: Decompressor::new(),
            buffer: Vec::new(),
            buffer_start: 0,
            next_read_bytes: INITIAL_READ_BYTES,
            block_offset: 0,
            next_block_offset: 0,
            data: Vec::new(),
            position: 0,
            is_after_eof_block: false,
        }
    }

    /// Returns the file that is read.
    pub fn source(&self) -> &Arc<dyn RandomAccess> {
        &self.source
    }

    /// Moves the reader to a virtual offset.
    ///
    /// # Errors
    /// [`BgzfError::Corrupt`] if the file has no such offset; other variants of [`BgzfError`] if the block cannot be
    /// read.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf::{BgzfBufRead, SeekReader, Writer};
    /// use godwit_io::random_access::LocalFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bed.gz");
    /// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
    /// file.write_record(&[b"chr1\t0\t9\n"])?;
    /// let second = file.write_record(&[b"chr2\t0\t9\n"])?;
    /// file.finish_file()?;
    ///
    /// let mut reader = SeekReader::new(Arc::new(LocalFile::open(&path)?));
    /// reader.seek(second.start)?;
    /// assert_eq!(reader.data()?, b"chr2\t0\t9\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn seek(&mut self, virtual_offset: VirtualOffset) -> Result<(), BgzfError> {
        let (block, within) = (virtual_offset >> 16, (virtual_offset & 0xffff) as usize);
        let is_loaded = block == self.block_offset && self.next_block_offset > self.block_offset;
        if !is_loaded {
            let ahead_end = self.next_block_offset + (self.buffer.len() - self.buffer_start) as u64;
            if (self.next_block_offset..ahead_end).contains(&block) {
                self.buffer_start += (block - self.next_block_offset) as usize;
            } else {
                self.buffer.clear();
                self.buffer_start = 0;
                self.next_read_bytes = INITIAL_READ_BYTES;
            }
            self.next_block_offset = block;
            self.load_block()?;
        }
        // An offset equal to the length of the data is valid too: it means the first byte of the next block.
        if within > self.data.len() {
            let detail = "an index points past the data of a block; it belongs to another file".to_owned();
            return Err(InputError::Corrupt { offset: block, detail }.into_bgzf_error(self.source.path()));
        }
        self.position = within;
        Ok(())
    }

    /// Returns the virtual offset of the next byte to read.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    ///
    /// use godwit_io::bgzf::{BgzfBufRead, SeekReader, Writer};
    /// use godwit_io::random_access::LocalFile;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("a.bed.gz");
    /// let mut file = Writer::new(std::fs::File::create(&path)?, 6);
    /// file.write_bytes(b"chr1\t0\t9\nchr2\t0\t9\n")?;
    /// file.finish_file()?;
    ///
    /// let mut reader = SeekReader::new(Arc::new(LocalFile::open(&path)?));
    /// let mut line = Vec::new();
    /// reader.append_to(&mut line, 9)?;
    /// assert_eq!(line, b"chr1\t0\t9\n");
    /// assert_eq!(reader.virtual_offset(), 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn virtual_offset(&self) -> VirtualOffset {
        if self.position == self.data.len() {
            self.next_block_offset << 16
        } else {
            self.block_offset << 16 | self.position as u64
        }
    }

    /// Reads and decompresses the block at `next_block_offset` into `data`.
    fn load_block(&mut self) -> Result<(), BgzfError> {
        self.try_load_block().map_err(|error| error.into_bgzf_error(self.source.path()))
    }

    fn try_load_block(&mut self) -> Result<(), InputError> {
        let offset = self.next_block_offset;
        let bytes = self.buffer_block()?;
        let corrupt = |detail: &str| InputError::Corrupt { offset, detail: detail.to_owned() };
        let block = &self.buffer[self.buffer_start..self.buffer_start + bytes];
        let data_bytes =
            block::parse_data_length(block).ok_or_else(|| corrupt("a BGZF block claims more than 64 KiB of data"))?;
        self.data.resize(data_bytes, 0);
        if !block::inflate_block(&mut self.decompressor, block, &mut self.data) {
            self.data.clear();
            return Err(corrupt("BGZF block with invalid data, checksum or length"));
        }
        self.is_after_eof_block = block == EOF_BLOCK;
        self.position = 0;
        self.block_offset = offset;
        self.next_block_offset = offset + bytes as u64;
        self.buffer_start += bytes;
        Ok(())
    }

    /// Reads the next compressed block completely into the buffer and returns its length in bytes.
    fn buffer_block(&mut self) -> Result<usize, InputError> {
        let offset = self.next_block_offset;
        let mut needed = FIXED_HEADER_BYTES;
        loop {
            let found = self.peek_compressed(needed)?;
            if found.len() < needed {
                let end = offset + found.len() as u64;
                return Err(if found.is_empty() {
                    InputError::Corrupt { offset: end, detail: "an index points past the end of the file".to_owned() }
                } else {
                    InputError::Truncated { offset: end }
                });
            }
            match block::parse_block_length(found) {
                Ok(Some(bytes)) if bytes <= found.len() => return Ok(bytes),
                Ok(Some(bytes)) | Err(bytes) => needed = bytes,
                Ok(None) => return Err(InputError::NotCompressed { offset }),
            }
        }
    }

    /// Returns the buffered compressed bytes that come next: at least `bytes` bytes, or fewer at the end of the file.
    fn peek_compressed(&mut self, bytes: usize) -> Result<&[u8], InputError> {
        debug_assert!(bytes <= MAX_BLOCK_BYTES);
        let at_hand = self.buffer.len() - self.buffer_start;
        if at_hand < bytes {
            self.buffer.drain(..self.buffer_start);
            self.buffer_start = 0;
            let offset = self.next_block_offset + at_hand as u64;
            self.buffer.resize(at_hand + self.next_read_bytes.max(bytes), 0);
            let count = self.source.read_at(&mut self.buffer[at_hand..], offset);
            let count = count.map_err(|source| InputError::from_read_error(offset, source));
            self.buffer.truncate(at_hand + *count.as_ref().unwrap_or(&0));
            count?;
            self.next_read_bytes = (2 * self.next_read_bytes).min(MAX_READ_BYTES);
        }
        Ok(&self.buffer[self.buffer_start..])
    }
}

impl BgzfBufRead for SeekReader {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn data(&mut self) -> Result<&[u8], BgzfError> {
        while self.position == self.data.len() {
            if self.next_block_offset >= self.source.byte_len() {
                if !self.is_after_eof_block {
                    return Err(
                        InputError::MissingEof { offset: self.source.byte_len() }.into_bgzf_error(self.source.path())
                    );
                }
                return Ok(&[]);
            }
            self.load_block()?;
        }
        Ok(&self.data[self.position..])
    }

    fn consume(&mut self, bytes: usize) {
        self.position = (self.position + bytes).min(self.data.len());
    }
}
