//! The outcome of a record: how it counts, and how the outputs name it.

use crate::evaluation::{SegmentVerdicts, SideVerdicts, Verdict};
use crate::search::{CALLS, TRUTH};

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CallOutcome {
    /// The variant is in an interval that was too complex for the search.
    TooComplex,
    /// The genotype is true; the weight is 0 if the matching variants of the truth do not count.
    GenotypeMatch {
        weight: f64,
    },
    /// An allele is true.
    AlleleMatch {
        weight: f64,
    },
    /// Outside of the confident regions, and not matched.
    Outside,
    False,
}

/// The outcome of a variant of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TruthOutcome {
    /// The variant is in an interval that was too complex for the search.
    TooComplex,
    /// Outside of the confident regions.
    Outside,
    GenotypeMatch,
    AlleleMatch,
    Missed,
}

/// The variant of a record, if it has one, by record number.
#[derive(Debug)]
pub(crate) struct VariantCursor<'v> {
    side: &'v SideVerdicts,
    next: usize,
}

impl<'v> VariantCursor<'v> {
    pub(crate) fn new(side: &'v SideVerdicts) -> Self {
        Self { side, next: 0 }
    }

    /// Returns the index of the variant of a record. Records must be requested in ascending order.
    pub(crate) fn variant_of(&mut self, record: usize) -> Option<usize> {
        let variants = &self.side.set.variants;
        let index = self.next;
        let found = variants.get(index).is_some_and(|variant| variant.record as usize == record);
        self.next += usize::from(found);
        found.then_some(index)
    }
}

impl SegmentVerdicts {
    /// Returns the outcome of a variant of the call set.
    pub(crate) fn call_outcome(&self, index: usize) -> CallOutcome {
        let side = &self.sides[CALLS];
        let weight = side.weights[index];
        match side.verdicts[index] {
            Verdict::Skipped => CallOutcome::TooComplex,
            Verdict::GenotypeMatch => CallOutcome::GenotypeMatch { weight },
            Verdict::AlleleMatch => CallOutcome::AlleleMatch { weight },
            Verdict::NoMatch if side.set.variants[index].is_outside => CallOutcome::Outside,
            Verdict::NoMatch => CallOutcome::False,
        }
    }

    /// Returns the outcome of a variant of the truth.
    pub(crate) fn truth_outcome(&self, index: usize) -> TruthOutcome {
        let side = &self.sides[TRUTH];
        match side.verdicts[index] {
            Verdict::Skipped => TruthOutcome::TooComplex,
            _ if side.set.variants[index].is_outside => TruthOutcome::Outside,
            Verdict::GenotypeMatch => TruthOutcome::GenotypeMatch,
            Verdict::AlleleMatch => TruthOutcome::AlleleMatch,
            Verdict::NoMatch => TruthOutcome::Missed,
        }
    }

    /// Returns the number of the sync section that contains a variant, in the search for genotypes.
    pub(crate) fn genotype_section(&self, side: usize, index: usize) -> i32 {
        section(&self.sync_points, self.sides[side].set.variants[index].start).unwrap_or(0) + 1
    }

    /// Returns the number of the sync section that contains a variant, in the search for alleles.
    pub(crate) fn allele_section(&self, side: usize, index: usize) -> i32 {
        section(&self.allele_sync_points, self.sides[side].set.variants[index].start).unwrap_or(0) + 1
    }

    /// Returns the number of the sync section of a variant without a match: that of the last search that judged it.
    pub(crate) fn last_section(&self, side: usize, index: usize) -> i32 {
        let start = self.sides[side].set.variants[index].start;
        match section(&self.allele_sync_points, start).filter(|section| *section > 0) {
            Some(section) => section + 1,
            None => self.genotype_section(side, index),
        }
    }
}

/// Returns one more than the last sync point before a position, or than the first one if there is none before.
fn section(sync_points: &[i32], start: i32) -> Option<i32> {
    let after = sync_points.partition_point(|point| *point < start);
    sync_points.get(after.saturating_sub(1)).map(|point| point + 1)
}
