//! Sorted runs of records between alignment and writing, in memory or spilled.
//!
//! One run per block. A run is a sequence of frames; a frame holds whole records and never crosses a partition. Only the
//! records decide where frames end, so that partitions split along frame borders are the same at any memory limit. In memory
//! a frame is a range of the block's order; in the spill it is one LZ4 block.

mod cursor;
mod run_table;
mod slices;
mod store;

pub use cursor::Cursor;
pub use run_table::{FrameLocation, RunTable};
pub use slices::{ShardPlan, SliceLocation, SliceStore};
pub use store::{FinishedRuns, RunStore, SortedBlock, SplitPartition};

use std::io;

use godwit_formats::bam::RecordBuffer;
use godwit_model::{BlockId, RawRecord, SortKey};

#[cfg(test)]
mod tests;

/// Bytes after which a frame is closed: small enough that a merge of a thousand runs stays within 64 MiB, large enough
/// that LZ4 and system calls cost little.
pub const FRAME_BYTES: usize = 64 << 10;
/// Bytes before each record in a frame: its length and its index in the block.
const ENTRY_HEADER_BYTES: usize = 8;

/// Decompresses a frame into records, and checks each of them: the spill may be that of another process.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] for damaged or replaced frames.
pub fn unpack_frame(packed: &[u8], plain_bytes: u32, contigs: usize, chunk: &mut RecordBuffer) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the records of the run are damaged, or begun anew");
    // LZ4 expands one byte to 255 at most.
    if u64::from(plain_bytes) > 255 * packed.len() as u64 + 64 {
        return Err(damaged());
    }
    let plain = lz4_flex::block::decompress(packed, plain_bytes as usize).map_err(|_| damaged())?;
    chunk.data.clear();
    chunk.end_offsets.clear();
    let mut rest = &plain[..];
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk().ok_or_else(damaged)?;
        let record =
            after.get(ENTRY_HEADER_BYTES - 4..).and_then(|after| after.get(..u32::from_le_bytes(*length) as usize));
        let record = record.ok_or_else(damaged)?;
        RawRecord::from_bytes(record, contigs).map_err(|_| damaged())?;
        chunk.data.extend_from_slice(record);
        chunk.end_offsets.push(chunk.data.len());
        rest = &rest[ENTRY_HEADER_BYTES + record.len()..];
    }
    Ok(())
}

/// A sorted run.
struct Run {
    block: BlockId,
    /// Frames in key order.
    frames: Vec<Frame>,
    /// For each partition of the plan and one past the last: index of its first frame.
    partition_frames: Vec<u32>,
    bytes: RunBytes,
}

/// The records of a run.
enum RunBytes {
    /// The block as it was added, with its order: nothing is copied.
    Memory(SortedBlock),
    Spilled,
}

/// Some records of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    first_key: SortKey,
    /// Index of its first record in the order of the block.
    first_item: u32,
    /// Offset in the spill, where it is spilled.
    offset: u64,
    /// Bytes in the spill.
    stored_bytes: u32,
    /// Bytes when decompressed.
    plain_bytes: u32,
}
