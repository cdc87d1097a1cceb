//! Counts by stratum and type, with the definitions and the column names of hap.py's extended table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::comparison_options::Subset;
use crate::evaluation::{Contig, EvaluationError, EvaluationRules, SegmentVerdicts};
use crate::number_format::fixed;
use crate::outcome::{CallOutcome, TruthOutcome};
use crate::roc::TypeCounts;
use crate::search::{CALLS, TRUTH};
use crate::subsets::subset_bits;

/// Types with counts of their own, and their names in the table.
const TYPES: [(Subset, &str); 2] = [(Subset::Snp, "SNP"), (Subset::Indel, "INDEL")];
/// Columns of the table, in the order of hap.py.
const COLUMNS: &str = "Type,Subtype,Subset,Filter,Genotype,METRIC.Recall,METRIC.Precision,METRIC.Frac_NA,\
                       METRIC.F1_Score,FP.gt,FP.al,TRUTH.TOTAL,TRUTH.TP,TRUTH.FN,QUERY.TOTAL,QUERY.TP,QUERY.FP,QUERY.UNK";

/// Sums of the variants of one type in one stratum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StratumSums {
    truth: u64,
    found: u64,
    true_calls: u64,
    false_calls: u64,
    unknown_calls: u64,
    allele_matches: u64,
    local_matches: u64,
}

/// Sums by stratum and type; the first stratum contains all variants.
pub(crate) type StrataSums = Vec<[StratumSums; TYPES.len()]>;

/// Counts of the variants of one stratum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StratumReport {
    /// Name of the stratum; `*` for all variants.
    pub name: String,
    /// Substitutions of one base.
    pub snps: StratumCounts,
    /// Insertions, deletions, and both together.
    pub indels: StratumCounts,
}

/// Counts and rates of the variants of one type in one stratum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StratumCounts {
    /// Counts and rates as for all variants.
    #[serde(flatten)]
    pub counts: TypeCounts,
    /// Calls outside of the confident regions; they are not in the other counts.
    pub unknown: u64,
    /// False calls with an allele of the truth, but another genotype; null if alleles are not matched.
    pub false_genotypes: Option<u64>,
    /// Other false calls near a variant of the truth; null if alleles or local matches are not matched.
    pub false_alleles: Option<u64>,
}

impl StratumSums {
    fn add(&mut self, other: &Self) {
        self.truth += other.truth;
        self.found += other.found;
        self.true_calls += other.true_calls;
        self.false_calls += other.false_calls;
        self.unknown_calls += other.unknown_calls;
        self.allele_matches += other.allele_matches;
        self.local_matches += other.local_matches;
    }
}

/// Returns the sums of one segment; none if a side has no genotypes.
pub(crate) fn count_by_stratum(
    contig: &Contig,
    verdicts: &SegmentVerdicts,
    rules: &EvaluationRules,
) -> Result<StrataSums, EvaluationError> {
    if rules.samples.contains(&None) {
        return Ok(Vec::new());
    }
    let strata = rules.stratification.on_contig(&contig.name);
    let subsets = TYPES.map(|(subset, _)| subset);
    let mut sums: StrataSums = vec![Default::default(); strata.count()];
    let nearby = NearbyTruth::new(contig, verdicts, rules.options.rules.local_match_bases);
    for side in [CALLS, TRUTH] {
        for (index, variant) in verdicts.sides[side].set.variants.iter().enumerate() {
            let record = contig.records[side].record(variant.record as usize);
            let added = match side {
                CALLS => call_sums(verdicts.call_outcome(index), || nearby.reaches(record.start, record.end())),
                _ => truth_sums(verdicts.truth_outcome(index)),
            };
            let Some(added) = added else { continue };
            let failed = |problem| EvaluationError::Record { side, pos_1based: i64::from(record.start) + 1, problem };
            // Shift by one bit, because bit 0 stands for all variants.
            let types = subset_bits(&record, rules.samples[side], &subsets).map_err(failed)? >> 1;
            if types == 0 {
                continue;
            }
            for stratum in strata.overlapped(variant.start, variant.end) {
                let types = (0..TYPES.len()).filter(|index| types >> index & 1 == 1);
                types.for_each(|index| sums[stratum][index].add(&added));
            }
        }
    }
    Ok(sums)
}

/// Returns what a call adds; `None` for a call in an interval that was too complex.
fn call_sums(outcome: CallOutcome, is_near_truth: impl FnOnce() -> bool) -> Option<StratumSums> {
    let is_true = |weight: f64| StratumSums {
        true_calls: u64::from(weight > 0.0),
        unknown_calls: u64::from(weight <= 0.0),
        ..StratumSums::default()
    };
    match outcome {
        CallOutcome::TooComplex => None,
        CallOutcome::GenotypeMatch { weight } => Some(is_true(weight)),
        CallOutcome::AlleleMatch { weight } if weight > 0.0 => {
            Some(StratumSums { false_calls: 1, allele_matches: 1, ..StratumSums::default() })
        }
        CallOutcome::False => {
            let local_matches = u64::from(is_near_truth());
            Some(StratumSums { false_calls: 1, local_matches, ..StratumSums::default() })
        }
        CallOutcome::AlleleMatch { .. } | CallOutcome::Outside => {
            Some(StratumSums { unknown_calls: 1, ..StratumSums::default() })
        }
    }
}

/// Returns what a variant of the truth adds; `None` if it does not count.
fn truth_sums(outcome: TruthOutcome) -> Option<StratumSums> {
    let found = match outcome {
        TruthOutcome::TooComplex | TruthOutcome::Outside => return None,
        TruthOutcome::GenotypeMatch => 1,
        TruthOutcome::AlleleMatch | TruthOutcome::Missed => 0,
    };
    Some(StratumSums { truth: 1, found, ..StratumSums::default() })
}

