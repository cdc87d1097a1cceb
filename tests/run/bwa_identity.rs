//! `godwit align` against the reference pipeline: every record, field by field and in order, with any settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy};
use godwit_tests::reference_pipeline::{AlignOptions, DuplicateHandling, Lane, run_reference_pipeline};
use godwit_tests::sam::{self, SamText};
use godwit_tests::sample::{READ_BASES, Sample, SampleSpec, TitleComments};
use godwit_tests::{metrics, needs, needs_picard, scratch};

use super::aligners;

/// Aligners that write the same records as bwa.
const ALIGNERS: [&str; 2] = ["bwa", "bwa-mem3"];

/// Returns two lanes of one library, with some blocks of 1 Mb each.
fn paired_spec() -> SampleSpec {
    SampleSpec {
        seed: 3,
        lanes: vec![11_000, 6_000],
        paired: true,
        alternate: false,
        comments: TitleComments::Illumina,
    }
}

/// Returns a smaller sample, for tests of options.
fn small_spec() -> SampleSpec {
    SampleSpec { lanes: vec![1500, 900], seed: 11, ..paired_spec() }
}

/// Returns a command line that aligns `sample` into `out`.
pub fn align(sample: &Sample, options: &AlignOptions, out: &Path) -> GodwitCommand {
    let command = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference());
    let command = sample.lanes.iter().fold(command, |command, lane| {
        command.arg("--reads").args(&lane.reads).arg("--read-group").arg(&lane.read_group)
    });
    let command = command
        .args(["--sample", "sample", "--out"])
        .arg(out)
        .args(["--block-bases", &options.block_bases.to_string()])
        .args([
            "--duplicates",
            if options.marking.remove_sequencing_duplicates { "remove-optical" } else { options.duplicates.argument() },
        ])
        .args(options.marking.godwit_args())
        .args(["--optical-distance", &options.optical_distance.to_string()]);
    match options.aligner_args.is_empty() {
        true => command,
        false => command.arg(format!("--aligner-args={}", options.aligner_args.join(" "))),
    }
}

/// Runs godwit and the reference pipeline and compares their output. Returns godwit's BAM.
pub(super) fn assert_identical(sample: &Sample, options: &AlignOptions, words: &[&str]) -> PathBuf {
    assert_all_identical(sample, options, &[words])
}

/// Runs godwit in several ways that must write the same bytes, and compares them with the output of the reference
/// pipeline. Returns the first BAM.
fn assert_all_identical(sample: &Sample, options: &AlignOptions, ways: &[&[&str]]) -> PathBuf {
    let directories = ways.iter().map(|words| {
        let out = scratch::directory("align");
        align(sample, options, &out).args(*words).run_ok();
        out
    });
    let directories: Vec<PathBuf> = directories.collect();
    assert_same_bytes(&directories.iter().map(|out| out.join("sample.bam")).collect::<Vec<_>>());
    let out = &directories[0];
    let expected = run_reference_pipeline(&sample.reference, &sample.lanes, options);
    let bam = out.join("sample.bam");
    sam::assert_same(&expected.bam, &bam);
    if let Some(expected) = expected.metrics {
        metrics::assert_same(&expected, &out.join("sample.duplicates.txt"));
    }
    bam
}

pub(super) fn assert_same_bytes(files: &[PathBuf]) {
    let bytes = |path: &PathBuf| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let first = bytes(&files[0]);
    for other in &files[1..] {
        assert!(first == bytes(other), "{} and {} are not the same bytes", files[0].display(), other.display());
    }
}

fn options_with_block_bases(block_bases: u64) -> AlignOptions {
    AlignOptions { block_bases, ..AlignOptions::default() }
}

fn sample(spec: &SampleSpec) -> Arc<Sample> {
    Sample::cached(spec)
}

#[test]
fn records_are_those_of_the_reference_pipeline_at_any_threads_and_partitions() {
    needs!("bwa");
    needs_picard!();
    let sample = aligners::sample_with_index(&paired_spec(), "bwa-mem3", "");
    // Each number of threads and each number of partitions occurs with both aligners. The ignored tests below use all
    // combinations.
    for (at, partitions) in ["1", "7", "128"].into_iter().enumerate() {
        let words = [("1", at), ("2", at + 1), ("4", at)].map(|(threads, aligner)| {
            let aligner = ALIGNERS[aligner % ALIGNERS.len()];
            ["--threads", threads, "--partitions", partitions, "--memory", "8G", "--aligner", aligner]
        });
        let ways = words.each_ref().map(|words| &words[..]);
        assert_all_identical(&sample, &options_with_block_bases(1_000_000), &ways);
    }
}

