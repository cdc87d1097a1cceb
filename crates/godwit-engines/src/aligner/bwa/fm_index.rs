//! The file `.bwt.2bit.64`: the transform, its ranks and a sampled suffix array, as bwa-mem2 and bwa-mem3 load them.
//!
//! [`convert_bwa_index`] makes it from bwa's index, which contains the same transform. Little-endian numbers, in this order
//! (bwa-mem2 2.2.1 `FMI_search.cpp` `build_fm_index`; bwa-mem3 0.4.4 `fm_index_writer.h` `Bwt2bitLayout`):
//!
//! - number of rows of the transform: the bases of both strands and the sentinel, 8 bytes;
//! - number of bases smaller than A, C, G and T, and number of all bases, 5 times 8 bytes;
//! - for each 64 rows, the last block perhaps partial: number of each base before them, 4 times 8 bytes, and a bit for
//!   each row that has the base, the first row in the highest bit, 4 times 8 bytes;
//! - of the suffix array position of each sampled row the highest byte, then of each the lower four bytes;
//! - the row of the sentinel, 8 bytes;
//! - the stride of the samples as a power of two, 8 bytes: only bwa-mem3 writes and reads it. Without it the stride is 8.

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
/// Bytes before the blocks.
const HEADER_BYTES: u64 = 48;
/// Rows in a block.
const BLOCK_ROWS: u64 = 64;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 64;
/// Bytes of a sample of the suffix array.
const SAMPLE_BYTES: u64 = 5;
/// Binary logarithm of the maximum stride, the rows of a block.
const MAX_SHIFT: u32 = 6;

/// Number of rows of the transform between samples of the suffix array. A smaller stride takes more memory and finds the
/// positions of seeds in fewer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleStride {
    /// Binary logarithm of the stride.
    shift: u32,
}

impl SampleStride {
    /// Every second row.
    pub const EVERY_2: Self = Self { shift: 1 };
    /// Every eighth row, as in bwa-mem2.
    pub const EVERY_8: Self = Self { shift: 3 };
    /// Every thirty-second row, as in bwa.
    pub const EVERY_32: Self = Self { shift: 5 };

    /// Returns the smallest of the three strides whose index fits into memory; `None` if none fits.
    pub fn smallest_within_memory(memory_bytes: u64, genome_bases: u64) -> Option<Self> {
        let strides = [Self::EVERY_2, Self::EVERY_8, Self::EVERY_32];
        strides.into_iter().find(|stride| resident_bytes(genome_bases, *stride) <= memory_bytes)
    }

    /// Returns the number of rows.
    pub fn rows(self) -> u64 {
        1 << self.shift
    }
}

impl fmt::Display for SampleStride {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.rows())
    }
}

/// Returns the memory that bwa-mem3 needs for an index, bytes: this file and `.pac`, without contig names.
pub fn resident_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    index_file_bytes(2 * genome_bases + 1, stride, false) - HEADER_BYTES + genome_bases / 4 + 1
}

/// Returns the path of the index file of a reference.
pub fn index_path(reference: &Path) -> PathBuf {
    reference.with_added_extension(EXTENSION)
}

/// Returns the size of the file that [`convert_bwa_index`] writes, bytes.
pub fn converted_file_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    index_file_bytes(2 * genome_bases + 1, stride, stride != SampleStride::EVERY_8)
}

/// Returns the memory that [`convert_bwa_index`] needs, bytes: half a byte for each row, all samples, and `.pac`.
pub fn conversion_memory_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    let rows = 2 * genome_bases + 1;
    rows / 2 + SAMPLE_BYTES * sample_count(rows, stride) + genome_bases / 4 + conversion::CONVERSION_BUFFERS_BYTES
}

/// Returns the size of the file, bytes. `tagged`: with the stride at its end.
fn index_file_bytes(rows: u64, stride: SampleStride, tagged: bool) -> u64 {
    samples_offset(rows) + SAMPLE_BYTES * sample_count(rows, stride) + if tagged { 16 } else { 8 }
}

/// Returns the offset of the samples in the file, in bytes.
fn samples_offset(rows: u64) -> u64 {
    HEADER_BYTES + BLOCK_BYTES * (rows / BLOCK_ROWS + 1)
}

/// Returns the number of samples. The number of rows is odd, so the last sample is included.
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
