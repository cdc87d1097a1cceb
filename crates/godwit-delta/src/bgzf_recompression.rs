//! Decompresses a BGZF file to text and block specifications, by which the other end restores the same compressed
//! bytes.
//!
//! Block specifications are a list of entries, which consist of LEB128 integers. The first integer is twice the size of
//! the text of a block, in bytes, plus 0 or 1. After an even integer follow the compression level and the number of
//! equal blocks. After an odd integer follow the size and the bytes of a compressed block that is sent verbatim.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::rc::Rc;

use godwit_io::bgzf::{BlockEncoding, BlockRecompressor, MAX_BLOCK_DATA_BYTES, block_length};
use godwit_io::varint::{VarintReader, append_varint};

/// Largest size of a BGZF block, both compressed and uncompressed, bytes.
const MAX_BLOCK_BYTES: usize = 1 << 16;
/// Number of compressed bytes that the threads decompress at a time.
const GROUP_COMPRESSED_BYTES: usize = 2 << 20;
/// Number of compressed bytes in the first group. They suffice to find out whether the blocks can be restored.
const FIRST_GROUP_COMPRESSED_BYTES: usize = 128 << 10;
/// Number of blocks that the threads compress at a time.
const GROUP_BLOCKS: usize = 128;
/// At most one of this many compressed bytes may be sent verbatim, because verbatim blocks are sent in addition to the
/// text.
const MIN_BYTES_PER_STORED_BYTE: u64 = 8;

/// Block specifications that two objects of one thread share.
pub type SharedCell<T> = Rc<RefCell<T>>;

/// The reason why a BGZF file cannot be packed and should be sent without delta compression. It is the source of an I/O error.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct UnsuitableFile {
    /// The reason, as the rest of a sentence about the file.
    pub reason: &'static str,
}

fn unsuitable_error(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, UnsuitableFile { reason })
}

/// A reader that returns the uncompressed text of a BGZF file.
pub struct BgzfTextReader<R> {
    raw: R,
    makers: Vec<BlockRecompressor>,
    /// Compressed bytes that were read but not decompressed yet.
    pending: Vec<u8>,
    text: Vec<u8>,
    text_position: usize,
    block_specs: SharedCell<Vec<u8>>,
    group_bytes: usize,
    stored_bytes: u64,
    compressed_bytes: u64,
}

impl<R: Read> BgzfTextReader<R> {
    /// Returns a reader of a file from its start. Before a read returns text, the specifications of its blocks are in
    /// `block_specs`.
    pub fn new(raw: R, threads: usize, block_specs: SharedCell<Vec<u8>>) -> Self {
        let makers = (0..threads.max(1)).map(|_| BlockRecompressor::default()).collect();
        let (pending, text) = (Vec::new(), Vec::new());
        Self {
            raw,
            makers,
            pending,
            text,
            text_position: 0,
            block_specs,
            group_bytes: FIRST_GROUP_COMPRESSED_BYTES,
            stored_bytes: 0,
            compressed_bytes: 0,
        }
    }

    /// Decompresses a group of blocks; returns false at the end of the file.
    fn read_group(&mut self) -> io::Result<bool> {
        let is_first = self.group_bytes == FIRST_GROUP_COMPRESSED_BYTES;
        let missing = self.group_bytes.saturating_sub(self.pending.len());
        let read = Read::take(&mut self.raw, missing as u64).read_to_end(&mut self.pending)?;
        if self.pending.is_empty() {
            return Ok(false);
        }
        let lengths = complete_block_lengths(&self.pending)?;
        if lengths.is_empty() && read < missing {
            return Err(unsuitable_error("its last block is truncated"));
        }
        let taken: usize = lengths.iter().sum();
        let rest = self.pending.split_off(taken);
        let blocks = std::mem::replace(&mut self.pending, rest);
        (self.text, self.text_position) = (Vec::new(), 0);
        let made = inflate_blocks(&mut self.makers, &blocks, &lengths)
            .ok_or_else(|| unsuitable_error("one of its blocks is damaged"))?;
        let mut entries = BlockSpecEncoder::default();
        for (text, makings) in made {
            self.text.extend_from_slice(&text);
            for (text_bytes, making) in makings {
                // The empty block at the end of a BGZF file is always sent verbatim and does not count.
                self.stored_bytes += match &making {
                    BlockEncoding::Verbatim(block) if text_bytes > 0 => block.len() as u64,
                    _ => 0,
                };
                entries.add(text_bytes, making);
            }
        }
        self.block_specs.borrow_mut().extend(entries.finish());
        self.compressed_bytes += taken as u64;
        if self.stored_bytes * MIN_BYTES_PER_STORED_BYTE > self.compressed_bytes {
            return Err(unsuitable_error("its compressor is not supported, so its exact bytes could not be restored"));
        }
        if is_first && self.text.first() != Some(&b'>') {
            return Err(unsuitable_error("it is not a FASTA file"));
        }
        self.group_bytes = GROUP_COMPRESSED_BYTES;
        Ok(true)
    }
}

