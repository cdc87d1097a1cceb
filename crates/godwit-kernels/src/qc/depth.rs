//! Depth along one partition.
//!
//! Records come sorted, so depth is final up to the position of the last one: a ring of differences is swept behind it.
//! What earlier partitions reach into the start of this one is not known yet, so the first changes of depth are kept as
//! they are ("head"); behind them only the number of positions at each depth is kept ("body"). What reaches beyond the
//! last record is handed on ("tail").

use std::collections::BTreeMap;

use godwit_model::{RawRecord, flags};
use serde::{Deserialize, Serialize};

use super::histogram::Histogram;
use super::overlap::{Overlaps, Stretch, Unjoined};

/// Positions ahead of the sweep that have a place of their own: more than a short read spans. Power of two.
const RING_POSITIONS: usize = 1 << 14;
/// Changes of depth kept of a partition's start: half a megabyte; at 30x the start of over 100,000 positions. Alignments
/// that reach further from one partition into the next make coverage unavailable.
const HEAD_RUNS: usize = 1 << 16;
/// Records that mosdepth 0.3.3 leaves out: its `--flag 1796`.
const LEFT_OUT: u16 = flags::UNMAPPED | flags::SECONDARY | flags::QC_FAIL | flags::DUPLICATE;

/// Positions in a row that have one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "(u32, i32)", from = "(u32, i32)")]
pub(super) struct Run {
    pub(super) positions: u32,
    pub(super) depth: i32,
}

// There are many of them, so they are written without their names.
impl From<Run> for (u32, i32) {
    fn from(run: Run) -> Self {
        (run.positions, run.depth)
    }
}

impl From<(u32, i32)> for Run {
    fn from((positions, depth): (u32, i32)) -> Self {
        Self { positions, depth }
    }
}

/// Depth of a partition on one contig.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Track {
    /// Where the head starts.
    pub(super) start: u32,
    /// Depth is final before this position.
    pub(super) end: u32,
    pub(super) head: Vec<Run>,
    /// First position behind the head.
    pub(super) head_end: u32,
    /// Positions by depth from `head_end` to `end`.
    pub(super) body: Histogram,
    /// Changes of depth from `end` on, by position; the first is the depth there.
    pub(super) tail: Vec<(u32, i32)>,
}

impl Track {
    fn push(&mut self, positions: u32, depth: i32) {
        let joins = self.head.last().is_some_and(|last| last.depth == depth);
        if self.head_end < self.end || (!joins && self.head.len() == HEAD_RUNS) {
            self.body.add_times(depth.max(0) as u64, u64::from(positions));
        } else {
            match self.head.last_mut() {
                Some(last) if joins => last.positions += positions,
                _ => self.head.push(Run { positions, depth }),
            }
            self.head_end += positions;
        }
        self.end += positions;
    }
}

/// The sweep over one contig.
#[derive(Clone, Debug)]
struct Sweep {
    ring: Vec<i32>,
    /// Changes beyond the ring.
    far: BTreeMap<u32, i32>,
    depth: i32,
    /// Last position with a change, swept or not.
    last_change: u32,
    track: Track,
}

impl Sweep {
    fn new() -> Self {
        Self { ring: vec![0; RING_POSITIONS], far: BTreeMap::new(), depth: 0, last_change: 0, track: Track::default() }
    }

    /// Starts a contig at the position of its first record.
    fn start(&mut self, position: u32) {
        self.track = Track { start: position, end: position, head_end: position, ..Track::default() };
        self.last_change = position;
    }

    /// Changes the depth of a stretch that starts behind the sweep's place.
    #[inline]
    fn add(&mut self, (start, end): Stretch, change: i32) {
        self.change(start, change);
        self.change(end, -change);
        self.last_change = self.last_change.max(end);
    }

    #[inline]
    fn change(&mut self, position: u32, change: i32) {
        if ((position - self.track.end) as usize) < RING_POSITIONS {
            self.ring[position as usize % RING_POSITIONS] += change;
        } else {
            *self.far.entry(position).or_default() += change;
        }
    }

