//! Sorted runs of records between alignment and writing, either in memory or in the spill file.
//!
//! There is one run for each block of reads. A run is a sequence of frames. A frame contains complete records of one
//! partition. The ends of frames depend only on the records, so that partitions, which are split at the ends of frames,
//! are the same with any memory limit. In memory, a frame is a range of the block's sort order; in the spill file, it
//! is one LZ4 block.

mod cursor;
mod run_table;
mod slices;
mod store;

pub use cursor::Cursor;
pub(crate) use run_table::FrameLocation;
pub use run_table::RunTable;
pub use slices::{ShardPlan, SliceLocation, SliceStore};
pub(crate) use store::RunStore;
pub use store::{FinishedRuns, SortedBlock, SplitPartition};

use std::io;

use godwit_formats::bam::RecordBuffer;
use godwit_model::{BlockId, RawRecord, SortKey};

#[cfg(test)]
mod tests;

/// Size of the records at which a frame ends, bytes. It is so small that a merge of 1,000 runs needs at most 64 MiB,
/// and so large that LZ4 and system calls take little time.
pub const FRAME_BYTES: usize = 64 << 10;
/// Size of the header of each record in a frame, bytes: the length of the record and its index in the block.
const ENTRY_HEADER_BYTES: usize = 8;

/// Decompresses a frame into records. Checks each record, because another process may have written the frame.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the frame is damaged or was replaced.
pub(crate) fn unpack_frame(
    packed: &[u8],
    plain_bytes: u32,
    contigs: usize,
    chunk: &mut RecordBuffer,
) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the records of the run are damaged or were replaced");
    // LZ4 expands one byte to at most 255 bytes. A larger size is wrong; do not allocate it.
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

/// The sorted records of one block.
struct Run {
    block: BlockId,
    /// Frames in the order of their sort keys.
    frames: Vec<Frame>,
    /// Index of the first frame of each partition of the plan, and the number of frames as the last element.
    partition_frames: Vec<u32>,
    bytes: RunBytes,
}

/// The location of the records of a run.
enum RunBytes {
    /// In memory: the block as it was added, with its sort order. The records are not copied.
    Memory(SortedBlock),
    Spilled,
}

/// Consecutive records of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    first_key: SortKey,
    /// Index of the first record of the frame in the sort order of the block.
    first_item: u32,
    /// Offset in the spill file, bytes; unused for a run in memory.
    offset: u64,
    /// Compressed size in the spill file, bytes.
    stored_bytes: u32,
    /// Decompressed size, bytes.
    plain_bytes: u32,
}
