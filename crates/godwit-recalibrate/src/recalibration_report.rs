//! The report of BaseRecalibrator (GATK 4.6.2.0, `RecalUtils` and `RecalibrationReport`).

use crate::counts::{ErrorCounts, GroupCounts, NO_CONTEXT, RecalibrationCounts};
use crate::covariates::{context_text, cycle_text, parse_context, parse_cycle};
use crate::empirical_quality::{empirical_quality, error_probability, round};
use crate::error::ReportError;
use crate::quantizer::quantize;
use crate::report_table::{ParsedTable, ReportTable};
use crate::{MAX_QUALITY, QUALITIES};

/// Number of levels of the quantized qualities in a report.
pub(crate) const QUANTIZING_LEVELS: usize = 16;
/// The first line of a report.
const FIRST_LINE: &str = "#:GATKReport.v1.1:5\n";
/// Names of the recalibration tables: by read group, by reported quality, by cycle and context.
const GROUP_TABLE: &str = "RecalTable0";
const QUALITY_TABLE: &str = "RecalTable1";
const COVARIATE_TABLE: &str = "RecalTable2";
/// The event of a mismatch. GATK can count insertions and deletions too, but does not by default.
const MISMATCH_EVENT: &str = "M";

/// The options of BaseRecalibrator, all of them with their defaults.
const ARGUMENTS: [(&str, &str); 17] = [
    ("binary_tag_name", "null"),
    ("covariate", "ReadGroupCovariate,QualityScoreCovariate,ContextCovariate,CycleCovariate"),
    ("default_platform", "null"),
    ("deletions_default_quality", "45"),
    ("force_platform", "null"),
    ("indels_context_size", "3"),
    ("insertions_default_quality", "45"),
    ("low_quality_tail", "2"),
    ("maximum_cycle_value", "500"),
    ("mismatches_context_size", "2"),
    ("mismatches_default_quality", "-1"),
    ("no_standard_covs", "false"),
    ("quantizing_levels", "16"),
    ("recalibration_report", "null"),
    ("run_without_dbsnp", "false"),
    ("solid_nocall_strategy", "THROW_EXCEPTION"),
    ("solid_recal_mode", "SET_Q_ZERO"),
];

/// Counts of a read group over all qualities, and their mean reported quality.
pub(crate) struct GroupTotal {
    pub(crate) counts: ErrorCounts,
    /// Quality (Phred) of the mean error probability that the reported qualities state, to four decimals.
    pub(crate) reported_quality: f64,
}

impl GroupTotal {
    /// Adds up the counts of a read group; `None` if there are none. The sum is computed step by step, as GATK does,
    /// because each step rounds.
    pub(crate) fn new(group: &GroupCounts) -> Option<Self> {
        let add = |sum: Option<(ErrorCounts, f64)>, (quality, counts): (u8, ErrorCounts)| {
            let quality = f64::from(quality);
            let Some((before, reported)) = sum else { return Some((counts, quality)) };
            let expected_errors = before.observations as f64 * error_probability(reported)
                + counts.observations as f64 * error_probability(quality);
            let mut total = before;
            total.add(counts);
            Some((total, -10.0 * (expected_errors / total.observations as f64).log10()))
        };
        let totals = group.qualities().map(|(quality, counts)| (quality, counts.total()));
        let (counts, reported) = totals.fold(None, add)?;
        let next = reported.next_up() - reported;
        Some(Self { counts, reported_quality: round((reported + next) * 10_000.0) / 10_000.0 })
    }
}

/// Returns the number of bases of each empirical quality.
pub(crate) fn empirical_histogram(counts: &RecalibrationCounts) -> [u64; QUALITIES] {
    let mut histogram = [0; QUALITIES];
    for (quality, counts) in counts.groups.iter().flat_map(GroupCounts::qualities) {
        let total = counts.total();
        histogram[usize::from(empirical_quality(total, f64::from(quality)))] += total.observations;
    }
    histogram
}

/// Returns the last cells of a row.
fn count_cells(counts: ErrorCounts) -> [String; 2] {
    [counts.observations.to_string(), format!("{}.00", counts.errors)]
}

fn estimate_cell(counts: ErrorCounts, prior: f64) -> String {
    format!("{}.0000", empirical_quality(counts, prior))
}

impl RecalibrationCounts {
    /// Returns the report that BaseRecalibrator writes for these counts.
    pub fn to_report(&self) -> String {
        let mut text = FIRST_LINE.to_owned();
        for table in
            [arguments_table(), quantization_table(self), group_table(self), quality_table(self), covariate_table(self)]
        {
            table.write(&mut text);
        }
        text
    }

