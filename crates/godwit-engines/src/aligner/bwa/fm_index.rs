//! The index file `.bwt.2bit.64` of bwa-mem2 and bwa-mem3: the Burrows-Wheeler transform, its ranks and a sampled
//! suffix array.
//!
//! [`convert_bwa_index`] makes this file from the index of bwa, which contains the same transform. The file contains
//! the following little-endian numbers (bwa-mem2 2.2.1 `FMI_search.cpp` `build_fm_index`; bwa-mem3 0.4.4
//! `fm_index_writer.h` `Bwt2bitLayout`):
//!
//! - number of rows of the transform, which is the number of bases of both strands plus 1 for the sentinel: 8 bytes;
//! - numbers of bases that are smaller than A, C, G and T, then number of all bases: 5 times 8 bytes;
//! - a block for every 64 rows (the last block may be partial): the number of each of the four bases before the block,
//!   4 times 8 bytes, then a bit mask per base with a bit for each row, the first row in the highest bit, 4 times 8
//!   bytes;
//! - the suffix array positions of the sampled rows: first the highest byte of each position, then the lower four bytes
//!   of each;
//! - the row of the sentinel: 8 bytes;
//! - the binary logarithm of the sampling stride: 8 bytes, which only bwa-mem3 writes and reads. Without them the
//!   stride is 8.

mod bwt;
mod conversion;
mod indexed_text;
mod memory_hints;
mod suffix_array;
mod verification;

use std::fmt;
use std::path::{Path, PathBuf};

pub use conversion::convert_bwa_index;
pub use verification::sample_stride;
pub(super) use verification::verify_stride;

/// Extension of the index file, without the dot.
const EXTENSION: &str = "bwt.2bit.64";
/// Size of the header before the first block, bytes.
const HEADER_BYTES: u64 = 48;
/// Number of rows of the transform in a block.
const BLOCK_ROWS: u64 = 64;
/// Size of a block, bytes.
const BLOCK_BYTES: u64 = 64;
/// Size of a suffix array position in the file, bytes.
const SAMPLE_BYTES: u64 = 5;
/// Binary logarithm of the maximum stride, which is the number of rows in a block.
const MAX_SHIFT: u32 = 6;

/// Stride of the sampled suffix array, as a number of rows of the transform. A smaller stride takes more memory, but
/// the aligner finds the positions of seeds in fewer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleStride {
    /// Binary logarithm of the stride.
    shift: u32,
}

impl SampleStride {
    /// The suffix array has a position for every second row.
    pub const EVERY_2: Self = Self { shift: 1 };
    /// The suffix array has a position for every eighth row, as in bwa-mem2.
    pub const EVERY_8: Self = Self { shift: 3 };
    /// The suffix array has a position for every thirty-second row, as in bwa.
    pub const EVERY_32: Self = Self { shift: 5 };

    /// Returns the smallest of the three strides with which the index fits into `memory_bytes`; `None` if none of them
    /// fits.
    pub fn smallest_within_memory(memory_bytes: u64, genome_bases: u64) -> Option<Self> {
        let strides = [Self::EVERY_2, Self::EVERY_8, Self::EVERY_32];
        strides.into_iter().find(|stride| resident_bytes(genome_bases, *stride) <= memory_bytes)
    }

    /// Returns the stride as a number of rows.
    pub fn rows(self) -> u64 {
        1 << self.shift
    }
}

impl fmt::Display for SampleStride {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.rows())
    }
}

/// Returns the memory that bwa-mem3 needs for an index, bytes: the files `.bwt.2bit.64` and `.pac`, without the contig
/// names.
pub fn resident_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    index_file_bytes(2 * genome_bases + 1, stride, false) - HEADER_BYTES + genome_bases / 4 + 1
}

/// Returns the path of the file `.bwt.2bit.64` of a reference.
pub fn index_path(reference: &Path) -> PathBuf {
    reference.with_added_extension(EXTENSION)
}

/// Returns the size of the file that [`convert_bwa_index`] writes, bytes.
pub fn converted_file_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    index_file_bytes(2 * genome_bases + 1, stride, stride != SampleStride::EVERY_8)
}

/// Returns the memory that [`convert_bwa_index`] needs, bytes: half a byte for each row, all suffix array samples, and
/// `.pac`.
pub fn conversion_memory_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    let rows = 2 * genome_bases + 1;
    rows / 2 + SAMPLE_BYTES * sample_count(rows, stride) + genome_bases / 4 + conversion::CONVERSION_BUFFERS_BYTES
}

/// Returns the size of the file `.bwt.2bit.64`, bytes. `tagged`: true if the file ends with the stride.
fn index_file_bytes(rows: u64, stride: SampleStride, tagged: bool) -> u64 {
    samples_offset(rows) + SAMPLE_BYTES * sample_count(rows, stride) + if tagged { 16 } else { 8 }
}

/// Returns the byte offset of the suffix array samples in the file `.bwt.2bit.64`.
fn samples_offset(rows: u64) -> u64 {
    HEADER_BYTES + BLOCK_BYTES * (rows / BLOCK_ROWS + 1)
}

/// Returns the number of suffix array samples. The number of rows is odd, so the last, partial stride has a sample,
/// too.
fn sample_count(rows: u64, stride: SampleStride) -> u64 {
    (rows >> stride.shift) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_human_genome_takes_eleven_gigabytes_at_the_stride_of_bwa_mem2() {
        let gigabytes = |stride| resident_bytes(3_217_346_917, stride) as f64 / 1e9;
        let rounded =
            [SampleStride::EVERY_2, SampleStride::EVERY_8, SampleStride::EVERY_32].map(gigabytes).map(f64::round);
        assert_eq!(rounded, [23.0, 11.0, 8.0]);
    }

    #[test]
    fn the_smallest_stride_that_fits_is_taken() {
        let least = resident_bytes(1000, SampleStride::EVERY_32);
        assert_eq!(SampleStride::smallest_within_memory(least - 1, 1000), None);
        assert_eq!(SampleStride::smallest_within_memory(least, 1000), Some(SampleStride::EVERY_32));
        assert_eq!(
            SampleStride::smallest_within_memory(resident_bytes(1000, SampleStride::EVERY_8), 1000),
            Some(SampleStride::EVERY_8)
        );
        assert_eq!(SampleStride::smallest_within_memory(u64::MAX, 1000), Some(SampleStride::EVERY_2));
    }
}
