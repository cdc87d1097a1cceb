//! Records into blocks, with the virtual offset of each.

use std::io::{self, Write};

use super::block::{BlockCompressor, EOF_BLOCK, MAX_BLOCK_DATA};

/// Virtual offsets (offset of the block in the compressed file << 16 | offset in its data) around one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Where the record starts.
    pub before: u64,
    /// Where it ends.
    pub after: u64,
}

/// Writes BGZF blocks of up to [`MAX_BLOCK_DATA`] bytes. A record that does not fit what is left of a block starts a new
/// one, as in htslib, so only records larger than a block span several.
///
/// Offsets count from the writer's first byte, so that parts of a file can be written by themselves and put together.
/// Dropping a writer without [`Writer::finish_blocks`] loses the block in hand.
#[derive(Debug)]
pub struct Writer<W> {
    inner: W,
    compressor: BlockCompressor,
    data: Vec<u8>,
    block: Vec<u8>,
    compressed_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// The level that godwit writes with unless told otherwise: the fastest that compresses.
    pub const DEFAULT_LEVEL: u8 = 1;

    /// A writer that compresses at a level of 0 to 12 and starts with a fresh block.
    pub fn new(inner: W, level: u8) -> Self {
        let data = Vec::with_capacity(MAX_BLOCK_DATA);
        Self { inner, compressor: BlockCompressor::new(level), data, block: Vec::new(), compressed_bytes: 0 }
    }

    /// Virtual offset of the next byte, unless it starts a new block.
    pub fn virtual_offset(&self) -> u64 {
        self.compressed_bytes << 16 | self.data.len() as u64
    }

    /// Writes one record, its parts end to end, and tells where it lies.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn write_record(&mut self, parts: &[&[u8]]) -> io::Result<RecordPlace> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.data.len() + bytes > MAX_BLOCK_DATA {
            self.flush_block()?;
        }
        let before = self.virtual_offset();
        for part in parts {
            self.write_bytes(part)?;
        }
        Ok(RecordPlace { before, after: self.virtual_offset() })
    }

    /// Writes bytes that may be cut into blocks anywhere, such as a header.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn write_bytes(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            let room = MAX_BLOCK_DATA - self.data.len();
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

    /// Ends the block in hand, if there is one, so that what follows starts a fresh one.
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

    /// Ends the last block, without an end-of-file block. Returns the inner writer, not flushed, and the compressed bytes
    /// written.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn finish_blocks(mut self) -> io::Result<(W, u64)> {
        self.flush_block()?;
        Ok((self.inner, self.compressed_bytes))
    }

    /// As [`Writer::finish_blocks`], with an end-of-file block: a whole file.
    ///
    /// # Errors
    /// Those of the inner writer.
    pub fn finish_file(self) -> io::Result<(W, u64)> {
        let (mut inner, bytes) = self.finish_blocks()?;
        inner.write_all(&EOF_BLOCK)?;
        Ok((inner, bytes + EOF_BLOCK.len() as u64))
    }
}
