//! Picard's metrics as by-products of `align` and `markdup`: the files of `godwit metrics` on the written BAM, byte for
//! byte, however the work is divided.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::collectors::{METRICS_SUFFIXES, METRICS_WITHOUT_OXOG, TargetFiles, write_interval_lists};
use godwit_tests::fault_injection::{Fault, count_file_changes, inject_fault};
use godwit_tests::qc::{multiqc_directory, multiqc_values};
use godwit_tests::random::Random;
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, sam_fuzzer, scratch, skip};

use super::bwa_identity;

/// Length of the contig of generated alignments, bases.
const CONTIG_BASES: usize = 200_000;

fn sample() -> Arc<Sample> {
    let lanes = vec![2_000, 900];
    Sample::cached(&SampleSpec { seed: 31, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

/// Writes interval lists for the contigs of a FASTA file.
fn interval_lists(reference: &Path) -> TargetFiles {
    let directory = scratch::directory("job-lists");
    let text = fs::read_to_string(reference).expect("the reference can be read");
    let contig = |record: &str| {
        let (name, bases) = record.split_once('\n').expect("a record has bases");
        let name = name.split_whitespace().next().expect("a contig has a name").to_owned();
        format!("@SQ\tSN:{name}\tLN:{}\n", bases.lines().map(str::len).sum::<usize>())
    };
    let header: String = text.split('>').skip(1).map(contig).collect();
    let dictionary = directory.join("reference.dict");
    fs::write(&dictionary, format!("@HD\tVN:1.6\n{header}")).expect("the scratch directory can be written to");
    write_interval_lists(&dictionary, &directory, 5)
}

fn with_lists(command: GodwitCommand, lists: &TargetFiles) -> GodwitCommand {
    let command = command.arg("--targets").arg(&lists.targets).arg("--baits").arg(&lists.baits);
    command.arg("--amplicons").arg(&lists.amplicons)
}

fn align(lists: &TargetFiles, out: &Path) -> GodwitCommand {
    let options = AlignOptions { block_bases: 50_000, ..AlignOptions::default() };
    with_lists(bwa_identity::align(&sample(), &options, out), lists).args(["--metrics", "all"])
}

/// Returns the metrics files of a BAM by the verb `metrics`, with their suffixes.
fn verb_files(bam: &Path, reference: &Path, lists: &TargetFiles, metrics: &str) -> Vec<(String, Vec<u8>)> {
    let out = scratch::directory("job-verb");
    let command = godwit().arg("metrics").arg(bam).arg("--reference").arg(reference).arg("--out").arg(&out);
    with_lists(command, lists).args(["--threads", "2", "--metrics", metrics]).run_ok();
    let read = |name: String| {
        let bytes = fs::read(out.join(&name)).expect("the file has been written");
        let (_, suffix) = name.split_once('.').expect("the name has a suffix");
        (suffix.to_owned(), bytes)
    };
    scratch::entry_names(&out).into_iter().map(read).collect()
}

/// Compares the metrics files beside a BAM, `STEM.bam`, with those of the verb `metrics`.
fn assert_same(stem: &Path, expected: &[(String, Vec<u8>)], case: &str) {
    for (suffix, text) in expected {
        let path = stem.with_added_extension(suffix);
        let found = fs::read(&path).unwrap_or_else(|error| panic!("{case}: {}: {error}", path.display()));
        assert!(
            found == *text,
            "{case}: {}\n{}\ninstead of\n{}",
            path.display(),
            String::from_utf8_lossy(&found),
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn align_writes_the_metrics_of_the_verb_at_any_number_of_threads_partitions_and_workers() {
    needs!("bwa");
    let sample = sample();
    let lists = interval_lists(&sample.reference);
    let mut expected = Vec::new();
    for words in [
        "--threads 1 --partitions 1",
        "--threads 2 --partitions 12",
        "--threads 3 --partitions 500",
        "--threads 1 --partitions 12 --on local --nodes 1",
        "--threads 1 --partitions 12 --on local --nodes 2",
        "--threads 1 --partitions 60 --on local --nodes 4",
    ] {
        let out = scratch::directory("job-metrics");
        align(&lists, &out).args(words.split(' ')).run_ok();
        if expected.is_empty() {
            expected = verb_files(&out.join("sample.bam"), &sample.reference, &lists, "all");
            assert_eq!(expected.iter().map(|(suffix, _)| suffix.as_str()).collect::<Vec<_>>(), METRICS_SUFFIXES);
        }
        assert_same(&out.join("sample"), &expected, words);
    }
}

#[test]
fn a_stopped_align_writes_the_same_metrics_when_it_is_resumed() {
    needs!("bwa", "cc");
    let lists = interval_lists(&sample().reference);
    let command = |out: &Path| align(&lists, out).args(["--threads", "1", "--partitions", "12"]);
    let counted = scratch::directory("job-counted");
    let all = count_file_changes(command(&counted), &counted);
    let expected = verb_files(&counted.join("sample.bam"), &sample().reference, &lists, "all");
    for percent in [30, 60, 80, 95] {
        let out = scratch::directory("job-stopped");
        inject_fault(command(&out), &out, Fault::Kill, all * percent / 100).run();
        command(&out).arg("--resume").run_ok();
        assert_same(&out.join("sample"), &expected, &format!("stopped after {percent} %"));
    }
}

/// Marks duplicates at several numbers of partitions, and compares the metrics with those of the verb.
fn compare_markdup(sam: &str, reference: &Path, metrics: &str, policies: &[&str]) {
    let directory = scratch::directory("job-markdup");
    let input = directory.join("input.sam");
    fs::write(&input, sam).expect("the scratch directory can be written to");
    let lists = interval_lists(reference);
    for policy in policies {
        let mut expected = Vec::new();
        for (threads, partitions) in [("1", "1"), ("2", "20"), ("2", "300")] {
            let bam = directory.join(format!("{policy}-{partitions}.bam"));
            let command = godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).arg("--reference").arg(reference);
            let command = command.args(["--duplicates", policy, "--threads", threads, "--partitions", partitions]);
            with_lists(command, &lists).arg(format!("--metrics={metrics}")).run_ok();
            if expected.is_empty() {
                expected = verb_files(&bam, reference, &lists, metrics);
            }
            // The header lines contain the name of the BAM.
            let renamed = expected.iter().map(|(suffix, text)| {
                let text =
                    String::from_utf8_lossy(text).replace(&format!("{policy}-1."), &format!("{policy}-{partitions}."));
                (suffix.clone(), text.into_bytes())
            });
            let renamed: Vec<_> = renamed.collect();
            assert_same(&bam.with_extension(""), &renamed, &format!("{policy}, {partitions} partitions"));
        }
    }
}

fn write_reference(records: &[(String, usize)], seed: u64) -> PathBuf {
    let mut random = Random::new(seed);
    let mut text = String::new();
    for (name, length) in records {
        let mut bases = random.bases(*length);
        for _ in 0..length / 2_000 {
            bases[random.below(*length)] = b'N';
        }
        text += &format!(">{name}\n{}\n", String::from_utf8_lossy(&bases));
    }
    let path = scratch::directory("job-reference").join("random.fa");
    fs::write(&path, text).expect("the scratch directory can be written to");
    path
}

#[test]
fn markdup_writes_the_metrics_of_the_verb_for_unusual_records() {
    for seed in 950..956 {
        let text = sam_fuzzer::generate_sam(seed).to_text();
        let contig = |line: &str| {
            let field = |tag: &str| line.split('\t').find_map(|field| field.strip_prefix(tag)).expect("SN and LN");
            (field("SN:").to_owned(), field("LN:").parse().expect("LN is a number"))
        };
        let contigs: Vec<_> = text.lines().filter(|line| line.starts_with("@SQ")).map(contig).collect();
        let reference = write_reference(&contigs, seed);
        // Not every fuzzed read has a read group, which OxoG needs.
        compare_markdup(&text, &reference, METRICS_WITHOUT_OXOG, &["mark", "remove"]);
    }
}

/// Returns pairs whose depth is far above the limits of the metrics in a few kilobases. `deletion`: bases of a deletion in
/// every hundredth first read.
fn piled_pairs(deletion: usize, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = format!("@HD\tVN:1.6\n@SQ\tSN:one\tLN:{CONTIG_BASES}\n@RG\tID:a\tSM:s\tLB:l\n");
    for number in 0..6_000 {
        let first = 50_000 + random.below(3_000) + usize::from(random.chance(0.2)) * random.below(90_000);
        let mate = first + random.below(250);
        let cigar = if deletion > 0 && number % 100 == 0 { format!("50M{deletion}D50M") } else { "100M".to_owned() };
        let size = mate as i64 + 100 - first as i64;
        for (flag, position, other, cigar, size) in
            [(99, first, mate, cigar.as_str(), size), (147, mate, first, "100M", -size)]
        {
            let bases = random.bases(100);
            let qualities: String = (0..100).map(|_| char::from(b'!' + random.below(42) as u8)).collect();
            text += &format!(
                "p{number}\t{flag}\tone\t{}\t{}\t{cigar}\t=\t{}\t{size}\t{}\t{qualities}\tRG:Z:a\n",
                position + 1,
                random.below(61),
                other + 1,
                String::from_utf8_lossy(&bases)
            );
        }
    }
    text
}

#[test]
fn reads_piled_up_across_the_borders_of_partitions_are_counted_in_the_order_of_the_file() {
    let reference = write_reference(&[("one".to_owned(), CONTIG_BASES)], 3);
    for deletion in [0, 700, 20_000] {
        compare_markdup(&piled_pairs(deletion, 8), &reference, "all", &["mark"]);
    }
}

#[test]
fn metrics_that_cannot_be_computed_are_rejected_before_any_output() {
    let reference = write_reference(&[("one".to_owned(), CONTIG_BASES)], 3);
    let directory = scratch::directory("job-rejected");
    let (input, bam) = (directory.join("input.sam"), directory.join("out.bam"));
    fs::write(&input, piled_pairs(0, 1).replace("@RG\tID:a\tSM:s\tLB:l\n", "").replace("\tRG:Z:a", ""))
        .expect("the scratch directory can be written to");
    let command = || godwit().arg("markdup").arg(&input).arg("--out").arg(&bam);
    command().arg("--metrics=all").run().assert_rejected(&[2], &["--reference"]);
    let with_reference = || command().arg("--reference").arg(&reference);
    with_reference().arg("--metrics=OxoG").run().assert_rejected(&[3], &["@RG"]);
    with_reference().arg("--metrics=HsMetrics").run().assert_rejected(&[2], &["--baits", "--targets"]);
    with_reference().arg("--metrics=RnaSeq").run().assert_rejected(&[2], &["RnaSeq", "on, off, all"]);
    with_reference().arg("--metrics=off,GcBias").run().assert_rejected(&[2], &["off excludes"]);
    let with_targets = with_reference().arg("--targets").arg(&reference).arg("--metrics=GcBias");
    with_targets.run().assert_rejected(&[2], &["--targets is used by HsMetrics"]);
    assert_eq!(scratch::entry_names(&directory), ["input.sam"]);
    godwit().arg("markdup").arg("--metrics").arg(&input).arg("--out").arg(&bam).run_ok();
    assert!(directory.join("out.stats.txt").exists() && !directory.join("out.wgs_metrics").exists());
}

#[test]
fn oxog_is_left_out_of_all_metrics_if_a_read_has_no_read_group() {
    let reference = write_reference(&[("one".to_owned(), CONTIG_BASES)], 3);
    for deletion in [0, 20_000] {
        let directory = scratch::directory("job-no-group");
        let (input, bam) = (directory.join("input.sam"), directory.join("out.bam"));
        let text = piled_pairs(deletion, 8).replacen("\tRG:Z:a", "", 400);
        fs::write(&input, text).expect("the scratch directory can be written to");
        fs::write(directory.join("out.oxog_metrics"), "old").expect("the scratch directory can be written to");
        let command = godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).arg("--reference").arg(&reference);
        let output = command.args(["--metrics=all", "--threads", "2", "--partitions", "20"]).run_ok();
        assert!(output.stderr.contains("OxoG is not computed"), "{}", output.describe());
        assert!(!directory.join("out.oxog_metrics").exists(), "the file of an earlier job is removed");
        let verb = scratch::directory("job-no-group-verb");
        let command = godwit().arg("metrics").arg(&bam).arg("--reference").arg(&reference).arg("--out").arg(&verb);
        command.run_ok();
        assert!(!verb.join("out.oxog_metrics").exists());
        let read = |directory: &Path| fs::read(directory.join("out.wgs_metrics")).expect("it has been written");
        assert_eq!(read(&directory), read(&verb));
    }
}

#[test]
fn metrics_that_need_a_bam_are_named_in_a_warning_and_older_files_are_removed_without_one() {
    let reference = write_reference(&[("one".to_owned(), CONTIG_BASES)], 3);
    let directory = scratch::directory("job-cram");
    let input = directory.join("input.sam");
    fs::write(&input, piled_pairs(20_000, 8)).expect("the scratch directory can be written to");
    let old = directory.join("out.wgs_metrics");
    fs::write(&old, "old").expect("the scratch directory can be written to");
    let command = godwit().arg("markdup").arg(&input).arg("--out").arg(directory.join("out.cram"));
    let command =
        command.arg("--reference").arg(&reference).args(["--metrics=WgsMetrics,GcBias", "--partitions", "300"]);
    let output = command.run_ok();
    assert!(output.stderr.contains("WgsMetrics are not written"), "{}", output.describe());
    assert!(!old.exists() && directory.join("out.gc_bias.summary_metrics").exists());
}

#[test]
fn a_job_is_resumed_only_with_the_same_metrics_and_interval_lists() {
    needs!("bwa");
    let out = scratch::directory("job-other-metrics");
    let options = AlignOptions { block_bases: 50_000, ..AlignOptions::default() };
    bwa_identity::align(&sample(), &options, &out).run_ok();
    let lists = interval_lists(&sample().reference);
    align(&lists, &out).arg("--resume").run().assert_rejected(&[2], &["--metrics was not set", "GcBias"]);
    align(&lists, &out).run_ok();
    align(&lists, &out).arg("--resume").run_ok();
    let text = fs::read_to_string(&lists.baits).expect("the list can be read");
    fs::write(&lists.baits, text.trim_end().rsplit_once('\n').expect("it has lines").0).expect("it can be written to");
    align(&lists, &out).arg("--resume").run().assert_rejected(&[2], &["--baits", "--metrics was"]);
}

#[test]
fn one_interval_list_can_be_that_of_targets_and_of_baits() {
    needs!("bwa");
    let mut lists = interval_lists(&sample().reference);
    lists.baits.clone_from(&lists.targets);
    let out = scratch::directory("job-one-list");
    align(&lists, &out).run_ok();
    assert!(scratch::entry_names(&out).iter().any(|name| name.ends_with(".hs_metrics")));
}

#[test]
fn the_report_and_multiqc_show_picards_metrics_of_a_job() {
    needs!("bwa");
    let lists = interval_lists(&sample().reference);
    let out = scratch::directory("job-report");
    align(&lists, &out).run_ok();
    let page = fs::read_to_string(out.join("report.html")).expect("align writes it");
    for text in ["Picard metrics", "MEAN_COVERAGE", "FOLD_ENRICHMENT", "GC_DROPOUT", "CollectOxoGMetrics"] {
        assert!(page.contains(text), "report.html lacks {text}");
    }
    let Some(bin) = multiqc_directory() else {
        skip!("missing-tool", "MultiQC is not installed by install-dependencies.sh")
    };
    let values = multiqc_values(&bin, &out);
    for module in ["wgsmetrics", "gcbias", "hsmetrics", "pcrmetrics", "oxogmetrics", "quality_by_cycle"] {
        assert!(values.iter().any(|(key, _)| key.to_lowercase().contains(module)), "MultiQC does not read {module}");
    }
}
