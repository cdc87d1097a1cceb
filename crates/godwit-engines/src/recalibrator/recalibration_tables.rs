//! Adds the recalibration tables of several BaseRecalibrator reports.
//!
//! GATK's GatherBQSRReports computes the reported quality of a row from a sum of error probabilities. The result can be
//! slightly below the exact whole number (5.999... for 6), and GATK then truncates it. A row with few bases may
//! therefore get a different quality than in a single run over all reads. This module adds only the counts, which are
//! whole numbers, and then estimates the qualities as BaseRecalibrator does.
//!
//! The estimate follows GATK 4.6.2.0, `utils/recalibration/RecalDatum.java`. It is the whole number from 0 to 60 with
//! the highest posterior probability. The likelihood is the binomial distribution of the errors; the prior is a bell
//! curve (height 0.9, width 0.5) around the reported quality.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Names of the columns that contain values. All other columns form the key of a row.
const VALUE_COLUMNS: [&str; 4] = ["EmpiricalQuality", "EstimatedQReported", "Observations", "Errors"];
/// Name prefix of the recalibration tables in a report: by read group, by reported quality, and by other covariates.
const TABLE_NAME_PREFIX: &str = "RecalTable";
/// Maximum estimated quality (Phred). The minimum is 0.
const MAX_QUALITY: u32 = 60;
/// Distance from the reported quality (Phred) beyond which the prior probability no longer decreases.
const MAX_QUALITY_DISTANCE: u32 = 40;
/// Number of errors and of correct bases that are added to the counts, so that neither is 0.
const SMOOTHING_COUNT: u64 = 1;
/// Maximum number of observations in GATK's binomial distribution.
const MAX_OBSERVATIONS: u64 = i32::MAX as u64 - 1;

/// The counts in a row of a recalibration table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ErrorCounts {
    observations: u64,
    errors: f64,
}

/// A recalibration table: its column names, and its rows by key. The cells of a key are in the order of the columns.
#[derive(Debug, Default)]
struct RecalibrationTable {
    name: String,
    columns: Vec<String>,
    rows: BTreeMap<Vec<String>, ErrorCounts>,
}

impl RecalibrationTable {
    fn is_value(column: &str) -> bool {
        VALUE_COLUMNS.contains(&column)
    }

    fn key_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().filter(|column| !Self::is_value(column)).position(|column| column == name)
    }
}

/// The sum of the recalibration tables of several reports.
#[derive(Debug, Default)]
pub struct RecalibrationTables {
    /// Text of the first report before its first recalibration table.
    preamble: String,
    tables: Vec<RecalibrationTable>,
    report_count: usize,
}

impl RecalibrationTables {
    /// Adds the recalibration tables of a report. The table of GATK arguments is taken from the first report only.
    ///
    /// # Errors
    /// A message with the defect and the 1-based number of the report.
    pub fn add_report(&mut self, report: &str) -> Result<(), String> {
        self.report_count += 1;
        if self.report_count == 1 {
            self.preamble =
                report_preamble(report).ok_or("the first table is not a report of BaseRecalibrator")?.to_owned();
        }
        self.add_report_tables(report).map_err(|problem| format!("table {}: {problem}", self.report_count))
    }

    /// Returns the sum as a report. The quantized qualities in it are those of the first report, so GATK must compute
    /// them again.
    ///
    /// # Errors
    /// A message that describes why the added tables are invalid.
    pub fn to_report(&self) -> Result<String, String> {
        let mut text = self.preamble.clone();
        let reported = reported_qualities(&self.tables)?;
        for table in &self.tables {
            write_table(table, &reported, &mut text)?;
        }
        Ok(text)
    }

    fn add_report_tables(&mut self, report: &str) -> Result<(), String> {
        let (mut lines, mut found) = (report.lines(), 0);
        while let Some(line) = lines.next() {
            let name = line.strip_prefix("#:GATKTable:").and_then(|line| line.strip_suffix(':'));
            let Some(name) = name.filter(|name| name.starts_with(TABLE_NAME_PREFIX)) else { continue };
            let columns: Vec<(usize, &str)> = words_with_offsets(lines.next().unwrap_or_default());
            let names: Vec<String> = columns.iter().map(|(_, name)| (*name).to_owned()).collect();
            if self.tables.len() == found {
                self.tables.push(RecalibrationTable {
                    name: name.to_owned(),
                    columns: names.clone(),
                    rows: BTreeMap::new(),
                });
            }
            let table = &mut self.tables[found];
            // If this table has no rows so far, it may also lack the column names.
            if table.rows.is_empty() && !names.is_empty() {
                table.columns.clone_from(&names);
            }
            for row in lines.by_ref().take_while(|line| !line.is_empty()) {
                let (key, counts) =
                    parse_row(row, &columns).ok_or_else(|| format!("{name} has an invalid row {row:?}"))?;
                if table.name != name || table.columns != names {
                    return Err(format!("the columns of {name} differ from those in the other reports"));
                }
                let sum = table.rows.entry(key).or_default();
                sum.observations += counts.observations;
                sum.errors += counts.errors;
            }
            found += 1;
        }
        if found == 0 { Err("it is not a report of BaseRecalibrator".to_owned()) } else { Ok(()) }
    }
}

