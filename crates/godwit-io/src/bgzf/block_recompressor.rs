//! Exact recompression: splits a BGZF block into its uncompressed data and the settings that reproduce the same
//! compressed bytes.
//!
//! Two BGZF files may share data without sharing compressed bytes, so the data is compared in decompressed form. A
//! receiver needs the original file, so the same compressed bytes must be produced again. Blocks compressed by godwit,
//! or by a `bgzip` with libdeflate, are reproduced from their compression level; any other block is stored unchanged.

use libdeflater::Decompressor;

use super::block::{BlockCompressor, MAX_BLOCK_DATA_BYTES, inflate_block, parse_block_length, parse_data_length};

/// The highest compression level of libdeflate.
const MAX_LEVEL: u8 = 12;
/// The first compression level to try: the default of `bgzip` 1.16 is libdeflate's level 7.
const INITIAL_LEVEL: u8 = 7;

/// The information from which, together with the data, a compressed block is reproduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockEncoding {
    /// The block is its data compressed by [`BlockCompressor`] at this level.
    Level(u8),
    /// The block cannot be reproduced from its data: these are its compressed bytes, including the header.
    Verbatim(Vec<u8>),
}

/// A decompressor and exact recompressor of BGZF blocks, to be used by one thread.
///
/// # Examples
///
/// ```
/// use godwit_io::bgzf::{BlockCompressor, BlockEncoding, BlockRecompressor};
///
/// let mut block = Vec::new();
/// BlockCompressor::new(5).compress(&b"ACGTTGCA".repeat(1000), &mut block);
///
/// let mut recompressor = BlockRecompressor::default();
/// let mut data = Vec::new();
/// let encoding = recompressor.decompress(&block, &mut data).unwrap();
/// assert!(matches!(encoding, BlockEncoding::Level(_)));
/// let mut copy = Vec::new();
/// recompressor.recompress(&data, &encoding, &mut copy);
/// assert_eq!(copy, block);
/// ```
pub struct BlockRecompressor {
    decompressor: Decompressor,
    compressors: Vec<Option<BlockCompressor>>,
    /// The level that reproduced the previous block. The next block usually has the same level.
    level: u8,
    /// True if `level` has reproduced a block; false if it is still the initial value.
    is_level_known: bool,
    recompressed: Vec<u8>,
}

impl std::fmt::Debug for BlockRecompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockRecompressor").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Default for BlockRecompressor {
    fn default() -> Self {
        let compressors = (0..=MAX_LEVEL).map(|_| None).collect();
        Self {
            decompressor: Decompressor::new(),
            compressors,
            level: INITIAL_LEVEL,
            is_level_known: false,
            recompressed: Vec::new(),
        }
    }
}

/// Returns the length in bytes of the compressed block that starts with `bytes`, or `None` if `bytes` does not start
/// with a BGZF block.
///
/// # Errors
/// If `bytes` is too short to decide, the number of bytes needed.
///
/// # Examples
///
/// ```
/// use godwit_io::bgzf::{BlockCompressor, block_length};
///
/// let mut block = Vec::new();
/// BlockCompressor::new(6).compress(b"@r1\nACGT\n+\nIIII\n", &mut block);
/// assert_eq!(block_length(&block), Ok(Some(block.len())));
/// assert_eq!(block_length(&block[..3]), Err(12));
/// assert_eq!(block_length(b"@r1\nACGT\n+\nIIII\n"), Ok(None));
/// ```
pub fn block_length(bytes: &[u8]) -> Result<Option<usize>, usize> {
    parse_block_length(bytes)
}

