//! The file `.bwt.2bit.64`: the transform, its ranks and a sampled suffix array, as bwa-mem2 and bwa-mem3 load them.
//!
//! [`convert`] makes it from bwa's index, which holds the same transform. Little-endian numbers, in this order (bwa-mem2 2.2.1
//! `FMI_search.cpp` `build_fm_index`; bwa-mem3 0.4.4 `fm_index_writer.h` `Bwt2bitLayout`):
//!
//! - rows of the transform: the bases of both strands and the sentinel, 8 bytes;
//! - how many bases are smaller than A, C, G and T, and how many there are, 5 times 8 bytes;
//! - for each 64 rows, the last perhaps in part: how often each base is before them, 4 times 8 bytes, and a bit for each row that
//!   has the base, the first row in the highest bit, 4 times 8 bytes;
//! - of each position in the suffix array of each sampled row the highest byte, and then of each the lower four bytes;
//! - the row of the sentinel, 8 bytes;
//! - the stride of the samples as a power of two, 8 bytes: only bwa-mem3 writes and reads this. Without it the stride is 8.

mod check;
mod conversion;
mod memory;
mod suffix_array;
mod text;
mod transform;

use std::fmt;
use std::path::{Path, PathBuf};

pub(super) use check::check;
pub use check::sample_stride;
pub use conversion::convert;

/// Extension of the index file, without the dot.
const EXTENSION: &str = "bwt.2bit.64";
/// Bytes of the numbers before the blocks.
const HEADER_BYTES: u64 = 48;
/// Rows in a block.
const BLOCK_ROWS: u64 = 64;
/// Bytes of a block.
const BLOCK_BYTES: u64 = 64;
/// Bytes of a sample of the suffix array.
const SAMPLE_BYTES: u64 = 5;
/// A stride is at most the rows of a block: 2 to the power of this.
const MAX_SHIFT: u32 = 6;

/// Rows of the transform from one sample of the suffix array to the next. A smaller stride takes more memory and finds the
/// positions of seeds in fewer steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleStride {
    /// As a power of two.
    shift: u32,
}

impl SampleStride {
    /// Every second row.
    pub const EVERY_2: Self = Self { shift: 1 };
    /// Every eighth row, as bwa-mem2 has it.
    pub const EVERY_8: Self = Self { shift: 3 };
    /// Every thirty-second row, as bwa has it.
    pub const EVERY_32: Self = Self { shift: 5 };

    /// The smallest of the three with which a genome's index fits into memory; `None` where none fits.
    pub fn within(memory_bytes: u64, genome_bases: u64) -> Option<Self> {
        let strides = [Self::EVERY_2, Self::EVERY_8, Self::EVERY_32];
        strides.into_iter().find(|stride| resident_bytes(genome_bases, *stride) <= memory_bytes)
    }

    /// Number of rows.
    pub fn rows(self) -> u64 {
        1 << self.shift
    }
}

impl fmt::Display for SampleStride {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.rows())
    }
}

/// Bytes of memory that bwa-mem3 keeps of an index: this file and `.pac`. Contig names come on top.
pub fn resident_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    file_bytes(2 * genome_bases + 1, stride, false) - HEADER_BYTES + genome_bases / 4 + 1
}

/// Returns the path of the index file of a reference.
pub fn path(reference: &Path) -> PathBuf {
    reference.with_added_extension(EXTENSION)
}

/// Bytes of the file that [`convert`] writes.
pub fn stored_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    file_bytes(2 * genome_bases + 1, stride, stride != SampleStride::EVERY_8)
}

/// Bytes of memory that [`convert`] takes: half a byte for each row of the transform, all samples, and `.pac`.
pub fn conversion_bytes(genome_bases: u64, stride: SampleStride) -> u64 {
    let rows = 2 * genome_bases + 1;
    rows / 2 + SAMPLE_BYTES * samples(rows, stride) + genome_bases / 4 + conversion::BUFFERS_BYTES
}

/// Bytes of the file. `tagged`: with the stride at its end.
fn file_bytes(rows: u64, stride: SampleStride, tagged: bool) -> u64 {
    samples_start(rows) + SAMPLE_BYTES * samples(rows, stride) + if tagged { 16 } else { 8 }
}

/// Returns the offset of the samples in the file, in bytes.
fn samples_start(rows: u64) -> u64 {
    HEADER_BYTES + BLOCK_BYTES * (rows / BLOCK_ROWS + 1)
}

/// Number of samples. There is an odd number of rows, so that none is left out.
fn samples(rows: u64, stride: SampleStride) -> u64 {
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
        assert_eq!(SampleStride::within(least - 1, 1000), None);
        assert_eq!(SampleStride::within(least, 1000), Some(SampleStride::EVERY_32));
        assert_eq!(
            SampleStride::within(resident_bytes(1000, SampleStride::EVERY_8), 1000),
            Some(SampleStride::EVERY_8)
        );
        assert_eq!(SampleStride::within(u64::MAX, 1000), Some(SampleStride::EVERY_2));
    }
}
