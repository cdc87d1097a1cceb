//! Orientations: the ways in which the alleles of a variant can be assigned to the haplotypes of a sample.

use crate::alleles::{AlleleRank, NO_ALLELE};
use crate::comparison_options::PhaseRule;
use crate::genotype::MISSING_ALLELE;
use crate::variants::{Variant, VariantSet};

/// The rule that enumerates orientations. The order of the orientations decides ties of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrientationRule {
    /// The genotype, in each order of its alleles.
    Genotype { ploidy: usize, phase: PhaseRule },
    /// One alternate allele of the genotype, on a single haplotype.
    AnyAllele,
    /// One or both alternate alleles of a diploid genotype, on two haplotypes.
    AnyDiploidAllele,
    /// One alternate allele of the record, on a single haplotype.
    AnyAlternate,
    /// Every genotype of two haplotypes with an alternate of the record.
    AnyDiploidGenotype,
    /// Every genotype of several haplotypes with an alternate of the record, in each of its orders.
    AnyGenotype { ploidy: usize },
}

impl OrientationRule {
    /// Returns the number of haplotypes.
    pub(crate) fn haplotypes(self) -> usize {
        match self {
            Self::Genotype { ploidy, .. } | Self::AnyGenotype { ploidy } => ploidy,
            Self::AnyAllele | Self::AnyAlternate => 1,
            Self::AnyDiploidAllele | Self::AnyDiploidGenotype => 2,
        }
    }

    /// Returns the orientations of a variant: allele numbers by haplotype, and whether they are in the order of the
    /// record.
    fn of_variant(self, set: &VariantSet, variant: &Variant) -> Vec<(Vec<i32>, bool)> {
        let genotype = set.genotype(variant);
        let replaces = |allele: i32| set.slots[variant.slot(allele)].is_some();
        let unordered = |orders: Vec<Vec<i32>>| orders.into_iter().map(|order| (order, false)).collect();
        match self {
            Self::Genotype { phase, .. } => genotype_orders(genotype, variant.is_phased, phase),
            Self::AnyAllele => {
                let mut alternates: Vec<i32> = genotype.to_vec();
                alternates.sort_unstable();
                alternates.dedup();
                alternates.retain(|allele| *allele > 0 && replaces(*allele));
                unordered(alternates.into_iter().map(|allele| vec![allele]).collect())
            }
            Self::AnyDiploidAllele => {
                let is_used = |allele: i32| allele > 0 && replaces(allele);
                let (first, second) = (genotype[0], genotype[1]);
                let a = if is_used(first) { first } else { second };
                let b = if is_used(second) { second } else { first };
                let orders = match a == b {
                    true => vec![vec![0, a], vec![a, 0], vec![a, a]],
                    false => vec![vec![0, a], vec![0, b], vec![a, 0], vec![b, 0], vec![a, b], vec![b, a]],
                };
                unordered(orders)
            }
            Self::AnyAlternate => unordered((1..variant.allele_count as i32).map(|allele| vec![allele]).collect()),
            Self::AnyDiploidGenotype => unordered(diploid_genotypes(variant, replaces(MISSING_ALLELE))),
            Self::AnyGenotype { ploidy } => {
                let mut orders = Vec::new();
                let mut genotype = vec![MISSING_ALLELE; ploidy];
                for allele in 1..variant.allele_count as i32 {
                    genotype[0] = allele;
                    push_genotypes(&mut genotype, 1, replaces(MISSING_ALLELE), &mut orders);
                }
                unordered(orders)
            }
        }
    }
}

fn genotype_orders(genotype: &[i32], is_phased: bool, phase: PhaseRule) -> Vec<(Vec<i32>, bool)> {
    match phase {
        PhaseRule::Obey if is_phased => return vec![(genotype.to_vec(), true)],
        PhaseRule::Invert if is_phased => return vec![(genotype.iter().rev().copied().collect(), false)],
        _ => {}
    }
    match *genotype {
        [a, b] if a == b => vec![(vec![a, a], true)],
        [a, b] => vec![(vec![a, b], true), (vec![b, a], false)],
        _ => permutations(genotype).into_iter().map(|order| (order, false)).collect(),
    }
}