/// Returns the text before the first recalibration table of a report. The line before the name of a table contains its
/// format.
fn report_preamble(report: &str) -> Option<&str> {
    let name = report.find(&format!("#:GATKTable:{TABLE_NAME_PREFIX}0"))?;
    let format = report[..name].trim_end_matches('\n').rfind('\n')? + 1;
    Some(&report[..format])
}

/// Returns the words of a line with their byte offsets.
fn words_with_offsets(line: &str) -> Vec<(usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word)).collect()
}

/// Parses a row of a table. A cell starts at the offset of its column name.
fn parse_row(row: &str, columns: &[(usize, &str)]) -> Option<(Vec<String>, ErrorCounts)> {
    let (mut key, mut counts) = (Vec::new(), ErrorCounts::default());
    for (at, (start, name)) in columns.iter().enumerate() {
        let end = columns.get(at + 1).map_or(row.len(), |(next, _)| *next);
        let cell = row.get(*start..end.min(row.len()))?.trim();
        match *name {
            "Observations" => counts.observations = cell.parse().ok()?,
            "Errors" => counts.errors = cell.parse().ok()?,
            name if RecalibrationTable::is_value(name) => {}
            _ => key.push(cell.to_owned()),
        }
    }
    Some((key, counts))
}

/// Returns the error probability for a quality (Phred).
fn error_probability(quality: f64) -> f64 {
    10f64.powf(quality / -10.0)
}

/// Returns the mean reported quality of each read group and event, computed from the mean error probability of its
/// bases.
fn reported_qualities(whole: &[RecalibrationTable]) -> Result<BTreeMap<Vec<String>, f64>, String> {
    let mut reported: BTreeMap<Vec<String>, (u64, f64)> = BTreeMap::new();
    let Some(table) = whole.get(1) else { return Ok(BTreeMap::new()) };
    let place = table.key_column("QualityScore");
    let Some(place) = place else { return Err("RecalTable1 has no column QualityScore".to_owned()) };
    let mut rows: Vec<(u32, Vec<String>, ErrorCounts)> = Vec::new();
    for (key, counts) in &table.rows {
        let quality = key[place].parse().map_err(|_| format!("{:?} is not a quality", key[place]))?;
        let group: Vec<String> =
            key.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, cell)| cell.clone()).collect();
        rows.push((quality, group, *counts));
    }
    rows.sort_by_key(|(quality, ..)| *quality);
    for (quality, group, counts) in rows {
        let quality = f64::from(quality);
        match reported.entry(group) {
            std::collections::btree_map::Entry::Vacant(place) => drop(place.insert((counts.observations, quality))),
            std::collections::btree_map::Entry::Occupied(mut place) => {
                let (observations, before) = *place.get();
                let errors = observations as f64 * error_probability(before)
                    + counts.observations as f64 * error_probability(quality);
                let all = observations + counts.observations;
                place.insert((all, -10.0 * (errors / all as f64).log10()));
            }
        }
    }
    Ok(reported.into_iter().map(|(group, (_, quality))| (group, quality)).collect())
}

/// Returns the most probable quality of bases with these counts and the reported quality `reported`.
fn empirical_quality(counts: ErrorCounts, reported: f64) -> u32 {
    let (mut errors, mut observations) =
        ((counts.errors + 0.5) as u64 + SMOOTHING_COUNT, counts.observations + 2 * SMOOTHING_COUNT);
    if observations > MAX_OBSERVATIONS {
        let fraction = MAX_OBSERVATIONS as f64 / observations as f64;
        (errors, observations) = ((errors as f64 * fraction).round() as u64, MAX_OBSERVATIONS);
    }
    let finite = |log10: f64| if log10.is_finite() { log10 } else { -f64::MAX };
    let posterior = |quality: u32| {
        let distance = ((f64::from(quality) - reported) as i32).unsigned_abs().min(MAX_QUALITY_DISTANCE);
        let prior = finite((0.9 * (-2.0 * f64::from(distance).powi(2)).exp()).log10());
        // The binomial coefficient is omitted, because it is the same for all qualities.
        let chance = f64::from(quality) / -10.0;
        let without = (1.0 - 10f64.powf(chance)).log10();
        prior + finite(chance * errors as f64 + without * (observations - errors.min(observations)) as f64)
    };
    let best = (0..=MAX_QUALITY).map(|quality| (quality, posterior(quality)));
    best.fold((0, f64::NEG_INFINITY), |best, next| if next.1 > best.1 { next } else { best }).0
}

