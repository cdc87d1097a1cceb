//! Loci and intervals of the genome: 0-based, half-open.

use serde::{Deserialize, Serialize};

/// Index of a contig in its [`crate::Genome`], 0-based, in `@SQ` order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContigId(pub u32);

/// One base of the genome: contig and 0-based position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Locus {
    /// The contig.
    pub contig: ContigId,
    /// 0-based position on the contig.
    pub position: u32,
}

/// An interval of one contig, `[start, end)`, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Interval {
    /// The contig.
    pub contig: ContigId,
    /// First base, 0-based.
    pub start: u32,
    /// One past the last base.
    pub end: u32,
}

impl Interval {
    /// Returns the number of bases covered.
    pub fn bases(&self) -> u32 {
        self.end.saturating_sub(self.start)
    }
}
