//! The results of all rounds: an append-only file with a line for each comparison, and the page that is generated from
//! it.
//!
//! A line is written and synchronized when its comparison has finished, so that an interruption loses only the running
//! comparison. A truncated line is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Names of the columns, in the order of the fields of [`ResultRow`].
const COLUMNS: [&str; 12] = [
    "seed",
    "genome_bases",
    "pairs",
    "round",
    "engine",
    "outcome",
    "records",
    "differing",
    "detail",
    "seconds",
    "version",
    "scenario",
];

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All records are the same, in the same order.
    Same,
    /// Records or their order differ.
    Differs,
    /// godwit failed where bwa did not.
    Failed,
    /// bwa failed, so that there is no expected output.
    NoOracle,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Same, Self::Differs, Self::Failed, Self::NoOracle];

    fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Failed => "failed",
            Self::NoOracle => "no-oracle",
        }
    }
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    /// The seed of the genome and the rounds.
    pub seed: u64,
    /// The number of bases of the genome.
    pub genome_bases: usize,
    /// The maximum number of templates of a round.
    pub pairs: u64,
    /// The number of the round.
    pub round: u64,
    /// The name of the engine.
    pub engine: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The number of bwa's records.
    pub records: u64,
    /// The number of records that differ.
    pub differing: u64,
    /// The fields that differ, or the error message.
    pub detail: String,
    /// The wall-clock time of godwit, in seconds.
    pub seconds: u64,
    /// The version of godwit.
    pub version: String,
    /// A description of the scenario.
    pub scenario: String,
}

impl ResultRow {
    fn to_line(&self) -> String {
        let clean = |text: &str| text.replace(['\t', '\n', '\r', '|'], " ");
        [
            self.seed.to_string(),
            self.genome_bases.to_string(),
            self.pairs.to_string(),
            self.round.to_string(),
            clean(&self.engine),
            self.outcome.name().to_owned(),
            self.records.to_string(),
            self.differing.to_string(),
            clean(&self.detail),
            self.seconds.to_string(),
            clean(&self.version),
            clean(&self.scenario),
        ]
        .join("\t")
            + "\n"
    }

    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.strip_suffix('\n')?.split('\t').collect();
        let fields: [&str; COLUMNS.len()] = fields.try_into().ok()?;
        let [seed, genome_bases, pairs, round, engine, outcome, records, differing, detail, seconds, version, scenario] =
            fields;
        Some(Self {
            seed: seed.parse().ok()?,
            genome_bases: genome_bases.parse().ok()?,
            pairs: pairs.parse().ok()?,
            round: round.parse().ok()?,
            engine: engine.to_owned(),
            outcome: Outcome::ALL.into_iter().find(|one| one.name() == outcome)?,
            records: records.parse().ok()?,
            differing: differing.parse().ok()?,
            detail: detail.to_owned(),
            seconds: seconds.parse().ok()?,
            version: version.to_owned(),
            scenario: scenario.to_owned(),
        })
    }

    /// Returns the column of the page for this engine. All cluster runs have the same column.
    fn column(&self) -> &str {
        if self.engine.contains(" on ") { "cluster run" } else { &self.engine }
    }
}

/// The results file.
#[derive(Debug)]
pub struct Results {
    path: PathBuf,
    rows: Vec<ResultRow>,
}

impl Results {
    /// Opens the file at `path`, which is created with its header line if it does not exist.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or written.
    pub fn open(path: &Path) -> Result<Self> {
        let header = COLUMNS.join("\t") + "\n";
        if !path.exists() {
            fs::write(path, &header).map_err(Error::file("write", path))?;
        }
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        if !text.starts_with(&header) {
            let problem = format!("the first line is not that of a results file: {}", COLUMNS.join(" "));
            return Err(Error::Input { path: path.to_owned(), problem });
        }
        if !text.ends_with('\n') {
            // Write the next line over an incomplete last line.
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let file = OpenOptions::new().write(true).open(path).map_err(Error::file("open", path))?;
            file.set_len(whole as u64).map_err(Error::file("write", path))?;
        }
        let rows = text.split_inclusive('\n').skip(1).filter_map(ResultRow::parse).collect();
        Ok(Self { path: path.to_owned(), rows })
    }

