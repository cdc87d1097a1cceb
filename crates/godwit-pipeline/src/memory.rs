//! The division of the `--memory` limit among the buffers of a job, and the minimum limit.

use crate::host_resources;

/// Bytes of a job that do not depend on its input: program, read-ahead buffers and the frames of the merge.
const BASE_BYTES: u64 = 64 << 20;
/// Bytes per base of a block while the block is sorted: packed records with names, qualities and tags, and the entry of
/// each record in the sort order. Reads of 100 bases need about 4, longer reads less.
const BYTES_PER_BLOCK_BASE: u64 = 4;
/// Default memory limit of `align`. It is low because the aligner and its index need most of the memory.
const DEFAULT_ALIGN_BYTES: u64 = 512 << 20;
/// Default memory limit of `markdup`.
pub(crate) const DEFAULT_MARKDUP_BYTES: u64 = 8 << 30;

/// A memory limit that cannot hold one block of input.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "--memory {} is too small for {needed_for}: the minimum is {}; raise --memory or lower {option_to_lower}",
    format_limit(*.limit_bytes), format_mebibytes(*.minimum_bytes)
)]
pub struct MemoryTooSmall {
    /// The memory limit that was requested, bytes.
    pub limit_bytes: u64,
    /// The minimum memory limit of the job, bytes.
    pub minimum_bytes: u64,
    /// The option value or data that needs this minimum, for the error message.
    pub needed_for: &'static str,
    /// The option whose value the user can lower instead, for the error message.
    pub option_to_lower: &'static str,
}

/// The division of a memory limit among the buffers of a job, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Sorted records in memory. Further records are written to the spill file.
    pub resident_bytes: usize,
    /// Duplicate signatures in memory.
    pub marker_bytes: usize,
    /// Frames of spilled runs during the merge. The memory of sorting is free by then.
    pub merge_bytes: usize,
    /// Compressed partitions that wait until the partitions before them are written.
    pub waiting_bytes: usize,
}

impl MemoryPlan {
    /// Divides the memory limit of `align`, which processes blocks of `block_bases` bases. `None`: the minimum, but at
    /// least 512 MiB.
    ///
    /// # Errors
    /// [`MemoryTooSmall`] if the limit is below the minimum.
    pub fn for_align(limit_bytes: Option<u64>, block_bases: u64) -> Result<Self, MemoryTooSmall> {
        let limit = Self::align_limit(limit_bytes, block_bases);
        Self::split_above_minimum(limit, align_minimum(block_bases), "blocks of this many bases", "--block-bases")
    }

    /// Returns the effective memory limit of `align`.
    pub fn align_limit(limit_bytes: Option<u64>, block_bases: u64) -> u64 {
        limit_bytes.unwrap_or(DEFAULT_ALIGN_BYTES.max(align_minimum(block_bases)))
    }

    /// Divides the memory limit of `markdup`, which reads blocks of `block_bytes` bytes with `threads` threads.
    ///
    /// # Errors
    /// [`MemoryTooSmall`] if the limit is below the minimum.
    pub fn for_markdup(limit_bytes: Option<u64>, block_bytes: usize, threads: usize) -> Result<Self, MemoryTooSmall> {
        let limit = Self::markdup_limit(limit_bytes, block_bytes, threads);
        Self::split_above_minimum(limit, markdup_minimum(block_bytes, threads), "this many threads", "--threads")
    }

    /// Returns the effective memory limit of `markdup`: by default at most half of the memory available to this
    /// process.
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
        // `BASE_BYTES` includes a minimum for each buffer, so that a job works with the minimum limit.
        let share = |percent: u64, of_base: u64| (free / 100 * percent + BASE_BYTES / 16 * of_base) as usize;
        let (resident_bytes, marker_bytes, waiting_bytes) = (share(65, 0), share(25, 4), share(10, 2));
        // Blocks and signatures are freed before the merge of partitions starts.
        let merge_bytes = (limit_bytes - BASE_BYTES / 2) as usize - resident_bytes - waiting_bytes;
        Ok(Self { resident_bytes, marker_bytes, waiting_bytes, merge_bytes })
    }
}

/// Returns the smallest memory limit with which `align` can run, for blocks of `block_bases` bases.
fn align_minimum(block_bases: u64) -> u64 {
    BASE_BYTES + block_bases.saturating_mul(BYTES_PER_BLOCK_BASE)
}

/// Returns the smallest memory limit with which `markdup` can run: each thread converts a block of input to records and
/// sorts them, while one further block is read.
fn markdup_minimum(block_bytes: usize, threads: usize) -> u64 {
    BASE_BYTES + (block_bytes * (3 * threads + 1)) as u64
}

fn format_mebibytes(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}

/// Formats a limit exactly, in MiB, KiB or bytes.
fn format_limit(bytes: u64) -> String {
    let units = [("M", 20), ("K", 10)];
    match units.into_iter().find(|(_, shift)| bytes.trailing_zeros() >= *shift) {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_the_minimum_names_it() {
        let error = MemoryPlan::for_align(Some(128 << 20), 100_000_000).unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("--memory 128M is") && message.contains("the minimum is 446M"), "{message}");
        for (limit, shown) in [(1 << 10, "--memory 1K is"), (1000, "--memory 1000 is"), (1 << 21, "--memory 2M is")] {
            let message = MemoryPlan::for_align(Some(limit), 100_000_000).unwrap_err().to_string();
            assert!(message.starts_with(shown), "{message}");
        }
        assert!(MemoryPlan::for_align(Some(error.minimum_bytes), 100_000_000).is_ok());
    }

    #[test]
    fn small_blocks_fit_a_small_limit() {
        let plan = MemoryPlan::for_align(Some(128 << 20), 1_000_000).unwrap();
        assert!(plan.resident_bytes + plan.marker_bytes + plan.waiting_bytes < 128 << 20);
        assert!(MemoryPlan::for_align(None, 1_000_000_000).is_ok());
    }
}
