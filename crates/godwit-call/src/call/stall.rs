//! Regions in which a caller stalls, such as a site of 100,000 reads.
//!
//! A caller stalls in a region if it takes longer than [`StallRule::time_limit`]. The region is then cut in halves, and the
//! caller is started on each. A half for which the caller stalls again is cut further. A piece that is too short to be cut
//! is set apart: it has no records.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When a caller stalls in a region, and how far the region is then cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallRule {
    /// Time that a caller gets for a region, and for each of its pieces.
    pub time_limit: Duration,
    /// Minimum length of a piece, bases.
    pub min_piece_bases: u32,
}

/// A region, or a piece of one, in which a caller stalled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionStall {
    /// The region from its first to its last base, such as `chr1:1-1000`, 1-based.
    pub region: String,
    /// Time after which the caller was stopped, seconds.
    pub seconds: f64,
    /// What happened to the region.
    pub outcome: StallOutcome,
}

/// What happened to a region in which a caller stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallOutcome {
    /// The caller was started on each half.
    Cut,
    /// The region has no records, because it is too short to be cut.
    SetApart,
}

impl RegionStall {
    /// Returns whether the output has no records of the region.
    pub(super) fn is_set_apart(&self) -> bool {
        self.outcome == StallOutcome::SetApart
    }

    /// Returns the warning about the stall.
    pub(super) fn message(&self) -> String {
        let Self { region, seconds, outcome } = self;
        let consequence = match outcome {
            StallOutcome::Cut => "it was started again on each half of the region",
            StallOutcome::SetApart => "the region is set apart: the output has no records of it",
        };
        format!("the caller stalled in {region} and was stopped after {seconds:.0} s; {consequence}")
    }
}
