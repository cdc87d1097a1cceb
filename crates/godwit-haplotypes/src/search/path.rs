//! A path: a selection of variants of both sides up to a position, and the haplotypes that they give.

use super::haplotype_states::{HaplotypeStates, StateId};
use super::history::{EMPTY, NodeId};
use super::{CALLS, TRUTH};
use crate::alleles::{AlleleRank, AlleleTable, NO_ALLELE};
use crate::comparison_options::Preference;
use crate::orientations::Orientation;

/// One side of a path with `H` haplotypes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfPath<const H: usize> {
    /// End of the last allele that was added to each haplotype.
    last_ends: [i32; H],
    is_finished: [bool; H],
    /// Index of the last variant that was included or excluded; -1 for none.
    pub(super) variant: i32,
    /// Largest end of the variants that were included or excluded.
    variant_end: i32,
    /// Largest end of the included variants.
    included_end: i32,
    pub(super) included: NodeId,
    pub(super) excluded: NodeId,
    included_count: u32,
    pub(super) included_since_sync: u32,
    /// Number of the first allele of the variant that was included last.
    last_first_allele: i32,
}

/// What decides ties of a side after a position at which only one path is in play.
#[derive(Clone, Copy, Debug, Default)]
struct SideProgress {
    included_count: u32,
    included_since_sync: u32,
    last_first_allele: i32,
}

/// The path that reached the end of a segment, as the search of the next segment continues it. All its haplotypes are
/// on the reference at one position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathProgress {
    pub(super) position: i32,
    last_sync_point: Option<i32>,
    sides: [SideProgress; 2],
}

impl Default for PathProgress {
    /// Returns the progress before the first base of a contig.
    fn default() -> Self {
        Self { position: -1, last_sync_point: None, sides: Default::default() }
    }
}

/// A path with `H` haplotypes on each side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<const H: usize> {
    /// States of the haplotypes of both sides.
    pub(super) states: [[StateId; H]; 2],
    pub(super) sides: [HalfPath<H>; 2],
    pub(super) sync_points: NodeId,
    /// Position of the last sync point; `None` before the first.
    pub(super) last_sync_point: Option<i32>,
}

impl<const H: usize> HalfPath<H> {
    fn new(progress: SideProgress) -> Self {
        Self {
            last_ends: [-1; H],
            is_finished: [false; H],
            variant: -1,
            variant_end: 0,
            included_end: 0,
            included: EMPTY,
            excluded: EMPTY,
            included_count: progress.included_count,
            included_since_sync: progress.included_since_sync,
            last_first_allele: progress.last_first_allele,
        }
    }

    /// Records that the path passed a variant.
    pub(super) fn pass_variant(&mut self, variant: i32, end: i32) {
        self.variant = variant;
        self.variant_end = self.variant_end.max(end);
    }

    /// Returns whether the alleles of an orientation begin after those that were added.
    pub(super) fn accepts(&self, start: i32, orientation: &Orientation, alleles: &AlleleTable) -> bool {
        let is_after = |(allele, last_end): (&AlleleRank, &i32)| {
            *allele == NO_ALLELE || alleles.allele(*allele).start >= *last_end
        };
        start >= self.included_end || orientation.alleles.iter().zip(&self.last_ends).all(is_after)
    }
}

impl<const H: usize> Path<H> {
    /// Returns the path that continues from a position; `start` is the state of all haplotypes there.
    pub(super) fn new(start: StateId, progress: &PathProgress) -> Self {
        Self {
            states: [[start; H]; 2],
            sides: progress.sides.map(HalfPath::new),
            sync_points: EMPTY,
            last_sync_point: progress.last_sync_point,
        }
    }

    /// Returns what the search of the next segment needs of this path, which must be in sync.
    pub(super) fn progress(&self, states: &HaplotypeStates) -> PathProgress {
        let sides = self.sides.map(|half| SideProgress {
            included_count: half.included_count,
            included_since_sync: half.included_since_sync,
            last_first_allele: half.last_first_allele,
        });
        PathProgress { position: states.position(self.states[CALLS][0]), last_sync_point: self.last_sync_point, sides }
    }

    /// Includes a variant in an orientation.
    pub(super) fn include(
        &mut self,
        side: usize,
        end: i32,
        orientation: &Orientation,
        alleles: &AlleleTable,
        states: &mut HaplotypeStates,
    ) {
        let half = &mut self.sides[side];
        half.included_end = half.included_end.max(end);
        half.included_count += 1;
        half.included_since_sync += 1;
        half.last_first_allele = orientation.first_allele;
        for (haplotype, rank) in orientation.alleles.iter().enumerate().filter(|(_, rank)| **rank != NO_ALLELE) {
            let allele = alleles.allele(*rank);
            // On the haplotype without an insertion, the allele replaces no bases by no bases, so skip it.
            if allele.start == allele.end && allele.base_count == 0 {
                continue;
            }
            half.last_ends[haplotype] = allele.end;
            self.states[side][haplotype] = states.add(self.states[side][haplotype], *rank);
        }
    }

