//! The rounds of a seed: reads, oracle, engines, comparison, reduction, results.
//!
//! In: [`Settings`]. Out: lines in the results file, the page, and below `differences/` of the work directory one
//! directory for each difference, with the reads, both records, and the commands that reproduce it.
//!
//! A round whose comparisons are all in the results file is not repeated, so that the same command resumes an interrupted
//! run.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::comparison::{Comparison, LineSource, compare};
use crate::error::{Error, Result};
use crate::genome::{self, GenomeSpec};
use crate::programs::{AlignTask, Engine, Programs, SamReader, check_oracle, sequence_lines};
use crate::qualities::QualitySource;
use crate::random::{Purpose, Random};
use crate::results::{Outcome, ResultRow, Results};
use crate::scenario::Scenario;
use crate::simulator::ReadSimulator;

mod difference;
mod fastq;

/// The time limit of godwit as a multiple of bwa's time, but at least [`LEAST_LIMIT`]; a longer run hangs.
const LIMIT_FACTOR: u32 = 20;
const LEAST_LIMIT: Duration = Duration::from_secs(600);

/// Name of the BAM of bwa in the directory of a round or a trial.
const EXPECTED: &str = "expected.bam";

/// The rounds to run, and the files to use.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The maximum number of templates of a round.
    pub pairs: u64,
    /// Size and seed of the genome; the seed is also that of the rounds.
    pub genome: GenomeSpec,
    /// The number of rounds of the seed.
    pub rounds: u64,
    /// Time after which no further round is started.
    pub time_limit: Option<Duration>,
    /// The aligners of godwit to compare: `bwa`, `bwa-mem3`.
    pub aligners: Vec<String>,
    /// The instruction sets of bwa-mem3, the best one last; empty for the one that it selects.
    pub instructions: Vec<String>,
    /// The maximum number of workers of a cluster run; 0 for no cluster runs.
    pub max_workers: usize,
    /// The programs.
    pub programs: Programs,
    /// FASTQ files of real reads, from which qualities are drawn.
    pub qualities: Vec<PathBuf>,
    /// The directory for genomes, scratch files and differences.
    pub work: PathBuf,
    /// The results file.
    pub results: PathBuf,
    /// The page that is generated from the results file.
    pub page: PathBuf,
    /// The maximum number of trials in the search for the smallest set of reads.
    pub max_trials: u32,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The number of rounds that were run, without those that were in the results file.
    pub rounds: u64,
    /// The number of comparisons of these rounds.
    pub comparisons: u64,
    /// The number of compared records.
    pub records: u64,
    /// The number of records that differ.
    pub differing: u64,
    /// The number of comparisons in which godwit failed.
    pub failed: u64,
    /// The number of rounds that were not run because the time limit was reached.
    pub left: u64,
}

/// The state of a run over the rounds of a seed.
pub struct Observatory {
    settings: Settings,
    results: Results,
    reference: PathBuf,
    contigs: Vec<Vec<u8>>,
    qualities: QualitySource,
    version: String,
    scratch: PathBuf,
    /// The lock file of the work directory. It is locked while the observatory uses the directory.
    _lock: File,
}

impl Observatory {
    /// Creates the genome and its indexes if they do not exist, and opens the results file.
    ///
    /// # Errors
    /// [`Error::OracleVersion`] when bwa is not the version whose records godwit reproduces; [`Error::Input`] when
    /// another process uses the work directory; otherwise those of the files and programs.
    pub fn open(settings: Settings) -> Result<Self> {
        check_oracle()?;
        fs::create_dir_all(&settings.work).map_err(Error::file("create", &settings.work))?;
        let lock = lock(&settings.work)?;
        let results = Results::open(&settings.results)?;
        results.check_page(&settings.page)?;
        let GenomeSpec { bases, seed } = settings.genome;
        let reference = genome::write_once(settings.genome, &settings.work.join(format!("genome-{bases}-{seed}")))?;
        settings.programs.index(&reference, &settings.aligners)?;
        let contigs = genome::read_contigs(&reference)?;
        let qualities = QualitySource::open(&settings.qualities)?;
        let version = settings.programs.version()?;
        let scratch = settings.work.join("scratch");
        Ok(Self { settings, results, reference, contigs, qualities, version, scratch, _lock: lock })
    }

    /// Runs the rounds that are not in the results file yet; `report` receives a line for each comparison.
    ///
    /// # Errors
    /// When a file or a program other than an aligner fails.
    pub fn run(&mut self, report: &mut dyn FnMut(&str)) -> Result<Summary> {
        let started = Instant::now();
        let mut summary = Summary::default();
        for round in 0..self.settings.rounds {
            let scenario = Scenario::draw(self.settings.genome.seed, round, self.settings.pairs);
            let engines = self.missing_engines(&scenario);
            if engines.is_empty() {
                continue;
            }
            if self.settings.time_limit.is_some_and(|limit| started.elapsed() >= limit) {
                summary.left += 1;
                continue;
            }
            report(&format!("round {round}: {scenario}"));
            summary.rounds += 1;
            self.run_round(&scenario, &engines, &mut summary, report)?;
            self.results.write_page(&self.settings.page)?;
        }
        self.results.write_page(&self.settings.page)?;
        remove_directory(&self.scratch)?;
        Ok(summary)
    }

