//! Phase of the calls compared with the phase of the truth, along the best path.

use serde::Serialize;

use crate::search::{BestPath, CALLS, TRUTH};
use crate::variants::VariantSet;

/// Counts of phased calls, as in vcfeval's `phasing.txt`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhasingCounts {
    /// Calls whose phase relative to the previous call agrees with the truth.
    pub correct: u64,
    /// Calls whose phase relative to the previous call disagrees with the truth.
    pub incorrect: u64,
    /// Phased calls where the truth is not phased in one orientation.
    pub unresolvable: u64,
}

impl PhasingCounts {
    /// Adds the counts of another contig.
    pub(crate) fn add(&mut self, other: Self) {
        self.correct += other.correct;
        self.incorrect += other.incorrect;
        self.unresolvable += other.unresolvable;
    }
}

#[derive(Clone, Copy, Debug)]
struct PathVariant {
    start: i32,
    is_phased: bool,
    is_included: bool,
    /// Orientation on the path; false for an excluded variant.
    phase: bool,
}

/// Returns the variants of one side of a path by start. An excluded variant precedes an included one only if it starts
/// earlier.
fn merge_variants(path: &BestPath, side: usize, set: &VariantSet) -> Vec<PathVariant> {
    let variant = |index: u32, is_included: bool, phase: bool| {
        let variant = &set.variants[index as usize];
        PathVariant { start: variant.start, is_phased: variant.is_phased, is_included, phase }
    };
    let side = &path.sides[side];
    let mut included = side.included.iter().map(|found| variant(found.variant, true, found.is_original)).peekable();
    let mut excluded = side.excluded.iter().map(|index| variant(*index, false, false)).peekable();
    let mut merged = Vec::with_capacity(side.included.len() + side.excluded.len());
    loop {
        let is_excluded_first = match (included.peek(), excluded.peek()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(included), Some(excluded)) => excluded.start < included.start,
        };
        match if is_excluded_first { excluded.next() } else { included.next() } {
            Some(variant) => merged.push(variant),
            None => return merged,
        }
    }
}

/// The phase of the variants before a section.
#[derive(Debug, Default)]
struct PhaseRun {
    is_truth_phased: bool,
    truth_phase: bool,
    is_call_phased: bool,
    call_phase: bool,
}

/// Counts the phased calls of the best paths of the segments of a contig.
#[derive(Debug, Default)]
pub(crate) struct PhasingCounter {
    run: PhaseRun,
    /// Variants of the truth, calls, and sync points that are not counted yet.
    truth: Vec<PathVariant>,
    calls: Vec<PathVariant>,
    sync_points: Vec<i32>,
    /// True if the call after the end of a section was already read from the list; it belongs to the next section.
    is_call_taken: bool,
    counts: PhasingCounts,
}

impl PhasingCounter {
    /// Adds the best path of the next segment.
    pub(crate) fn add(&mut self, path: &BestPath, sets: [&VariantSet; 2]) {
        self.truth.extend(merge_variants(path, TRUTH, sets[TRUTH]));
        self.calls.extend(merge_variants(path, CALLS, sets[CALLS]));
        self.sync_points.extend_from_slice(&path.sync_points);
        self.count(false);
    }

    /// Returns the counts of the contig.
    pub(crate) fn finish(mut self) -> PhasingCounts {
        self.count(true);
        self.counts
    }

    /// Counts the sections that are complete. The call after the end of a section must be known, unless `is_last`.
    fn count(&mut self, is_last: bool) {
        let (mut next_truth, mut next_call, mut points) = (0, 0, 0);
        for point in &self.sync_points {
            if self.is_call_taken && next_call == self.calls.len() && !is_last {
                break;
            }
            points += 1;
            let truth_count = self.truth[next_truth..].iter().take_while(|variant| variant.start < *point).count();
            let truth_section = &self.truth[next_truth..next_truth + truth_count];
            next_truth += truth_count;
            let first_call = next_call;
            if self.is_call_taken && next_call < self.calls.len() {
                next_call += 1;
            }
            next_call += self.calls[next_call..].iter().take_while(|call| call.start < *point).count();
            self.is_call_taken = true;
            self.run.count_section(truth_section, &self.calls[first_call..next_call], &mut self.counts);
        }
        self.truth.drain(..next_truth);
        self.calls.drain(..next_call);
        self.sync_points.drain(..points);
    }
}

impl PhaseRun {
    fn count_section(&mut self, truth: &[PathVariant], calls: &[PathVariant], counts: &mut PhasingCounts) {
        let is_in_phase = truth.iter().all(|variant| variant.is_phased && variant.phase == truth[0].phase);
        if !is_in_phase {
            counts.unresolvable += calls.iter().filter(|call| call.is_phased).count() as u64;
            (self.is_truth_phased, self.is_call_phased) = (false, false);
            return;
        }
        self.is_call_phased &= self.is_truth_phased;
        let mut is_changed = false;
        if let Some(first) = truth.first() {
            is_changed = self.truth_phase != first.phase;
            self.is_truth_phased = true;
            self.truth_phase = first.phase;
        }
        for call in calls {
            if !call.is_phased {
                self.is_call_phased = false;
            } else if !self.is_call_phased {
                (self.is_call_phased, self.call_phase) = (true, call.phase);
            } else if call.is_included {
                if (call.phase != self.call_phase) == is_changed {
                    counts.correct += 1;
                } else {
                    counts.incorrect += 1;
                }
                self.call_phase = call.phase;
            }
            is_changed = false;
        }
    }
}
