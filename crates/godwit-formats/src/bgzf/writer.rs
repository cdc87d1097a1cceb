//! A writer of records into blocks, with the virtual offsets of each.

use std::io::{self, Write};

use super::block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA_BYTES};

/// Virtual offsets (offset of the block in the compressed file << 16 | offset in its data) around one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOffsets {
    /// Start of the record.
    pub start: u64,
    /// End of the record.
    pub end: u64,
}

/// A writer of BGZF blocks of up to [`MAX_BLOCK_DATA_BYTES`] bytes. A record that does not fit the rest of a block starts a
/// new one, as in htslib, so only records larger than a block cover several.
///
/// Offsets count from the writer's first byte, so that parts of a file can be written separately and joined. Dropping a
/// writer without [`Writer::finish_blocks`] loses the unfinished block.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
    compressor: BlockCompressor,
    data: Vec<u8>,
    block: Vec<u8>,
    compressed_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// The default level: the fastest that compresses.
    pub const DEFAULT_LEVEL: u8 = 1;

    /// Creates a writer that compresses at a level of 0 to 12 and starts with a new block.
    pub fn new(inner: W, level: u8) -> Self {
        let data = Vec::with_capacity(MAX_BLOCK_DATA_BYTES);
        Self { inner, compressor: BlockCompressor::new(level), data, block: Vec::new(), compressed_bytes: 0 }
    }

    /// Returns the virtual offset of the next byte, unless it starts a new block.
    pub fn virtual_offset(&self) -> u64 {
        self.compressed_bytes << 16 | self.data.len() as u64
    }

    /// Writes one record, its parts end to end, and returns its virtual offsets.
    ///
    /// # Errors
    /// Those of the inner writer.
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

    /// Writes bytes that may be cut into blocks anywhere, such as a header.
    ///
    /// # Errors
    /// Those of the inner writer.
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

    /// Writes the unfinished block, if any, so that later bytes start a new one.
    ///
    /// # Errors
    /// Those of the inner writer.
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

    /// Writes the last block, without an end-of-file block. Returns the inner writer, not flushed, and the compressed bytes
    /// written.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn finish_blocks(mut self) -> io::Result<(W, u64)> {
        self.flush_block()?;
        Ok((self.inner, self.compressed_bytes))
    }

    /// Writes the last block as [`Writer::finish_blocks`], with an end-of-file block: a whole file.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn finish_file(self) -> io::Result<(W, u64)> {
        let (mut inner, bytes) = self.finish_blocks()?;
        inner.write_all(&EOF_BLOCK)?;
        Ok((inner, bytes + EOF_BLOCK.len() as u64))
    }
}
