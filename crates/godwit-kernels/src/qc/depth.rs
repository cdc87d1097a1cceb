//! Depth of coverage along one partition.
//!
//! Records are sorted by position, so the depth is final at all positions before the current record. A sweep over a
//! ring buffer of depth changes follows the current record.
//!
//! Alignments of earlier partitions may reach into the start of this partition, and their depth is not known here.
//! Therefore the first depth intervals are stored completely ("leading"). After these, only the number of positions at
//! each depth is stored ("interior"). Changes of depth after the start of the last record are returned as "trailing".

use std::collections::BTreeMap;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::mate_overlap::{PendingMates, PositionRange, UnmatchedMates};

/// Number of positions in the ring buffer, which is more than a short read covers. A power of two.
const RING_POSITIONS: usize = 1 << 14;
/// Maximum number of leading depth intervals of a partition (half a megabyte). At a depth of 30, these cover at least
/// the first 100,000 positions. If an alignment reaches further into the next partition, coverage is unavailable.
const MAX_LEADING_INTERVALS: usize = 1 << 16;
/// FLAG bits of records that mosdepth 0.3.3 ignores by default (its option `--flag 1796`).
const EXCLUDED_FLAGS: u16 = flags::UNMAPPED | flags::SECONDARY | flags::QC_FAIL | flags::DUPLICATE;

/// An interval of consecutive positions with equal depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, i32)", from = "(u32, i32)")]
pub(super) struct DepthInterval {
    pub(super) length: u32,
    pub(super) depth: i32,
}

// A partition has many intervals, so they are serialized without field names.
impl From<DepthInterval> for (u32, i32) {
    fn from(run: DepthInterval) -> Self {
        (run.length, run.depth)
    }
}

impl From<(u32, i32)> for DepthInterval {
    fn from((length, depth): (u32, i32)) -> Self {
        Self { length, depth }
    }
}

/// The depth of a partition on one contig, as one tool counts it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct DepthProfile {
    /// 0-based position at which the leading intervals start.
    pub(super) start: u32,
    /// 0-based position before which the depth of this partition is final.
    pub(super) end: u32,
    #[serde(rename = "head")]
    pub(super) leading: Vec<DepthInterval>,
    /// 0-based position after the last leading interval.
    #[serde(rename = "head_end")]
    pub(super) leading_end: u32,
    /// Number of positions for each depth from `leading_end` to `end`.
    #[serde(rename = "body")]
    pub(super) interior: Histogram,
    /// Changes of depth at and after `end`, by position. The first change is the depth at `end` itself.
    #[serde(rename = "tail")]
    pub(super) trailing_changes: Vec<(u32, i32)>,
}

impl DepthProfile {
    fn push_interval(&mut self, length: u32, depth: i32) {
        let joins = self.leading.last().is_some_and(|last| last.depth == depth);
        if self.leading_end < self.end || (!joins && self.leading.len() == MAX_LEADING_INTERVALS) {
            self.interior.add_times(depth.max(0) as u64, u64::from(length));
        } else {
            match self.leading.last_mut() {
                Some(last) if joins => last.length += length,
                _ => self.leading.push(DepthInterval { length, depth }),
            }
            self.leading_end += length;
        }
        self.end += length;
    }
}

/// A sweep along one contig.
#[derive(Clone, Debug)]
struct DepthSweep {
    ring: Vec<i32>,
    /// Changes of depth at positions beyond the end of the ring buffer.
    changes_beyond_ring: BTreeMap<u32, i32>,
    depth: i32,
    /// Last position with a change of depth, which may be before or after the current position of the sweep.
    last_change: u32,
    profile: DepthProfile,
}

impl DepthSweep {
    fn new() -> Self {
        Self {
            ring: vec![0; RING_POSITIONS],
            changes_beyond_ring: BTreeMap::new(),
            depth: 0,
            last_change: 0,
            profile: DepthProfile::default(),
        }
    }

    /// Starts the sweep of a contig at the position of the first record.
    fn start_contig(&mut self, position: u32) {
        self.profile =
            DepthProfile { start: position, end: position, leading_end: position, ..DepthProfile::default() };
        self.last_change = position;
    }

    /// Adds `change` to the depth of a range. The range must start at or after the current position of the sweep.
    #[inline]
    fn add_range(&mut self, (start, end): PositionRange, change: i32) {
        self.change_depth_at(start, change);
        self.change_depth_at(end, -change);
        self.last_change = self.last_change.max(end);
    }

    #[inline]
    fn change_depth_at(&mut self, position: u32, change: i32) {
        if ((position - self.profile.end) as usize) < RING_POSITIONS {
            self.ring[position as usize % RING_POSITIONS] += change;
        } else {
            *self.changes_beyond_ring.entry(position).or_default() += change;
        }
    }

