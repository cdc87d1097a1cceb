//! Contigs and intervals of the genome. Positions are 0-based, and intervals are half-open.

use serde::{Deserialize, Serialize};

/// Index of a contig in its [`crate::Genome`], 0-based, in `@SQ` order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContigId(pub u32);

/// An interval of one contig, `[start, end)`, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Interval {
    /// Index of the contig.
    pub contig: ContigId,
    /// 0-based position of the first base.
    pub start: u32,
    /// 0-based position one past the last base.
    pub end: u32,
}

impl Interval {
    /// Returns the number of bases in the interval.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_model::{ContigId, Interval};
    ///
    /// // chr1:1000-1009, if chr1 is the first contig.
    /// let interval = Interval { contig: ContigId(0), start: 999, end: 1_009 };
    /// assert_eq!(interval.bases(), 10);
    /// ```
    pub fn bases(&self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}
