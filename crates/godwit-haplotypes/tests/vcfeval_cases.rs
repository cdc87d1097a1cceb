//! The golden cases of vcfeval: every record, every table and every interval that was too complex must be the same.
//!
//! The cases are beside the repository, in `../shared/data/vcfeval`; `GODWIT_SHARED_DATA` names another directory.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use godwit_haplotypes::{
    HaplotypeComparison, HaplotypeError, HaplotypeOptions, OutputMode, PhaseRule, Preference, SampleChoice, ScoreField,
    Subset, compare_haplotypes,
};
use godwit_io::bgzf::open_text;
use godwit_tests::skip;
use parking_lot::Mutex;

/// Options of vcfeval that godwit does not have: alternate matches, slope files, and other criteria of a threshold.
const UNSUPPORTED: [&str; 4] = ["flag-alternates", "--Xslope-files", "--at-precision", "--at-sensitivity"];

/// One run of vcfeval on a case.
struct GoldenRun {
    directory: PathBuf,
    expected: PathBuf,
    arguments: Vec<String>,
}

fn case_directory() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let path = std::env::var_os("GODWIT_SHARED_DATA").map_or_else(beside, PathBuf::from).join("vcfeval");
    path.is_dir().then_some(path)
}

fn subdirectories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).expect("the directory can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    paths.sort();
    paths
}

fn golden_runs(root: &Path) -> Vec<GoldenRun> {
    let mut runs = Vec::new();
    let trees = subdirectories(root).into_iter().filter(|path| path.is_dir());
    for directory in trees.flat_map(|tree| subdirectories(&tree)).filter(|path| path.is_dir()) {
        for path in subdirectories(&directory) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(run) = name.strip_prefix("options").and_then(|rest| rest.strip_suffix(".txt")) else { continue };
            let text = fs::read_to_string(&path).expect("the options can be read");
            let arguments = text.split_whitespace().map(str::to_owned).collect();
            runs.push(GoldenRun {
                directory: directory.clone(),
                expected: directory.join(format!("expect{run}")),
                arguments,
            });
        }
    }
    runs
}

fn phase_rule(text: &str) -> PhaseRule {
    match text {
        "true" => PhaseRule::Obey,
        "invert" => PhaseRule::Invert,
        _ => PhaseRule::Ignore,
    }
}

fn subset(text: &str) -> Subset {
    match text {
        "snp" => Subset::Snp,
        "non-snp" => Subset::NonSnp,
        "mnp" => Subset::Mnp,
        "indel" => Subset::Indel,
        "hom" => Subset::Homozygous,
        _ => Subset::Heterozygous,
    }
}

/// Applies an option of vcfeval.
fn apply_option(options: &mut HaplotypeOptions, name: &str, value: &str, directory: &Path) {
    let (first, second) = value.split_once(',').unwrap_or((value, value));
    let number = || value.parse::<usize>().expect("the option is a number");
    let is_true = value != "false";
    match name {
        "--output-mode" => {
            options.output = match value {
                "annotate" => OutputMode::Annotate,
                "combine" => OutputMode::Combine,
                "ga4gh" => OutputMode::Ga4gh,
                "roc-only" => OutputMode::RocOnly,
                _ => OutputMode::Split,
            }
        }
        "--vcf-score-field" => options.score = ScoreField::parse(value),
        "--no-roc" => options.score = None,
        "--sort-order" => options.ascending_scores = value == "ascending",
        "--roc-subset" => options.subsets = value.split(',').map(subset).collect(),
        "--squash-ploidy" => options.squash_ploidy = true,
        "--ref-overlap" => options.ref_overlap = true,
        "--all-records" => options.all_records = true,
        "--sample" => {
            options.truth_sample = SampleChoice::from_name(first);
            options.calls_sample = SampleChoice::from_name(second);
        }
        "--sample-ploidy" => options.rules.ploidy = number(),
        "--evaluation-regions" => options.confident = Some(directory.join(value)),
        "--bed-regions" => options.regions = Some(directory.join(value).to_string_lossy().into_owned()),
        "--region" => options.regions = Some(value.to_owned()),
        "--Xtwo-pass" => options.rules.allele_pass = Some(is_true),
        "--Xobey-phase" => {
            (options.rules.truth_phase, options.rules.calls_phase) = (phase_rule(first), phase_rule(second));
        }
        "--Xmax-length" => options.rules.max_allele_bases = number(),
        "--Xloose-match-distance" => options.rules.local_match_bases = value.parse().ok().filter(|bases| *bases >= 0),
        "--XXcom.rtg.vcf.eval.max-paths" => options.rules.max_paths = number(),
        "--XXcom.rtg.vcf.eval.max-iterations" => options.rules.max_iterations = number() as u64,
        "--XXcom.rtg.vcf.eval.maximize" => options.rules.preference = Preference::MostCallsFewestTruth,
        "--XXcom.rtg.vcf.eval.prune-no-ops" => options.rules.drops_no_ops = is_true,
        "--XXcom.rtg.vcf.eval.haploid-allele-matching" => options.rules.haploid_allele_matching = is_true,
        "--XXcom.rtg.vcf.eval.explicit-unknown-alleles" => options.rules.explicit_unknown_alleles = is_true,
        other => panic!("the option {other} is not known"),
    }
}

