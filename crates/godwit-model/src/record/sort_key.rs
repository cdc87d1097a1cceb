//! The order of records in a coordinate-sorted file.

use bytemuck::{Pod, Zeroable};
use serde::{Deserialize, Serialize};

/// The coordinate order of records as one integer: contig (records without a contig last), position, strand. The order
/// is that of `samtools sort` 1.16, which also uses FLAG 0x10 of unmapped reads. Records with equal keys keep the order
/// of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable, Serialize, Deserialize)]
#[repr(transparent)]
pub struct SortKey(pub u64);

impl SortKey {
    /// The lowest possible sort key.
    pub const MIN: Self = Self(0);
    /// The lowest key of a record without a contig. It is above all keys with a contig.
    pub const UNPLACED: Self = Self((u32::MAX as u64) << 32);

    /// Returns the key of a record at a 0-based position of a contig; -1 stands for an absent position or contig.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::SortKey;
    ///
    /// let key = SortKey::new(0, 999, false);
    /// assert_eq!((key.contig(), key.position()), (0, 999));
    /// assert!(key < SortKey::new(0, 999, true));
    /// assert!(key < SortKey::new(0, 1_000, false));
    /// assert!(SortKey::new(24, 16_000, true) < SortKey::UNPLACED);
    /// ```
    #[inline]
    pub fn new(contig: i32, position: i32, reverse: bool) -> Self {
        let position_and_strand = (position.wrapping_add(1) as u32) << 1 | u32::from(reverse);
        Self(u64::from(contig as u32) << 32 | u64::from(position_and_strand))
    }

    /// Returns the contig index, or -1 if the record does not have a contig.
    #[inline]
    pub fn contig(self) -> i32 {
        (self.0 >> 32) as u32 as i32
    }

    /// Returns the 0-based position, or -1 if the record does not have a position.
    #[inline]
    pub fn position(self) -> i32 {
        ((self.0 as u32 >> 1) as i32).wrapping_sub(1)
    }

    /// Returns the key of the forward strand at the same position, which is the lowest key of the position.
    #[inline]
    pub fn forward_strand(self) -> Self {
        Self(self.0 & !1)
    }
}
