//! `godwit metrics` against Picard 3.4.0: every line of every file but the header lines.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::collectors::{
    METRICS_SUFFIXES, METRICS_WITHOUT_OXOG, TargetFiles, picard_files, write_interval_lists,
};
use godwit_tests::qc::{multiqc_directory, multiqc_values, reference_for_picard};
use godwit_tests::random::Random;
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, needs_picard, sam_fuzzer, scratch, skip};

use super::bwa_identity::align;
use super::picard::shared_data_directory;
use super::real_data::{chromosome_20, na12878_reads};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/picard_metrics");

fn sample(paired: bool) -> std::sync::Arc<Sample> {
    let lanes = vec![1500, 900];
    Sample::cached(&SampleSpec { seed: 11, lanes, paired, alternate: false, comments: TitleComments::Illumina })
}

fn metrics_command(bam: &Path, reference: &Path, lists: Option<&TargetFiles>, out: &Path) -> GodwitCommand {
    let command = godwit().arg("metrics").arg(bam).arg("--reference").arg(reference).arg("--out").arg(out);
    let Some(lists) = lists else { return command };
    let command = command.arg("--targets").arg(&lists.targets).arg("--baits").arg(&lists.baits);
    command.arg("--amplicons").arg(&lists.amplicons)
}

/// Returns the lines of a metrics file without its header lines.
fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let is_header = |line: &&str| line.starts_with("## htsjdk.samtools.metrics") || line.starts_with("# ");
    text.lines().filter(|line| !is_header(line)).map(str::to_owned).collect()
}

/// Returns the first difference of each file from that of Picard, and each file beside `found` that Picard is not run for.
/// Files that Picard cannot compute are not compared.
fn differences(expected: &[(&'static str, Option<PathBuf>)], found: &Path) -> Vec<String> {
    let mut list = Vec::new();
    for (suffix, expected) in expected {
        let Some(expected) = expected else { continue };
        let path = found.with_added_extension(suffix);
        if !expected.exists() || !path.exists() {
            if expected.exists() != path.exists() {
                list.push(format!("{suffix}: Picard and godwit do not agree whether there is anything to write"));
            }
            continue;
        }
        let (one, other) = (lines(expected), lines(&path));
        let at = (0..one.len().max(other.len())).find(|at| one.get(*at) != other.get(*at));
        list.extend(at.map(|at| format!("{suffix} line {at}: {:?} expected, {:?} found", one.get(at), other.get(at))));
    }
    let stem = found.file_name().expect("the files have a stem").to_string_lossy().into_owned();
    for name in scratch::entry_names(found.parent().expect("the files are in a directory")) {
        let suffix = name.strip_prefix(&stem).and_then(|rest| rest.strip_prefix('.'));
        if suffix.is_some_and(|suffix| expected.iter().all(|(known, _)| *known != suffix)) {
            list.push(format!("{name}: no collector of Picard writes it"));
        }
    }
    list
}

#[test]
fn a_file_without_a_collector_of_picard_is_a_difference() {
    let found = Path::new(GOLDEN).join("expected/reads");
    assert_eq!(differences(&[], &found).len(), METRICS_SUFFIXES.len());
    assert_eq!(differences(&METRICS_SUFFIXES.map(|suffix| (suffix, None)), &found), [""; 0]);
}

/// Computes metrics of a BAM with Picard and with godwit, and compares them.
fn compare(bam: &Path, reference: &Path, lists: &TargetFiles, metrics: &str) -> Vec<String> {
    let out = scratch::directory("metrics");
    metrics_command(bam, reference, Some(lists), &out).args(["--threads", "2", "--metrics", metrics]).run_ok();
    let stem = bam.file_stem().expect("a BAM has a name");
    differences(&picard_files(bam, reference, lists), &out.join(stem))
}

#[test]
fn metrics_of_an_aligned_sample_are_those_of_picard() {
    needs!("bwa", "samtools");
    needs_picard!();
    for paired in [true, false] {
        let sample = sample(paired);
        let reference = reference_for_picard(&sample.reference);
        let out = scratch::directory("metrics-align");
        let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
        align(&sample, &options, &out).run_ok();
        let lists = write_interval_lists(&reference.with_extension("dict"), &out, 7);
        assert_eq!(compare(&out.join("sample.bam"), &reference, &lists, "all"), [""; 0], "paired: {paired}");
    }
}

#[test]
fn metrics_of_na12878_on_chromosome_20_are_those_of_picard() {
    needs!("bwa", "samtools", "gzip");
    needs_picard!();
    let Some(data) = shared_data_directory() else { skip!("shared-data", "no shared/data beside the repository") };
    // The 300,000 bases around the reads: on a whole chromosome, each of Picard's tools takes ten seconds.
    let out = scratch::directory("metrics-real");
    let text = std::fs::read_to_string(chromosome_20(&data)).expect("the reference can be read");
    let bases: Vec<&str> = text.lines().skip(1).skip(198_000).take(6_000).collect();
    let part = out.join("part.fa");
    std::fs::write(&part, format!(">chr20\n{}\n", bases.join("\n"))).expect("the scratch directory can be written to");
    godwit().arg("index").arg(&part).run_ok();
    let command = godwit().arg("align").arg("--reference").arg(&part).arg("--reads").args(na12878_reads(&data));
    command.args(["--sample", "NA12878", "--metrics", "off", "--out"]).arg(out.join("aligned")).run_ok();
    let reference = reference_for_picard(&part);
    let lists = write_interval_lists(&reference.with_extension("dict"), &out, 3);
    assert_eq!(compare(&out.join("aligned/NA12878.bam"), &reference, &lists, "all"), [""; 0]);
}

/// Small files with every unusual flag, CIGAR and mate, on a reference of random bases.
#[test]
fn metrics_of_fuzzed_files_are_those_of_picard() {
    needs!("samtools");
    needs_picard!();
    let mut failures = Vec::new();
    for seed in 900..902 {
        let directory = scratch::directory("metrics-fuzz");
        let (input, bam) = (directory.join("input.sam"), directory.join("marked.bam"));
        let text = sam_fuzzer::generate_sam(seed).to_text();
        std::fs::write(&input, &text).expect("the scratch directory can be written to");
        godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).run_ok();
        let plain = directory.join("random.fa");
        std::fs::write(&plain, random_reference(&text, seed)).expect("the scratch directory can be written to");
        let reference = reference_for_picard(&plain);
        let lists = write_interval_lists(&reference.with_extension("dict"), &directory, seed);
        let mut list = compare(&bam, &reference, &lists, METRICS_WITHOUT_OXOG);
        // Not every fuzzed read has a read group, which OxoG needs.
        list.retain(|line| !line.starts_with("oxog_metrics"));
        if !list.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", list.join("\n  ")));
        }
    }
    assert!(failures.is_empty(), "{} files differ:\n{}", failures.len(), failures.join("\n"));
}