    /// Returns the engines of a scenario whose comparisons are not in the results file.
    fn missing_engines(&self, scenario: &Scenario) -> Vec<Engine> {
        let mut engines = engines_of(&self.settings, scenario);
        let same_round = |row: &&ResultRow| {
            row.seed == scenario.seed
                && row.genome_bases == self.settings.genome.bases
                && row.pairs == self.settings.pairs
                && row.round == scenario.round
        };
        let finished: Vec<&ResultRow> = self.results.rows().iter().filter(same_round).collect();
        if finished.iter().any(|row| row.outcome == Outcome::NoOracle) {
            return Vec::new();
        }
        engines.retain(|engine| finished.iter().all(|row| row.engine != engine.to_string()));
        engines
    }

    fn run_round(
        &mut self,
        scenario: &Scenario,
        engines: &[Engine],
        summary: &mut Summary,
        report: &mut dyn FnMut(&str),
    ) -> Result<()> {
        remove_directory(&self.scratch)?;
        fs::create_dir_all(&self.scratch).map_err(Error::file("create", &self.scratch))?;
        let contigs = std::mem::take(&mut self.contigs);
        let qualities = self.qualities.clone();
        let simulator = ReadSimulator::new(&contigs, scenario, &qualities);
        let outcome = self.compare_engines(scenario, &simulator, engines, summary, report);
        self.contigs = contigs;
        outcome
    }

    fn compare_engines(
        &mut self,
        scenario: &Scenario,
        simulator: &ReadSimulator<'_>,
        engines: &[Engine],
        summary: &mut Summary,
        report: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let task = AlignTask {
            reference: self.reference.clone(),
            reads: fastq::write_all(simulator, scenario, &self.scratch)?,
            block_bases: scenario.block_bases,
            option_words: scenario.option_words(),
        };
        let expected = self.scratch.join(EXPECTED);
        let started = Instant::now();
        if let Err(error) = self.settings.programs.run_bwa(&task, &expected) {
            let Error::Program { .. } = error else { return Err(error) };
            report(&format!("  {error}"));
            let detail = (0, 0, last_line(&error));
            return self.append(scenario, "-", Outcome::NoOracle, detail, started.elapsed());
        }
        let limit = LEAST_LIMIT.max(LIMIT_FACTOR * started.elapsed());
        for engine in engines {
            let started = Instant::now();
            let verdict = judge(&self.settings.programs, &task, engine, &expected, &self.scratch, limit)?;
            let elapsed = started.elapsed();
            let (outcome, records, differing, detail) = verdict.row();
            report(&format!("  {engine}: {}", verdict.text()));
            summary.comparisons += 1;
            summary.records += records;
            summary.differing += differing;
            summary.failed += u64::from(outcome == Outcome::Failed);
            if outcome != Outcome::Same {
                let case = difference::Case { scenario, simulator, engine, task: &task, limit, verdict: &verdict };
                let directory = difference::reduce_and_keep(&case, &self.settings, &self.scratch)?;
                report(&format!("    the smallest set of reads: {}", directory.display()));
            }
            self.append(scenario, &engine.to_string(), outcome, (records, differing, detail), elapsed)?;
        }
        Ok(())
    }

    fn append(
        &mut self,
        scenario: &Scenario,
        engine: &str,
        outcome: Outcome,
        (records, differing, detail): (u64, u64, String),
        elapsed: Duration,
    ) -> Result<()> {
        self.results.append(ResultRow {
            seed: scenario.seed,
            genome_bases: self.settings.genome.bases,
            pairs: self.settings.pairs,
            round: scenario.round,
            engine: engine.to_owned(),
            outcome,
            records,
            differing,
            detail,
            seconds: elapsed.as_secs(),
            version: self.version.clone(),
            scenario: scenario.to_string(),
        })
    }
}

/// The result of a run of an engine compared with the oracle.
enum Verdict {
    Compared(Comparison),
    /// The `@SQ` lines differ.
    Header(u64),
    /// godwit failed.
    Failed(Error),
}

impl Verdict {
    fn is_same(&self) -> bool {
        matches!(self, Self::Compared(comparison) if comparison.differing == 0)
    }