impl GoldenRun {
    fn name(&self) -> String {
        let parts = [self.directory.parent().unwrap_or(Path::new("")), &self.directory, &self.expected];
        parts.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).join("/")
    }

    fn is_supported(&self) -> bool {
        !self.arguments.iter().any(|argument| UNSUPPORTED.iter().any(|name| argument.contains(name)))
    }

    fn compare(
        &self,
        out: &Path,
        threads: usize,
        segment_records: Option<usize>,
    ) -> Result<HaplotypeComparison, HaplotypeError> {
        let reference = ["reference.fa", "reference.fa.gz"].map(|name| self.directory.join(name));
        let [plain, compressed] = reference;
        let reference = if plain.exists() { plain } else { out.join("reference.fa") };
        if !reference.exists() {
            fs::write(&reference, read_text(&compressed)).expect("the reference can be written");
        }
        let file = |name: &str| self.directory.join(name);
        let mut options = HaplotypeOptions::new(file("calls.vcf.gz"), file("baseline.vcf.gz"), reference);
        options.threads = threads;
        options.rules.segment_records = segment_records.unwrap_or(options.rules.segment_records);
        for argument in &self.arguments {
            let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
            apply_option(&mut options, name, value, &self.directory);
        }
        compare_haplotypes(&options, Some(out), &AtomicBool::new(false))
    }

    /// Returns the differences from the expected files, and the number of records.
    fn differences(&self, threads: usize, segment_records: Option<usize>) -> (Vec<String>, usize) {
        let out = tempfile::tempdir().expect("a directory can be created");
        let is_success = read_text(&self.expected.join("exit.txt")).trim() == "0";
        let comparison = match self.compare(out.path(), threads, segment_records) {
            Err(_) if !is_success => return (Vec::new(), 0),
            Err(error) => return (vec![error.to_string()], 0),
            Ok(_) if !is_success => return (vec!["it does not fail".to_owned()], 0),
            Ok(comparison) => comparison,
        };
        let (mut differences, mut records) = (Vec::new(), 0);
        for path in subdirectories(&self.expected) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.strip_suffix(".gz").unwrap_or(&name);
            if matches!(name, "exit.txt" | "notes.txt" | "error.txt") {
                continue;
            }
            let expected = compared_lines(name, &read_text(&path));
            let paths = [out.path().join(name), out.path().join(format!("{name}.gz"))];
            let Some(found) = paths.iter().find(|path| path.exists()) else {
                differences.push(format!("{name} is missing"));
                continue;
            };
            let found = compared_lines(name, &read_text(found));
            records += if name.ends_with(".vcf") { expected.len() } else { 0 };
            if let Some(line) =
                (0..expected.len().max(found.len())).find(|line| expected.get(*line) != found.get(*line))
            {
                differences.push(format!("{name}: expected {:?}, found {:?}", expected.get(line), found.get(line)));
            }
        }
        if self.expected.join("notes.txt").exists() {
            let expected = too_complex_intervals(&read_text(&self.expected.join("notes.txt")));
            let found = comparison.too_complex.iter();
            let found: BTreeSet<String> = found
                .map(|found| {
                    format!("{}:{}-{} {} {}", found.contig, found.start, found.end, found.paths, found.iterations)
                })
                .collect();
            if expected != found {
                differences.push(format!("too complex: expected {expected:?}, found {found:?}"));
            }
        }
        (differences, records)
    }
}

