//! A writer of records into BGZF blocks, which returns the virtual offsets of each record.

use std::io::{self, Write};

use super::block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA_BYTES};

/// Virtual offsets of the start and the end of a record: offset of the block in the compressed file << 16 | offset in
/// the uncompressed data of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOffsets {
    /// Virtual offset of the first byte of the record.
    pub start: u64,
    /// Virtual offset after the last byte of the record.
    pub end: u64,
}

/// A writer of BGZF blocks of up to [`MAX_BLOCK_DATA_BYTES`] bytes. A record that does not fit into the current block
/// starts a new block, as in htslib. Only a record larger than a block covers several blocks.
///
/// Virtual offsets count from the first byte that this writer writes, so that parts of a file can be written separately
/// and joined. If a writer is dropped without [`Writer::finish_blocks`], the unfinished block is lost.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
    compressor: BlockCompressor,
    data: Vec<u8>,
    block: Vec<u8>,
    compressed_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// The default compression level: the fastest level that compresses at all.
    pub const DEFAULT_LEVEL: u8 = 1;

    /// Creates a writer to `inner` that compresses at `level`, from 0 to 12, and starts with a new block.
    pub fn new(inner: W, level: u8) -> Self {
        let data = Vec::with_capacity(MAX_BLOCK_DATA_BYTES);
        Self { inner, compressor: BlockCompressor::new(level), data, block: Vec::new(), compressed_bytes: 0 }
    }

    /// Returns the virtual offset at which the next bytes are written, unless they start a new block.
    pub fn virtual_offset(&self) -> u64 {
        self.compressed_bytes << 16 | self.data.len() as u64
    }

    /// Writes one record, given as consecutive parts, and returns its virtual offsets.
    ///
    /// # Errors
    /// The errors of the inner writer.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_io::bgzf::Writer;
    ///
    /// let mut writer = Writer::new(Vec::new(), 6);
    /// let first = writer.write_record(&[b"chr1\t0\t9\n"])?;
    /// let second = writer.write_record(&[b"chr2\t", b"0\t9\n"])?;
    /// assert_eq!((first.start, first.end), (0, 9));
    /// assert_eq!((second.start, second.end), (9, 18));
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_record(&mut self, parts: &[&[u8]]) -> io::Result<RecordOffsets> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.data.len() + bytes > MAX_BLOCK_DATA_BYTES {
            self.flush_block()?;
        }
        let start = self.virtual_offset();
        for part in parts {
            self.write_bytes(part)?;
        }
        Ok(RecordOffsets { start, end: self.virtual_offset() })
    }

    /// Writes bytes that may be divided between blocks at any position, such as a header.
    ///
    /// # Errors
    /// The errors of the inner writer.
    pub fn write_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let room = MAX_BLOCK_DATA_BYTES - self.data.len();
            if bytes.len() <= room {
                self.data.extend_from_slice(bytes);
                return Ok(());
            }
            let (head, tail) = bytes.split_at(room);
            self.data.extend_from_slice(head);
            self.flush_block()?;
            bytes = tail;
        }
    }

    /// Compresses and writes the unfinished block, if any, so that later bytes start a new block.
    ///
    /// # Errors
    /// The errors of the inner writer.
    pub fn flush_block(&mut self) -> io::Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.block.clear();
        self.compressor.compress(&self.data, &mut self.block);
        self.data.clear();
        self.inner.write_all(&self.block)?;
        self.compressed_bytes += self.block.len() as u64;
        Ok(())
    }

    /// Writes the last block, but no end-of-file block. Returns the inner writer, which is not flushed, and the number
    /// of compressed bytes written.
    ///
    /// # Errors
    /// The errors of the inner writer.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::Read;
    ///
    /// use godwit_io::bgzf::Writer;
    ///
    /// let mut header = Writer::new(Vec::new(), 6);
    /// header.write_bytes(b"#CHROM\tPOS\n")?;
    /// let (mut bytes, _) = header.finish_blocks()?;
    /// let mut records = Writer::new(&mut bytes, 6);
    /// records.write_bytes(b"chr1\t10\n")?;
    /// records.finish_file()?;
    ///
    /// let mut text = String::new();
    /// flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    /// assert_eq!(text, "#CHROM\tPOS\nchr1\t10\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish_blocks(mut self) -> io::Result<(W, u64)> {
        self.flush_block()?;
        Ok((self.inner, self.compressed_bytes))
    }

    /// Writes the last block and an end-of-file block, which completes the file. Returns the inner writer, which is not
    /// flushed, and the number of compressed bytes written, including the end-of-file block.
    ///
    /// # Errors
    /// The errors of the inner writer.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::io::Read;
    ///
    /// use godwit_io::bgzf::Writer;
    ///
    /// let mut writer = Writer::new(Vec::new(), 6);
    /// writer.write_bytes(b">chr1\nACGT\n")?;
    /// let (bytes, byte_count) = writer.finish_file()?;
    /// assert_eq!(byte_count, bytes.len() as u64);
    ///
    /// let mut text = String::new();
    /// flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_string(&mut text)?;
    /// assert_eq!(text, ">chr1\nACGT\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn finish_file(self) -> io::Result<(W, u64)> {
        let (mut inner, bytes) = self.finish_blocks()?;
        inner.write_all(&EOF_BLOCK)?;
        Ok((inner, bytes + EOF_BLOCK.len() as u64))
    }
}