/// Appends a table to `text` in GATK's format, in which a cell starts at the offset of its column name.
fn write_table(
    table: &RecalibrationTable,
    reported: &BTreeMap<Vec<String>, f64>,
    text: &mut String,
) -> Result<(), String> {
    let place = table.key_column("QualityScore");
    let mut rows: Vec<Vec<String>> = vec![table.columns.clone()];
    for (key, counts) in &table.rows {
        let prior = match place {
            Some(place) => key[place].parse().map_err(|_| format!("{:?} is not a quality", key[place]))?,
            None => *reported.get(key).ok_or_else(|| format!("the report has no counts for the read group {key:?}"))?,
        };
        let mut cells = key.iter().cloned();
        let cell = |column: &String| match column.as_str() {
            "EmpiricalQuality" => format!("{:.4}", f64::from(empirical_quality(*counts, prior))),
            "EstimatedQReported" => format!("{prior:.4}"),
            "Observations" => counts.observations.to_string(),
            "Errors" => format!("{:.2}", counts.errors),
            _ => cells.next().unwrap_or_default(),
        };
        rows.push(table.columns.iter().map(cell).collect());
    }
    let format = |column: &String| match column.as_str() {
        "EmpiricalQuality" | "EstimatedQReported" => "%.4f",
        "Errors" => "%.2f",
        "Observations" | "QualityScore" => "%d",
        _ => "%s",
    };
    let formats: Vec<&str> = table.columns.iter().map(format).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    // Writing to a string in memory cannot fail.
    let _ = writeln!(text, "#:GATKTable:{}:{}:{}:;", table.columns.len(), rows.len() - 1, formats.join(":"));
    let _ = writeln!(text, "#:GATKTable:{}:", table.name);
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    text.push('\n');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rows: &[(&str, u32, u64, u64)]) -> String {
        let mut text =
            "#:GATKReport.v1.1:5\n#:GATKTable:1:1:%s:;\n#:GATKTable:Arguments:\nArgument\nx       \n\n".to_owned();
        text += "#:GATKTable:6:1:%s:%s:%.4f:%.4f:%d:%.2f:;\n#:GATKTable:RecalTable0:\n";
        text += "ReadGroup  EventType  EmpiricalQuality  EstimatedQReported  Observations  Errors \n";
        for (group, _, observations, errors) in rows {
            text += &format!(
                "{group:<9}  M          {:>16}  {:>18}  {observations:>12}  {errors}.00\n",
                "1.0000", "1.0000"
            );
        }
        text += "\n#:GATKTable:6:1:%s:%d:%s:%.4f:%d:%.2f:;\n#:GATKTable:RecalTable1:\n";
        text += "ReadGroup  QualityScore  EventType  EmpiricalQuality  Observations  Errors \n";
        for (group, quality, observations, errors) in rows {
            text +=
                &format!("{group:<9}  {quality:>12}  M          {:>16}  {observations:>12}  {errors}.00\n", "1.0000");
        }
        text + "\n"
    }

    #[test]
    fn counts_are_added_up_and_qualities_estimated_from_the_sums() {
        // The expected rows are from a table that GATK 4.6.2.0 wrote: quality 6 for 259 errors in 1104 bases, and so
        // on.
        let mut sum = RecalibrationTables::default();
        sum.add_report(&report(&[("a b", 6, 1000, 200)])).unwrap();
        sum.add_report(&report(&[("a b", 6, 104, 59)])).unwrap();
        let merged = sum.to_report().unwrap();
        let row = |needle: &str| {
            let lines = merged.lines().filter(|line| line.starts_with("a b"));
            lines.filter(|line| line.contains(needle)).count()
        };
        assert_eq!(row("1104          259.00"), 2, "{merged}");
        assert!(merged.contains("6.0000            6.0000"), "{merged}");
        assert!(sum.add_report("nothing").unwrap_err().contains("table 3"));
        assert!(RecalibrationTables::default().add_report("nothing").is_err());
    }

    #[test]
    fn estimates_are_those_of_gatk() {
        // The expected values are from GATK's `RecalDatumUnitTest` and from tables that GATK 4.6.2.0 wrote.
        let estimate =
            |observations, errors, reported| empirical_quality(ErrorCounts { observations, errors }, reported);
        assert_eq!(estimate(1_049_368, 3200.0, 25.4752), 25);
        assert_eq!(estimate(1104, 259.0, 6.0), 6);
        assert_eq!(estimate(10, 6.0, 6.0), 6);
        assert_eq!(estimate(11_834, 1.0, 41.0), 41);
    }
}
