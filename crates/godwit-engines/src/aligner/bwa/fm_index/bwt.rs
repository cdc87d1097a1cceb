//! The Burrows-Wheeler transform of both strands of a genome, as bwa stores it in the `.bwt` file.

use std::io::Read;

use super::memory_hints::{prefetch, use_huge_pages};

/// Size of the header before the first block of the `.bwt` file, bytes.
pub(super) const HEADER_BYTES: u64 = 40;
/// Number of bases in a block.
const BASES_PER_BLOCK: u64 = 128;
/// Number of bases in a word of 64 bits.
const BASES_PER_WORD: u64 = 32;
/// Mask of the lower of the two bits of each base in a word.
const LOWER_BITS: u64 = 0x5555_5555_5555_5555;

/// Words in which all 32 bases are equal: A, C, G and T.
const SINGLE_BASE_WORDS: [u64; 4] = [0, LOWER_BITS, LOWER_BITS << 1, u64::MAX];

/// 128 bases, and the numbers of A, C, G and T before them. A block fills one cache line and has the layout of the
/// file.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Block {
    counts: [u64; 4],
    /// The bases of the block, 32 per word, the first base in the highest bits.
    bases: [u64; 4],
}

/// The bases of the Burrows-Wheeler transform without the sentinel, with the base counts for rank queries.
///
/// The *text* is both strands followed by a sentinel. A *row* is the index of a suffix of the text in sorted order; row
/// 0 is the suffix that contains only the sentinel. A *place* is the index of a row if the row of the sentinel is not
/// counted.
pub(super) struct Bwt {
    blocks: Vec<Block>,
    /// The row of the suffix that is the whole text. The sentinel, not a base, precedes this suffix.
    sentinel_row: u64,
    /// Numbers of bases that are smaller than A, C, G and T, then number of all bases.
    cumulative_counts: [u64; 5],
}

/// For 64 rows of the transform, one bit mask for each of A, C, G and T: a bit is 1 if the row has that base. The first
/// row is the highest bit.
pub(super) type RowBits = [u64; 4];