#[test]
fn records_are_those_of_the_reference_pipeline_if_a_lane_is_one_block() {
    needs!("bwa");
    needs_picard!();
    let sample = aligners::sample_with_index(&paired_spec(), "bwa-mem3", "");
    let words = ALIGNERS.map(|aligner| ["--threads", "2", "--aligner", aligner]);
    let ways = words.each_ref().map(|words| &words[..]);
    assert_all_identical(&sample, &options_with_block_bases(100_000_000), &ways);
}

/// Aligns with all numbers of threads and partitions at one block size, of which the tests above use a subset. The
/// lanes have the numbers of pairs in `lanes`, and several blocks each.
fn assert_all_settings_give_the_same_records(block_bases: u64, lanes: [usize; 2], memories: &[&str]) {
    let sample = aligners::sample_with_index(&SampleSpec { lanes: lanes.to_vec(), ..paired_spec() }, "bwa-mem3", "");
    assert!(lanes.iter().all(|pairs| *pairs as u64 * 2 * READ_BASES as u64 > block_bases), "a lane has one block");
    for partitions in ["1", "7", "128"] {
        let mut outputs = Vec::new();
        for (threads, memory) in ["1", "2", "4"]
            .map(|threads| (threads, "8G"))
            .into_iter()
            .chain(memories.iter().map(|memory| ("2", *memory)))
        {
            for aligner in ALIGNERS {
                let words =
                    ["--partitions", partitions, "--memory", memory, "--threads", threads, "--aligner", aligner];
                outputs.push(assert_identical(&sample, &options_with_block_bases(block_bases), &words));
            }
        }
        assert_same_bytes(&outputs);
        outputs.iter().for_each(|bam| std::fs::remove_file(bam).expect("the scratch directory can be written to"));
    }
}

#[test]
#[ignore = "a quarter of an hour"]
fn blocks_of_1_mb_give_the_same_records_at_any_threads_partitions_and_memory() {
    needs!("bwa");
    needs_picard!();
    assert_all_settings_give_the_same_records(1_000_000, [350_000, 300_000], &["128M"]);
}

#[test]
#[ignore = "five minutes"]
fn blocks_of_10_mb_give_the_same_records_at_any_threads_and_partitions() {
    needs!("bwa");
    needs_picard!();
    assert_all_settings_give_the_same_records(10_000_000, [140_000, 120_000], &[]);
}

#[test]
#[ignore = "half an hour"]
fn blocks_of_100_mb_give_the_same_records_at_any_threads_and_partitions() {
    needs!("bwa");
    needs_picard!();
    assert_all_settings_give_the_same_records(100_000_000, [700_000, 600_000], &[]);
}

#[test]
fn blocks_of_a_few_hundred_reads_have_the_ordinals_of_one_run() {
    needs!("bwa");
    needs_picard!();
    // bwa estimates insert sizes for each block and breaks ties by the ordinals of reads. With a hundred blocks, a
    // wrong border changes records.
    let sample = aligners::sample_with_index(&small_spec(), "bwa-mem3", "");
    for aligner in ALIGNERS {
        let words = ["--threads", "2", "--partitions", "7", "--aligner", aligner];
        assert_identical(&sample, &options_with_block_bases(10_000), &words);
    }
}

#[test]
fn little_memory_spills_and_changes_nothing() {
    needs!("bwa");
    needs_picard!();
    let words = ["8G", "128M"].map(|memory| ["--threads", "2", "--partitions", "7", "--memory", memory]);
    let ways = words.each_ref().map(|words| &words[..]);
    assert_all_identical(&sample(&paired_spec()), &options_with_block_bases(1_000_000), &ways);
}

#[test]
fn single_end_reads_come_out_as_the_reference_pipeline_has_them() {
    needs!("bwa");
    needs_picard!();
    let sample = sample(&SampleSpec { paired: false, ..small_spec() });
    assert_identical(&sample, &options_with_block_bases(50_000), &["--threads", "2"]);
}

