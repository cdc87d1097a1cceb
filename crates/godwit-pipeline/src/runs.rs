//! Sorted runs of records between alignment and writing, in memory or spilled.
//!
//! One run per block. A run is a sequence of frames; a frame holds whole records and never crosses a partition. Frames
//! are cut by the records alone, so that partitions split along frame borders are the same at any memory limit. In
//! memory a frame is a stretch of the block's order; spilled it is one LZ4 block.

mod cursor;
mod slices;
mod store;
mod table;

pub use cursor::Cursor;
pub use slices::{Shares, SlicePlace, SliceStore};
pub use store::{FinishedRuns, RunStore, SortedBlock, SplitPartition};
pub use table::RunTable;

use godwit_model::{BlockId, SortKey};

#[cfg(test)]
mod tests;

/// Bytes after which a frame is closed: small enough that a merge of a thousand runs stays within 64 MiB, large enough
/// that LZ4 and system calls cost little.
pub const FRAME_BYTES: usize = 64 << 10;
/// Bytes before each record in a frame: its length and its index in the block.
const ENTRY_HEADER: usize = 8;

/// A sorted run.
struct Run {
    block: BlockId,
    /// Frames in key order.
    frames: Vec<Frame>,
    /// For each partition of the plan and one past the last: index of its first frame.
    partition_frames: Vec<u32>,
    bytes: RunBytes,
}

/// Where the records of a run are.
enum RunBytes {
    /// As they came, with their order: nothing is copied.
    Memory(SortedBlock),
    Spilled,
}

/// Some records of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    first_key: SortKey,
    /// Index of its first record in the order of the block.
    first_item: u32,
    /// Offset in the spill, where it is there.
    offset: u64,
    /// Bytes in the spill.
    stored_bytes: u32,
    /// Bytes as plain records.
    plain_bytes: u32,
}
