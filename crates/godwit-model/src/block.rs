//! Blocks of reads and the identity of the records that came from them.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// A block: consecutive reads, cut exactly as one batch of `bwa mem -K`. Blocks sort by lane, then by position in the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// 0-based index of the lane; at most [`BlockId::MAX_LANES`].
    pub lane: u16,
    /// 0-based index of the block within its lane; at most [`BlockId::MAX_BLOCKS`].
    pub ordinal: u32,
}

impl BlockId {
    /// Maximum number of lanes of a job: 12 bits of a [`RecordId`].
    pub const MAX_LANES: u32 = 1 << 12;
    /// Maximum number of blocks of a lane: 20 bits of a [`RecordId`], 10^14 bases at the default block size.
    pub const MAX_BLOCKS: u32 = 1 << 20;

    /// Writes the text that job fingerprints contain. Files on disk hold hashes of it: the text is independent of the names
    /// of types and fields, and changing it makes stopped jobs start over.
    pub fn fingerprint_text(self) -> String {
        format!("BlockId {{ lane: {}, ordinal: {} }}", self.lane, self.ordinal)
    }

    /// Returns the id of the record with this 0-based index in the block.
    #[inline]
    pub fn record(self, index: u32) -> RecordId {
        RecordId(u64::from(self.lane) << 52 | u64::from(self.ordinal) << 32 | u64::from(index))
    }
}

/// Id of a record of a job: lane, block and index within the block, ordered as the records of a job on one machine are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct RecordId(pub u64);

impl RecordId {
    /// Returns the block that the record came from.
    #[inline]
    pub fn block(self) -> BlockId {
        BlockId { lane: (self.0 >> 52) as u16, ordinal: (self.0 >> 32) as u32 & (BlockId::MAX_BLOCKS - 1) }
    }

    /// Returns the 0-based index of the record within its block.
    #[inline]
    pub fn index(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_ids_sort_by_lane_then_block_then_index() {
        let at = |lane, ordinal, index| BlockId { lane, ordinal }.record(index);
        assert!(at(0, 0, u32::MAX) < at(0, 1, 0));
        assert!(at(0, BlockId::MAX_BLOCKS - 1, 5) < at(1, 0, 0));
        let id = at(4095, 77, 12);
        assert_eq!((id.block(), id.index()), (BlockId { lane: 4095, ordinal: 77 }, 12));
    }
}
