//! Ids of blocks of reads, and ids of the alignment records that belong to these reads.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// The id of a block. A block is a sequence of consecutive reads, the same that `bwa mem -K` would process as one
/// batch. Ids sort by lane, then by index in the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// 0-based index of the lane; below [`BlockId::MAX_LANES`].
    pub lane: u16,
    /// 0-based index of the block within its lane; below [`BlockId::MAX_BLOCKS`].
    pub ordinal: u32,
}

impl BlockId {
    /// Maximum number of lanes of a job. The lane takes 12 bits of a [`RecordId`].
    pub const MAX_LANES: u32 = 1 << 12;
    /// Maximum number of blocks of a lane: about 10^14 bases at the default block size. The block takes 20 bits of a
    /// [`RecordId`].
    pub const MAX_BLOCKS: u32 = 1 << 20;

    /// Returns the text that represents this value in job fingerprints. Files on disk contain hashes of this text, so
    /// it must not depend on names of types and fields. If the text changes, a stopped job starts again from the
    /// beginning.
    pub fn fingerprint_text(self) -> String {
        format!("BlockId {{ lane: {}, ordinal: {} }}", self.lane, self.ordinal)
    }

    /// Returns the id of the record with this 0-based index in the block.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 0, ordinal: 7 };
    /// assert!(block.record(0) < block.record(1));
    /// // A later lane follows all blocks of the lanes before it.
    /// assert!(block.record(1) < BlockId { lane: 1, ordinal: 0 }.record(0));
    /// ```
    #[inline]
    pub fn record(self, index: u32) -> RecordId {
        RecordId(u64::from(self.lane) << 52 | u64::from(self.ordinal) << 32 | u64::from(index))
    }
}

/// Id of an alignment record of a job: lane, block and index within the block. Ids sort in the order in which a job on
/// one machine numbers the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct RecordId(pub u64);

impl RecordId {
    /// Returns the id of the block that the record belongs to.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::BlockId;
    ///
    /// let block = BlockId { lane: 2, ordinal: 7 };
    /// let record = block.record(150);
    /// assert_eq!(record.block(), block);
    /// assert_eq!(record.index(), 150);
    /// ```
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