impl Bwt {
    /// Reads the content of a `.bwt` file after its header (format: bwa 0.7.17 `bwt_bwtupdate_core`, `bwt_dump_bwt`).
    ///
    /// `header`: row of the sentinel, then the cumulative numbers of bases up to A, C, G and T. The outer error means
    /// that the file cannot be read; the inner error describes a defect of the content.
    pub(super) fn read(header: [u64; 5], mut file: impl Read) -> std::io::Result<Result<Self, &'static str>> {
        let [sentinel_row, a, c, g, bases] = header;
        if sentinel_row == 0 || sentinel_row > bases || a > c || c > g || g > bases {
            return Ok(Err("its header is invalid"));
        }
        let blocks = bases.div_ceil(BASES_PER_BLOCK);
        let mut transform =
            Self { blocks: Vec::with_capacity(blocks as usize), sentinel_row, cumulative_counts: [0, a, c, g, bases] };
        use_huge_pages(&mut transform.blocks);
        let mut counts = [0; 4];
        let mut left = bases;
        // The total counts of all bases follow the last block.
        for _ in 0..=blocks {
            let in_block = left.min(BASES_PER_BLOCK);
            let mut bytes = [0; 64];
            file.read_exact(&mut bytes[..32 + 4 * in_block.div_ceil(16) as usize])?;
            let block = Block::decode(&bytes);
            if block.counts != counts {
                return Ok(Err("its counts of the bases do not match the bases"));
            }
            for (base, count) in counts.iter_mut().enumerate() {
                *count += block.count_before(in_block, base);
            }
            left -= in_block;
            if in_block > 0 {
                transform.blocks.push(block);
            }
        }
        if counts != [a, c - a, g - c, bases - g] {
            return Ok(Err("its header does not match its bases"));
        }
        Ok(Ok(transform))
    }

    /// Returns the number of rows: the number of bases of both strands, plus 1 for the sentinel.
    pub(super) fn rows(&self) -> u64 {
        self.cumulative_counts[4] + 1
    }

    /// Returns the row of the suffix that is the whole text.
    pub(super) fn sentinel_row(&self) -> u64 {
        self.sentinel_row
    }

    /// Returns the numbers of bases in the text that are smaller than A, C, G and T, then the number of all bases.
    pub(super) fn cumulative_counts(&self) -> [u64; 5] {
        self.cumulative_counts
    }

    /// Prefetches into the cache the block that [`lf_mapping`](Self::lf_mapping) needs for this row.
    pub(super) fn prefetch(&self, row: u64) {
        prefetch(&self.blocks, self.index_without_sentinel(row) / BASES_PER_BLOCK);
    }

    /// Returns the row of the suffix that starts one base earlier in the text, and that base. `row` must not be the
    /// sentinel row.
    pub(super) fn lf_mapping(&self, row: u64) -> (u64, u8) {
        let place = self.index_without_sentinel(row);
        let block = &self.blocks[(place / BASES_PER_BLOCK) as usize];
        let within = place % BASES_PER_BLOCK;
        let word = block.bases[(within / BASES_PER_WORD) as usize];
        let base = (word >> (2 * (BASES_PER_WORD - 1 - within % BASES_PER_WORD)) & 3) as usize;
        (self.cumulative_counts[base] + block.counts[base] + block.count_before(within, base) + 1, base as u8)
    }

    fn index_without_sentinel(&self, row: u64) -> u64 {
        row - u64::from(row > self.sentinel_row)
    }

    /// Returns the bit masks of rows `64 * index` to `64 * index + 63`. Bits of rows past the end are 0.
    pub(super) fn row_bits(&self, index: u64) -> RowBits {
        let start = 64 * index;
        let first = self.index_without_sentinel(start);
        let mut bits = self.bits_without_sentinel(first);
        if (start..start + 64).contains(&self.sentinel_row) {
            // The sentinel has no base in `blocks`, so the bases from the sentinel row on are shifted by one row.
            let before = self.sentinel_row - start;
            let kept = !(u64::MAX >> before);
            bits = bits.map(|bits| bits & kept | (bits & !kept) >> 1);
        }
        bits
    }

    /// Returns the bit masks of the 64 places from `first` on.
    fn bits_without_sentinel(&self, first: u64) -> RowBits {
        let (index, shift) = (first / BASES_PER_WORD, 2 * (first % BASES_PER_WORD) as u32);
        let bases =
            |index| self.packed_word(index) << shift | self.packed_word(index + 1).checked_shr(64 - shift).unwrap_or(0);
        let halves = [bases(index), bases(index + 1)];
        let lower = halves.map(every_other_bit);
        let higher = halves.map(|bases| every_other_bit(bases >> 1));
        let [lower, higher] = [lower, higher].map(|[front, back]| front << 32 | back);
        let past_the_end = u64::MAX.checked_shr((self.cumulative_counts[4] - first).min(64) as u32).unwrap_or(0);
        [!higher & !lower, !higher & lower, higher & !lower, higher & lower].map(|bits| bits & !past_the_end)
    }

    fn packed_word(&self, index: u64) -> u64 {
        let block = self.blocks.get((index / 4) as usize);
        block.map_or(0, |block| block.bases[(index % 4) as usize])
    }
}

/// Returns the 32 even bits of a word, moved together into the lower half.
fn every_other_bit(word: u64) -> u64 {
    let mut bits = word & LOWER_BITS;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) & 0x0000_0000_ffff_ffff
}

impl Block {
    /// Decodes a block: four counts of eight bytes each, then words of 16 bases each, the first base in the highest
    /// bits.
    fn decode(bytes: &[u8; 64]) -> Self {
        let number = |start: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[start + byte]));
        Self {
            counts: std::array::from_fn(|base| number(8 * base)),
            bases: std::array::from_fn(|word| number(32 + 8 * word).rotate_left(32)),
        }
    }

    /// Returns the number of bases equal to `base` among the first `places` bases of the block.
    fn count_before(&self, places: u64, base: usize) -> u64 {
        let mut pairs = [0; 4];
        for (index, (pairs, word)) in pairs.iter_mut().zip(self.bases).enumerate() {
            let equal = !(word ^ SINGLE_BASE_WORDS[base]);
            let counted = places.saturating_sub(BASES_PER_WORD * index as u64).min(BASES_PER_WORD);
            let mask = !u64::MAX.checked_shr(2 * counted as u32).unwrap_or(0);
            *pairs = equal & equal >> 1 & LOWER_BITS & mask;
        }
        // The sums fit: at most 3 in a group of two bits, 4 in a group of four, and 8 in a byte. So all bytes of a word
        // are summed at once.
        let three = pairs[0] + pairs[1] + pairs[2];
        let fours = (three & 0x3333_3333_3333_3333) + (three >> 2 & 0x3333_3333_3333_3333);
        let fours = fours + (pairs[3] & 0x3333_3333_3333_3333) + (pairs[3] >> 2 & 0x3333_3333_3333_3333);
        let bytes = (fours & 0x0f0f_0f0f_0f0f_0f0f) + (fours >> 4 & 0x0f0f_0f0f_0f0f_0f0f);
        bytes.wrapping_mul(0x0101_0101_0101_0101) >> 56
    }
}
