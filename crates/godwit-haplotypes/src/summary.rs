//! The summary of a comparison: counts and rates at the best score and without a threshold.

use serde::Serialize;

use crate::number_format::fixed;
use crate::roc::{Rates, RocTables, Sums};

/// Counts and rates of the calls with a score or a better one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SummaryRow {
    /// Lowest score of the calls; null for all calls.
    pub threshold: Option<f64>,
    /// Variants of the truth that are found, as sum of the weights of true calls.
    pub true_positives_truth: u64,
    /// True calls.
    pub true_positives_calls: u64,
    /// False calls.
    pub false_positives: u64,
    /// Variants of the truth that are not found.
    pub false_negatives: u64,
    /// True calls per call; null if there are no calls.
    pub precision: Option<f64>,
    /// Found variants per variant of the truth.
    pub sensitivity: Option<f64>,
    /// Harmonic mean of precision and sensitivity.
    pub f_measure: Option<f64>,
}

const HEADINGS: [&str; 8] = [
    "Threshold",
    "True-pos-baseline",
    "True-pos-call",
    "False-pos",
    "False-neg",
    "Precision",
    "Sensitivity",
    "F-measure",
];

impl SummaryRow {
    fn new(threshold: Option<f64>, sums: &Sums, truth_total: u64) -> Self {
        let missed = truth_total as f64 - sums.true_weights;
        let rates = Rates::new(sums, sums.true_weights, missed);
        let count = |number: f64| (number + 0.5).floor() as u64;
        let rate = |rate: f64| rate.is_finite().then_some(rate);
        Self {
            threshold,
            true_positives_truth: count(sums.true_weights),
            true_positives_calls: count(sums.true_calls),
            false_positives: count(sums.false_calls),
            false_negatives: count(missed),
            precision: rate(rates.precision),
            sensitivity: rate(rates.sensitivity),
            f_measure: rate(rates.f_measure),
        }
    }

    fn cells(&self) -> [String; 8] {
        let rate = |rate: Option<f64>| fixed(rate.unwrap_or(f64::NAN), 4);
        [
            self.threshold.map_or_else(|| "None".to_owned(), |score| fixed(score, 3)),
            self.true_positives_truth.to_string(),
            self.true_positives_calls.to_string(),
            self.false_positives.to_string(),
            self.false_negatives.to_string(),
            rate(self.precision),
            rate(self.sensitivity),
            rate(self.f_measure),
        ]
    }
}

/// Returns the rows of the summary; none if the truth has no variants.
pub(crate) fn summary_rows(tables: &RocTables, best: Option<(f64, Sums)>) -> Vec<SummaryRow> {
    let truth_total = tables.truth_total();
    if truth_total == 0 {
        return Vec::new();
    }
    let best = best.map(|(score, sums)| SummaryRow::new(Some(score), &sums, truth_total));
    best.into_iter().chain([SummaryRow::new(None, &tables.total(), truth_total)]).collect()
}

/// Returns the text of `summary.txt`.
pub(crate) fn summary_text(rows: &[SummaryRow]) -> String {
    if rows.is_empty() {
        return "0 total baseline variants, no summary statistics available\n".to_owned();
    }
    let rows: Vec<[String; 8]> =
        [HEADINGS.map(str::to_owned)].into_iter().chain(rows.iter().map(SummaryRow::cells)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut lines = rows.iter().map(|row| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ") + "\n"
    });
    let heading = lines.next().unwrap_or_default();
    let separator = "-".repeat(heading.len() - 1) + "\n";
    heading + &separator + &lines.collect::<String>()
}