#[test]
fn lanes_of_several_libraries_come_out_as_the_reference_pipeline_has_them() {
    needs!("bwa");
    needs_picard!();
    let sample =
        aligners::sample_with_index(&SampleSpec { lanes: vec![700, 600, 500, 40], ..small_spec() }, "bwa-mem3", "");
    for aligner in ALIGNERS {
        assert_identical(&sample, &options_with_block_bases(50_000), &["--threads", "2", "--aligner", aligner]);
    }
}

#[test]
fn a_reference_with_alternate_contigs_gives_what_bwa_gives() {
    needs!("bwa");
    needs_picard!();
    let sample = aligners::sample_with_index(&SampleSpec { alternate: true, ..small_spec() }, "bwa-mem3", "");
    for aligner in ALIGNERS {
        let bam =
            assert_identical(&sample, &options_with_block_bases(100_000), &["--threads", "2", "--aligner", aligner]);
        let found = SamText::read(&bam);
        let alternate = found.records.iter().any(|record| record.contains("\tpa:f:"));
        assert!(alternate, "no record has a tag of alternate hits: this sample proves nothing");
    }
}

#[test]
fn options_that_change_records_pass_through_to_the_aligner() {
    needs!("bwa");
    needs_picard!();
    let spec = SampleSpec { comments: TitleComments::Tags, alternate: true, ..small_spec() };
    let sample = aligners::sample_with_index(&spec, "bwa-mem3", "");
    for words in [vec!["-M"], vec!["-Y"], vec!["-C"], vec!["-M", "-Y", "-C", "-k", "25", "-T", "20"]] {
        let aligner_args = words.iter().map(|word| (*word).to_owned()).collect();
        let options = AlignOptions { aligner_args, ..options_with_block_bases(100_000) };
        for aligner in ALIGNERS {
            assert_identical(&sample, &options, &["--threads", "2", "--aligner", aligner]);
        }
    }
}

#[test]
fn duplicates_are_removed_or_left_alone_when_asked() {
    needs!("bwa");
    needs_picard!();
    let sample = sample(&small_spec());
    for duplicates in [DuplicateHandling::Remove, DuplicateHandling::None] {
        assert_identical(
            &sample,
            &AlignOptions { duplicates, ..options_with_block_bases(100_000) },
            &["--threads", "2"],
        );
    }
}

#[test]
fn the_optical_distance_changes_metrics_as_in_picard() {
    needs!("bwa");
    needs_picard!();
    let options = AlignOptions { optical_distance: 60, ..options_with_block_bases(100_000) };
    assert_identical(&sample(&small_spec()), &options, &["--threads", "2"]);
}

#[test]
fn templates_are_marked_as_picard_marks_them_in_what_bwa_writes() {
    needs!("bwa");
    needs_picard!();
    let query = MarkingOptions { query_grouped: true, ..MarkingOptions::default() };
    let tags = MarkingOptions { tagging: TaggingPolicy::All, tag_set_members: true, ..query.clone() };
    let mut further = 0;
    for (spec, marking) in [
        (small_spec(), query),
        (small_spec(), tags.clone()),
        (SampleSpec { paired: false, ..small_spec() }, tags.clone()),
        (
            SampleSpec { lanes: vec![700, 600, 500, 40], ..small_spec() },
            MarkingOptions { remove_sequencing_duplicates: true, ..tags },
        ),
    ] {
        let options = AlignOptions { marking, ..options_with_block_bases(50_000) };
        let bam = assert_identical(&sample(&spec), &options, &["--threads", "2", "--partitions", "7"]);
        further += SamText::read(&bam).flags().iter().filter(|flag| *flag & 0x400 != 0 && *flag & 0x904 != 0).count();
    }
    assert!(further > 0, "no unmapped, secondary or supplementary record was marked: this sample proves nothing");
}

