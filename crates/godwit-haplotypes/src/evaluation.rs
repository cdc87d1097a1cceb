//! The verdict for every variant of one contig, segment by segment.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use crate::alleles::{AlleleTable, Template};
use crate::comparison_options::{HaplotypeOptions, ScoreField, Subset};
use crate::contig_records::ContigRecords;
use crate::orientations::OrientationRule;
use crate::phasing::{PhasingCounter, PhasingCounts};
use crate::regions::Regions;
use crate::search::{
    BestPath, CALLS, PathProgress, SearchError, SearchInput, SearchSide, TRUTH, TooComplex, find_best_path,
};
use crate::segments::{Segment, next_segment};
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

/// The largest number of paths of a search, and the intervals that were too complex.
#[derive(Debug, Default)]
pub(crate) struct SearchNotes {
    pub(crate) most_paths: usize,
    pub(crate) too_complex: Vec<TooComplex>,
}

/// The verdicts of one segment.
#[derive(Debug)]
pub(crate) struct SegmentVerdicts {
    /// Numbers of the records of each side.
    pub(crate) records: [Range<usize>; 2],
    pub(crate) sides: [SideVerdicts; 2],
    /// Sync points of the search for genotypes; empty if no search was made.
    pub(crate) sync_points: Vec<i32>,
    /// Sync points of the search for alleles; empty if no search was made.
    pub(crate) allele_sync_points: Vec<i32>,
}

/// The results of the searches of a whole contig.
#[derive(Debug, Default)]
pub(crate) struct ContigSummary {
    pub(crate) phasing: PhasingCounts,
    /// The search for genotypes, and the search for alleles.
    pub(crate) searches: [SearchNotes; 2],
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

    fn load_rules<'c>(&'c self, contig: &'c Contig, side: usize) -> LoadRules<'c> {
        LoadRules {
            sample: self.samples[side],
            ploidy: self.ploidy(),
            all_records: self.options.all_records,
            max_allele_bases: self.options.rules.max_allele_bases,
            explicit_unknown_alleles: self.options.rules.explicit_unknown_alleles,
            confident: self.confident,
            contig: &contig.name,
            contig_bases: contig.template.base_count(),
        }
    }

    /// Loads the variants of records of a side. Stops after `max_variants` variants.
    fn load(
        &self,
        contig: &Contig,
        side: usize,
        records: Range<usize>,
        max_variants: usize,
    ) -> Result<VariantSet, EvaluationError> {
        let rules = self.load_rules(contig, side);
        let mut set = VariantSet::default();
        for number in records {
            if set.variants.len() >= max_variants {
                break;
            }
            let record = contig.records[side].record(number);
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

    /// Returns the bases without a record between two segments: local matches do not extend across them, and neither
    /// do insertions at their borders.
    fn gap_bases(&self) -> i32 {
        self.options.rules.local_match_bases.unwrap_or(0).max(0).saturating_add(2)
    }
}

/// The evaluation of a contig, segment by segment.
#[derive(Debug)]
pub(crate) struct ContigEvaluation<'c> {
    contig: &'c Contig,
    rules: &'c EvaluationRules<'c>,
    /// First record of the next segment, by side; `None` after the last segment.
    next: Option<[usize; 2]>,
    /// True if both sides have variants on the contig. Otherwise no variant has a match, and no search is made.
    is_searched: bool,
    /// The path at the end of the previous segment: of the search for genotypes, and of the search for alleles.
    progress: [PathProgress; 2],
    phasing: PhasingCounter,
    searches: [SearchNotes; 2],
}

/// The best paths of a segment: of the search for genotypes, and of the search for alleles.
type BestPaths = (BestPath, Option<BestPath>);

impl<'c> ContigEvaluation<'c> {
    /// Prepares the evaluation of a contig.
    ///
    /// # Errors
    /// [`EvaluationError::Record`] if a side has an invalid record before its first variant.
    pub(crate) fn new(contig: &'c Contig, rules: &'c EvaluationRules) -> Result<Self, EvaluationError> {
        let has_variants = |side: usize| {
            let set = rules.load(contig, side, 0..contig.records[side].len(), 1)?;
            Ok(!set.variants.is_empty())
        };
        Ok(Self {
            contig,
            rules,
            next: Some([0, 0]),
            is_searched: has_variants(CALLS)? && has_variants(TRUTH)?,
            progress: [PathProgress::default(); 2],
            phasing: PhasingCounter::default(),
            searches: [SearchNotes::default(), SearchNotes::default()],
        })
    }

    /// Finds the verdict for every variant of the next segment; `None` after the last segment.
    ///
    /// # Errors
    /// [`EvaluationError`] for an invalid record, or a search that was cancelled.
    pub(crate) fn next_segment(&mut self) -> Result<Option<SegmentVerdicts>, EvaluationError> {
        let Some(first) = self.next else { return Ok(None) };
        let mut min_records = self.rules.options.rules.segment_records.max(1);
        loop {
            let segment = next_segment(&self.contig.records, first, min_records, self.rules.gap_bases());
            match self.evaluate(&segment) {
                Err(EvaluationError::Search(SearchError::NotInSync)) => min_records = min_records.saturating_mul(2),
                result => {
                    self.next = segment.end.map(|_| segment.records.map(|records| records.end));
                    return result.map(Some);
                }
            }
        }
    }

