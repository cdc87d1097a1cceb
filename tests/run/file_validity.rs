//! Validity of the output files, checked by samtools and by Picard's ValidateSamFile.

use std::path::{Path, PathBuf};

use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{binary::godwit, needs, needs_picard, picard, sam_fuzzer, scratch};

use super::bwa_identity::align;

fn aligned() -> (std::sync::Arc<Sample>, PathBuf) {
    let spec = SampleSpec {
        seed: 11,
        lanes: vec![1500, 900],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    };
    let sample = Sample::cached(&spec);
    let out = scratch::directory("validity");
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    align(&sample, &options, &out).args(["--threads", "2", "--partitions", "7"]).run_ok();
    (sample, out)
}

fn samtools(words: &[&str], file: &Path) -> String {
    let words = words.iter().map(AsRef::as_ref).chain([file.as_os_str()]);
    String::from_utf8_lossy(&Tool::require("samtools").run(words).stdout).into_owned()
}

#[test]
fn samtools_and_picard_find_nothing_wrong_with_an_aligned_file() {
    needs!("bwa");
    needs_picard!();
    let (sample, out) = aligned();
    let bam = out.join("sample.bam");
    samtools(&["quickcheck", "-v"], &bam);
    assert_eq!(picard::validation_problems(&bam, None), "");
    drop(sample);
}

#[test]
fn flagstat_and_idxstats_are_those_of_samtools() {
    needs!("bwa", "samtools");
    let (_sample, out) = aligned();
    let bam = out.join("sample.bam");
    for statistics in ["flagstat", "idxstats"] {
        let found = std::fs::read_to_string(out.join(format!("sample.{statistics}.txt"))).expect("godwit wrote it");
        assert_eq!(found, samtools(&[statistics], &bam), "{statistics}");
    }
}

#[test]
fn the_index_finds_what_samtools_own_index_finds() {
    needs!("bwa", "samtools");
    let (_sample, out) = aligned();
    let bam = out.join("sample.bam");
    let copy = out.join("copy.bam");
    std::fs::copy(&bam, &copy).expect("the output can be copied");
    samtools(&["index"], &copy);
    let regions = ["chr1:1-500", "chr1:16300-16500", "chr1:60000-60700", "chr2", "chr3:29900-30000", "tiny", "*"];
    for region in regions {
        let records = |file: &Path| {
            let words = ["view".as_ref(), file.as_os_str(), region.as_ref()];
            String::from_utf8_lossy(&Tool::require("samtools").run(words).stdout).into_owned()
        };
        assert_eq!(records(&bam), records(&copy), "{region}");
    }
}

#[test]
fn every_promised_file_of_a_run_is_there_and_nothing_else() {
    needs!("bwa");
    let (_sample, out) = aligned();
    let mut names: Vec<String> = std::fs::read_dir(&out)
        .expect("the output directory can be read")
        .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let promised = [
        "report.html",
        "run.json",
        "sample.alignment_summary.txt",
        "sample.bam",
        "sample.bam.bai",
        "sample.duplicates.txt",
        "sample.flagstat.txt",
        "sample.idxstats.txt",
        "sample.insert_size.txt",
        "sample.manifest.json",
        "sample.mosdepth.global.dist.txt",
        "sample.mosdepth.summary.txt",
        "sample.stats.txt",
    ];
    assert_eq!(names, promised);
}

#[test]
fn flagstat_and_idxstats_of_marked_fuzzed_files_are_those_of_samtools() {
    needs!("samtools");
    let directory = scratch::directory("markdup-statistics");
    for seed in 500..540 {
        let input = directory.join("input.sam");
        std::fs::write(&input, sam_fuzzer::generate_sam(seed).to_text())
            .expect("the scratch directory can be written to");
        let bam = directory.join("found.bam");
        godwit().arg("markdup").arg(&input).arg("--out").arg(&bam).args(["--threads", "1"]).run_ok();
        samtools(&["quickcheck", "-v"], &bam);
        for statistics in ["flagstat", "idxstats"] {
            let found = std::fs::read_to_string(directory.join(format!("found.{statistics}.txt")));
            assert_eq!(found.expect("godwit wrote it"), samtools(&[statistics], &bam), "seed {seed}: {statistics}");
        }
    }
}