    /// Depth before `to` is final.
    #[inline]
    fn advance(&mut self, to: u32) {
        let mut run_start = self.track.end;
        let mut at = run_start;
        let until = to.min(self.last_change.saturating_add(1));
        while at < until {
            let place = &mut self.ring[at as usize % RING_POSITIONS];
            let mut change = std::mem::take(place);
            if self.far.first_key_value().is_some_and(|(first, _)| *first == at) {
                change += self.far.pop_first().map_or(0, |(_, change)| change);
            }
            if change != 0 {
                if at > run_start {
                    self.track.push(at - run_start, self.depth);
                }
                self.depth += change;
                run_start = at;
            }
            at += 1;
        }
        if to > run_start {
            self.track.push(to - run_start, self.depth);
        }
    }

    /// Ends the contig and clears the sweep.
    fn finish(&mut self) -> Track {
        let mut track = std::mem::take(&mut self.track);
        let mut changes = std::mem::take(&mut self.far);
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
        track.tail = changes.into_iter().filter(|(_, change)| *change != 0).collect();
        self.depth = 0;
        track
    }
}

/// Depth of a partition on one contig, for both tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ContigPart {
    pub(super) contig: i32,
    /// As mosdepth counts, but for mates in other partitions.
    pub(super) mosdepth: Track,
    pub(super) unjoined: Unjoined,
    /// As samtools stats counts.
    pub(super) samtools: Track,
}

/// Depth of one partition; see the module.
pub struct PartitionDepth {
    contig: i32,
    first: u32,
    mosdepth: Sweep,
    samtools: Sweep,
    overlaps: Overlaps,
    stretches: Vec<Stretch>,
    parts: Vec<ContigPart>,
}

/// The depth of a whole partition.
#[derive(Serialize, Deserialize)]
pub struct FinishedDepth(pub(super) Vec<ContigPart>);

impl Default for PartitionDepth {
    fn default() -> Self {
        Self {
            contig: -1,
            first: 0,
            mosdepth: Sweep::new(),
            samtools: Sweep::new(),
            overlaps: Overlaps::default(),
            stretches: Vec::new(),
            parts: Vec::new(),
        }
    }
}

impl PartitionDepth {
    /// Takes the next record of the partition. `length`: of its contig.
    pub fn add(&mut self, record: RawRecord, flag: u16, length: u32) {
        if record.contig() < 0 || record.position() < 0 {
            return;
        }
        let start = (record.position() as u32).min(length);
        if record.contig() != self.contig {
            self.finish_contig();
            (self.contig, self.first) = (record.contig(), start);
            self.mosdepth.start(start);
            self.samtools.start(start);
        }
        self.mosdepth.advance(start);
        self.samtools.advance(start);
        if flag & (flags::UNMAPPED | flags::SECONDARY) != 0 {
            return;
        }
        let mut at = start;
        self.stretches.clear();
        for op in record.cigar().filter(|op| op.consumes_reference()) {
            let end = at.saturating_add(op.bases()).min(length);
            if op.consumes_read() && end > at {
                match self.stretches.last_mut() {
                    Some(last) if last.1 == at => last.1 = end,
                    _ => self.stretches.push((at, end)),
                }
            }
            at = end;
        }
        if record.bases() > 0 {
            self.stretches.iter().for_each(|stretch| self.samtools.add(*stretch, 1));
        }
        if flag & LEFT_OUT == 0 {
            self.stretches.iter().for_each(|stretch| self.mosdepth.add(*stretch, 1));
            let shared = self.overlaps.take(record, flag, &self.stretches, at, self.first);
            shared.into_iter().for_each(|stretch| self.mosdepth.add(stretch, -1));
        }
    }

    /// Ends the partition and hands out its depth; ready for another one.
    pub fn finish(&mut self) -> FinishedDepth {
        self.finish_contig();
        FinishedDepth(std::mem::take(&mut self.parts))
    }

    fn finish_contig(&mut self) {
        if self.contig < 0 {
            return;
        }
        let (mosdepth, samtools) = (self.mosdepth.finish(), self.samtools.finish());
        let unjoined = self.overlaps.finish();
        self.parts.push(ContigPart { contig: self.contig, mosdepth, unjoined, samtools });
        self.contig = -1;
    }
}