impl<R: Read> Read for BgzfTextReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.text_position == self.text.len() {
            if !self.read_group()? {
                return Ok(0);
            }
        }
        let count = out.len().min(self.text.len() - self.text_position);
        out[..count].copy_from_slice(&self.text[self.text_position..self.text_position + count]);
        self.text_position += count;
        Ok(count)
    }
}

/// Returns the lengths of the complete BGZF blocks at the start of `bytes`.
fn complete_block_lengths(bytes: &[u8]) -> io::Result<Vec<usize>> {
    let (mut lengths, mut at) = (Vec::new(), 0);
    while let Ok(length) = block_length(&bytes[at..]) {
        let length = length.ok_or_else(|| {
            unsuitable_error("it is gzip, whose exact bytes could not be restored; compress it with bgzip")
        })?;
        if at + length > bytes.len() {
            break;
        }
        lengths.push(length);
        at += length;
    }
    Ok(lengths)
}

/// For each thread, the text of its blocks, and for each block the size of its text and its encoding.
type InflatedBlocks = Vec<(Vec<u8>, Vec<(usize, BlockEncoding)>)>;

fn inflate_blocks(makers: &mut [BlockRecompressor], bytes: &[u8], lengths: &[usize]) -> Option<InflatedBlocks> {
    let share = lengths.len().div_ceil(makers.len()).max(1);
    let mut rest = bytes;
    std::thread::scope(|scope| {
        let working: Vec<_> = lengths
            .chunks(share)
            .zip(makers)
            .map(|(lengths, maker)| {
                let mut blocks;
                (blocks, rest) = rest.split_at(lengths.iter().sum());
                scope.spawn(move || {
                    let (mut text, mut makings) = (Vec::new(), Vec::new());
                    for length in lengths {
                        let (block, behind) = blocks.split_at(*length);
                        blocks = behind;
                        let before = text.len();
                        let making = maker.decompress(block, &mut text)?;
                        makings.push((text.len() - before, making));
                    }
                    Some((text, makings))
                })
            })
            .collect();
        working.into_iter().map(|work| work.join().expect("taking a block apart does not panic")).collect()
    })
}

/// An encoder of block specifications, which joins equal consecutive ones.
#[derive(Default)]
struct BlockSpecEncoder {
    bytes: Vec<u8>,
    /// Size of the text, compression level, and number of the equal blocks that are not written yet.
    pending: Option<(usize, u8, u64)>,
}

impl BlockSpecEncoder {
    fn add(&mut self, text_bytes: usize, making: BlockEncoding) {
        match (making, &mut self.pending) {
            (BlockEncoding::Level(level), Some((text, known, count))) if (*text, *known) == (text_bytes, level) => {
                *count += 1
            }
            (BlockEncoding::Level(level), _) => {
                self.flush_pending();
                self.pending = Some((text_bytes, level, 1));
            }
            (BlockEncoding::Verbatim(block), _) => {
                self.flush_pending();
                append_varint(&mut self.bytes, 2 * text_bytes as u64 + 1);
                append_varint(&mut self.bytes, block.len() as u64);
                self.bytes.extend(block);
            }
        }
    }

