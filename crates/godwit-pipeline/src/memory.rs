//! How `--memory` is shared, and the least it can be.

use crate::machine;

/// What a job takes whatever its input: the program, read-ahead buffers, the merge's frames.
const BASE_BYTES: u64 = 64 << 20;
/// Bytes that one base of a block takes while the block is sorted: its packed record with name, qualities and tags, and
/// its place in the order. Reads of 100 bases take about 4, longer ones less.
const BYTES_PER_BLOCK_BASE: u64 = 4;
/// Limit of `align` where none is given: the aligner and its index need the rest of the machine.
const DEFAULT_ALIGN_BYTES: u64 = 512 << 20;
/// Limit of `markdup` where none is given.
pub const DEFAULT_MARKDUP_BYTES: u64 = 8 << 30;

/// A limit that cannot hold one block.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "--memory {} is too small for {what}: the minimum is {}; raise --memory or lower {lower}",
    show(*.limit_bytes), show(*.minimum_bytes)
)]
pub struct MemoryTooSmall {
    /// What was asked for.
    pub limit_bytes: u64,
    /// The least that works.
    pub minimum_bytes: u64,
    /// What needs it.
    pub what: &'static str,
    /// The option to lower.
    pub lower: &'static str,
}

/// Shares of the limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Sorted records kept in memory; more are spilled.
    pub resident_bytes: usize,
    /// Duplicate signatures kept in memory.
    pub marker_bytes: usize,
    /// Frames of spilled runs that are being merged; what blocks took while they were sorted is free by then.
    pub merge_bytes: usize,
    /// Compressed partitions that wait for their place in the file.
    pub waiting_bytes: usize,
}

impl MemoryPlan {
    /// Shares for aligning in blocks of `block_bases`; a limit of `None` is the least that works, at least 512 MiB.
    ///
    /// # Errors
    /// [`MemoryTooSmall`].
    pub fn for_align(limit_bytes: Option<u64>, block_bases: u64) -> Result<Self, MemoryTooSmall> {
        let limit = Self::align_limit(limit_bytes, block_bases);
        Self::beyond(limit, align_minimum(block_bases), "blocks of this many bases", "--block-bases")
    }

    /// The limit that counts for aligning.
    pub fn align_limit(limit_bytes: Option<u64>, block_bases: u64) -> u64 {
        limit_bytes.unwrap_or(DEFAULT_ALIGN_BYTES.max(align_minimum(block_bases)))
    }

    /// Shares for marking an existing file read in blocks of `block_bytes` by `threads` threads.
    ///
    /// # Errors
    /// [`MemoryTooSmall`].
    pub fn for_markdup(limit_bytes: Option<u64>, block_bytes: usize, threads: usize) -> Result<Self, MemoryTooSmall> {
        let limit = Self::markdup_limit(limit_bytes, block_bytes, threads);
        Self::beyond(limit, markdup_minimum(block_bytes, threads), "this many threads", "--threads")
    }

    /// The limit that counts for marking: where none is given, at most half of what this process may have.
    pub fn markdup_limit(limit_bytes: Option<u64>, block_bytes: usize, threads: usize) -> u64 {
        let half_bytes = || machine::memory_bytes().map_or(DEFAULT_MARKDUP_BYTES, |bytes| bytes / 2);
        let default = || DEFAULT_MARKDUP_BYTES.min(half_bytes()).max(markdup_minimum(block_bytes, threads));
        limit_bytes.unwrap_or_else(default)
    }

    fn beyond(
        limit_bytes: u64,
        minimum_bytes: u64,
        what: &'static str,
        lower: &'static str,
    ) -> Result<Self, MemoryTooSmall> {
        let Some(free) = limit_bytes.checked_sub(minimum_bytes) else {
            return Err(MemoryTooSmall { limit_bytes, minimum_bytes, what, lower });
        };
        // The base holds a little of everything, so that the minimum itself works.
        let share = |percent: u64, of_base: u64| (free / 100 * percent + BASE_BYTES / 16 * of_base) as usize;
        let (resident_bytes, marker_bytes, waiting_bytes) = (share(65, 0), share(25, 4), share(10, 2));
        // Blocks and signatures are gone when partitions are merged.
        let merge_bytes = (limit_bytes - BASE_BYTES / 2) as usize - resident_bytes - waiting_bytes;
        Ok(Self { resident_bytes, marker_bytes, waiting_bytes, merge_bytes })
    }
}

/// The least that aligning in blocks of `block_bases` works with.
fn align_minimum(block_bases: u64) -> u64 {
    BASE_BYTES + block_bases.saturating_mul(BYTES_PER_BLOCK_BASE)
}

/// The least that marking works with: each thread turns a block of input into records and sorts them; one more block is
/// being read.
fn markdup_minimum(block_bytes: usize, threads: usize) -> u64 {
    BASE_BYTES + (block_bytes * (3 * threads + 1)) as u64
}

fn show(bytes: u64) -> String {
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
