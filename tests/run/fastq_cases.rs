//! Every kind of broken FASTQ is refused by record and line, every legal one is read as bwa reads it.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{Finished, godwit};
use godwit_tests::fastq_cases::{FastqCase, Verdict, fastq_cases};
use godwit_tests::pipeline::{AlignOptions, Duplicates, Lane, reference_bam};
use godwit_tests::reads::{Comments, Sample, SampleSpec};
use godwit_tests::sam::{self, SamText};
use godwit_tests::{needs, scratch};

const READ_GROUP: &str = "@RG\\tID:a\\tSM:s";

fn sample() -> std::sync::Arc<Sample> {
    Sample::get(&SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired: true,
        alternate: false,
        comments: Comments::Illumina,
    })
}

/// Writes a case and aligns it. Returns the file, the output directory and the run.
fn align(case: &FastqCase, words: &[&str]) -> (PathBuf, PathBuf, Finished) {
    let directory = scratch::directory(&case.name);
    let file = directory.join(format!("{}.fastq", case.name));
    std::fs::write(&file, &case.bytes).expect("the scratch directory can be written to");
    let out = directory.join("out");
    let sample = sample();
    let command = godwit().arg("align").arg("--reference").arg(sample.indexed_by_godwit());
    let command = command.arg("--reads").arg(&file).args(["--read-group", READ_GROUP, "--sample", "s", "--out"]);
    let finished = command.arg(&out).args(["--duplicates", "none", "--threads", "1"]).args(words).run();
    (file, out, finished)
}

fn assert_empty(directory: &Path) {
    let names: Vec<_> = std::fs::read_dir(directory)
        .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
        .unwrap_or_default();
    assert!(names.is_empty(), "{names:?} are left in {}", directory.display());
}

#[test]
fn all_22_classic_broken_files_are_refused_by_file_record_and_line() {
    needs!("bwa");
    let mut refused = 0;
    for case in fastq_cases() {
        let Verdict::Refused { record, line } = case.verdict else { continue };
        refused += 1;
        let place = format!("record {record} (line {line}) of ");
        let (file, out, finished) = align(&case, &[]);
        finished.refuses(&[3], &[&place, &file.to_string_lossy()]);
        assert_empty(&out);
    }
    assert_eq!(refused, 22);
}

#[test]
fn lenient_accepts_none_of_them_but_the_one_with_another_title() {
    needs!("bwa");
    for case in fastq_cases().iter().filter(|case| matches!(case.verdict, Verdict::Refused { .. })) {
        let (_, _, finished) = align(case, &["--lenient"]);
        assert_eq!(finished.status.success(), case.name == "error_diff_ids", "{}", finished.report());
    }
}

#[test]
fn every_legal_file_gives_the_reads_that_bwa_sees() {
    needs!("bwa");
    needs!("samtools");
    for case in fastq_cases() {
        let Verdict::Accepted { reads } = case.verdict else { continue };
        let (file, out, finished) = align(&case, &[]);
        assert!(finished.status.success(), "{}", finished.report());
        let lane = Lane { reads: vec![file], read_group: READ_GROUP.to_owned() };
        let options = AlignOptions { duplicates: Duplicates::None, ..AlignOptions::default() };
        let expected = reference_bam(&sample().reference, &[lane], &options);
        sam::assert_same(&expected.bam, &out.join("s.bam"));
        assert_eq!(SamText::read(&out.join("s.bam")).records.len(), reads, "{}", case.name);
    }
}