    fn flush_pending(&mut self) {
        if let Some((text_bytes, level, count)) = self.pending.take() {
            for number in [2 * text_bytes as u64, level.into(), count] {
                append_varint(&mut self.bytes, number);
            }
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.flush_pending();
        self.bytes
    }
}

/// The specification of one or several equal blocks: size of their text, encoding, and number of blocks.
#[derive(Debug)]
pub struct BlockSpec {
    text_bytes: usize,
    method: BlockEncoding,
    count: u64,
}

/// Decodes block specifications and appends them to `blocks`; `None` if they are invalid.
pub fn decode_block_specs(bytes: &[u8], blocks: &mut VecDeque<BlockSpec>) -> Option<()> {
    let mut cursor = VarintReader::new(bytes);
    while !cursor.is_empty() {
        let first = cursor.read_varint()?;
        let text_bytes = usize::try_from(first / 2).ok().filter(|bytes| *bytes <= MAX_BLOCK_BYTES)?;
        let (method, count) = if first % 2 == 0 {
            let level = u8::try_from(cursor.read_varint()?)
                .ok()
                .filter(|level| *level <= 12 && text_bytes <= MAX_BLOCK_DATA_BYTES)?;
            (BlockEncoding::Level(level), cursor.read_varint()?)
        } else {
            let block_bytes = usize::try_from(cursor.read_varint()?).ok().filter(|bytes| *bytes <= MAX_BLOCK_BYTES)?;
            (BlockEncoding::Verbatim(cursor.read_bytes(block_bytes)?.to_vec()), 1)
        };
        blocks.push_back(BlockSpec { text_bytes, method, count });
    }
    Some(())
}

/// A writer that compresses text to BGZF blocks as their specifications require.
pub struct BgzfBlockWriter<W> {
    out: W,
    makers: Vec<BlockRecompressor>,
    block_specs: SharedCell<VecDeque<BlockSpec>>,
    text: Vec<u8>,
}

fn block_mismatch_error() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the block specifications do not match the text")
}

impl<W: Write> BgzfBlockWriter<W> {
    /// Returns a writer. The specifications of blocks must be in `block_specs` before the text of these blocks is
    /// written.
    pub fn new(out: W, threads: usize, block_specs: SharedCell<VecDeque<BlockSpec>>) -> Self {
        let makers = (0..threads.max(1)).map(|_| BlockRecompressor::default()).collect();
        Self { out, makers, block_specs, text: Vec::new() }
    }

    /// Compresses the last blocks; returns the inner writer.
    ///
    /// # Errors
    /// An error of the inner writer; `InvalidData` if the specifications do not match the text.
    pub fn finish(mut self) -> io::Result<W> {
        while self.write_group()? {}
        if self.text.is_empty() && self.block_specs.borrow().is_empty() {
            Ok(self.out)
        } else {
            Err(block_mismatch_error())
        }
    }

    /// Compresses a group of blocks whose text is complete; returns false if there are none.
    fn write_group(&mut self) -> io::Result<bool> {
        let (mut group, mut bytes) = (Vec::new(), 0);
        while group.len() < GROUP_BLOCKS {
            let mut blocks = self.block_specs.borrow_mut();
            let Some(next) = blocks.front_mut() else { break };
            if next.count == 0 {
                blocks.pop_front();
                continue;
            }
            if bytes + next.text_bytes > self.text.len() {
                break;
            }
            next.count -= 1;
            bytes += next.text_bytes;
            group.push((next.text_bytes, next.method.clone()));
        }
        if group.is_empty() {
            return Ok(false);
        }
        for made in compress_blocks(&mut self.makers, &self.text[..bytes], &group) {
            self.out.write_all(&made)?;
        }
        self.text.drain(..bytes);
        Ok(true)
    }
}

impl<W: Write> Write for BgzfBlockWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Specifications arrive before the text of their blocks, so at most one group of text is buffered.
        let taken = bytes.len().min(GROUP_BLOCKS * MAX_BLOCK_BYTES);
        self.text.extend_from_slice(&bytes[..taken]);
        while self.text.len() >= GROUP_BLOCKS * MAX_BLOCK_BYTES {
            if !self.write_group()? {
                return Err(block_mismatch_error());
            }
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn compress_blocks(makers: &mut [BlockRecompressor], text: &[u8], group: &[(usize, BlockEncoding)]) -> Vec<Vec<u8>> {
    let share = group.len().div_ceil(makers.len()).max(1);
    let mut rest = text;
    std::thread::scope(|scope| {
        let working: Vec<_> = group
            .chunks(share)
            .zip(makers)
            .map(|(some, maker)| {
                let mut text;
                (text, rest) = rest.split_at(some.iter().map(|(bytes, _)| bytes).sum());
                scope.spawn(move || {
                    let mut made = Vec::new();
                    for (bytes, making) in some {
                        let (data, behind) = text.split_at(*bytes);
                        text = behind;
                        maker.recompress(data, making, &mut made);
                    }
                    made
                })
            })
            .collect();
        working.into_iter().map(|work| work.join().expect("making a block does not panic")).collect()
    })
}

#[cfg(test)]
mod tests;