    /// Adds the counts of a report that BaseRecalibrator or [`RecalibrationCounts::to_report`] wrote. The estimates in it
    /// are ignored, because they follow from the counts.
    ///
    /// # Errors
    /// [`ReportError`] for a text that is not a report of BaseRecalibrator with its default options.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_recalibrate::RecalibrationCounts;
    ///
    /// let mut counts = RecalibrationCounts::default();
    /// let report = counts.to_report();
    /// counts.add_report(&report)?;
    /// assert!(counts.add_report("nothing").is_err());
    /// # Ok::<(), godwit_recalibrate::ReportError>(())
    /// ```
    pub fn add_report(&mut self, report: &str) -> Result<(), ReportError> {
        let table =
            ParsedTable::find(report, COVARIATE_TABLE).ok_or(ReportError::MissingTable { name: COVARIATE_TABLE })?;
        let names =
            ["ReadGroup", "QualityScore", "CovariateValue", "CovariateName", "EventType", "Observations", "Errors"];
        if table.rows.is_empty() {
            return Ok(());
        }
        let mut columns = [0; 7];
        for (column, name) in columns.iter_mut().zip(names) {
            let missing = ReportError::MissingColumn { table: COVARIATE_TABLE, column: name };
            *column = table.column(name).ok_or(missing)?;
        }
        for (at, row) in table.rows.iter().enumerate() {
            let cells = columns.map(|column| table.cell(row, column));
            let invalid = |column: usize| ReportError::InvalidValue {
                table: COVARIATE_TABLE,
                row: at + 1,
                column: names[column],
                value: cells[column].clone(),
            };
            let [group, quality, value, name, event, observations, errors] = &cells;
            if event != MISMATCH_EVENT {
                return Err(invalid(4));
            }
            let quality = quality.parse().ok().filter(|quality| *quality <= MAX_QUALITY).ok_or_else(|| invalid(1))?;
            let observations = observations.parse().map_err(|_| invalid(5))?;
            let whole = errors.split_once('.').filter(|(_, fraction)| *fraction == "00");
            let errors = whole.and_then(|(whole, _)| whole.parse().ok()).ok_or_else(|| invalid(6))?;
            let counts = ErrorCounts { observations, errors };
            match name.as_str() {
                "Cycle" => {
                    let cycle = parse_cycle(value).ok_or_else(|| invalid(2))?;
                    self.group_mut(group).quality_mut(quality).cycles[cycle].add(counts);
                }
                "Context" => {
                    let context = parse_context(value).ok_or_else(|| invalid(2))?;
                    self.group_mut(group).quality_mut(quality).contexts[context].add(counts);
                }
                _ => return Err(invalid(3)),
            }
        }
        self.count_bases_without_context();
        Ok(())
    }

    /// Sets the counts of bases without a context, which are not in a report, to the difference of the other counts.
    fn count_bases_without_context(&mut self) {
        for group in &mut self.groups {
            let totals: Vec<(u8, ErrorCounts)> =
                group.qualities().map(|(quality, counts)| (quality, counts.total())).collect();
            for (quality, total) in totals {
                let contexts = &mut group.quality_mut(quality).contexts;
                let mut with_context = ErrorCounts::default();
                contexts[..NO_CONTEXT].iter().for_each(|counts| with_context.add(*counts));
                contexts[NO_CONTEXT] = ErrorCounts {
                    observations: total.observations.saturating_sub(with_context.observations),
                    errors: total.errors.saturating_sub(with_context.errors),
                };
            }
        }
    }
}

fn arguments_table() -> ReportTable {
    ReportTable {
        name: "Arguments",
        description: "Recalibration argument collection values used in this run",
        columns: &[("Argument", "%s"), ("Value", "%s")],
        rows: ARGUMENTS.iter().map(|(name, value)| vec![(*name).to_owned(), (*value).to_owned()]).collect(),
    }
}

fn quantization_table(counts: &RecalibrationCounts) -> ReportTable {
    let histogram = empirical_histogram(counts);
    let map = quantize(&histogram, QUANTIZING_LEVELS);
    let rows = histogram.iter().zip(map).enumerate();
    ReportTable {
        name: "Quantized",
        description: "Quality quantization map",
        columns: &[("QualityScore", "%d"), ("Count", "%d"), ("QuantizedScore", "%d")],
        rows: rows.map(|(at, (count, to))| vec![at.to_string(), count.to_string(), to.to_string()]).collect(),
    }
}

fn group_table(counts: &RecalibrationCounts) -> ReportTable {
    let row = |group: &&GroupCounts| {
        let total = GroupTotal::new(group)?;
        let estimate = estimate_cell(total.counts, total.reported_quality);
        let reported = format!("{:.4}", total.reported_quality);
        let [observations, errors] = count_cells(total.counts);
        Some(vec![group.name.clone(), MISMATCH_EVENT.to_owned(), estimate, reported, observations, errors])
    };
    ReportTable {
        name: GROUP_TABLE,
        description: "",
        columns: &[
            ("ReadGroup", "%s"),
            ("EventType", "%s"),
            ("EmpiricalQuality", "%.4f"),
            ("EstimatedQReported", "%.4f"),
            ("Observations", "%d"),
            ("Errors", "%.2f"),
        ],
        rows: counts.counted_groups().iter().filter_map(row).collect(),
    }
}

