//! `godwit compare`: compares called variants with a truth set.

mod by_haplotypes;
mod input_files;

use std::collections::HashSet;

use godwit_cli::cli::CompareArgs;
use godwit_cli::failure::Failure;
use godwit_compare::{
    Accuracy, BaselineChanges, CallSetAccuracy, CompareOptions, ComparedFile, Comparison, PerVariantType, compare,
};
use godwit_model::ErrorKind;

use super::{print, print_json};
use crate::interruption;
use crate::plural::pluralize;
use crate::text_table::align_columns;
use input_files::InputFiles;

/// Compares the call sets with the truth set, and prints the result as a table or as JSON.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    args.keys.load_keys()?;
    let by_records = args.compares_records();
    if let Some(option) = args.unsupported_option() {
        let other = if by_records { "haplotypes" } else { "records" };
        return Err(Failure::new(ErrorKind::Usage, format!("{option} requires --match {other}")));
    }
    let files = InputFiles::open(args)?;
    if by_records { run_by_records(args, &files) } else { by_haplotypes::run(args, &files) }
}

fn run_by_records(args: &CompareArgs, files: &InputFiles) -> Result<(), Failure> {
    let options = CompareOptions {
        calls: files.calls.clone(),
        truth: files.truth.clone(),
        baseline: files.baseline.clone(),
        confident: args.confident.clone(),
        reference: args.reference.clone(),
        sample: args.sample.clone(),
        all_records: args.all_records,
        ignore_genotypes: args.ignore_genotypes,
        temp: args.common.temp.clone(),
        threads: args.common.thread_count(),
    };
    let comparison = compare(&options, &interruption::flag())?;
    if args.common.json {
        return print_json(&comparison);
    }
    print(&table(&comparison))
}

/// Names of the variant types, for the rows of the tables.
const CLASS_NAMES: [&str; 3] = ["SNPs", "indels", "all"];

fn by_class<T>(classes: &PerVariantType<T>) -> [&T; 3] {
    [&classes.snps, &classes.indels, &classes.all]
}

fn table(comparison: &Comparison) -> String {
    let sets: Vec<&CallSetAccuracy> = comparison.baseline.iter().chain([&comparison.calls]).collect();
    let names = short_names(&sets);
    let mut rows = vec![
        ["", "", "truth", "found", "other genotype", "missed", "false", "recall", "precision", "F1"].map(str::to_owned),
    ];
    for (at, class) in CLASS_NAMES.iter().enumerate() {
        for (set, name) in sets.iter().zip(&names) {
            rows.push(accuracy_row(class, name, by_class(&set.accuracy)[at]));
        }
    }
    let mut text = align_columns(&rows, 2);
    if let (Some(changes), [baseline, calls]) = (&comparison.changes, &names[..]) {
        text += &format!("\n{calls} against {baseline}:\n{}", changes_table(changes));
    }
    text += "\n";
    text += &source_lines(comparison);
    text
}

fn accuracy_row(class: &str, name: &str, counts: &Accuracy) -> [String; 10] {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{share:.4}"));
    let numbers = [counts.truth, counts.found, counts.other_genotype, counts.missed, counts.wrong];
    let [truth, found, other, missed, wrong] = numbers.map(|number| number.to_string());
    let (recall, precision, f1) = (share(counts.recall), share(counts.precision), share(counts.f1));
    [class.to_owned(), name.to_owned(), truth, found, other, missed, wrong, recall, precision, f1]
}

fn changes_table(changes: &PerVariantType<BaselineChanges>) -> String {
    let mut rows = vec![["", "true gained", "true lost", "false gained", "false lost"].map(str::to_owned)];
    for (class, counts) in CLASS_NAMES.iter().zip(by_class(changes)) {
        let numbers = [counts.true_gained, counts.true_lost, counts.false_gained, counts.false_lost];
        let [a, b, c, d] = numbers.map(|number| number.to_string());
        rows.push([(*class).to_owned(), a, b, c, d]);
    }
    align_columns(&rows, 1)
}

/// Returns the lines below the tables: the compared files, the excluded records, and the limits of the comparison.
fn source_lines(comparison: &Comparison) -> String {
    let mut text = String::new();
    let sets = comparison.baseline.iter().chain([&comparison.calls]).map(|set| &set.source);
    for source in sets.chain([&comparison.truth]) {
        text += &excluded_records_line(source);
    }
    if let Some(bases) = comparison.confident_bases {
        text += &format!("counted: variants in {bases} confident bases\n");
    }
    if comparison.genotypes_ignored {
        text += "genotypes were ignored\n";
    }
    text += match comparison.left_aligned {
        true => "indels were left-aligned, ",
        false => "indels were not left-aligned (--reference enables that), ",
    };
    text += &format!("compound variants split by bcftools {}\n", comparison.bcftools);
    let beside = comparison.calls.accuracy.all.missed_beside_false;
    if beside > 0 {
        text += &format!(
            "{beside} missed alleles have a false positive within 20 bases: possibly the same haplotype in another \
             representation\n"
        );
    }
    text
}

fn excluded_records_line(source: &ComparedFile) -> String {
    let records = &source.records;
    let parts = [
        (records.filtered, "failed a filter"),
        (records.without_genotype, "without a genotype"),
        (records.not_in_bases, "alleles not in bases"),
        (records.repeated, "alleles twice"),
    ];
    let parts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<String> = parts.collect();
    let left_out = if parts.is_empty() { String::new() } else { format!("; excluded: {}", parts.join(", ")) };
    let sample = source.sample.as_ref().map_or_else(|| "no sample".to_owned(), |sample| format!("sample {sample}"));
    let count = pluralize(records.records, "record");
    format!("{}: {count}, {sample}{left_out}\n", source.file.display())
}

/// Returns the file names of the call sets, or their paths if two file names are equal.
fn short_names(sets: &[&CallSetAccuracy]) -> Vec<String> {
    let short = |set: &&CallSetAccuracy| set.source.file.file_name().map(|name| name.to_string_lossy().into_owned());
    match sets.iter().map(short).collect::<Option<Vec<_>>>() {
        Some(names) if names.iter().collect::<HashSet<_>>().len() == names.len() => names,
        _ => sets.iter().map(|set| set.source.file.display().to_string()).collect(),
    }
}
