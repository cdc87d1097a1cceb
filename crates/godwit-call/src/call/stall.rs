//! Regions in which a caller stalls, such as a site of 100,000 reads: the rule that detects them, and the pace of the
//! other regions, which it compares with.
//!
//! A caller stalls in a region if it takes longer than [`StallRule::min_duration`], and longer than a multiple of the
//! median time that finished regions took for as many bases. The region is then cut in halves, and the caller is started
//! on each. A half for which the caller stalls again is cut further. A piece that is too short to be cut is set apart: it
//! has no records.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Minimum number of finished regions for a median.
const MIN_FINISHED_REGIONS: usize = 3;
/// Minimum time before a piece of a region is cut, unless [`StallRule::min_duration`] is shorter: callers take this long
/// to start on a busy host.
const MIN_PIECE_DURATION: Duration = Duration::from_secs(60);

/// When a caller stalls in a region, and how far the region is then cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallRule {
    /// Multiple of the median time of as many bases above which a caller stalls; 0 if it never does.
    pub factor: u32,
    /// Time that a region gets in any case. Each cut halves the time of the pieces, down to one minute.
    pub min_duration: Duration,
    /// Minimum length of a piece, bases.
    pub min_piece_bases: u32,
}

impl Default for StallRule {
    fn default() -> Self {
        Self { factor: 20, min_duration: Duration::from_secs(30 * 60), min_piece_bases: 1000 }
    }
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

/// The time that finished regions took, and the rule by which others stall.
pub(super) struct RegionPace {
    pub(super) rule: StallRule,
    /// Bases before and after a piece that the caller also reads.
    pub(super) padding_bases: u32,
    /// Seconds for each base of the finished regions, in ascending order.
    seconds_per_base: Mutex<Vec<f64>>,
}

impl RegionPace {
    pub(super) fn new(rule: StallRule, padding_bases: u32) -> Self {
        Self { rule, padding_bases, seconds_per_base: Mutex::default() }
    }

    /// Adds a region that was called as a whole.
    pub(super) fn add(&self, bases: u64, duration: Duration) {
        let rate = duration.as_secs_f64() / bases.max(1) as f64;
        let mut rates = self.seconds_per_base.lock().unwrap_or_else(PoisonError::into_inner);
        let index = rates.partition_point(|other| *other < rate);
        rates.insert(index, rate);
    }

    /// Returns whether a caller stalls in a region, or in a piece that is the result of some cuts.
    pub(super) fn is_stalled(&self, bases: u64, cuts: u32, elapsed: Duration) -> bool {
        let StallRule { factor, min_duration, .. } = self.rule;
        let least = (min_duration / 2_u32.saturating_pow(cuts)).max(MIN_PIECE_DURATION.min(min_duration));
        if factor == 0 || elapsed <= least {
            return false;
        }
        let rates = self.seconds_per_base.lock().unwrap_or_else(PoisonError::into_inner);
        let median = rates.get(rates.len() / 2).filter(|_| rates.len() >= MIN_FINISHED_REGIONS);
        median.is_some_and(|median| elapsed.as_secs_f64() > f64::from(factor) * median * bases as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_stalls_by_the_median_of_three_and_a_minimum() {
        let rule = StallRule { factor: 10, min_duration: Duration::from_secs(240), min_piece_bases: 1000 };
        let pace = RegionPace::new(rule, 0);
        let seconds = Duration::from_secs;
        pace.add(1000, seconds(100));
        pace.add(1000, seconds(1));
        assert!(!pace.is_stalled(1000, 0, seconds(100_000)), "two regions have no median");
        pace.add(1000, seconds(50));
        assert!(!pace.is_stalled(1000, 0, seconds(500)));
        assert!(pace.is_stalled(1000, 0, seconds(501)));
        assert!(!pace.is_stalled(10, 0, seconds(240)), "the minimum has not passed");
        assert!(pace.is_stalled(10, 0, seconds(241)));
        // Each cut halves the minimum, down to one minute.
        assert!(!pace.is_stalled(10, 1, seconds(120)) && pace.is_stalled(10, 1, seconds(121)));
        assert!(!pace.is_stalled(10, 9, seconds(60)) && pace.is_stalled(10, 9, seconds(61)));
        let never = RegionPace::new(StallRule { factor: 0, ..rule }, 0);
        (0..3).for_each(|_| never.add(1000, seconds(1)));
        assert!(!never.is_stalled(1000, 0, seconds(100_000)));
    }
}