    /// Returns the results of the searches. Must be called after the last segment.
    pub(crate) fn finish(self) -> ContigSummary {
        ContigSummary { phasing: self.phasing.finish(), searches: self.searches }
    }

    fn evaluate(&mut self, segment: &Segment) -> Result<SegmentVerdicts, EvaluationError> {
        let load = |side: usize| self.rules.load(self.contig, side, segment.records[side].clone(), usize::MAX);
        let sides = [load(CALLS)?, load(TRUTH)?].map(SideVerdicts::new);
        let mut verdicts = SegmentVerdicts {
            records: segment.records.clone(),
            sides,
            sync_points: Vec::new(),
            allele_sync_points: Vec::new(),
        };
        if !self.is_searched {
            verdicts.sides.iter_mut().for_each(|side| side.verdicts.fill(Verdict::NoMatch));
            return Ok(verdicts);
        }
        let (best, matched) = self.search(segment, &verdicts.sides)?;
        self.phasing.add(&best, [&verdicts.sides[CALLS].set, &verdicts.sides[TRUTH].set]);
        verdicts.apply(&best, Verdict::GenotypeMatch, segment.end);
        verdicts.sync_points = self.note(0, best);
        if let Some(matched) = matched {
            verdicts.apply(&matched, Verdict::AlleleMatch, segment.end);
            verdicts.allele_sync_points = self.note(1, matched);
        }
        Ok(verdicts)
    }

    /// Searches for genotypes, and then for alleles among the variants without a match.
    fn search(&self, segment: &Segment, sides: &[SideVerdicts; 2]) -> Result<BestPaths, EvaluationError> {
        let (alleles, ranks) = AlleleTable::new([CALLS, TRUTH].map(|side| {
            let set = &sides[side].set;
            (set.slots.as_slice(), set.bases.as_slice())
        }));
        let search = |number: usize, orders: [Vec<u32>; 2], rule: &dyn Fn(usize) -> OrientationRule| {
            let [calls, truth] = orders;
            let side = |index: usize, order| SearchSide::new(&sides[index].set, &ranks[index], order, rule(index));
            let sides = [side(CALLS, calls), side(TRUTH, truth)];
            let input = SearchInput {
                template: &self.contig.template,
                alleles: &alleles,
                sides: [&sides[CALLS], &sides[TRUTH]],
                rules: &self.rules.options.rules,
                progress: self.progress[number],
                end: segment.end,
                cancelled: self.rules.cancelled,
            };
            find_best_path(&input, rule(CALLS).haplotypes()).map_err(EvaluationError::Search)
        };
        let all = |side: &SideVerdicts| (0..side.set.variants.len() as u32).collect::<Vec<_>>();
        let orders = [all(&sides[CALLS]), all(&sides[TRUTH])];
        let best = search(0, orders, &|side| self.rules.genotype_rule(side))?;
        if !self.rules.options.has_allele_pass() {
            return Ok((best, None));
        }
        let orders = [CALLS, TRUTH].map(|side| best.sides[side].excluded.clone());
        let matched = search(1, orders, &|side| self.rules.allele_rule(side))?;
        Ok((best, Some(matched)))
    }

    /// Adds the notes of a search, and returns its sync points.
    fn note(&mut self, number: usize, path: BestPath) -> Vec<i32> {
        let notes = &mut self.searches[number];
        notes.most_paths = notes.most_paths.max(path.most_paths);
        notes.too_complex.extend(path.too_complex);
        self.progress[number] = path.progress;
        path.sync_points
    }
}

impl SideVerdicts {
    fn new(set: VariantSet) -> Self {
        let count = set.variants.len();
        Self { set, verdicts: vec![Verdict::Skipped; count], weights: vec![0.0; count] }
    }
}

impl SegmentVerdicts {
    /// Sets the verdicts of the variants that a path includes and excludes, and the weights of the included calls. `end` is
    /// the end of the segment; `None` for the last segment of the contig.
    fn apply(&mut self, path: &BestPath, verdict: Verdict, end: Option<i32>) {
        for (side, found) in self.sides.iter_mut().zip(&path.sides) {
            side.verdicts
                .iter_mut()
                .filter(|found| **found == Verdict::NoMatch)
                .for_each(|found| *found = Verdict::Skipped);
            found.included.iter().for_each(|included| side.verdicts[included.variant as usize] = verdict);
            found.excluded.iter().for_each(|index| side.verdicts[*index as usize] = Verdict::NoMatch);
        }
        // The next sync point of the contig is at or after the end of the segment, and before any further variant.
        let points: Vec<i32> = path.sync_points.iter().copied().chain(end.map(|end| end - 1)).collect();
        self.set_weights(path, &points);
    }

    /// Sets the weight of each included call: the number of variants of the truth per call, between two sync points.
    fn set_weights(&mut self, path: &BestPath, sync_points: &[i32]) {
        let [calls, truth] = &mut self.sides;
        let (mut call, mut matched) =
            (path.sides[CALLS].included.iter().peekable(), path.sides[TRUTH].included.iter().peekable());
        let last = sync_points.len().saturating_sub(1);
        for (number, point) in sync_points.iter().enumerate() {
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
