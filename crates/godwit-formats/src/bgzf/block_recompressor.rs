//! Exact recompression: splits a block into its data and the encoding that gives the same bytes again.
//!
//! Data that two files share can be found only in decompressed form, but the receiver needs the original file. Blocks of
//! `bgzip` with libdeflate, and those of godwit, are reproduced from a level; any other block is stored unchanged.

use libdeflater::Decompressor;

use super::block::{BlockCompressor, MAX_BLOCK_DATA_BYTES, inflate_block, parse_block_length, parse_data_length};

/// The highest level of libdeflate.
const MAX_LEVEL: u8 = 12;
/// The first level to try: the default of `bgzip` 1.16 is libdeflate's 7.
const INITIAL_LEVEL: u8 = 7;

/// The encoding from which a block is reproduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockEncoding {
    /// The data compressed by [`BlockCompressor`] at this level.
    Level(u8),
    /// The bytes of the block itself, header included.
    Verbatim(Vec<u8>),
}

/// A decompressor and exact recompressor of blocks, for one thread.
pub struct BlockRecompressor {
    decompressor: Decompressor,
    compressors: Vec<Option<BlockCompressor>>,
    /// The level of the previous block, which is mostly that of the next one.
    level: u8,
    /// True if `level` comes from a block, and is not only the initial value.
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

/// Returns the bytes of the block that starts here; `None` where it is not a block of BGZF. `Err` holds the bytes needed to
/// decide.
///
/// # Errors
/// The number of bytes needed, where there are too few.
pub fn block_length(bytes: &[u8]) -> Result<Option<usize>, usize> {
    parse_block_length(bytes)
}

impl BlockRecompressor {
    /// Appends the data of a block, as long as [`block_length`] returned, to `text`, and returns its encoding; `None` where
    /// it is damaged.
    pub fn decompress(&mut self, block: &[u8], text: &mut Vec<u8>) -> Option<BlockEncoding> {
        let start = text.len();
        text.resize(start + parse_data_length(block)?, 0);
        if !inflate_block(&mut self.decompressor, block, &mut text[start..]) {
            text.truncate(start);
            return None;
        }
        let data = &text[start..];
        // First the level of the previous block, then all others. Once a level is known, only its neighbours: others cost
        // time and rarely match.
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

    /// Appends the block that [`BlockRecompressor::decompress`] split into `data` and `encoding`. Levels above 12 count as
    /// 12; data beyond a block's limit is left out.
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
        // libdeflate stores data that short.
        blocks.push(EOF_BLOCK.to_vec());
        // zlib's deflate data differs; so does a header with a modification time.
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
