//! The verdict for every variant of one contig.

use std::sync::atomic::AtomicBool;

use crate::alleles::{AlleleTable, Template};
use crate::comparison_options::{HaplotypeOptions, ScoreField, Subset};
use crate::contig_records::ContigRecords;
use crate::orientations::OrientationRule;
use crate::phasing::{PhasingCounts, count_phasings};
use crate::regions::Regions;
use crate::search::{
    BestPath, CALLS, Complexity, SearchError, SearchInput, SearchSide, TRUTH, TooComplex, find_best_path,
};
use crate::stratification::Stratification;
use crate::trimming::trim_alleles;
use crate::variants::{LoadRules, VariantSet};

/// The records of calls and truth on one contig, and the bases of the contig.
#[derive(Debug)]
pub(crate) struct Contig {
    pub(crate) name: String,
    pub(crate) template: Template,
    /// Records by side; the index is [`CALLS`] or [`TRUTH`].
    pub(crate) records: [ContigRecords; 2],
}

/// The decision of the search about a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The variant is in an interval that was too complex.
    #[default]
    Skipped,
    /// The other file has a variant with the same genotype.
    GenotypeMatch,
    /// The other file has a variant that shares an allele, but not the genotype.
    AlleleMatch,
    NoMatch,
}

/// The variants of one side with their verdicts.
#[derive(Debug, Default)]
pub(crate) struct SideVerdicts {
    pub(crate) set: VariantSet,
    pub(crate) verdicts: Vec<Verdict>,
    /// Number of variants of the truth that each matching call stands for; empty for the truth.
    pub(crate) weights: Vec<f64>,
}

/// The largest complexity of a search, and the intervals that were too complex.
#[derive(Debug)]
pub(crate) struct SearchNotes {
    pub(crate) complexity: Complexity,
    pub(crate) too_complex: Vec<TooComplex>,
}

/// The verdicts of one contig.
#[derive(Debug, Default)]
pub(crate) struct ContigVerdicts {
    pub(crate) sides: [SideVerdicts; 2],
    /// Sync points of the search for genotypes; empty if no search was made.
    pub(crate) sync_points: Vec<i32>,
    /// Sync points of the search for alleles; empty if no search was made.
    pub(crate) allele_sync_points: Vec<i32>,
    pub(crate) phasing: PhasingCounts,
    pub(crate) searches: Vec<SearchNotes>,
}

/// The options of a comparison that are the same for all contigs.
#[derive(Debug)]
pub(crate) struct EvaluationRules<'r> {
    pub(crate) options: &'r HaplotypeOptions,
    /// Index of the sample of each side; `None` for all alternates.
    pub(crate) samples: [Option<usize>; 2],
    /// Score of the calls; `None` for no scores.
    pub(crate) score: Option<&'r ScoreField>,
    /// Subsets of the tables.
    pub(crate) subsets: &'r [Subset],
    pub(crate) confident: Option<&'r Regions>,
    pub(crate) stratification: &'r Stratification,
    pub(crate) cancelled: &'r AtomicBool,
}

/// Why a contig has no verdicts.
#[derive(Debug)]
pub(crate) enum EvaluationError {
    /// A record of a side is invalid.
    Record { side: usize, pos_1based: i64, problem: &'static str },
    /// The search has no result.
    Search(SearchError),
}

impl EvaluationRules<'_> {
    fn ploidy(&self) -> usize {
        self.options.rules.ploidy
    }

    /// Returns the rule of the first search for a side.
    fn genotype_rule(&self, side: usize) -> OrientationRule {
        if self.options.squash_ploidy {
            return self.allele_rule(side);
        }
        let phase = if side == CALLS { self.options.rules.calls_phase } else { self.options.rules.truth_phase };
        match self.samples[side] {
            Some(_) => OrientationRule::Genotype { ploidy: self.ploidy(), phase },
            None => OrientationRule::AnyGenotype { ploidy: self.ploidy() },
        }
    }

    /// Returns the rule of a search for alleles.
    fn allele_rule(&self, side: usize) -> OrientationRule {
        match (self.samples[side], self.options.rules.haploid_allele_matching) {
            (Some(_), true) => OrientationRule::AnyAllele,
            (Some(_), false) => OrientationRule::AnyDiploidAllele,
            (None, true) => OrientationRule::AnyAlternate,
            (None, false) => OrientationRule::AnyDiploidGenotype,
        }
    }

    fn load(&self, contig: &Contig, side: usize) -> Result<VariantSet, EvaluationError> {
        let rules = LoadRules {
            sample: self.samples[side],
            ploidy: self.ploidy(),
            all_records: self.options.all_records,
            max_allele_bases: self.options.rules.max_allele_bases,
            explicit_unknown_alleles: self.options.rules.explicit_unknown_alleles,
            confident: self.confident,
            contig: &contig.name,
            contig_bases: contig.template.base_count(),
        };
        let mut set = VariantSet::default();
        for (number, record) in contig.records[side].iter().enumerate() {
            set.load(number as u32, &record, &rules).map_err(|problem| EvaluationError::Record {
                side,
                pos_1based: i64::from(record.start) + 1,
                problem,
            })?;
        }
        if self.options.ref_overlap {
            trim_alleles(&mut set);
        }
        Ok(set)
    }
}

