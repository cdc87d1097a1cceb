//! ROC tables: true and false calls by score, as vcfeval's `*_roc.tsv` files.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::comparison_options::Subset;
use crate::number_format::fixed;
use crate::roc_curve::{RocCurve, RocPoint};

/// The score and the weight of a call in the ROC tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPoint {
    /// Score; NaN if it is missing.
    pub(crate) score: f64,
    /// Number of variants of the truth that the call stands for; `None` for a false call.
    pub(crate) weight: Option<f64>,
    /// True if only an allele matches; the call then counts as true only in the tables of alleles.
    pub(crate) is_allele_match: bool,
    /// Bits of [`crate::subsets::subset_bits`].
    pub(crate) subsets: u32,
}

/// A variant of the truth in the ROC tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TruthPoint {
    pub(crate) is_found: bool,
    /// True if only an allele matches.
    pub(crate) is_allele_match: bool,
    pub(crate) subsets: u32,
}

/// Sums of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    /// Number of truth variants that the true calls represent.
    pub(crate) true_weights: f64,
    pub(crate) false_calls: f64,
    pub(crate) true_calls: f64,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.true_weights += other.true_weights;
        self.false_calls += other.false_calls;
        self.true_calls += other.true_calls;
    }
}

/// Label and order of the scores.
#[derive(Clone, Debug)]
pub(crate) struct ScoreOrder {
    pub(crate) label: String,
    pub(crate) is_ascending: bool,
}

/// The sums of a subset by score.
#[derive(Debug, Default)]
struct SubsetPoints {
    /// Index in `points` of each score, by its bits.
    indexes: HashMap<u64, usize>,
    points: Vec<(f64, Sums)>,
    truth_total: u64,
    truth_found: u64,
}

/// The tables of all subsets, for genotypes or for alleles.
#[derive(Debug)]
pub(crate) struct RocTables {
    /// Label of the score field.
    label: String,
    is_ascending: bool,
    /// True for tables in which an allele match is true.
    is_for_alleles: bool,
    subsets: Vec<Subset>,
    /// Number of subsets with a table in a file; the others are for the report.
    written_subsets: usize,
    /// Points of all variants, then of each subset.
    points: Vec<SubsetPoints>,
    /// Number of calls without a score.
    pub(crate) calls_without_score: u64,
}

/// Precision, sensitivity and F-measure of sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) precision: f64,
    pub(crate) sensitivity: f64,
    pub(crate) f_measure: f64,
}

impl Rates {
    pub(crate) fn new(sums: &Sums, true_weights: f64, missed: f64) -> Self {
        let precision = sums.true_calls / (sums.false_calls + sums.true_calls);
        let sensitivity = true_weights / (true_weights + missed);
        let total = precision + sensitivity;
        let f_measure = if total == 0.0 { 0.0 } else { 2.0 * precision * sensitivity / total };
        Self { precision, sensitivity, f_measure }
    }
}

/// Counts and rates of the variants of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct TypeCounts {
    /// Variants of the truth.
    pub truth: u64,
    /// Calls.
    pub called: u64,
    /// Variants of the truth that the calls explain.
    pub found: u64,
    /// Variants of the truth that no call explains.
    pub missed: u64,
    /// Calls that the truth explains.
    #[serde(rename = "true")]
    pub true_calls: u64,
    /// Calls that the truth does not explain.
    #[serde(rename = "false")]
    pub false_calls: u64,
    /// `found / truth`; null if the truth has no variants.
    pub recall: Option<f64>,
    /// `true / called`; null if there are no calls.
    pub precision: Option<f64>,
    /// Harmonic mean of recall and precision; null if one of them is null.
    pub f1: Option<f64>,
}

impl TypeCounts {
    pub(crate) fn new(truth: u64, found: u64, true_calls: u64, false_calls: u64) -> Self {
        let called = true_calls + false_calls;
        let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let (recall, precision) = (share(found, truth), share(true_calls, called));
        let f1 = recall.zip(precision).map(|(recall, precision)| {
            if recall + precision == 0.0 { 0.0 } else { 2.0 * recall * precision / (recall + precision) }
        });
        Self { truth, called, found, missed: truth - found, true_calls, false_calls, recall, precision, f1 }
    }
}

