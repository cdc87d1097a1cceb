//! `godwit compare --match haplotypes`: compares by haplotypes, with the verdicts of RTG vcfeval.

use godwit_cli::cli::{CompareArgs, OutputModeName};
use godwit_cli::failure::Failure;
use godwit_compare::compare_by_haplotypes;
use godwit_haplotypes::{
    ACCURACY_HEADINGS, ComparedRecords, HaplotypeComparison, HaplotypeOptions, MAX_PATHS, OutputMode, SampleChoice,
    ScoreField, StratumCounts, SummaryRow, TypeCounts,
};
use godwit_model::ErrorKind;
use serde::Serialize;

use super::input_files::InputFiles;
use crate::interruption;
use crate::plural::pluralize;
use crate::text_table::align_columns;
use crate::verbs::{print, print_json};

/// The comparison as JSON, with the files that were compared.
#[derive(Serialize)]
struct Report<'r> {
    #[serde(rename = "match")]
    unit: &'static str,
    calls_file: &'r std::path::Path,
    truth_file: &'r std::path::Path,
    #[serde(flatten)]
    comparison: &'r HaplotypeComparison,
}

/// Compares the call set with the truth set, and prints the result as a table or as JSON.
pub(super) fn run(args: &CompareArgs, files: &InputFiles) -> Result<(), Failure> {
    let options = options(args, files)?;
    let comparison = compare_by_haplotypes(&options, args.out.as_deref(), &interruption::flag())?;
    if args.common.json {
        let (calls_file, truth_file) = (&*args.calls, &*args.truth);
        return print_json(&Report { unit: "haplotypes", calls_file, truth_file, comparison: &comparison });
    }
    print(&table(args, &comparison))
}

fn options(args: &CompareArgs, files: &InputFiles) -> Result<HaplotypeOptions, Failure> {
    let Some(reference) = args.reference.clone() else {
        let problem = "--match haplotypes requires --reference; without a reference use --match records".to_owned();
        return Err(Failure::new(ErrorKind::Usage, problem));
    };
    let (calls_sample, truth_sample) = match args.sample.as_deref().map(|names| names.split_once(',').ok_or(names)) {
        None => (SampleChoice::Only, SampleChoice::Only),
        Some(Ok((calls, truth))) => (SampleChoice::from_name(calls), SampleChoice::from_name(truth)),
        Some(Err("ALT")) => (SampleChoice::AllAlternates, SampleChoice::AllAlternates),
        Some(Err(name)) => (SampleChoice::Preferred(name.to_owned()), SampleChoice::Preferred(name.to_owned())),
    };
    let output = match args.output_mode {
        None | Some(OutputModeName::Split) => OutputMode::Split,
        Some(OutputModeName::Annotate) => OutputMode::Annotate,
        Some(OutputModeName::Combine) => OutputMode::Combine,
        Some(OutputModeName::Ga4gh) => OutputMode::Ga4gh,
    };
    if output == OutputMode::Ga4gh && [&calls_sample, &truth_sample].contains(&&SampleChoice::AllAlternates) {
        let problem = "--output-mode ga4gh requires genotypes; do not name ALT as a sample".to_owned();
        return Err(Failure::new(ErrorKind::Usage, problem));
    }
    let parse_score = |text: &str| {
        ScoreField::parse(text).ok_or_else(|| {
            let problem = format!("--score {text}: use QUAL, INFO.NAME, FORMAT.NAME, or the name of a FORMAT field");
            Failure::new(ErrorKind::Usage, problem)
        })
    };
    let mut options = HaplotypeOptions::new(files.calls.clone(), files.truth.clone(), reference);
    if let Some(score) = args.score.as_deref() {
        options.score = Some(parse_score(score)?);
    }
    options.confident = args.confident.clone();
    options.regions = args.regions.clone();
    options.stratification = args.stratification.clone();
    (options.calls_sample, options.truth_sample) = (calls_sample, truth_sample);
    options.all_records = args.all_records;
    options.squash_ploidy = args.squash_ploidy;
    options.ref_overlap = args.ref_overlap;
    options.output = output;
    options.threads = args.common.thread_count();
    Ok(options)
}