/// Returns a FASTA file with random bases, and a few N, for the contigs of a SAM header.
fn random_reference(sam: &str, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::new();
    for line in sam.lines().filter(|line| line.starts_with("@SQ")) {
        let field = |tag: &str| line.split('\t').find_map(|field| field.strip_prefix(tag)).expect("@SQ has SN and LN");
        let length: usize = field("LN:").parse().expect("LN is a number");
        let mut bases = random.bases(length);
        for _ in 0..length / 2_000 {
            bases[random.below(length)] = b'N';
        }
        text += &format!(">{}\n{}\n", field("SN:"), String::from_utf8_lossy(&bases));
    }
    text
}

#[test]
fn committed_metrics_of_picard_come_out_again_at_any_number_of_threads() {
    let golden = Path::new(GOLDEN);
    let lists = TargetFiles::in_directory(golden);
    for threads in ["1", "3"] {
        let out = scratch::directory("metrics-golden");
        let command = metrics_command(&golden.join("reads.bam"), &golden.join("ref.fa"), Some(&lists), &out);
        command.args(["--threads", threads]).run_ok();
        let names = scratch::entry_names(&out);
        assert_eq!(names.len(), METRICS_SUFFIXES.len(), "{names:?}");
        for name in names {
            let expected = golden.join("expected").join(&name);
            assert_eq!(lines(&out.join(&name)), lines(&expected), "{name}, {threads} threads");
        }
    }
}

#[test]
fn only_requested_metrics_are_written() {
    let golden = Path::new(GOLDEN);
    let (bam, reference) = (golden.join("reads.bam"), golden.join("ref.fa"));
    let out = scratch::directory("metrics-names").join("new/directory");
    metrics_command(&bam, &reference, None, &out).args(["--metrics", "InsertSize,wgs"]).run_ok();
    assert_eq!(scratch::entry_names(&out), ["reads.insert_size_metrics", "reads.wgs_metrics"]);
    let all = scratch::directory("metrics-all");
    metrics_command(&bam, &reference, None, &all).run_ok();
    assert_eq!(scratch::entry_names(&all).len(), METRICS_SUFFIXES.len() - 2, "all without interval lists");
}