impl BlockRecompressor {
    /// Decompresses `block`, whose length [`block_length`] returned, appends its data to `text`, and returns the
    /// encoding of the block. Returns `None` if the block is damaged.
    pub fn decompress(&mut self, block: &[u8], text: &mut Vec<u8>) -> Option<BlockEncoding> {
        let start = text.len();
        text.resize(start + parse_data_length(block)?, 0);
        if !inflate_block(&mut self.decompressor, block, &mut text[start..]) {
            text.truncate(start);
            return None;
        }
        let data = &text[start..];
        // Try the level of the previous block first. If that level has reproduced a block before, try then only its two
        // neighbours, because the others cost time and rarely match. Otherwise try all levels.
        let first = self.level;
        let near =
            if self.is_level_known { first.saturating_sub(1)..=(first + 1).min(MAX_LEVEL) } else { 0..=MAX_LEVEL };
        let levels = std::iter::once(first).chain(near.rev().filter(|level| *level != first));
        let levels = levels.filter(|_| data.len() <= MAX_BLOCK_DATA_BYTES);
        for level in levels {
            self.recompressed.clear();
            compressor_for_level(&mut self.compressors, level).compress(data, &mut self.recompressed);
            if self.recompressed == block {
                (self.level, self.is_level_known) = (level, true);
                return Some(BlockEncoding::Level(level));
            }
        }
        Some(BlockEncoding::Verbatim(block.to_vec()))
    }

    /// Appends to `out` the compressed block that [`BlockRecompressor::decompress`] split into `data` and `encoding`.
    /// Levels above 12 count as 12; data beyond the limit of a block is ignored.
    pub fn recompress(&mut self, data: &[u8], encoding: &BlockEncoding, out: &mut Vec<u8>) {
        match encoding {
            BlockEncoding::Level(level) => {
                compressor_for_level(&mut self.compressors, (*level).min(MAX_LEVEL)).compress(data, out)
            }
            BlockEncoding::Verbatim(block) => out.extend_from_slice(block),
        }
    }
}

fn compressor_for_level(compressors: &mut [Option<BlockCompressor>], level: u8) -> &mut BlockCompressor {
    compressors[usize::from(level)].get_or_insert_with(|| BlockCompressor::new(level))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::bgzf::EOF_BLOCK;

    #[test]
    fn blocks_are_recompressed_byte_by_byte_whatever_program_compressed_them() {
        let data: Vec<u8> =
            (0..60_000_u32).map(|at| b"ACGT"[(at.wrapping_mul(2_654_435_761) >> 30) as usize]).collect();
        let mut blocks: Vec<Vec<u8>> = (0..=MAX_LEVEL).map(|level| one_block(level, &data)).collect();
        // libdeflate does not compress data as short as that of the end-of-file block.
        blocks.push(EOF_BLOCK.to_vec());
        // This block cannot be reproduced from a level, because its header has a modification time. Blocks compressed
        // by zlib differ as well.
        let mut other = one_block(6, &data);
        other[4] = 9;
        blocks.push(other);
        let mut maker = BlockRecompressor::default();
        for (number, block) in blocks.iter().enumerate() {
            assert_eq!(block_length(block), Ok(Some(block.len())), "{number}");
            let mut text = Vec::new();
            let encoding = maker.decompress(block, &mut text).expect("it is whole");
            maker.is_level_known = false;
            assert_eq!(matches!(encoding, BlockEncoding::Verbatim(_)), number >= blocks.len() - 2, "{number}");
            assert!(text == if number == blocks.len() - 2 { &[][..] } else { &data[..] }, "{number}");
            let mut again = Vec::new();
            BlockRecompressor::default().recompress(&text, &encoding, &mut again);
            assert!(again == *block, "{number}");
        }
    }

    fn one_block(level: u8, data: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        BlockCompressor::new(level).compress(data, &mut block);
        block
    }

    #[test]
    fn damaged_blocks_and_other_gzip_are_told_apart() {
        let mut block = one_block(6, b"ACGT");
        let at = block.len() - 6;
        block[at] ^= 1;
        assert_eq!(BlockRecompressor::default().decompress(&block, &mut Vec::new()), None);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"ACGT").unwrap();
        assert_eq!(block_length(&gzip.finish().unwrap()), Ok(None));
        assert_eq!(block_length(&block[..3]), Err(12));
    }
}