/// Finds the verdict for every variant of a contig.
///
/// # Errors
/// [`EvaluationError`] for an invalid record, or a search that was cancelled.
pub(crate) fn evaluate(contig: &Contig, rules: &EvaluationRules) -> Result<ContigVerdicts, EvaluationError> {
    let sets = [rules.load(contig, CALLS)?, rules.load(contig, TRUTH)?];
    let mut result = ContigVerdicts { sides: sets.map(SideVerdicts::new), ..ContigVerdicts::default() };
    if result.sides.iter().any(|side| side.set.variants.is_empty()) {
        result.sides.iter_mut().for_each(|side| side.verdicts.fill(Verdict::NoMatch));
        return Ok(result);
    }
    let all = |side: &SideVerdicts| (0..side.set.variants.len() as u32).collect::<Vec<_>>();
    let orders = [all(&result.sides[CALLS]), all(&result.sides[TRUTH])];
    let (alleles, ranks) = AlleleTable::new([CALLS, TRUTH].map(|side| {
        let set = &result.sides[side].set;
        (set.slots.as_slice(), set.bases.as_slice())
    }));
    let search = |sides: &[SideVerdicts; 2], orders: [Vec<u32>; 2], rule: &dyn Fn(usize) -> OrientationRule| {
        let [calls, truth] = orders;
        let side = |index: usize, order| SearchSide::new(&sides[index].set, &ranks[index], order, rule(index));
        let sides = [side(CALLS, calls), side(TRUTH, truth)];
        let input = SearchInput {
            template: &contig.template,
            alleles: &alleles,
            sides: [&sides[CALLS], &sides[TRUTH]],
            rules: &rules.options.rules,
            cancelled: rules.cancelled,
        };
        find_best_path(&input, rule(CALLS).haplotypes()).map_err(EvaluationError::Search)
    };
    let best = search(&result.sides, orders, &|side| rules.genotype_rule(side))?;
    result.phasing = count_phasings(&best, [&result.sides[CALLS].set, &result.sides[TRUTH].set]);
    result.apply(&best, Verdict::GenotypeMatch);
    if rules.options.has_allele_pass() {
        let orders = [CALLS, TRUTH].map(|side| best.sides[side].excluded.clone());
        orders.iter().enumerate().for_each(|(side, order)| result.sides[side].set_verdicts(order, Verdict::Skipped));
        let matched = search(&result.sides, orders, &|side| rules.allele_rule(side))?;
        result.apply(&matched, Verdict::AlleleMatch);
        result.allele_sync_points.clone_from(&matched.sync_points);
        result.searches.push(SearchNotes::of(best.complexity, best.too_complex));
        result.searches.push(SearchNotes::of(matched.complexity, matched.too_complex));
    } else {
        result.searches.push(SearchNotes::of(best.complexity, best.too_complex));
    }
    result.sync_points = best.sync_points;
    Ok(result)
}

impl SearchNotes {
    fn of(complexity: Complexity, too_complex: Vec<TooComplex>) -> Self {
        Self { complexity, too_complex }
    }
}

impl SideVerdicts {
    fn new(set: VariantSet) -> Self {
        let count = set.variants.len();
        Self { set, verdicts: vec![Verdict::Skipped; count], weights: vec![0.0; count] }
    }

    fn set_verdicts(&mut self, variants: &[u32], verdict: Verdict) {
        variants.iter().for_each(|index| self.verdicts[*index as usize] = verdict);
    }
}

impl ContigVerdicts {
    /// Sets the verdicts of the variants that a path includes and excludes, and the weights of the included calls.
    fn apply(&mut self, path: &BestPath, verdict: Verdict) {
        for (side, found) in self.sides.iter_mut().zip(&path.sides) {
            found.included.iter().for_each(|included| side.verdicts[included.variant as usize] = verdict);
            side.set_verdicts(&found.excluded, Verdict::NoMatch);
        }
        self.set_weights(path);
    }

    /// Sets the weight of each included call: the number of variants of the truth per call, between two sync points.
    fn set_weights(&mut self, path: &BestPath) {
        let [calls, truth] = &mut self.sides;
        let (mut call, mut matched) =
            (path.sides[CALLS].included.iter().peekable(), path.sides[TRUTH].included.iter().peekable());
        let last = path.sync_points.len().saturating_sub(1);
        for (number, point) in path.sync_points.iter().enumerate() {
            let (mut truth_count, mut inside_count) = (0_u32, 0_u32);
            while let Some(found) = matched.next_if(|found| truth.set.variants[found.variant as usize].start <= *point)
            {
                truth_count += 1;
                inside_count += u32::from(!truth.set.variants[found.variant as usize].is_outside);
            }
            let mut section = Vec::new();
            let is_in = |index: u32| calls.set.variants[index as usize].start <= *point;
            while let Some(found) = call.next_if(|found| is_in(found.variant)) {
                section.push(found.variant);
            }
            let call_count = section.len();
            // Calls after the last sync point belong to its section, but are not counted.
            if number == last {
                section.extend(call.by_ref().map(|found| found.variant));
            }
            let weight = if truth_count == 0 { 0.0 } else { f64::from(inside_count) / call_count as f64 };
            section.iter().for_each(|index| calls.weights[*index as usize] = weight);
        }
    }
}