/// Returns the distinct orders of numbers, in lexicographic order.
fn permutations(numbers: &[i32]) -> Vec<Vec<i32>> {
    let mut order = numbers.to_vec();
    order.sort_unstable();
    let mut orders = vec![order.clone()];
    while let Some(at) = order.windows(2).rposition(|pair| pair[0] < pair[1]) {
        let Some(larger) = order.iter().rposition(|number| *number > order[at]) else { break };
        order.swap(at, larger);
        order[at + 1..].reverse();
        orders.push(order.clone());
    }
    orders
}

fn diploid_genotypes(variant: &Variant, is_missing_explicit: bool) -> Vec<Vec<i32>> {
    let mut orders = Vec::new();
    for allele in 1..variant.allele_count as i32 {
        for other in (MISSING_ALLELE..allele).filter(|other| *other != 0 || is_missing_explicit) {
            orders.extend([vec![allele, other], vec![other, allele]]);
        }
        orders.push(vec![allele, allele]);
    }
    orders
}

/// Appends the orders of every genotype that continues `genotype[..index]` with alleles that do not ascend.
fn push_genotypes(genotype: &mut [i32], index: usize, is_missing_explicit: bool, orders: &mut Vec<Vec<i32>>) {
    if index == genotype.len() {
        orders.extend(permutations(genotype));
        return;
    }
    for allele in (MISSING_ALLELE..=genotype[index - 1]).filter(|allele| *allele != 0 || is_missing_explicit) {
        genotype[index] = allele;
        push_genotypes(genotype, index + 1, is_missing_explicit, orders);
    }
}

/// One orientation of a variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orientation<'o> {
    /// Rank of the allele of each haplotype.
    pub(crate) alleles: &'o [AlleleRank],
    /// Allele number of the first haplotype.
    pub(crate) first_allele: i32,
    /// True if the alleles are in the order of the record.
    pub(crate) is_original: bool,
}

/// The orientations of a list of variants.
#[derive(Debug, Default)]
pub(crate) struct Orientations {
    haplotypes: usize,
    /// Index of the first orientation of each variant, and the number of all orientations.
    firsts: Vec<u32>,
    alleles: Vec<AlleleRank>,
    first_alleles: Vec<i32>,
    are_original: Vec<bool>,
}

impl Orientations {
    /// Enumerates the orientations of the variants `order` of a set; `ranks` are those of its allele slots.
    pub(crate) fn new(set: &VariantSet, ranks: &[AlleleRank], order: &[u32], rule: OrientationRule) -> Self {
        let mut all = Self { haplotypes: rule.haplotypes(), firsts: vec![0], ..Self::default() };
        for index in order {
            let variant = &set.variants[*index as usize];
            for (alleles, is_original) in rule.of_variant(set, variant) {
                all.first_alleles.push(alleles[0]);
                all.are_original.push(is_original);
                let rank = |allele: &i32| ranks.get(variant.slot(*allele)).copied().unwrap_or(NO_ALLELE);
                all.alleles.extend(alleles.iter().map(rank));
            }
            all.firsts.push(all.first_alleles.len() as u32);
        }
        all
    }

    /// Returns the orientations of the variant with an index in the list.
    pub(crate) fn of(&self, index: usize) -> impl Iterator<Item = Orientation<'_>> {
        (self.firsts[index] as usize..self.firsts[index + 1] as usize).map(|at| Orientation {
            alleles: &self.alleles[at * self.haplotypes..][..self.haplotypes],
            first_allele: self.first_alleles[at],
            is_original: self.are_original[at],
        })
    }
}
