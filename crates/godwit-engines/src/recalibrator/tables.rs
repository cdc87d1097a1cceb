//! Tables of BaseRecalibrator, added up.
//!
//! GATK's own GatherBQSRReports takes the reported quality of a row back from what a sum of error probabilities says of it,
//! which misses whole numbers by the last bit (5.999... for 6), and then cuts it off: a row of few bases may get
//! another quality than in one run over everything. Here counts are added up, which are whole numbers, and
//! qualities are estimated from the sums as BaseRecalibrator itself does.
//!
//! The estimate follows GATK 4.6.2.0, `utils/recalibration/RecalDatum.java`: the quality between 0 and 60 that is most
//! likely by the binomial distribution of the errors, after a bell curve (height 0.9, width 0.5) around the reported one.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Columns that are no part of a row's key.
const VALUES: [&str; 4] = ["EmpiricalQuality", "EstimatedQReported", "Observations", "Errors"];
/// Names of the tables of read groups, of reported qualities, and of all other covariates start so.
const TABLES: &str = "RecalTable";
/// Qualities that an estimate can have: 0 to this.
const MAX_QUALITY: u32 = 60;
/// Distance from the reported quality beyond which all are equally unlikely.
const MAX_DISTANCE: u32 = 40;
/// What is counted in addition, so that nothing is impossible: one error and one base without.
const SMOOTHING: u64 = 1;
/// What GATK's binomial can count to.
const MAX_OBSERVATIONS: u64 = i32::MAX as u64 - 1;

/// One row's counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    observations: u64,
    errors: f64,
}

/// A table: its columns, and the rows by their keys, each key in the order of the columns.
#[derive(Debug, Default)]
struct Table {
    name: String,
    columns: Vec<String>,
    rows: BTreeMap<Vec<String>, Counts>,
}

impl Table {
    fn is_value(column: &str) -> bool {
        VALUES.contains(&column)
    }

    fn key_column(&self, name: &str) -> Option<usize> {
        self.columns.iter().filter(|column| !Self::is_value(column)).position(|column| column == name)
    }
}

/// Tables of slices, added up one after the other.
#[derive(Debug, Default)]
pub struct TableSum {
    /// What stands before the tables that are added up, as the first report has it.
    head: String,
    tables: Vec<Table>,
    reports: usize,
}

impl TableSum {
    /// Adds the tables of one report. The first one tells the arguments.
    ///
    /// # Errors
    /// What is wrong with which report, counted from 1.
    pub fn add(&mut self, report: &str) -> Result<(), String> {
        self.reports += 1;
        if self.reports == 1 {
            self.head = head(report).ok_or("the first table is none of BaseRecalibrator")?.to_owned();
        }
        self.add_tables(report).map_err(|problem| format!("table {}: {problem}", self.reports))
    }

    /// The sum as a report, but for the quantized qualities, which GATK computes anew.
    ///
    /// # Errors
    /// What is wrong with the sum.
    pub fn report(&self) -> Result<String, String> {
        let mut text = self.head.clone();
        let reported = reported(&self.tables)?;
        for table in &self.tables {
            show(table, &reported, &mut text)?;
        }
        Ok(text)
    }

    fn add_tables(&mut self, report: &str) -> Result<(), String> {
        let (mut lines, mut found) = (report.lines(), 0);
        while let Some(line) = lines.next() {
            let name = line.strip_prefix("#:GATKTable:").and_then(|line| line.strip_suffix(':'));
            let Some(name) = name.filter(|name| name.starts_with(TABLES)) else { continue };
            let columns: Vec<(usize, &str)> = words(lines.next().unwrap_or_default());
            let names: Vec<String> = columns.iter().map(|(_, name)| (*name).to_owned()).collect();
            if self.tables.len() == found {
                self.tables.push(Table { name: name.to_owned(), columns: names.clone(), rows: BTreeMap::new() });
            }
            let table = &mut self.tables[found];
            // A table without rows may lack its columns.
            if table.rows.is_empty() && !names.is_empty() {
                table.columns.clone_from(&names);
            }
            for row in lines.by_ref().take_while(|line| !line.is_empty()) {
                let (key, counts) = parse(row, &columns).ok_or_else(|| format!("{name} has a row {row:?}"))?;
                if table.name != name || table.columns != names {
                    return Err(format!("{name} is not the table that the others have"));
                }
                let sum = table.rows.entry(key).or_default();
                sum.observations += counts.observations;
                sum.errors += counts.errors;
            }
            found += 1;
        }
        if found == 0 { Err("it is no table of BaseRecalibrator".to_owned()) } else { Ok(()) }
    }
}

/// What stands before the first table that is added up. The line before a table's name tells its format.
fn head(report: &str) -> Option<&str> {
    let name = report.find(&format!("#:GATKTable:{TABLES}0"))?;
    let format = report[..name].trim_end_matches('\n').rfind('\n')? + 1;
    Some(&report[..format])
}

/// Words and where they start.
fn words(line: &str) -> Vec<(usize, &str)> {
    line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word)).collect()
}

