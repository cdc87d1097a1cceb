//! Counts the alleles that two sorted call sets have in common, and those that only one of them has.

use std::cmp::Ordering;

use serde::Serialize;

use super::call_set::{Allele, AlleleKey, CallSet};

/// Maximum distance in bases between a missed and a false allele that may represent the same change.
const NEARBY_BASES: i32 = 20;

/// A value for each type of variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PerVariantType<T> {
    /// Substitutions of one base.
    pub snps: T,
    /// Insertions, deletions and all other alleles that change the length.
    pub indels: T,
    /// Both types together.
    pub all: T,
}

/// Counts of the alleles of a call set, compared with the truth set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Accuracy {
    /// Alleles of the truth set.
    pub truth: u64,
    /// Alleles of the call set.
    pub called: u64,
    /// Number of alleles that both sets have with the same genotype. If genotypes are ignored, all shared alleles.
    pub found: u64,
    /// Alleles in both sets with different genotypes. They do not count as found, missed or false, but lower recall and
    /// precision.
    pub other_genotype: u64,
    /// Alleles in the truth set only.
    pub missed: u64,
    /// Alleles in the call set only.
    #[serde(rename = "false")]
    pub wrong: u64,
    /// Number of missed alleles with a false positive within 20 bases, which may represent the same change in another
    /// way.
    pub missed_beside_false: u64,
    /// `found / truth`; null if the truth set has no alleles.
    pub recall: Option<f64>,
    /// `found / called`; null if the call set has no alleles.
    pub precision: Option<f64>,
    /// Harmonic mean of recall and precision; null if one of them is null.
    pub f1: Option<f64>,
}

/// Differences between a call set and a baseline. Here, an allele whose genotype differs from that in the truth set
/// counts as false.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BaselineChanges {
    /// Alleles that are found in the call set, but not in the baseline.
    pub true_gained: u64,
    /// Alleles that are found in the baseline, but not in the call set.
    pub true_lost: u64,
    /// Alleles that are false in the call set, but not in the baseline.
    pub false_gained: u64,
    /// Alleles that are false in the baseline, but not in the call set.
    pub false_lost: u64,
}

/// An allele that is in the call set, in the truth set, or in both.
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

/// Returns the alleles of both sets in the order of their keys. An allele that is in both sets is returned once.
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

/// Counts the alleles of a call set and compares them with the truth set.
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
        // F1 is 2PR / (P + R), here in a form that is defined even if nothing was found.
        self.f1 = (self.truth > 0 && self.called > 0).then(|| 2.0 * self.found as f64 / either as f64);
    }
}

/// Counts the true and false alleles that `calls` gained and lost against `baseline`.
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