/// The score of a table with the largest F-measure, and the sums of the calls with that score or a better one.
pub(crate) type BestThreshold = Option<(f64, Sums)>;

impl RocTables {
    /// Returns empty tables; the first `written_subsets` of the subsets have a table in a file.
    pub(crate) fn new(order: ScoreOrder, is_for_alleles: bool, subsets: Vec<Subset>, written_subsets: usize) -> Self {
        let points = (0..=subsets.len()).map(|_| SubsetPoints::default()).collect();
        let ScoreOrder { label, is_ascending } = order;
        Self { label, is_ascending, is_for_alleles, subsets, written_subsets, points, calls_without_score: 0 }
    }

    pub(crate) fn add_call(&mut self, call: &CallPoint) {
        let weight = call.weight.filter(|_| self.is_for_alleles || !call.is_allele_match);
        let sums = match weight {
            Some(weight) => Sums { true_weights: weight, false_calls: 0.0, true_calls: 1.0 },
            None => Sums { true_weights: 0.0, false_calls: 1.0, true_calls: 0.0 },
        };
        let score = if call.score.is_finite() { call.score } else { f64::NAN };
        self.calls_without_score += u64::from(score.is_nan());
        let points = self.points.iter_mut().enumerate().filter(|(index, _)| call.subsets >> index & 1 == 1);
        for (_, subset) in points {
            let next = subset.points.len();
            let index = *subset.indexes.entry(score.to_bits()).or_insert(next);
            if index == next {
                subset.points.push((score, sums));
            } else {
                subset.points[index].1.add(&sums);
            }
        }
    }

    pub(crate) fn add_truth(&mut self, truth: &TruthPoint) {
        let is_found = truth.is_found || (truth.is_allele_match && self.is_for_alleles);
        let points = self.points.iter_mut().enumerate().filter(|(index, _)| truth.subsets >> index & 1 == 1);
        for (_, subset) in points {
            subset.truth_total += 1;
            subset.truth_found += u64::from(is_found);
        }
    }