/// Cells start where the names of their columns do.
fn parse(row: &str, columns: &[(usize, &str)]) -> Option<(Vec<String>, Counts)> {
    let (mut key, mut counts) = (Vec::new(), Counts::default());
    for (at, (start, name)) in columns.iter().enumerate() {
        let end = columns.get(at + 1).map_or(row.len(), |(next, _)| *next);
        let cell = row.get(*start..end.min(row.len()))?.trim();
        match *name {
            "Observations" => counts.observations = cell.parse().ok()?,
            "Errors" => counts.errors = cell.parse().ok()?,
            name if Table::is_value(name) => {}
            _ => key.push(cell.to_owned()),
        }
    }
    Some((key, counts))
}

/// Chance of an error at a quality.
fn error_chance(quality: f64) -> f64 {
    10f64.powf(quality / -10.0)
}

/// The quality that the bases of a read group were reported with, all together, by read group and event.
fn reported(whole: &[Table]) -> Result<BTreeMap<Vec<String>, f64>, String> {
    let mut reported: BTreeMap<Vec<String>, (u64, f64)> = BTreeMap::new();
    let Some(table) = whole.get(1) else { return Ok(BTreeMap::new()) };
    let place = table.key_column("QualityScore");
    let Some(place) = place else { return Err("RecalTable1 has no column QualityScore".to_owned()) };
    let mut rows: Vec<(u32, Vec<String>, Counts)> = Vec::new();
    for (key, counts) in &table.rows {
        let quality = key[place].parse().map_err(|_| format!("{:?} is no quality", key[place]))?;
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
                let errors =
                    observations as f64 * error_chance(before) + counts.observations as f64 * error_chance(quality);
                let all = observations + counts.observations;
                place.insert((all, -10.0 * (errors / all as f64).log10()));
            }
        }
    }
    Ok(reported.into_iter().map(|(group, (_, quality))| (group, quality)).collect())
}

/// The most likely quality of bases that were reported with `reported`.
fn empirical(counts: Counts, reported: f64) -> u32 {
    let (mut errors, mut observations) =
        ((counts.errors + 0.5) as u64 + SMOOTHING, counts.observations + 2 * SMOOTHING);
    if observations > MAX_OBSERVATIONS {
        let fraction = MAX_OBSERVATIONS as f64 / observations as f64;
        (errors, observations) = ((errors as f64 * fraction).round() as u64, MAX_OBSERVATIONS);
    }
    let finite = |log10: f64| if log10.is_finite() { log10 } else { -f64::MAX };
    let posterior = |quality: u32| {
        let distance = ((f64::from(quality) - reported) as i32).unsigned_abs().min(MAX_DISTANCE);
        let prior = finite((0.9 * (-2.0 * f64::from(distance).powi(2)).exp()).log10());
        // How many ways there are to have so many errors is the same for all qualities.
        let chance = f64::from(quality) / -10.0;
        let without = (1.0 - 10f64.powf(chance)).log10();
        prior + finite(chance * errors as f64 + without * (observations - errors.min(observations)) as f64)
    };
    let best = (0..=MAX_QUALITY).map(|quality| (quality, posterior(quality)));
    best.fold((0, f64::NEG_INFINITY), |best, next| if next.1 > best.1 { next } else { best }).0
}

/// Appends a table as GATK reads it: every cell where its column starts.
fn show(table: &Table, reported: &BTreeMap<Vec<String>, f64>, text: &mut String) -> Result<(), String> {
    let place = table.key_column("QualityScore");
    let mut rows: Vec<Vec<String>> = vec![table.columns.clone()];
    for (key, counts) in &table.rows {
        let prior = match place {
            Some(place) => key[place].parse().map_err(|_| format!("{:?} is no quality", key[place]))?,
            None => *reported.get(key).ok_or_else(|| format!("nothing was counted of the read group {key:?}"))?,
        };
        let mut cells = key.iter().cloned();
        let cell = |column: &String| match column.as_str() {
            "EmpiricalQuality" => format!("{:.4}", f64::from(empirical(*counts, prior))),
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
    // Memory takes everything.
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
        // Rows of a table that GATK 4.6.2.0 wrote: 6 with 259 errors in 1104 bases, 24 and so on.
        let mut sum = TableSum::default();
        sum.add(&report(&[("a b", 6, 1000, 200)])).unwrap();
        sum.add(&report(&[("a b", 6, 104, 59)])).unwrap();
        let merged = sum.report().unwrap();
        let row = |needle: &str| {
            let lines = merged.lines().filter(|line| line.starts_with("a b"));
            lines.filter(|line| line.contains(needle)).count()
        };
        assert_eq!(row("1104          259.00"), 2, "{merged}");
        assert!(merged.contains("6.0000            6.0000"), "{merged}");
        assert!(sum.add("nothing").unwrap_err().contains("table 3"));
        assert!(TableSum::default().add("nothing").is_err());
    }

    #[test]
    fn estimates_are_those_of_gatk() {
        // `RecalDatumUnitTest` of GATK and tables that GATK 4.6.2.0 wrote.
        let estimate = |observations, errors, reported| empirical(Counts { observations, errors }, reported);
        assert_eq!(estimate(1_049_368, 3200.0, 25.4752), 25);
        assert_eq!(estimate(1104, 259.0, 6.0), 6);
        assert_eq!(estimate(10, 6.0, 6.0), 6);
        assert_eq!(estimate(11_834, 1.0, 41.0), 41);
    }
}