#[test]
fn sets_and_kinds_of_duplicates_are_tagged_as_picard_tags_them_in_little_memory_too() {
    needs!("bwa");
    needs_picard!();
    let marking = MarkingOptions { tagging: TaggingPolicy::All, tag_set_members: true, ..MarkingOptions::default() };
    let options = AlignOptions { marking, ..options_with_block_bases(1_000_000) };
    let words = ["8G", "128M"].map(|memory| ["--threads", "2", "--partitions", "7", "--memory", memory]);
    let ways = words.each_ref().map(|words| &words[..]);
    let text = SamText::read(&assert_all_identical(&sample(&paired_spec()), &options, &ways)).to_text();
    assert!(["\tDT:Z:SQ", "\tDT:Z:LB", "\tDI:i:", "\tDS:i:3"].iter().all(|tag| text.contains(tag)));
}

#[test]
fn barcodes_from_comments_keep_molecules_apart_as_in_picard() {
    needs!("bwa");
    needs_picard!();
    let sample = sample(&SampleSpec { comments: TitleComments::Tags, ..small_spec() });
    let plain = MarkingOptions { tag_set_members: true, ..MarkingOptions::default() };
    let barcode = MarkingOptions { barcode: Some("RX"), molecular_identifier: Some("MI"), ..plain.clone() };
    let duplex = MarkingOptions { duplex_umi: true, query_grouped: true, ..barcode.clone() };
    let own = MarkingOptions { read_one_barcode: Some("RX"), read_two_barcode: Some("RX"), ..plain.clone() };
    let marked = [plain, barcode, duplex, own].map(|marking| {
        let options =
            AlignOptions { marking, aligner_args: vec!["-C".to_owned()], ..options_with_block_bases(100_000) };
        SamText::read(&assert_identical(&sample, &options, &["--threads", "2"])).flags()
    });
    for other in &marked[1..] {
        assert!(*other != marked[0], "barcodes change nothing here: this sample proves nothing");
    }
}

#[test]
fn a_read_group_made_by_godwit_is_on_every_record() {
    needs!("bwa");
    needs_picard!();
    let sample = sample(&small_spec());
    let out = scratch::directory("align");
    let lane = &sample.lanes[1];
    godwit()
        .arg("align")
        .arg("--reference")
        .arg(sample.godwit_indexed_reference())
        .arg("--reads")
        .args(&lane.reads)
        .args(["--sample", "NA1", "--out"])
        .arg(&out)
        .args(["--block-bases", "100000"])
        .run_ok();
    let found = SamText::read(&out.join("NA1.bam"));
    let groups: Vec<&String> = found.header.iter().filter(|line| line.starts_with("@RG")).collect();
    assert!(groups.len() == 1 && groups[0].contains("\tSM:NA1"), "{groups:?}");
    // If bwa gets the same read group line, the whole output files must be equal.
    let lane = Lane { reads: lane.reads.clone(), read_group: groups[0].replace('\t', "\\t") };
    let expected = run_reference_pipeline(&sample.reference, &[lane], &options_with_block_bases(100_000));
    sam::assert_same(&expected.bam, &out.join("NA1.bam"));
}

#[test]
fn reads_without_bases_or_with_one_come_out_as_bwa_writes_them() {
    needs!("bwa");
    needs_picard!();
    let sample = sample(&small_spec());
    let directory = scratch::directory("short-reads");
    let reads = directory.join("short.fastq");
    let long = "ACGGTTCAGATTACCGGTACCATTGACCAGTAGGATTACACCATTGGACAA";
    let text = format!("@a\n{long}\n+\n{}\n@z\n\n+\n\n@b\nA\n+\nI\n@c\n{long}\n+\n{0}\n", "I".repeat(long.len()));
    std::fs::write(&reads, text).expect("the scratch directory can be written to");
    let lane = Lane { reads: vec![reads.clone()], read_group: "@RG\\tID:a\\tSM:sample".to_owned() };
    let out = directory.join("out");
    let finished = godwit()
        .arg("align")
        .arg("--reference")
        .arg(sample.godwit_indexed_reference())
        .arg("--reads")
        .arg(&reads)
        .args(["--read-group", &lane.read_group, "--sample", "sample", "--out"])
        .arg(&out)
        .run();
    assert!(finished.status.success(), "{}", finished.describe());
    let expected = run_reference_pipeline(&sample.reference, &[lane], &AlignOptions::default());
    sam::assert_same(&expected.bam, &out.join("sample.bam"));
}