/// The records of the truth that count, to find those near a call.
struct NearbyTruth {
    /// Starts of the records in ascending order, each with the largest end of the records up to it.
    records: Vec<(i32, i32)>,
    /// Distance in bases; `None` for no local matches.
    distance: Option<i32>,
}

impl NearbyTruth {
    fn new(contig: &Contig, verdicts: &SegmentVerdicts, distance: Option<i32>) -> Self {
        let variants = verdicts.sides[TRUTH].set.variants.iter().enumerate();
        let judged = variants.filter(|(index, _)| truth_sums(verdicts.truth_outcome(*index)).is_some());
        let mut last_end = i32::MIN;
        let records = judged.map(|(_, variant)| {
            let record = contig.records[TRUTH].record(variant.record as usize);
            last_end = last_end.max(record.end());
            (record.start, last_end)
        });
        Self { records: records.collect(), distance }
    }

    /// Returns whether a record is nearer to an interval than the distance.
    fn reaches(&self, start: i32, end: i32) -> bool {
        let Some(distance) = self.distance else { return false };
        let before = self.records.partition_point(|(first, _)| *first < end.saturating_add(distance));
        self.records[..before].last().is_some_and(|(_, last_end)| *last_end > start.saturating_sub(distance))
    }
}

/// Adds the sums of a segment to those of other segments.
pub(crate) fn add_strata(total: &mut StrataSums, contig: &StrataSums) {
    total.resize(total.len().max(contig.len()), Default::default());
    total.iter_mut().flatten().zip(contig.iter().flatten()).for_each(|(total, sums)| total.add(sums));
}

/// Returns the counts of all strata.
pub(crate) fn strata_report(sums: &StrataSums, rules: &EvaluationRules) -> Vec<StratumReport> {
    let has_alleles = rules.options.has_allele_pass();
    let has_local_matches = has_alleles && rules.options.rules.local_match_bases.is_some();
    let counts = |sums: &StratumSums| StratumCounts {
        counts: TypeCounts::new(sums.truth, sums.found, sums.true_calls, sums.false_calls),
        unknown: sums.unknown_calls,
        false_genotypes: has_alleles.then_some(sums.allele_matches),
        false_alleles: has_local_matches.then_some(sums.local_matches),
    };
    let names = rules.stratification.names().zip(sums);
    let report = |(name, [snps, indels]): (&str, &[StratumSums; TYPES.len()])| StratumReport {
        name: name.to_owned(),
        snps: counts(snps),
        indels: counts(indels),
    };
    names.map(report).collect()
}

/// Returns the text of `summary.csv`. `all_records` is true if records that failed a filter count as well.
pub(crate) fn summary_csv(strata: &[StratumReport], all_records: bool) -> String {
    let mut text = COLUMNS.to_owned() + "\n";
    let filter = if all_records { "ALL" } else { "PASS" };
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| fixed(rate, 6));
    let optional = |count: Option<u64>| count.map_or_else(String::new, |count| count.to_string());
    for (index, (_, name)) in TYPES.iter().enumerate() {
        for stratum in strata {
            let found = [&stratum.snps, &stratum.indels][index];
            let counts = &found.counts;
            let kinds = [found.false_genotypes, found.false_alleles].map(optional).join(",");
            let query = counts.called + found.unknown;
            let unknown = (query > 0).then(|| found.unknown as f64 / query as f64);
            let rates = [counts.recall, counts.precision, unknown, counts.f1].map(rate).join(",");
            let numbers = [counts.truth, counts.found, counts.missed, query, counts.true_calls, counts.false_calls];
            let numbers = numbers.map(|number| number.to_string()).join(",");
            let subset = csv_value(&stratum.name);
            let _ = writeln!(text, "{name},*,{subset},{filter},*,{rates},{kinds},{numbers},{}", found.unknown);
        }
    }
    text
}

/// Returns a value in quotes if it contains a character that separates values.
fn csv_value(value: &str) -> String {
    if value.contains([',', '"', '\n']) { format!("\"{}\"", value.replace('"', "\"\"")) } else { value.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_table_has_the_columns_of_hap_py() {
        let counts = StratumCounts {
            counts: TypeCounts::new(4, 3, 3, 1),
            unknown: 2,
            false_genotypes: None,
            false_alleles: Some(1),
        };
        let none = StratumCounts { counts: TypeCounts::default(), ..counts };
        let strata = [StratumReport { name: "a,b".to_owned(), snps: counts, indels: none }];
        let text = summary_csv(&strata, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "SNP,*,\"a,b\",PASS,*,0.750000,0.750000,0.333333,0.750000,,1,4,3,1,6,3,1,2");
        assert_eq!(lines[2], "INDEL,*,\"a,b\",PASS,*,,,1.000000,,,1,0,0,0,2,0,0,2");
        assert_eq!((lines.len(), lines[0].split(',').count()), (3, lines[2].split(',').count() - 1));
    }

    #[test]
    fn a_call_is_near_a_record_of_the_truth_within_the_distance() {
        let nearby = NearbyTruth { records: vec![(100, 400), (110, 400), (500, 501)], distance: Some(30) };
        let near = [(69, 70), (70, 71), (200, 201), (429, 430), (430, 431), (530, 531), (531, 532)];
        let found = near.map(|(start, end)| nearby.reaches(start, end));
        assert_eq!(found, [false, true, true, true, false, true, false]);
        assert!(!NearbyTruth { distance: None, ..nearby }.reaches(100, 101));
    }
}
