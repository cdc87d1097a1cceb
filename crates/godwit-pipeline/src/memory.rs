//! The division of `--memory` among its uses, and the minimum.

use crate::host_resources;

/// Bytes of a job that do not depend on its input: the program, read-ahead buffers, the merge's frames.
const BASE_BYTES: u64 = 64 << 20;
/// Bytes per base of a block while the block is sorted: the packed record with name, qualities and tags, and its entry in
/// the sort order. Reads of 100 bases take about 4, longer ones less.
const BYTES_PER_BLOCK_BASE: u64 = 4;
/// Default limit of `align`: the aligner and its index need the rest of the machine.
const DEFAULT_ALIGN_BYTES: u64 = 512 << 20;
/// Default limit of `markdup`.
pub const DEFAULT_MARKDUP_BYTES: u64 = 8 << 30;

/// A memory limit that cannot hold one block.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "--memory {} is too small for {needed_for}: the minimum is {}; raise --memory or lower {option_to_lower}",
    format_mebibytes(*.limit_bytes), format_mebibytes(*.minimum_bytes)
)]
pub struct MemoryTooSmall {
    /// The requested limit, bytes.
    pub limit_bytes: u64,
    /// The minimum, bytes.
    pub minimum_bytes: u64,
    /// The data that need it.
    pub needed_for: &'static str,
    /// The option to lower.
    pub option_to_lower: &'static str,
}

/// Parts of the memory limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Sorted records kept in memory; more are spilled.
    pub resident_bytes: usize,
    /// Duplicate signatures kept in memory.
    pub marker_bytes: usize,
    /// Frames of spilled runs during the merge; the memory of block sorting is free by then.
    pub merge_bytes: usize,
    /// Compressed partitions that wait for their turn in the file.
    pub waiting_bytes: usize,
}

impl MemoryPlan {
    /// Splits the limit for aligning in blocks of `block_bases`; `None`: the minimum, but at least 512 MiB.
    ///
    /// # Errors
    /// [`MemoryTooSmall`] if the limit is below the minimum.
    pub fn for_align(limit_bytes: Option<u64>, block_bases: u64) -> Result<Self, MemoryTooSmall> {
        let limit = Self::align_limit(limit_bytes, block_bases);
        Self::split_above_minimum(limit, align_minimum(block_bases), "blocks of this many bases", "--block-bases")
    }

    /// Returns the effective limit for aligning.
    pub fn align_limit(limit_bytes: Option<u64>, block_bases: u64) -> u64 {
        limit_bytes.unwrap_or(DEFAULT_ALIGN_BYTES.max(align_minimum(block_bases)))
    }

    /// Splits the limit for marking an existing file, read in blocks of `block_bytes` by `threads` threads.
    ///
    /// # Errors
    /// [`MemoryTooSmall`] if the limit is below the minimum.
    pub fn for_markdup(limit_bytes: Option<u64>, block_bytes: usize, threads: usize) -> Result<Self, MemoryTooSmall> {
        let limit = Self::markdup_limit(limit_bytes, block_bytes, threads);
        Self::split_above_minimum(limit, markdup_minimum(block_bytes, threads), "this many threads", "--threads")
    }

    /// Returns the effective limit for marking: by default at most half of the memory available to this process.
    pub fn markdup_limit(limit_bytes: Option<u64>, block_bytes: usize, threads: usize) -> u64 {
        let half_bytes = || host_resources::memory_bytes().map_or(DEFAULT_MARKDUP_BYTES, |bytes| bytes / 2);
        let default = || DEFAULT_MARKDUP_BYTES.min(half_bytes()).max(markdup_minimum(block_bytes, threads));
        limit_bytes.unwrap_or_else(default)
    }

    fn split_above_minimum(
        limit_bytes: u64,
        minimum_bytes: u64,
        needed_for: &'static str,
        option_to_lower: &'static str,
    ) -> Result<Self, MemoryTooSmall> {
        let Some(free) = limit_bytes.checked_sub(minimum_bytes) else {
            return Err(MemoryTooSmall { limit_bytes, minimum_bytes, needed_for, option_to_lower });
        };
        // The base includes a part of each use, so that the minimum itself works.
        let share = |percent: u64, of_base: u64| (free / 100 * percent + BASE_BYTES / 16 * of_base) as usize;
        let (resident_bytes, marker_bytes, waiting_bytes) = (share(65, 0), share(25, 4), share(10, 2));
        // Blocks and signatures are freed before partitions are merged.
        let merge_bytes = (limit_bytes - BASE_BYTES / 2) as usize - resident_bytes - waiting_bytes;
        Ok(Self { resident_bytes, marker_bytes, waiting_bytes, merge_bytes })
    }
}

/// Returns the minimum for aligning in blocks of `block_bases`.
fn align_minimum(block_bases: u64) -> u64 {
    BASE_BYTES + block_bases.saturating_mul(BYTES_PER_BLOCK_BASE)
}

/// Returns the minimum for marking: each thread turns a block of input into records and sorts them, while one more block is
/// read.
fn markdup_minimum(block_bytes: usize, threads: usize) -> u64 {
    BASE_BYTES + (block_bytes * (3 * threads + 1)) as u64
}

fn format_mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_the_minimum_names_it() {
        let error = MemoryPlan::for_align(Some(128 << 20), 100_000_000).unwrap_err();
        assert!(error.to_string().contains("the minimum is 446M"), "{error}");
        assert!(MemoryPlan::for_align(Some(error.minimum_bytes), 100_000_000).is_ok());
    }

    #[test]
    fn small_blocks_fit_a_small_limit() {
        let plan = MemoryPlan::for_align(Some(128 << 20), 1_000_000).unwrap();
        assert!(plan.resident_bytes + plan.marker_bytes + plan.waiting_bytes < 128 << 20);
        assert!(MemoryPlan::for_align(None, 1_000_000_000).is_ok());
    }
}