    /// Advances the sweep to position `to`. The depth before `to` is then final.
    #[inline]
    fn advance_to(&mut self, to: u32) {
        let mut run_start = self.profile.end;
        let mut at = run_start;
        let until = to.min(self.last_change.saturating_add(1));
        while at < until {
            let place = &mut self.ring[at as usize % RING_POSITIONS];
            let mut change = std::mem::take(place);
            if self.changes_beyond_ring.first_key_value().is_some_and(|(first, _)| *first == at) {
                change += self.changes_beyond_ring.pop_first().map_or(0, |(_, change)| change);
            }
            if change != 0 {
                if at > run_start {
                    self.profile.push_interval(at - run_start, self.depth);
                }
                self.depth += change;
                run_start = at;
            }
            at += 1;
        }
        if to > run_start {
            self.profile.push_interval(to - run_start, self.depth);
        }
    }

    /// Ends the contig, returns its depth, and clears the sweep for the next contig.
    fn finish_contig(&mut self) -> DepthProfile {
        let mut track = std::mem::take(&mut self.profile);
        let mut changes = std::mem::take(&mut self.changes_beyond_ring);
        *changes.entry(track.end).or_default() += self.depth;
        for position in track.end..=self.last_change {
            if (position - track.end) as usize >= RING_POSITIONS {
                break;
            }
            let change = std::mem::take(&mut self.ring[position as usize % RING_POSITIONS]);
            if change != 0 {
                *changes.entry(position).or_default() += change;
            }
        }
        track.trailing_changes = changes.into_iter().filter(|(_, change)| *change != 0).collect();
        self.depth = 0;
        track
    }
}

/// The depth of a partition on one contig, as mosdepth and as samtools count it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PartitionContigDepth {
    pub(super) contig: i32,
    /// Depth as mosdepth counts it. Overlaps with mates in other partitions are not yet subtracted.
    pub(super) mosdepth: DepthProfile,
    #[serde(rename = "unjoined")]
    pub(super) unmatched_mates: UnmatchedMates,
    /// Depth as `samtools stats` counts it.
    pub(super) samtools: DepthProfile,
}

/// A counter of the depth along one partition.
pub struct PartitionDepth {
    contig: i32,
    first_start: u32,
    mosdepth: DepthSweep,
    samtools: DepthSweep,
    pending_mates: PendingMates,
    aligned_ranges: Vec<PositionRange>,
    contigs: Vec<PartitionContigDepth>,
}

/// The depth of one partition on all of its contigs.
#[derive(Serialize, Deserialize)]
pub struct PartitionCoverage(pub(super) Vec<PartitionContigDepth>);

impl Default for PartitionDepth {
    fn default() -> Self {
        Self {
            contig: -1,
            first_start: 0,
            mosdepth: DepthSweep::new(),
            samtools: DepthSweep::new(),
            pending_mates: PendingMates::default(),
            aligned_ranges: Vec::new(),
            contigs: Vec::new(),
        }
    }
}

impl PartitionDepth {
    /// Counts the next record of the partition. `length` is the length of the record's contig in bases.
    pub fn add(&mut self, record: RawRecord, flag: u16, length: u32) {
        if record.contig() < 0 || record.position() < 0 {
            return;
        }
        let start = (record.position() as u32).min(length);
        if record.contig() != self.contig {
            self.finish_contig();
            (self.contig, self.first_start) = (record.contig(), start);
            self.mosdepth.start_contig(start);
            self.samtools.start_contig(start);
        }
        self.mosdepth.advance_to(start);
        self.samtools.advance_to(start);
        if flag & (flags::UNMAPPED | flags::SECONDARY) != 0 {
            return;
        }
        let mut at = start;
        self.aligned_ranges.clear();
        for op in record.cigar().filter(|op| op.consumes_reference()) {
            let end = at.saturating_add(op.bases()).min(length);
            if op.consumes_read() && end > at {
                match self.aligned_ranges.last_mut() {
                    Some(last) if last.1 == at => last.1 = end,
                    _ => self.aligned_ranges.push((at, end)),
                }
            }
            at = end;
        }
        if record.sequence_length() > 0 {
            self.aligned_ranges.iter().for_each(|range| self.samtools.add_range(*range, 1));
        }
        if flag & EXCLUDED_FLAGS == 0 {
            self.aligned_ranges.iter().for_each(|range| self.mosdepth.add_range(*range, 1));
            let shared = self.pending_mates.match_record(record, flag, &self.aligned_ranges, at, self.first_start);
            shared.into_iter().for_each(|range| self.mosdepth.add_range(range, -1));
        }
    }

    /// Ends the partition and returns its depth. The counter can then be used for another partition.
    pub fn finish(&mut self) -> PartitionCoverage {
        self.finish_contig();
        PartitionCoverage(std::mem::take(&mut self.contigs))
    }

    fn finish_contig(&mut self) {
        if self.contig < 0 {
            return;
        }
        let (mosdepth, samtools) = (self.mosdepth.finish_contig(), self.samtools.finish_contig());
        let unmatched_mates = self.pending_mates.finish();
        self.contigs.push(PartitionContigDepth { contig: self.contig, mosdepth, unmatched_mates, samtools });
        self.contig = -1;
    }
}
