//! How blocks were made: a block is taken apart into its data and what it takes to make the same bytes of them again.
//!
//! Compressed data is no use to whoever looks for what two files share, and who gets the data has to have the file as it was. Blocks of
//! `bgzip` with libdeflate, and our own, are made again from a level; any other block is kept as it is.

use libdeflater::Decompressor;

use super::block::{BlockCompressor, MAX_BLOCK_DATA, block_bytes, data_bytes, inflate};

/// The highest level of libdeflate.
const LEVELS: u8 = 12;
/// Where levels are looked for first: what `bgzip` 1.16 makes of its default is libdeflate's 7.
const FIRST_LEVEL: u8 = 7;

/// How a block comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Making {
    /// Its data, compressed by [`BlockCompressor`] at this level.
    Level(u8),
    /// It is kept, header and all.
    Kept(Vec<u8>),
}

/// Takes blocks apart and makes them again. One thread's.
pub struct BlockMaker {
    decompressor: Decompressor,
    compressors: Vec<Option<BlockCompressor>>,
    /// The level of the block before, which is mostly that of the next one.
    level: u8,
    /// Whether it is of a block, and not only where to begin.
    found: bool,
    again: Vec<u8>,
}

impl std::fmt::Debug for BlockMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockMaker").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Default for BlockMaker {
    fn default() -> Self {
        let compressors = (0..=LEVELS).map(|_| None).collect();
        Self { decompressor: Decompressor::new(), compressors, level: FIRST_LEVEL, found: false, again: Vec::new() }
    }
}

/// Bytes of the block that starts here; `None` where no block of BGZF does. `Err` holds the bytes that are needed to know.
///
/// # Errors
/// Where there are too few bytes.
pub fn block_length(bytes: &[u8]) -> Result<Option<usize>, usize> {
    block_bytes(bytes)
}

impl BlockMaker {
    /// Appends the data of a block, as long as [`block_length`] says, to `text`; how it is made again. `None` where it is damaged.
    pub fn take_apart(&mut self, block: &[u8], text: &mut Vec<u8>) -> Option<Making> {
        let start = text.len();
        text.resize(start + data_bytes(block)?, 0);
        if !inflate(&mut self.decompressor, block, &mut text[start..]) {
            text.truncate(start);
            return None;
        }
        let data = &text[start..];
        // The level of the block before, then all others: most files have one. Once it is known, others cost time and find little.
        let first = self.level;
        let near = if self.found { first.saturating_sub(1)..=(first + 1).min(LEVELS) } else { 0..=LEVELS };
        let levels = std::iter::once(first).chain(near.rev().filter(|level| *level != first));
        let levels = levels.filter(|_| data.len() <= MAX_BLOCK_DATA);
        for level in levels {
            self.again.clear();
            compressor(&mut self.compressors, level).compress(data, &mut self.again);
            if self.again == block {
                (self.level, self.found) = (level, true);
                return Some(Making::Level(level));
            }
        }
        Some(Making::Kept(block.to_vec()))
    }

    /// Appends the block that was taken apart into `data` and `making`. Levels above 12 are taken as 12, and no more data than a block holds
    /// is taken.
    pub fn make(&mut self, data: &[u8], making: &Making, out: &mut Vec<u8>) {
        match making {
            Making::Level(level) => compressor(&mut self.compressors, (*level).min(LEVELS)).compress(data, out),
            Making::Kept(block) => out.extend_from_slice(block),
        }
    }
}

fn compressor(compressors: &mut [Option<BlockCompressor>], level: u8) -> &mut BlockCompressor {
    compressors[usize::from(level)].get_or_insert_with(|| BlockCompressor::new(level))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::bgzf::EOF_BLOCK;

    #[test]
    fn blocks_come_back_byte_by_byte_whatever_made_them() {
        let data: Vec<u8> =
            (0..60_000_u32).map(|at| b"ACGT"[(at.wrapping_mul(2_654_435_761) >> 30) as usize]).collect();
        let mut made: Vec<Vec<u8>> = (0..=LEVELS).map(|level| one_block(level, &data)).collect();
        // libdeflate stores what is as short as nothing.
        made.push(EOF_BLOCK.to_vec());
        // zlib's flate is another; so is a header with a time.
        let mut other = one_block(6, &data);
        other[4] = 9;
        made.push(other);
        let mut maker = BlockMaker::default();
        for (number, block) in made.iter().enumerate() {
            assert_eq!(block_length(block), Ok(Some(block.len())), "{number}");
            let mut text = Vec::new();
            let making = maker.take_apart(block, &mut text).expect("it is whole");
            maker.found = false;
            assert_eq!(matches!(making, Making::Kept(_)), number >= made.len() - 2, "{number}");
            assert!(text == if number == made.len() - 2 { &[][..] } else { &data[..] }, "{number}");
            let mut again = Vec::new();
            BlockMaker::default().make(&text, &making, &mut again);
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
        assert_eq!(BlockMaker::default().take_apart(&block, &mut Vec::new()), None);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"ACGT").unwrap();
        assert_eq!(block_length(&gzip.finish().unwrap()), Ok(None));
        assert_eq!(block_length(&block[..3]), Err(12));
    }
}
