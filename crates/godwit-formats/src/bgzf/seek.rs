//! BGZF read from any place in it, on the thread of whoever reads.
//!
//! Flows in: a virtual offset, as indexes have them. Flows out: the data from there on, checked block by block. Where it
//! should stop is the caller's business; the end of the file is an error where its end-of-file block is missing.

use std::path::Path;
use std::sync::Arc;

use libdeflater::Decompressor;

use super::block::{self, EOF_BLOCK, FIXED_HEADER_BYTES, MAX_BLOCK_BYTES};
use super::error::{BgzfError, Fault};
use super::reader::Unpacked;
use crate::random_access::RandomAccess;

/// Compressed bytes that are read first: a block, or three, which is what a lookup needs.
const FIRST_READ_BYTES: usize = 64 << 10;
/// Compressed bytes that are read at a time in the end, by who goes on reading.
const MOST_READ_BYTES: usize = 1 << 20;

/// Place of a byte: offset of its block in the file, times 2^16, plus its offset in the data of the block (SAMv1 §4.1.1).
pub type VirtualOffset = u64;

/// Reads a BGZF file at places.
pub struct SeekReader {
    source: Arc<dyn RandomAccess>,
    decompressor: Decompressor,
    /// Compressed bytes at hand: `ahead[ahead_start..]`, of the file from `next_offset` on.
    ahead: Vec<u8>,
    ahead_start: usize,
    read_bytes: usize,
    /// Where the block lies whose data are at hand.
    block_offset: u64,
    /// Where the block behind it lies.
    next_offset: u64,
    data: Vec<u8>,
    position: usize,
    /// Whether the last block was the empty one that may end a file.
    ended_block: bool,
}

impl std::fmt::Debug for SeekReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeekReader").field("source", &self.source).field("at", &self.virtual_offset()).finish()
    }
}

impl SeekReader {
    /// Stands at the start of a file.
    pub fn new(source: Arc<dyn RandomAccess>) -> Self {
        Self {
            source,
            decompressor: Decompressor::new(),
            ahead: Vec::new(),
            ahead_start: 0,
            read_bytes: FIRST_READ_BYTES,
            block_offset: 0,
            next_offset: 0,
            data: Vec::new(),
            position: 0,
            ended_block: false,
        }
    }

    /// What is read.
    pub fn source(&self) -> &Arc<dyn RandomAccess> {
        &self.source
    }

    /// Goes to a place.
    ///
    /// # Errors
    /// [`BgzfError`]; [`BgzfError::Corrupt`] where no such place is in the file.
    pub fn seek(&mut self, place: VirtualOffset) -> Result<(), BgzfError> {
        let (block, within) = (place >> 16, (place & 0xffff) as usize);
        let at_hand = block == self.block_offset && self.next_offset > self.block_offset;
        if !at_hand {
            let ahead_end = self.next_offset + (self.ahead.len() - self.ahead_start) as u64;
            if (self.next_offset..ahead_end).contains(&block) {
                self.ahead_start += (block - self.next_offset) as usize;
            } else {
                self.ahead.clear();
                self.ahead_start = 0;
                self.read_bytes = FIRST_READ_BYTES;
            }
            self.next_offset = block;
            self.load_block()?;
        }
        // Just behind the data of a block is a place too: that of the next block's first byte.
        if within > self.data.len() {
            let detail = "an index points behind the data of the block there; it is of another file".to_owned();
            return Err(Fault::Corrupt { offset: block, detail }.into_error(self.source.path()));
        }
        self.position = within;
        Ok(())
    }

    /// Where the next byte is.
    pub fn virtual_offset(&self) -> VirtualOffset {
        if self.position == self.data.len() {
            self.next_offset << 16
        } else {
            self.block_offset << 16 | self.position as u64
        }
    }

    /// Decompresses the block at `next_offset`.
    fn load_block(&mut self) -> Result<(), BgzfError> {
        self.try_load_block().map_err(|fault| fault.into_error(self.source.path()))
    }

    fn try_load_block(&mut self) -> Result<(), Fault> {
        let offset = self.next_offset;
        let bytes = self.block_ahead()?;
        let corrupt = |detail: &str| Fault::Corrupt { offset, detail: detail.to_owned() };
        let block = &self.ahead[self.ahead_start..self.ahead_start + bytes];
        let data_bytes = block::data_bytes(block).ok_or_else(|| corrupt("a BGZF block says to have over 64 KiB"))?;
        self.data.resize(data_bytes, 0);
        if !block::inflate(&mut self.decompressor, block, &mut self.data) {
            self.data.clear();
            return Err(corrupt("BGZF block with invalid data, checksum or length"));
        }
        self.ended_block = block == EOF_BLOCK;
        self.position = 0;
        self.block_offset = offset;
        self.next_offset = offset + bytes as u64;
        self.ahead_start += bytes;
        Ok(())
    }

    /// Bytes of the block ahead, all of which are at hand.
    fn block_ahead(&mut self) -> Result<usize, Fault> {
        let offset = self.next_offset;
        let mut needed = FIXED_HEADER_BYTES;
        loop {
            let found = self.peek(needed)?;
            if found.len() < needed {
                let end = offset + found.len() as u64;
                return Err(if found.is_empty() {
                    Fault::Corrupt { offset: end, detail: "an index points behind the end of the file".to_owned() }
                } else {
                    Fault::Truncated { offset: end }
                });
            }
            match block::block_bytes(found) {
                Ok(Some(bytes)) if bytes <= found.len() => return Ok(bytes),
                Ok(Some(bytes)) | Err(bytes) => needed = bytes,
                Ok(None) => return Err(Fault::Garbage { offset }),
            }
        }
    }

    /// The compressed bytes ahead: at least `bytes` of them, fewer only at the end of the file.
    fn peek(&mut self, bytes: usize) -> Result<&[u8], Fault> {
        debug_assert!(bytes <= MAX_BLOCK_BYTES);
        let at_hand = self.ahead.len() - self.ahead_start;
        if at_hand < bytes {
            self.ahead.drain(..self.ahead_start);
            self.ahead_start = 0;
            let offset = self.next_offset + at_hand as u64;
            self.ahead.resize(at_hand + self.read_bytes.max(bytes), 0);
            let count = self.source.read_at(&mut self.ahead[at_hand..], offset);
            let count = count.map_err(|source| Fault::of_reading(offset, source));
            self.ahead.truncate(at_hand + *count.as_ref().unwrap_or(&0));
            count?;
            self.read_bytes = (2 * self.read_bytes).min(MOST_READ_BYTES);
        }
        Ok(&self.ahead[self.ahead_start..])
    }
}

impl Unpacked for SeekReader {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn data(&mut self) -> Result<&[u8], BgzfError> {
        while self.position == self.data.len() {
            if self.next_offset >= self.source.bytes() {
                if !self.ended_block {
                    return Err(Fault::MissingEof { offset: self.source.bytes() }.into_error(self.source.path()));
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
