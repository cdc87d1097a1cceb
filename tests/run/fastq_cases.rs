//! Invalid FASTQ of each kind is rejected with the numbers of record and line. Valid FASTQ is read as bwa reads it.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::fastq_cases::{FastqCase, FastqOutcome, fastq_cases};
use godwit_tests::reference_pipeline::{AlignOptions, DuplicateHandling, Lane, run_reference_pipeline};
use godwit_tests::sam::{self, SamText};
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::{needs, scratch};

const READ_GROUP: &str = "@RG\\tID:a\\tSM:s";

fn sample() -> std::sync::Arc<Sample> {
    Sample::cached(&SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    })
}

/// Writes the FASTQ file of a case and aligns it. Returns the file, the output directory and the output of the process.
fn align(case: &FastqCase, words: &[&str]) -> (PathBuf, PathBuf, GodwitOutput) {
    let directory = scratch::directory(&case.name);
    let file = directory.join(format!("{}.fastq", case.name));
    std::fs::write(&file, &case.bytes).expect("the scratch directory can be written to");
    let out = directory.join("out");
    let sample = sample();
    let command = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference());
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
        let FastqOutcome::Rejected { record, line } = case.expected else { continue };
        refused += 1;
        let place = format!("record {record} (line {line}) of ");
        let (file, out, finished) = align(&case, &[]);
        finished.assert_rejected(&[3], &[&place, &file.to_string_lossy()]);
        assert_empty(&out);
    }
    assert_eq!(refused, 22);
}

#[test]
fn lenient_accepts_none_of_them_but_the_one_with_another_title() {
    needs!("bwa");
    for case in fastq_cases().iter().filter(|case| matches!(case.expected, FastqOutcome::Rejected { .. })) {
        let (_, _, finished) = align(case, &["--lenient"]);
        assert_eq!(finished.status.success(), case.name == "error_diff_ids", "{}", finished.describe());
    }
}

#[test]
fn every_legal_file_gives_the_reads_that_bwa_sees() {
    needs!("bwa");
    needs!("samtools");
    for case in fastq_cases() {
        let FastqOutcome::Accepted { reads } = case.expected else { continue };
        let (file, out, finished) = align(&case, &[]);
        assert!(finished.status.success(), "{}", finished.describe());
        let lane = Lane { reads: vec![file], read_group: READ_GROUP.to_owned() };
        let options = AlignOptions { duplicates: DuplicateHandling::None, ..AlignOptions::default() };
        let expected = run_reference_pipeline(&sample().reference, &[lane], &options);
        sam::assert_same(&expected.bam, &out.join("s.bam"));
        assert_eq!(SamText::read(&out.join("s.bam")).records.len(), reads, "{}", case.name);
    }
}
