//! Metrics against the tools that define them: Picard 3.4.0, samtools 1.16 and mosdepth 0.3.3, value by value.

use std::path::Path;
use std::sync::Arc;

use godwit_tests::binary::godwit;
use godwit_tests::metrics::{self, MetricsFile};
use godwit_tests::qc::{
    mosdepth, multiqc_directory, multiqc_values, picard_metrics, reference_for_picard, samtools_stats,
};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, needs_picard, sam_fuzzer, scratch, skip};

use super::bwa_identity::align;

/// Collectors of Picard, with the suffixes of their metrics files.
const PICARD_COLLECTORS: [(&str, &str); 2] =
    [("CollectInsertSizeMetrics", "insert_size"), ("CollectAlignmentSummaryMetrics", "alignment_summary")];

fn sample(paired: bool) -> Arc<Sample> {
    Sample::cached(&SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired,
        alternate: false,
        comments: TitleComments::Illumina,
    })
}

fn read_text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Lists the differences between the metrics beside a BAM, `STEM.bam`, and those of the tools. Metrics are not compared
/// where Picard rejects the file.
fn differences(stem: &Path, reference: Option<&Path>) -> Vec<String> {
    let beside = |suffix: &str| stem.with_extension(suffix);
    let bam = beside("bam");
    let mut list = Vec::new();
    for (collector, name) in PICARD_COLLECTORS {
        let Ok(expected) = picard_metrics(collector, &bam, reference) else { continue };
        let found = beside(&format!("{name}.txt"));
        if expected.exists() != found.exists() {
            list.push(format!("{name}: Picard and godwit do not agree whether there is anything to write"));
        } else if found.exists() {
            let different = metrics::differences(&MetricsFile::read(&expected), &MetricsFile::read(&found));
            list.extend(different.into_iter().map(|line| format!("{name}: {line}")));
        }
    }
    let stats = read_text(&beside("stats.txt"));
    let found: Vec<&str> = stats.lines().skip(1).collect();
    list.extend(first_difference("stats", &samtools_stats(&bam), &found));
    for (suffix, expected) in ["mosdepth.summary.txt", "mosdepth.global.dist.txt"].iter().zip(mosdepth(&bam)) {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        let found = read_text(&beside(suffix));
        list.extend(first_difference(suffix, &expected, &found.lines().collect::<Vec<_>>()));
    }
    list
}

fn first_difference(what: &str, expected: &[String], found: &[&str]) -> Option<String> {
    let lines = expected.len().max(found.len());
    let at = (0..lines).find(|at| expected.get(*at).map(String::as_str) != found.get(*at).copied())?;
    Some(format!("{what} line {at}: {:?} expected, {:?} found", expected.get(at), found.get(at)))
}

#[test]
fn metrics_of_an_aligned_file_are_those_of_the_tools() {
    needs!("bwa", "samtools", "mosdepth");
    needs_picard!();
    for paired in [true, false] {
        let sample = sample(paired);
        let reference = reference_for_picard(&sample.reference);
        let out = scratch::directory("qc");
        let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
        align(&sample, &options, &out).args(["--threads", "2", "--partitions", "7"]).run_ok();
        assert_eq!(differences(&out.join("sample"), Some(&reference)), [""; 0], "paired: {paired}");
    }
}

#[test]
fn metrics_do_not_depend_on_threads_or_partitions() {
    needs!("bwa");
    let sample = sample(true);
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    let run = |threads: &str, partitions: &str| {
        let out = scratch::directory("qc-ways");
        align(&sample, &options, &out).args(["--threads", threads, "--partitions", partitions]).run_ok();
        let suffixes = ["insert_size", "alignment_summary", "stats", "mosdepth.summary", "mosdepth.global.dist"];
        suffixes.map(|suffix| read_text(&out.join(format!("sample.{suffix}.txt"))))
    };
    let expected = run("1", "1");
    for (threads, partitions) in [("1", "7"), ("3", "128"), ("2", "1000")] {
        assert_eq!(run(threads, partitions), expected, "{threads} threads, {partitions} partitions");
    }
}