    /// Appends a comparison.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn append(&mut self, row: ResultRow) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().append(true).open(&self.path)?;
            file.write_all(row.to_line().as_bytes())?;
            file.sync_data()
        };
        write().map_err(Error::file("append to", &self.path))?;
        self.rows.push(row);
        Ok(())
    }

    /// Returns all comparisons, in the order in which they finished.
    pub fn rows(&self) -> &[ResultRow] {
        &self.rows
    }

    /// Verifies that the page at `path` does not have more rounds than the results file, as it has where earlier runs
    /// used another file.
    ///
    /// # Errors
    /// [`Error::Input`] when it has.
    pub fn check_page(&self, path: &Path) -> Result<()> {
        let count = |page: &str| page.lines().filter(|line| line.contains(" Mb | ")).count();
        let (written, known) = (count(&fs::read_to_string(path).unwrap_or_default()), count(&self.page()));
        if written <= known {
            return Ok(());
        }
        let results = self.path.display();
        let problem = format!(
            "this page has {written} rounds and {results} has {known}; give the results file of these rounds by --results, or \
             another page by --page"
        );
        Err(Error::Input { path: path.to_owned(), problem })
    }

    /// Writes the page under a temporary name, and renames it to `path`.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn write_page(&self, path: &Path) -> Result<()> {
        let partial = path.with_added_extension("partial");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&partial)?;
            file.write_all(self.page().as_bytes())?;
            file.sync_data()?;
            fs::rename(&partial, path)
        };
        write().map_err(Error::file("write", path))
    }

    /// Returns the text of the page.
    pub fn page(&self) -> String {
        let mut page = "# Identity of the aligners with bwa\n\n\
            Generated by `cargo xtask identity`. Each round compares every field and tag of every record, and the \
            order of the records, with `bwa mem -K` 0.7.17\nfollowed by `samtools sort`. A cell is the number of \
            records that differ.\n\n"
            .to_owned();
        page += "| engine | rounds | records | differing | failed |\n|---|---|---|---|---|\n";
        let mut totals: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.outcome != Outcome::NoOracle) {
            let failed = u64::from(row.outcome == Outcome::Failed);
            let total = totals.entry(row.column()).or_default();
            total.iter_mut().zip([1, row.records, row.differing, failed]).for_each(|(sum, number)| *sum += number);
        }
        for (engine, [rounds, records, differing, failed]) in &totals {
            let _ = writeln!(page, "| {engine} | {rounds} | {} | {differing} | {failed} |", grouped(*records));
        }
        let versions: BTreeSet<&str> = self.rows.iter().map(|row| row.version.as_str()).collect();
        let _ = writeln!(page, "\nVersions: {}.", versions.into_iter().collect::<Vec<_>>().join(", "));
        let columns: Vec<&str> = totals.keys().copied().collect();
        let _ = writeln!(page, "\n| genome | seed | round | {} | records | scenario |", columns.join(" | "));
        page += &("|---".repeat(columns.len() + 5) + "|\n");
        let mut rounds: BTreeMap<(usize, u64, u64, u64), Vec<&ResultRow>> = BTreeMap::new();
        for row in &self.rows {
            rounds.entry((row.genome_bases, row.seed, row.pairs, row.round)).or_default().push(row);
        }
        for ((bases, seed, _, round), rows) in rounds {
            let cells: Vec<String> = columns.iter().map(|column| cell(column, &rows)).collect();
            let records = grouped(rows.iter().map(|row| row.records).max().unwrap_or(0));
            let megabases = bases as f64 / 1e6;
            let cells = cells.join(" | ");
            let has_oracle = rows.iter().any(|row| row.outcome != Outcome::NoOracle);
            let scenario = format!("{}{}", rows[0].scenario, if has_oracle { "" } else { "; bwa failed" });
            let _ = writeln!(page, "| {megabases} Mb | {seed} | {round} | {cells} | {records} | {scenario} |");
        }
        page
    }
}