    /// Returns outcome, records, differing records and detail, in the form of the results file.
    fn row(&self) -> (Outcome, u64, u64, String) {
        match self {
            Self::Compared(comparison) if comparison.differing == 0 => {
                (Outcome::Same, comparison.records, 0, String::new())
            }
            Self::Compared(comparison) => {
                (Outcome::Differs, comparison.records, comparison.differing, comparison.field_counts())
            }
            Self::Header(lines) => (Outcome::Differs, 0, *lines, "@SQ lines".to_owned()),
            Self::Failed(error) => (Outcome::Failed, 0, 0, last_line(error)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Compared(comparison) => {
                let Comparison { records, differing, .. } = comparison;
                format!("{differing} of {records} records differ {}", comparison.field_counts())
            }
            Self::Header(lines) => format!("{lines} @SQ lines differ"),
            Self::Failed(error) => format!("failed: {error}"),
        }
    }
}

/// Returns the last line of a program's standard error, or the message.
fn last_line(error: &Error) -> String {
    match error {
        Error::Program { stderr, status, .. } => stderr.lines().last().unwrap_or(status).to_owned(),
        other => other.to_string(),
    }
}

/// Runs an engine and compares its file with `expected`. A file that samtools cannot read is a failure of the engine.
fn judge(
    programs: &Programs,
    task: &AlignTask,
    engine: &Engine,
    expected: &Path,
    scratch: &Path,
    limit: Duration,
) -> Result<Verdict> {
    let out = scratch.join("godwit");
    remove_directory(&out)?;
    let verdict = programs.run_godwit(task, engine, &out, limit).and_then(|found| compare_files(expected, &found));
    match verdict {
        Err(error @ Error::Program { .. }) => Ok(Verdict::Failed(error)),
        verdict => verdict,
    }
}

fn compare_files(expected: &Path, found: &Path) -> Result<Verdict> {
    let lines: [BTreeSet<String>; 2] =
        [sequence_lines(expected)?.into_iter().collect(), sequence_lines(found)?.into_iter().collect()];
    if lines[0] != lines[1] {
        return Ok(Verdict::Header(lines[0].symmetric_difference(&lines[1]).count() as u64));
    }
    let comparison = compare(|is_found| {
        let reader = SamReader::open(if is_found { found } else { expected }, &[])?;
        Ok(Box::new(reader) as Box<dyn LineSource>)
    })?;
    Ok(Verdict::Compared(comparison))
}

/// Returns the engines that a scenario is compared with: every aligner with every instruction set, and one cluster run.
fn engines_of(settings: &Settings, scenario: &Scenario) -> Vec<Engine> {
    let mut engines = Vec::new();
    for aligner in &settings.aligners {
        if aligner != "bwa-mem3" {
            engines.push(Engine { aligner: aligner.clone(), instructions: None, workers: None });
        } else if !scenario.only_bwa {
            let all: Vec<Option<String>> = settings.instructions.iter().cloned().map(Some).collect();
            let all = if all.is_empty() { vec![None] } else { all };
            let engine = |instructions| Engine { aligner: aligner.clone(), instructions, workers: None };
            engines.extend(all.into_iter().map(engine));
        }
    }
    let mut random = Random::stream(scenario.seed, Purpose::Workers, scenario.round);
    // Three of four cluster runs use the last aligner in the list, because more of its code belongs to godwit.
    let aligner = if random.chance(0.75) { engines.last() } else { engines.first() }.cloned();
    if settings.max_workers > 0
        && let Some(engine) = aligner
    {
        engines.push(Engine { workers: Some(random.between(1, settings.max_workers)), ..engine });
    }
    engines
}

fn lock(work: &Path) -> Result<File> {
    let path = work.join("lock");
    let file = File::create(&path).map_err(Error::file("create", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let problem = "another process uses this directory; wait for it, or give another one by --work".to_owned();
            Err(Error::Input { path: work.to_owned(), problem })
        }
        Err(TryLockError::Error(source)) => Err(Error::File { action: "lock", path, source }),
    }
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        Settings {
            pairs: 1000,
            genome: GenomeSpec { bases: 1_000_000, seed: 1 },
            rounds: 4,
            time_limit: None,
            aligners: words(&["bwa", "bwa-mem3"]),
            instructions: words(&["avx2", "avx512bw"]),
            max_workers: 3,
            programs: Programs { godwit: "godwit".into(), threads: 1 },
            qualities: Vec::new(),
            work: "work".into(),
            results: "results".into(),
            page: "page".into(),
            max_trials: 10,
        }
    }

    #[test]
    fn a_round_runs_every_aligner_with_all_instructions_and_one_cluster_run() {
        let names = |settings: &Settings, scenario: &Scenario| -> Vec<String> {
            engines_of(settings, scenario).iter().map(Engine::to_string).collect()
        };
        let settings = settings();
        let mut workers = BTreeSet::new();
        for round in 0..50 {
            let scenario = Scenario { only_bwa: false, ..Scenario::draw(1, round, 1000) };
            let names = names(&settings, &scenario);
            assert_eq!(names[..3], ["bwa", "bwa-mem3 avx2", "bwa-mem3 avx512bw"]);
            assert_eq!(names.len(), 4);
            workers.insert(names[3].clone());
        }
        assert_eq!(workers.len(), 6, "{workers:?}");
        let only_bwa = Scenario { only_bwa: true, ..Scenario::draw(1, 0, 1000) };
        let one_process = Settings { max_workers: 0, ..settings };
        assert_eq!(names(&one_process, &only_bwa), ["bwa"]);
    }
}