#[test]
fn invalid_requests_and_inputs_are_rejected_without_files() {
    let golden = Path::new(GOLDEN);
    let (bam, reference) = (golden.join("reads.bam"), golden.join("ref.fa"));
    let directory = scratch::directory("metrics-errors");
    let out = directory.join("out");
    let write = |name: &str, text: &str| {
        std::fs::write(directory.join(name), text).expect("the scratch directory can be written to");
        directory.join(name)
    };
    let command = |bam: &Path, reference: &Path| metrics_command(bam, reference, None, &out);
    command(&bam, &reference).args(["--metrics", "RnaSeq"]).run().assert_rejected(&[2], &["RnaSeq"]);
    command(&bam, &reference).args(["--metrics", "HsMetrics"]).run().assert_rejected(&[2], &["--baits", "--targets"]);
    command(&bam, &directory.join("none.fa")).run().assert_rejected(&[4], &["none.fa", "missing"]);
    command(&directory.join("none.bam"), &reference).run().assert_rejected(&[4], &["none.bam", "missing"]);
    command(&write("empty.bam", ""), &reference).run().assert_rejected(&[3], &["empty.bam", "empty"]);
    let other = write("other.fa", ">chrZ\nACGT\n");
    command(&bam, &other).run().assert_rejected(&[2, 3], &["other.fa", "contigs"]);
    let sam = write("reads.sam", "@HD\tVN:1.6\n@SQ\tSN:chr1\tLN:4\nr1\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\tIIII\n");
    command(&sam, &reference).run().assert_rejected(&[3], &["reads.sam", "not BAM"]);
    let list = write("other.interval_list", "@HD\tVN:1.6\n@SQ\tSN:chrZ\tLN:4\nchrZ\t1\t4\t+\tx\n");
    let bed = write("targets.bed", "chr1\t0\t4\n");
    let with_lists =
        |targets: &Path| command(&bam, &reference).arg("--targets").arg(targets).arg("--baits").arg(targets);
    with_lists(&list).run().assert_rejected(&[3], &["other.interval_list", "chrZ"]);
    with_lists(&bed).run().assert_rejected(&[3], &["targets.bed", "header"]);
    with_lists(&directory.join("none")).run().assert_rejected(&[4], &["none"]);
    assert!(!out.exists() || scratch::entry_names(&out).is_empty(), "no file has been written");
}

#[test]
fn records_out_of_order_are_rejected_only_by_metrics_that_need_the_order() {
    needs!("samtools");
    let golden = Path::new(GOLDEN);
    let directory = scratch::directory("metrics-order");
    let bam = directory.join("by_name.bam");
    let words = ["sort", "-n", "-o"].map(std::ffi::OsString::from);
    let sort = words.into_iter().chain([bam.clone().into(), golden.join("reads.bam").into()]);
    godwit_tests::tool::Tool::require("samtools").run(sort);
    let command = |metrics: &str| {
        let out = directory.join(metrics);
        metrics_command(&bam, &golden.join("ref.fa"), None, &out).args(["--metrics", metrics])
    };
    command("WgsMetrics").run().assert_rejected(&[3], &["by_name.bam", "record"]);
    command("GcBias,AlignmentSummary").run_ok();
}

#[test]
fn a_bam_without_records_has_metrics_without_values() {
    needs!("samtools");
    let golden = Path::new(GOLDEN);
    let directory = scratch::directory("metrics-none");
    let bam = directory.join("none.bam");
    let words = ["view", "-b", "-e", "0", "-o"].map(std::ffi::OsString::from);
    let view = words.into_iter().chain([bam.clone().into(), golden.join("reads.bam").into()]);
    godwit_tests::tool::Tool::require("samtools").run(view);
    let out = directory.join("out");
    metrics_command(&bam, &golden.join("ref.fa"), None, &out).run_ok();
    let count = METRICS_SUFFIXES.len() - 3;
    assert_eq!(scratch::entry_names(&out).len(), count, "without a pair there are no insert sizes");
    assert_eq!(lines(&out.join("none.quality_by_cycle_metrics")), [""; 3]);
    assert!(lines(&out.join("none.wgs_metrics"))[3].contains("\t0\t0\t0\t0\t"), "every depth is 0");
}

/// MultiQC does not read a quality distribution with a column of original qualities, as that of these reads has.
#[test]
fn multiqc_reads_the_metrics_files() {
    let Some(bin) = multiqc_directory() else {
        skip!("missing-tool", "MultiQC is not installed by install-dependencies.sh")
    };
    let golden = Path::new(GOLDEN);
    let out = scratch::directory("metrics-multiqc");
    let lists = TargetFiles::in_directory(golden);
    metrics_command(&golden.join("reads.bam"), &golden.join("ref.fa"), Some(&lists), &out).run_ok();
    let values = multiqc_values(&bin, &out);
    for module in [
        "AlignmentSummaryMetrics",
        "insertSize",
        "gcbias",
        "baseContent",
        "quality_by_cycle",
        "wgsmetrics",
        "HsMetrics",
        "pcrmetrics",
        "OxoGMetrics",
    ] {
        let is_read = |(key, _): &(String, String)| key.to_lowercase().contains(&module.to_lowercase());
        let modules =
            || values.iter().map(|(key, _)| key.split('/').next().unwrap_or("")).collect::<Vec<_>>().join(" ");
        assert!(values.iter().any(is_read), "MultiQC does not read {module}: {}", modules());
    }
}