    /// Sorts the points of all tables. Call it after the last call.
    pub(crate) fn sort(&mut self) {
        let is_ascending = self.is_ascending;
        let order = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
            (false, false) if is_ascending => a.total_cmp(b),
            (false, false) => b.total_cmp(a),
            (a, b) => a.cmp(&b),
        };
        let by_score = |a: &(f64, Sums), b: &(f64, Sums)| -> Ordering { order(&a.0, &b.0) };
        self.points.iter_mut().for_each(|subset| subset.points.sort_by(by_score));
    }

    /// Returns the number of variants of the truth.
    pub(crate) fn truth_total(&self) -> u64 {
        self.points[0].truth_total
    }

    /// Returns the sums of all calls.
    pub(crate) fn total(&self) -> Sums {
        self.points[0].total()
    }

    /// Returns the counts of a subset; `None` for all variants.
    pub(crate) fn counts(&self, subset: Option<Subset>) -> Option<TypeCounts> {
        let index = match subset {
            None => 0,
            Some(subset) => self.subsets.iter().position(|found| *found == subset)? + 1,
        };
        let (points, total) = (&self.points[index], self.points[index].total());
        Some(TypeCounts::new(points.truth_total, points.truth_found, total.true_calls as u64, total.false_calls as u64))
    }

    /// Returns the names and the texts of the tables, and the best threshold of the table of all variants.
    pub(crate) fn texts(&self) -> (Vec<(String, String)>, BestThreshold) {
        let prefix = if self.is_for_alleles { "allele_" } else { "" };
        let mut texts = vec![(format!("{prefix}weighted_roc.tsv"), self.text(0))];
        for (index, subset) in self.subsets.iter().take(self.written_subsets).enumerate() {
            texts.push((format!("{prefix}{}_roc.tsv", subset.file_stem()), self.text(index + 1)));
        }
        let has_score = |row: &RocRow| self.truth_total() > 0 && !row.score.is_nan();
        // Of equal rows, the last one.
        let f_measure = |row: &RocRow| row.rates.f_measure;
        let best = self.rows(0).filter(has_score).max_by(|a, b| f_measure(a).total_cmp(&f_measure(b)));
        (texts, best.map(|row| (row.score, row.sums)))
    }

    /// Returns a curve for each table that has a file.
    pub(crate) fn curves(&self) -> Vec<RocCurve> {
        let curve = |index: usize| {
            let points = self.rows(index).map(|row| row.point());
            RocCurve::new(self.label_of(index), self.rows(index).count(), points)
        };
        (0..=self.written_subsets).map(curve).collect()
    }

    /// Returns the label of a table; table 0 has all variants.
    fn label_of(&self, index: usize) -> &'static str {
        if index == 0 { "ALL" } else { self.subsets[index - 1].label() }
    }

    /// Returns the rows of a table: the calls with each score, as printed, or a better one.
    fn rows(&self, index: usize) -> impl Iterator<Item = RocRow> {
        let subset = &self.points[index];
        let total = subset.total();
        let scale = match index > 0 && total.true_weights > 0.0 {
            true => subset.truth_found as f64 / total.true_weights,
            false => 1.0,
        };
        let truth_total = subset.truth_total as f64;
        let mut sums = Sums::default();
        let mut points = subset.points.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let (score, point) = points.next()?;
                sums.add(point);
                let label = score_label(*score);
                if points.peek().is_none_or(|(next, _)| score_label(*next) != label) {
                    let true_weights = sums.true_weights * scale;
                    let missed = truth_total - true_weights;
                    let rates = Rates::new(&sums, true_weights, missed);
                    return Some(RocRow { score: *score, sums, true_weights, missed, rates });
                }
            }
        })
    }

    fn text(&self, index: usize) -> String {
        let subset = &self.points[index];
        let total = subset.total();
        let has_rates = subset.truth_total > 0;
        let mut text = format!("#Version godwit {}, ROC output 1.2\n", env!("CARGO_PKG_VERSION"));
        let note = if index > 0 { " (baseline rescaled)" } else { "" };
        let call_total = (total.true_calls + total.false_calls + 0.5).floor() as u64;
        let _ = writeln!(text, "#selection: {}{note}", self.label_of(index));
        let _ = writeln!(text, "#total baseline variants: {}", subset.truth_total);
        let _ = writeln!(text, "#total call variants: {call_total}");
        let _ = writeln!(text, "#score field: {}", self.label);
        text += "#score\ttrue_positives_baseline\tfalse_positives\ttrue_positives_call";
        text += if has_rates { "\tfalse_negatives\tprecision\tsensitivity\tf_measure\n" } else { "\n" };
        self.rows(index).for_each(|row| row.write_to(&mut text, has_rates));
        text
    }
}

/// A row of a table.
#[derive(Clone, Copy, Debug)]
struct RocRow {
    /// Lowest score of the calls; NaN if the last ones have none.
    score: f64,
    sums: Sums,
    /// Variants of the truth that the true calls stand for, scaled to the number that the whole subset found.
    true_weights: f64,
    missed: f64,
    rates: Rates,
}

impl RocRow {
    fn point(&self) -> RocPoint {
        let finite = |number: f64| number.is_finite().then_some(number);
        RocPoint {
            score: finite(self.score),
            found: self.true_weights,
            false_calls: self.sums.false_calls,
            precision: finite(self.rates.precision),
            recall: finite(self.rates.sensitivity),
        }
    }

    /// Appends the row, with rates if the truth has variants.
    fn write_to(&self, text: &mut String, has_rates: bool) {
        let counts = [self.true_weights, self.sums.false_calls, self.sums.true_calls].map(|count| fixed(count, 2));
        let _ = write!(text, "{}\t{}", score_label(self.score), counts.join("\t"));
        if has_rates {
            let shares = [self.rates.precision, self.rates.sensitivity, self.rates.f_measure];
            let shares = shares.map(|rate| fixed(rate, 4));
            let _ = write!(text, "\t{}\t{}", fixed(self.missed, 2), shares.join("\t"));
        }
        text.push('\n');
    }
}

fn score_label(score: f64) -> String {
    if score.is_nan() { "None".to_owned() } else { fixed(score, 3) }
}

impl SubsetPoints {
    fn total(&self) -> Sums {
        let mut total = Sums::default();
        self.points.iter().for_each(|(_, sums)| total.add(sums));
        total
    }
}
