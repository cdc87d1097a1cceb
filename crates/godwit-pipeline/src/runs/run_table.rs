//! The table of the frames of a spilled run, in serialised form. With it, a later process reads the run.

use godwit_model::{BlockId, SortKey};

use super::{Frame, Run, RunBytes};

/// Size of the entry of one frame in a table, bytes.
const FRAME_ENTRY_BYTES: usize = 28;

/// The serialised table of the frames of a spilled run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunTable(pub Vec<u8>);

/// The location of a frame in the spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLocation {
    /// Sort key of the first record. All keys in the frame are between this key and the first key of the next frame.
    pub first_key: SortKey,
    /// Offset in the spill file, bytes.
    pub offset: u64,
    /// Compressed size in the spill file, bytes.
    pub stored_bytes: u32,
    /// Decompressed size, bytes.
    pub plain_bytes: u32,
}

impl RunTable {
    pub(super) fn from_run(run: &Run) -> Self {
        let mut bytes = Vec::with_capacity(8 + FRAME_ENTRY_BYTES * run.frames.len() + 4 * run.partition_frames.len());
        bytes.extend((run.frames.len() as u32).to_le_bytes());
        for frame in &run.frames {
            bytes.extend(frame.first_key.0.to_le_bytes());
            bytes.extend(frame.offset.to_le_bytes());
            for number in [frame.first_item, frame.stored_bytes, frame.plain_bytes] {
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes.extend(run.partition_frames.iter().flat_map(|first| first.to_le_bytes()));
        Self(bytes)
    }

    /// Returns the locations of all frames; `None` if the bytes are not a valid table for this number of partitions.
    pub(crate) fn frame_locations(&self, partitions: usize) -> Option<Vec<FrameLocation>> {
        let run = self.to_run(BlockId { lane: 0, ordinal: 0 }, partitions)?;
        let place = |frame: &Frame| FrameLocation {
            first_key: frame.first_key,
            offset: frame.offset,
            stored_bytes: frame.stored_bytes,
            plain_bytes: frame.plain_bytes,
        };
        Some(run.frames.iter().map(place).collect())
    }

    /// Returns the run; `None` if the bytes are not a valid table for this number of partitions.
    pub(super) fn to_run(&self, block: BlockId, partitions: usize) -> Option<Run> {
        let (frames, rest) = self.0.split_first_chunk::<4>()?;
        let frame_bytes = (u32::from_le_bytes(*frames) as usize).checked_mul(FRAME_ENTRY_BYTES)?;
        let (frames, starts) = rest.split_at_checked(frame_bytes)?;
        let frames: Vec<Frame> = frames.chunks_exact(FRAME_ENTRY_BYTES).filter_map(parse_frame).collect();
        let partition_frames: Vec<u32> =
            starts.chunks_exact(4).filter_map(|bytes| Some(u32::from_le_bytes(*bytes.first_chunk()?))).collect();
        let ascending = partition_frames.is_sorted() && partition_frames.last() == Some(&(frames.len() as u32));
        let whole = ascending && partition_frames.len() == partitions + 1 && starts.len().is_multiple_of(4);
        whole.then_some(Run { block, frames, partition_frames, bytes: RunBytes::Spilled })
    }
}

fn parse_frame(bytes: &[u8]) -> Option<Frame> {
    let long = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    Some(Frame {
        first_key: SortKey(long(0)?),
        offset: long(8)?,
        first_item: short(16)?,
        stored_bytes: short(20)?,
        plain_bytes: short(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gives_its_run_back_and_nothing_else_does() {
        let frame = |at: u64| Frame {
            first_key: SortKey(at),
            first_item: at as u32,
            offset: at << 40,
            stored_bytes: 7,
            plain_bytes: u32::MAX,
        };
        let frames: Vec<Frame> = (0..5).map(frame).collect();
        let block = BlockId { lane: 3, ordinal: 9 };
        let run = Run { block, frames: frames.clone(), partition_frames: vec![0, 2, 2, 5], bytes: RunBytes::Spilled };
        let table = RunTable::from_run(&run);
        let back = table.to_run(block, 3).unwrap();
        assert_eq!((back.frames, back.partition_frames, back.block), (frames, vec![0, 2, 2, 5], block));
        assert!(table.to_run(block, 4).is_none());
        for cut in 0..table.0.len() {
            assert!(RunTable(table.0[..cut].to_vec()).to_run(block, 3).is_none(), "{cut}");
        }
    }
}