/// Returns the outcomes of a round in a column: several if versions or numbers of workers differ.
fn cell(column: &str, rows: &[&ResultRow]) -> String {
    let texts = rows.iter().filter(|row| row.column() == column).map(|row| {
        let outcome = match row.outcome {
            Outcome::Same => "0".to_owned(),
            Outcome::Differs => format!("**{}** ({})", row.differing, row.detail),
            Outcome::Failed => format!("**failed** ({})", row.detail),
            Outcome::NoOracle => String::new(),
        };
        if row.engine == column { outcome } else { format!("{outcome} ({})", row.engine) }
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Returns a number with a comma after each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // A test may panic.

    use super::*;

    fn row(round: u64, engine: &str, outcome: Outcome) -> ResultRow {
        ResultRow {
            seed: 7,
            genome_bases: 1_500_000,
            pairs: 1000,
            round,
            engine: engine.to_owned(),
            outcome,
            records: 2003,
            differing: u64::from(outcome == Outcome::Differs),
            detail: if outcome == Outcome::Differs { "MAPQ\t1".to_owned() } else { String::new() },
            seconds: 3,
            version: "godwit 0.1.0".to_owned(),
            scenario: "1000 pairs of 150 b".to_owned(),
        }
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("godwit-identity-{name}-{}.tsv", std::process::id()))
    }

    #[test]
    fn rows_are_there_after_the_file_is_opened_again() {
        let path = path("rows");
        let mut results = Results::open(&path).unwrap();
        results.append(row(0, "bwa", Outcome::Same)).unwrap();
        results.append(row(1, "bwa-mem3 avx2", Outcome::Differs)).unwrap();
        let again = Results::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(again.rows()[0], row(0, "bwa", Outcome::Same));
        assert_eq!((again.rows().len(), again.rows()[1].detail.as_str()), (2, "MAPQ 1"));
    }

    #[test]
    fn a_line_that_was_cut_short_is_dropped_and_the_next_one_is_whole() {
        let path = path("cut");
        let mut results = Results::open(&path).unwrap();
        results.append(row(0, "bwa", Outcome::Same)).unwrap();
        results.append(row(1, "bwa", Outcome::Same)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();
        let mut results = Results::open(&path).unwrap();
        assert_eq!(results.rows(), [row(0, "bwa", Outcome::Same)]);
        results.append(row(2, "bwa", Outcome::Failed)).unwrap();
        let again = Results::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(again.rows(), [row(0, "bwa", Outcome::Same), row(2, "bwa", Outcome::Failed)]);
    }

    #[test]
    fn the_page_has_a_row_for_each_round_and_totals_for_each_engine() {
        let path = path("page");
        let mut results = Results::open(&path).unwrap();
        for one in [
            row(0, "bwa", Outcome::Same),
            row(0, "bwa-mem3 avx2", Outcome::Same),
            row(0, "bwa-mem3 avx2 on 3 workers", Outcome::Same),
            row(1, "bwa", Outcome::Differs),
        ] {
            results.append(one).unwrap();
        }
        let page = results.page();
        fs::remove_file(&path).unwrap();
        let page_path = path.with_extension("md");
        results.write_page(&page_path).unwrap();
        results.check_page(&page_path).unwrap();
        let empty = Results::open(&path).unwrap();
        let problem = empty.check_page(&page_path).unwrap_err().to_string();
        fs::remove_file(&path).and_then(|()| fs::remove_file(&page_path)).unwrap();
        assert!(problem.contains("this page has 2 rounds and "), "{problem}");
        assert!(page.contains("\n| bwa | 2 | 4,006 | 1 | 0 |\n"), "{page}");
        assert!(
            page.contains("| genome | seed | round | bwa | bwa-mem3 avx2 | cluster run | records | scenario |"),
            "{page}"
        );
        let row = "| 1.5 Mb | 7 | 0 | 0 | 0 | 0 (bwa-mem3 avx2 on 3 workers) | 2,003 | 1000 pairs of 150 b |";
        assert!(page.contains(row), "{page}");
        assert!(page.contains("| 1.5 Mb | 7 | 1 | **1** (MAPQ"), "{page}");
    }
}