fn quality_table(counts: &RecalibrationCounts) -> ReportTable {
    let mut rows = Vec::new();
    for group in counts.counted_groups() {
        for (quality, counts) in group.qualities() {
            let total = counts.total();
            let estimate = estimate_cell(total, f64::from(quality));
            let [observations, errors] = count_cells(total);
            let quality = quality.to_string();
            rows.push(vec![group.name.clone(), quality, MISMATCH_EVENT.to_owned(), estimate, observations, errors]);
        }
    }
    ReportTable {
        name: QUALITY_TABLE,
        description: "",
        columns: &[
            ("ReadGroup", "%s"),
            ("QualityScore", "%d"),
            ("EventType", "%s"),
            ("EmpiricalQuality", "%.4f"),
            ("Observations", "%d"),
            ("Errors", "%.2f"),
        ],
        rows,
    }
}

/// Returns the table by cycle and context. Within a quality, rows are in the order of their values as text.
fn covariate_table(counts: &RecalibrationCounts) -> ReportTable {
    let mut rows = Vec::new();
    for group in counts.counted_groups() {
        for (quality, counts) in group.qualities() {
            let cycles = counts.cycles.iter().enumerate().map(|(key, counts)| (cycle_text(key), "Cycle", counts));
            let contexts = counts.contexts[..NO_CONTEXT].iter().enumerate();
            let contexts = contexts.map(|(context, counts)| (context_text(context), "Context", counts));
            let mut values: Vec<_> = cycles.chain(contexts).filter(|(_, _, counts)| counts.observations > 0).collect();
            values.sort_by(|one, other| one.0.cmp(&other.0));
            for (value, name, counts) in values {
                let estimate = estimate_cell(*counts, f64::from(quality));
                let [observations, errors] = count_cells(*counts);
                let (group, quality, event) = (group.name.clone(), quality.to_string(), MISMATCH_EVENT.to_owned());
                rows.push(vec![group, quality, value, name.to_owned(), event, estimate, observations, errors]);
            }
        }
    }
    ReportTable {
        name: COVARIATE_TABLE,
        description: "",
        columns: &[
            ("ReadGroup", "%s"),
            ("QualityScore", "%d"),
            ("CovariateValue", "%s"),
            ("CovariateName", "%s"),
            ("EventType", "%s"),
            ("EmpiricalQuality", "%.4f"),
            ("Observations", "%d"),
            ("Errors", "%.2f"),
        ],
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> RecalibrationCounts {
        let mut counts = RecalibrationCounts::default();
        for (group, quality, cycle, context, observations, errors) in [
            ("lane2", 6, 2, NO_CONTEXT, 40, 1),
            ("lane2", 30, 302, 5, 100_000, 90),
            ("FC.1", 37, 9, 15, 5_000_000, 2_000),
            ("FC.1", 37, 8, 0, 70, 0),
        ] {
            let counted = counts.group_mut(group).quality_mut(quality);
            counted.cycles[cycle].add(ErrorCounts { observations, errors });
            counted.contexts[context].add(ErrorCounts { observations, errors });
        }
        counts
    }

    #[test]
    fn a_report_contains_all_counts() {
        let written = counts();
        let report = written.to_report();
        let mut read = RecalibrationCounts::default();
        read.add_report(&report).unwrap();
        assert_eq!(read.to_report(), report);
        read.add_report(&report).unwrap();
        let mut twice = written.clone();
        twice.merge(&written);
        assert_eq!(read.to_report(), twice.to_report());
        assert_eq!(twice.observations(), 2 * written.observations());
    }

    #[test]
    fn rows_are_sorted_by_their_text() {
        let report = counts().to_report();
        let table = ParsedTable::find(&report, COVARIATE_TABLE).unwrap();
        let rows = table.rows.iter().map(|row| [0, 1, 2].map(|column| table.cell(row, column)).join(" "));
        let expected =
            ["FC.1 37 -4", "FC.1 37 4", "FC.1 37 AA", "FC.1 37 TT", "lane2 6 1", "lane2 30 151", "lane2 30 CC"];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_texts_are_rejected() {
        let mut counts = counts();
        let report = counts.to_report();
        assert_eq!(counts.add_report(""), Err(ReportError::MissingTable { name: COVARIATE_TABLE }));
        let insertion = report.replace("Context        M", "Context        I");
        assert!(matches!(counts.add_report(&insertion), Err(ReportError::InvalidValue { column: "EventType", .. })));
        let fraction = report.replace("90.00", "90.50");
        assert!(matches!(counts.add_report(&fraction), Err(ReportError::InvalidValue { column: "Errors", .. })));
    }
}