    /// Returns the furthest position of the haplotypes of a side.
    pub(super) fn position(&self, side: usize, states: &HaplotypeStates) -> i32 {
        self.states[side].iter().map(|state| states.position(*state)).max().unwrap_or(-1)
    }

    /// Returns the first haplotype of the calls that is behind another one; `None` if all are at one position.
    fn trailing_haplotype(&self, side: usize, states: &HaplotypeStates) -> Option<usize> {
        let mut trailing = 0;
        let mut differs = false;
        let position = |haplotype: usize| states.position(self.states[side][haplotype]);
        for haplotype in 1..H {
            differs |= position(haplotype) != position(0);
            if position(haplotype) < position(trailing) {
                trailing = haplotype;
            }
        }
        differs.then_some(trailing)
    }

    /// Returns whether all haplotypes are at one position, on the reference, and behind all included variants.
    pub(super) fn is_in_sync(&self, states: &HaplotypeStates) -> bool {
        let position = states.position(self.states[CALLS][0]);
        let is_there = |state: &StateId| states.position(*state) == position && states.is_on_reference(*state);
        self.states.as_flattened().iter().all(is_there) && self.sides.iter().all(|half| position >= half.included_end)
    }

    /// Returns whether one side alone has included variants since the last sync point.
    pub(super) fn is_no_op(&self) -> bool {
        (self.sides[CALLS].included_since_sync == 0) != (self.sides[TRUTH].included_since_sync == 0)
    }

    pub(super) fn is_finished(&self) -> bool {
        self.sides.iter().flat_map(|half| half.is_finished).all(|is_finished| is_finished)
    }

    /// Returns whether the current bases of both sides are equal.
    pub(super) fn matches(&self, states: &HaplotypeStates) -> bool {
        (0..H).all(|haplotype| {
            let is_finished = self.sides.iter().any(|half| half.is_finished[haplotype]);
            is_finished || states.base(self.states[CALLS][haplotype]) == states.base(self.states[TRUTH][haplotype])
        })
    }

    /// Moves all haplotypes by one base, or those of the trailing haplotype of the calls.
    pub(super) fn step(&mut self, states: &mut HaplotypeStates) {
        match self.trailing_haplotype(CALLS, states) {
            Some(haplotype) => self.step_haplotype(haplotype, states),
            None => (0..H).for_each(|haplotype| self.step_haplotype(haplotype, states)),
        }
    }

    fn step_haplotype(&mut self, haplotype: usize, states: &mut HaplotypeStates) {
        for side in [CALLS, TRUTH] {
            let state = &mut self.states[side][haplotype];
            if states.has_next(*state) {
                *state = states.next(*state);
            } else {
                self.sides[side].is_finished[haplotype] = true;
            }
        }
    }

    /// Moves the haplotypes of a side to a position.
    pub(super) fn move_forward(&mut self, side: usize, position: i32, states: &mut HaplotypeStates) {
        self.states[side] = self.states[side].map(|state| states.move_forward(state, position));
    }

    /// Returns whether a variant of a side has to be considered now, because it starts at the next base or continues
    /// an allele.
    pub(super) fn is_variant_due(&self, side: usize, start: i32, states: &HaplotypeStates) -> bool {
        if start <= self.position(side, states) + 1 {
            return true;
        }
        start <= self.sides[side].variant_end && self.states[side].iter().any(|state| states.wants_future_bases(*state))
    }

    /// Returns whether this path is better than another one that explains the same haplotypes.
    pub(super) fn is_better_than(&self, other: &Self, preference: Preference) -> bool {
        match preference {
            Preference::MostVariants => self.has_more_variants(other),
            Preference::MostCallsFewestTruth => self.has_more_calls(other),
        }
    }

    fn has_more_variants(&self, other: &Self) -> bool {
        let total = |path: &Self| path.sides[CALLS].included_count + path.sides[TRUTH].included_count;
        let has_truth = |path: &Self| path.sides[TRUTH].included_count > 0;
        if total(self) != total(other) || !(has_truth(self) && has_truth(other)) {
            return total(self) > total(other);
        }
        let imbalance =
            |path: &Self| path.sides[CALLS].included_since_sync.abs_diff(path.sides[TRUTH].included_since_sync);
        if imbalance(self) != imbalance(other) {
            return imbalance(self) < imbalance(other);
        }
        let last_sync_point = |path: &Self| path.last_sync_point.unwrap_or(0);
        if last_sync_point(self) != last_sync_point(other) {
            return last_sync_point(self) > last_sync_point(other);
        }
        self.sides[TRUTH].last_first_allele < other.sides[TRUTH].last_first_allele
    }

    fn has_more_calls(&self, other: &Self) -> bool {
        let count = |path: &Self, side: usize| path.sides[side].included_count;
        if count(self, CALLS) != count(other, CALLS) {
            return count(self, CALLS) > count(other, CALLS);
        }
        if count(self, TRUTH) == count(other, TRUTH) && count(self, TRUTH) > 0 {
            return self.sides[TRUTH].last_first_allele < other.sides[TRUTH].last_first_allele;
        }
        count(self, TRUTH) < count(other, TRUTH)
    }
}