fn read_text(path: &Path) -> String {
    let mut text = String::new();
    let read = open_text(path, 1).map(|mut file| file.read_to_string(&mut text));
    read.expect("the file can be opened").expect("the file can be read");
    text
}

/// Returns the lines that are compared: not headers of VCF, and not the version and the command line of a table.
fn compared_lines(name: &str, text: &str) -> Vec<String> {
    let is_compared = |line: &&str| match name.ends_with(".vcf") {
        true => !line.starts_with('#'),
        false => !line.starts_with("#Version") && !line.starts_with("#CL"),
    };
    text.lines().filter(is_compared).map(str::to_owned).collect()
}

/// Returns the intervals that vcfeval gave up, with numbers of paths and iterations.
fn too_complex_intervals(notes: &str) -> BTreeSet<String> {
    let interval = |line: &str| {
        let (_, rest) = line.split_once("Evaluation too complex (")?;
        let (paths, rest) = rest.split_once(" unresolved paths, ")?;
        let (iterations, rest) = rest.split_once(" iterations) at reference region ")?;
        let (region, _) = rest.split_once(". ")?;
        Some(format!("{region} {paths} {iterations}"))
    };
    notes.lines().filter_map(interval).collect()
}

/// Asserts that runs have the results of vcfeval. Returns the number of compared records.
fn assert_equal_to_vcfeval(runs: &[GoldenRun], segment_records: Option<usize>) -> usize {
    let (next, records) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let problems = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (differences, count) = run.differences(1, segment_records);
                    records.fetch_add(count, Ordering::Relaxed);
                    let texts = differences.into_iter().map(|difference| format!("{}: {difference}", run.name()));
                    problems.lock().extend(texts);
                }
            });
        }
    });
    let problems = problems.into_inner();
    assert!(problems.is_empty(), "{} differences:\n{}", problems.len(), problems.join("\n"));
    records.into_inner()
}

#[test]
fn every_verdict_and_every_table_is_that_of_vcfeval() {
    let Some(root) = case_directory() else { skip!("shared-data", "no cases of vcfeval beside the repository") };
    let runs: Vec<GoldenRun> = golden_runs(&root).into_iter().filter(GoldenRun::is_supported).collect();
    assert!(runs.len() > 100, "only {} runs were found", runs.len());
    assert!(assert_equal_to_vcfeval(&runs, None) > 100_000, "fewer records than the cases have");
}

#[test]
fn segments_of_a_few_records_change_no_verdict_and_no_table() {
    let Some(root) = case_directory() else { skip!("shared-data", "no cases of vcfeval beside the repository") };
    // Most further runs of a case only select other outputs.
    let mut runs: Vec<GoldenRun> = golden_runs(&root).into_iter().filter(GoldenRun::is_supported).collect();
    runs.dedup_by(|later, earlier| later.directory == earlier.directory);
    assert!(runs.len() > 80, "only {} cases were found", runs.len());
    assert!(assert_equal_to_vcfeval(&runs, Some(1)) > 30_000, "fewer records than the cases have");
}

#[test]
fn the_files_are_the_same_at_any_number_of_threads() {
    let Some(root) = case_directory() else { skip!("shared-data", "no cases of vcfeval beside the repository") };
    let is_small = |run: &GoldenRun| run.name().starts_with("dense/contigs") && run.is_supported();
    let runs: Vec<GoldenRun> = golden_runs(&root).into_iter().filter(is_small).collect();
    assert!(!runs.is_empty());
    for run in &runs {
        for threads in [2, 5] {
            assert_eq!(run.differences(threads, None).0, Vec::<String>::new(), "{} with {threads} threads", run.name());
        }
    }
}