/// Small files with every unusual flag, CIGAR and mate, cut into partitions between overlapping mates.
#[test]
fn metrics_of_fuzzed_files_are_those_of_the_tools() {
    needs!("samtools", "mosdepth");
    needs_picard!();
    let mut failures = Vec::new();
    for seed in 700..740 {
        let directory = scratch::directory("qc-fuzz");
        let input = directory.join("input.sam");
        std::fs::write(&input, sam_fuzzer::generate_sam(seed).to_text())
            .expect("the scratch directory can be written to");
        let bam = directory.join("found.bam");
        let partitions = ["1", "50"][seed as usize % 2];
        let words = ["--threads", "2", "--metrics", "--partitions", partitions];
        godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).args(words).run_ok();
        let list = differences(&directory.join("found"), None);
        if !list.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", list.join("\n  ")));
        }
    }
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn markdup_takes_metrics_only_when_asked_and_compares_bases_only_with_a_reference() {
    needs!("bwa");
    let sample = sample(true);
    let out = scratch::directory("qc-markdup");
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    align(&sample, &options, &out).args(["--metrics", "off"]).run_ok();
    assert!(!out.join("sample.stats.txt").exists() && !out.join("report.html").exists());
    let mark = |name: &str, words: &[&str]| {
        let bam = out.join(format!("{name}.bam"));
        godwit().arg("markdup").arg(out.join("sample.bam")).arg("--out").arg(&bam).args(words).run_ok();
        std::fs::read_to_string(out.join(format!("{name}.alignment_summary.txt"))).ok()
    };
    let reference = sample.reference.to_str().expect("scratch paths are UTF-8");
    assert_eq!(mark("plain", &[]), None);
    let rate = |text: Option<String>| {
        let file = MetricsFile::parse(&text.expect("metrics were asked for"));
        let column = file.columns.iter().position(|name| name == "PF_MISMATCH_RATE").expect("the column is there");
        file.rows[0][column].clone()
    };
    assert_eq!(rate(mark("bare", &["--metrics"])), "0");
    assert_ne!(rate(mark("compared", &["--metrics", "--reference", reference])), "0");
}

#[test]
fn multiqc_reads_every_file_and_finds_godwits_values() {
    needs!("bwa");
    let Some(bin) = multiqc_directory() else {
        skip!("missing-tool", "MultiQC is not installed by install-dependencies.sh")
    };
    let sample = sample(true);
    let out = scratch::directory("qc-multiqc");
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    align(&sample, &options, &out).run_ok();
    let values = multiqc_values(&bin, &out);
    let value = |key: &str| {
        let found = values.iter().find(|(name, _)| name == key);
        let known = || values.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join("\n");
        found.map(|(_, value)| value.clone()).unwrap_or_else(|| panic!("no {key} in\n{}", known()))
    };
    let same = |key: &str, expected: &str| {
        let (found, expected) = (value(key).parse::<f64>(), expected.parse::<f64>());
        assert_eq!(found, expected, "{key}");
        assert!(found.is_ok(), "{key} is no number");
    };
    let summary = MetricsFile::read(&out.join("sample.alignment_summary.txt"));
    for row in summary.rows.iter().filter(|row| row[0] == "PAIR") {
        for (column, cell) in summary.columns.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty()) {
            same(&format!("multiqc_picard_AlignmentSummaryMetrics/sample/{column}"), cell);
        }
    }
    let inserts = MetricsFile::read(&out.join("sample.insert_size.txt"));
    for (column, cell) in inserts.columns.iter().zip(&inserts.rows[0]).filter(|(_, cell)| cell.parse::<f64>().is_ok()) {
        same(&format!("multiqc_picard_insertSize/sample_FR/{column}"), cell);
    }
    let duplicates = MetricsFile::read(&out.join("sample.duplicates.txt"));
    for (column, cell) in
        duplicates.columns.iter().zip(&duplicates.rows[0]).skip(1).filter(|(_, cell)| !cell.is_empty())
    {
        same(&format!("multiqc_picard_dups/sample/{column}"), cell);
    }
    for line in read_text(&out.join("sample.stats.txt")).lines().filter_map(|line| line.strip_prefix("SN\t")) {
        let (name, rest) = line.split_once(":\t").expect("a summary number has a name");
        let key = name.replace(' ', "_");
        same(&format!("multiqc_samtools_stats/sample/{key}"), rest.split('\t').next().expect("there is a value"));
    }
    let flagstat = read_text(&out.join("sample.flagstat.txt"));
    same("multiqc_samtools_flagstat/sample/total_passed", flagstat.split(' ').next().expect("it has a first word"));
    let coverage = read_text(&out.join("sample.mosdepth.summary.txt"));
    let total = coverage.lines().last().expect("there is a total");
    let mean = total.split('\t').nth(3).expect("the mean is the fourth column");
    same("multiqc_general_stats/sample/mosdepth-mean_coverage", mean);
}
