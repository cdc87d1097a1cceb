//! Counts alleles that two sorted lists have in common, and those that one of them lacks.

use std::cmp::Ordering;

use serde::Serialize;

use super::call_set::{Allele, AlleleKey, CallSet};

/// Maximum distance of a missed and a false allele that may represent the same change, bases.
const NEARBY_BASES: i32 = 20;

/// A value for each type of variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerVariantType<T> {
    /// Substitutions of one base.
    pub snps: T,
    /// Insertions, deletions and all other alleles that change the length.
    pub indels: T,
    /// Both types.
    pub all: T,
}

/// Counts of a call set against the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Alleles of the truth.
    pub truth: u64,
    /// Alleles of the call set.
    pub called: u64,
    /// In both sets, with the same genotype, or with any genotype where genotypes are ignored.
    pub found: u64,
    /// In both sets, with another genotype: not counted as found, missed or false, but lowers recall and precision.
    pub other_genotype: u64,
    /// In the truth only.
    pub missed: u64,
    /// In the call set only.
    #[serde(rename = "false")]
    pub wrong: u64,
    /// Missed, with a false one within 20 bases: possibly another representation of the same change.
    pub missed_beside_false: u64,
    /// `found / truth`; null where the truth has none.
    pub recall: Option<f64>,
    /// `found / called`; null where the call set has none.
    pub precision: Option<f64>,
    /// Harmonic mean of both; null where one of them is.
    pub f1: Option<f64>,
}

/// Differences between a call set and a baseline. An allele with another genotype than the truth's counts as false here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BaselineChanges {
    /// Found now, missed before.
    pub true_gained: u64,
    /// Missed now, found before.
    pub true_lost: u64,
    /// False now, not called before.
    pub false_gained: u64,
    /// Not called now, false before.
    pub false_lost: u64,
}

/// An allele that is in one set or in both.
struct AllelePair<'s> {
    call: Option<&'s Allele>,
    truth: Option<&'s Allele>,
}

impl AllelePair<'_> {
    fn is_found(&self) -> bool {
        matches!((self.call, self.truth), (Some(call), Some(truth)) if call.same_genotype(truth))
    }

    fn is_false(&self) -> bool {
        self.call.is_some() && !self.is_found()
    }

    fn allele(&self) -> &Allele {
        self.call.or(self.truth).expect("a pair has one of them")
    }

    fn key<'k>(&self, calls: &'k CallSet, truth: &'k CallSet) -> AlleleKey<'k> {
        let set = if self.call.is_some() { calls } else { truth };
        set.allele_key(self.allele())
    }
}

/// Returns both sets, merged in the order of their keys.
fn merge_alleles<'s>(calls: &'s CallSet, truth: &'s CallSet) -> impl Iterator<Item = AllelePair<'s>> {
    let (mut left, mut right) = (calls.alleles().iter().peekable(), truth.alleles().iter().peekable());
    std::iter::from_fn(move || {
        let order = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) => calls.allele_key(a).cmp(&truth.allele_key(b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        let call = if order.is_le() { left.next() } else { None };
        let truth = if order.is_ge() { right.next() } else { None };
        Some(AllelePair { call, truth })
    })
}

/// Counts a call set against the truth.
pub(super) fn count_accuracy(calls: &CallSet, truth: &CallSet) -> PerVariantType<Accuracy> {
    let mut counts = PerVariantType::<Accuracy>::default();
    let falses: Vec<(u32, i32)> = merge_alleles(calls, truth)
        .filter(|pair| pair.truth.is_none())
        .map(|pair| (pair.allele().contig, pair.allele().position))
        .collect();
    let beside = |missed: &Allele| {
        let from = (missed.contig, missed.position.saturating_sub(NEARBY_BASES));
        let next = falses.get(falses.partition_point(|place| *place < from));
        next.is_some_and(|(contig, position)| {
            *contig == missed.contig && i64::from(*position) <= i64::from(missed.position) + i64::from(NEARBY_BASES)
        })
    };
    for pair in merge_alleles(calls, truth) {
        let allele = pair.allele();
        let class = if allele.is_snp() { &mut counts.snps } else { &mut counts.indels };
        class.truth += u64::from(pair.truth.is_some());
        class.called += u64::from(pair.call.is_some());
        class.found += u64::from(pair.is_found());
        class.other_genotype += u64::from(pair.call.is_some() && pair.truth.is_some() && !pair.is_found());
        class.missed += u64::from(pair.call.is_none());
        class.wrong += u64::from(pair.truth.is_none());
        class.missed_beside_false += u64::from(pair.call.is_none() && beside(allele));
    }
    let (snps, indels) = (counts.snps, counts.indels);
    counts.all = Accuracy {
        truth: snps.truth + indels.truth,
        called: snps.called + indels.called,
        found: snps.found + indels.found,
        missed: snps.missed + indels.missed,
        wrong: snps.wrong + indels.wrong,
        other_genotype: snps.other_genotype + indels.other_genotype,
        missed_beside_false: snps.missed_beside_false + indels.missed_beside_false,
        ..Accuracy::default()
    };
    for class in [&mut counts.snps, &mut counts.indels, &mut counts.all] {
        class.compute_rates();
    }
    counts
}

impl Accuracy {
    fn compute_rates(&mut self) {
        let share = |of: u64| (of > 0).then(|| self.found as f64 / of as f64);
        (self.recall, self.precision) = (share(self.truth), share(self.called));
        let either = self.truth + self.called;
        // 2PR / (P + R), in a form that is defined where nothing was found.
        self.f1 = (self.truth > 0 && self.called > 0).then(|| 2.0 * self.found as f64 / either as f64);
    }
}

/// Counts what `calls` gained and lost against `baseline`.
pub(super) fn count_changes(calls: &CallSet, baseline: &CallSet, truth: &CallSet) -> PerVariantType<BaselineChanges> {
    let mut counts = PerVariantType::<BaselineChanges>::default();
    let mut before = merge_alleles(baseline, truth).peekable();
    let mut count = |allele: &Allele, now: Option<&AllelePair>, before: Option<&AllelePair>| {
        let [found, was_found] = [now, before].map(|pair| pair.is_some_and(|pair| pair.is_found()));
        let [wrong, was_wrong] = [now, before].map(|pair| pair.is_some_and(|pair| pair.is_false()));
        for class in [if allele.is_snp() { &mut counts.snps } else { &mut counts.indels }, &mut counts.all] {
            class.true_gained += u64::from(found && !was_found);
            class.true_lost += u64::from(!found && was_found);
            class.false_gained += u64::from(wrong && !was_wrong);
            class.false_lost += u64::from(!wrong && was_wrong);
        }
    };
    for now in merge_alleles(calls, truth) {
        let here = now.key(calls, truth);
        while let Some(earlier) = before.next_if(|pair| pair.key(baseline, truth) < here) {
            count(earlier.allele(), None, Some(&earlier));
        }
        let same = before.next_if(|pair| pair.key(baseline, truth) == here);
        count(now.allele(), Some(&now), same.as_ref());
    }
    for earlier in before {
        count(earlier.allele(), None, Some(&earlier));
    }
    counts
}