fn table(args: &CompareArgs, comparison: &HaplotypeComparison) -> String {
    let headings = ["", "truth", "found", "missed", "called", "true", "false", "recall", "precision", "F1"];
    let mut rows = vec![headings.map(str::to_owned)];
    let types = [("SNPs", comparison.snps), ("indels", comparison.indels), ("MNPs", comparison.mnps)];
    let is_shown = |name: &str, counts: &TypeCounts| name != "MNPs" || counts.truth + counts.called > 0;
    for (name, counts) in types {
        rows.extend(counts.filter(|counts| is_shown(name, counts)).map(|counts| type_row(name, &counts)));
    }
    rows.push(type_row("all", &comparison.all));
    let mut text = align_columns(&rows, 1) + "\n";
    if args.stratification.is_some() {
        text += &strata_table(comparison);
    }
    if let [best, _] = &comparison.summary[..] {
        text += &best_score_line(best);
    }
    for (path, records) in [(&args.calls, &comparison.calls), (&args.truth, &comparison.truth)] {
        text += &format!("{}: {}\n", path.display(), records_text(records));
    }
    if let Some(bases) = comparison.confident_bases {
        text += &format!("counted: variants in {bases} confident bases\n");
    }
    let intervals = comparison.too_complex.len();
    if intervals > 0 {
        text += &format!("{intervals} intervals were too complex: more than {MAX_PATHS} paths; --json lists them\n");
    }
    if let Some(out) = &args.out {
        text += &format!("files: {}\n", out.display());
    }
    let rows = comparison.accuracy_rows();
    if !rows.is_empty() {
        let headings = ACCURACY_HEADINGS.map(str::to_owned);
        text += &format!("\n{}", align_columns(&[vec![headings], rows].concat(), 1));
    }
    text
}

/// Returns a table with a row for each type and stratum.
fn strata_table(comparison: &HaplotypeComparison) -> String {
    let headings = ["", "stratum", "truth", "found", "missed", "called", "true", "false", "recall", "precision", "F1"];
    let mut rows = vec![headings.map(str::to_owned)];
    // The first stratum contains all variants, which have rows above.
    let strata = || comparison.strata.iter().skip(1);
    let row = |name: &str, stratum: &str, found: &StratumCounts| {
        let [name, numbers @ ..] = type_row(name, &found.counts);
        let [truth, found, missed, called, true_calls, false_calls, recall, precision, f1] = numbers;
        [name, stratum.to_owned(), truth, found, missed, called, true_calls, false_calls, recall, precision, f1]
    };
    rows.extend(strata().map(|stratum| row("SNPs", &stratum.name, &stratum.snps)));
    rows.extend(strata().map(|stratum| row("indels", &stratum.name, &stratum.indels)));
    align_columns(&rows, 2) + "\n"
}

fn rate_text(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.4}"))
}

fn type_row(name: &str, counts: &TypeCounts) -> [String; 10] {
    let numbers = [counts.truth, counts.found, counts.missed, counts.called, counts.true_calls, counts.false_calls];
    let [truth, found, missed, called, true_calls, false_calls] = numbers.map(|number| number.to_string());
    let [recall, precision, f1] = [counts.recall, counts.precision, counts.f1].map(rate_text);
    [name.to_owned(), truth, found, missed, called, true_calls, false_calls, recall, precision, f1]
}

fn best_score_line(row: &SummaryRow) -> String {
    let score = row.threshold.unwrap_or_default();
    let [sensitivity, precision, f_measure] = [row.sensitivity, row.precision, row.f_measure].map(rate_text);
    format!("best F1 at a score of {score:.3}: recall {sensitivity}, precision {precision}, F1 {f_measure}\n")
}

fn records_text(records: &ComparedRecords) -> String {
    let parts = [
        (records.unknown_contigs, "more on contigs that the reference does not have"),
        (records.skipped, "with a problem"),
        (records.other_reference, "whose REF differs from the reference"),
        (records.outside, "outside of the confident regions"),
        (records.too_complex, "in intervals that were too complex"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("; {count} {what}"));
    let count = pluralize(records.records, "record");
    format!("{count}, {} compared{}", records.compared, parts.collect::<String>())
}
