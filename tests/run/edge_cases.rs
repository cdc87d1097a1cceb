//! Extreme inputs, against the reference pipeline: very many contigs and read groups, one read, reads of 10 kb, the
//! longest names, and a clock that jumps.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::duplicate_options::MarkingOptions;
use godwit_tests::genome::{mutate, reverse_complement};
use godwit_tests::picard::{self, PicardOptions};
use godwit_tests::random::Random;
use godwit_tests::reference_pipeline::{AlignOptions, Lane, run_reference_pipeline};
use godwit_tests::sam::{self, SamText};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::{metrics, needs, needs_picard, scratch};

const EXIT_INPUT: i32 = 3;
/// The bases of an ordinary fragment: both reads and the bases between them.
const FRAGMENT_BASES: usize = 130;
const READ_BASES: usize = 60;

/// A reference and the generator of its reads.
struct Case {
    directory: PathBuf,
    reference: PathBuf,
    contigs: Vec<Vec<u8>>,
    random: Random,
}

impl Case {
    /// Generates contigs of these lengths, in bases, and indexes them.
    fn new(lengths: impl IntoIterator<Item = usize>) -> Self {
        let directory = scratch::directory("extreme");
        let reference = directory.join("ref.fa");
        let mut random = Random::new(77);
        let contigs: Vec<Vec<u8>> = lengths.into_iter().map(|bases| random.bases(bases)).collect();
        let mut text = String::new();
        for (number, bases) in contigs.iter().enumerate() {
            writeln!(text, ">c{number}\n{}", String::from_utf8_lossy(bases)).expect("text grows");
        }
        fs::write(&reference, text).expect("scratch can be written to");
        godwit().arg("index").arg(&reference).run_ok();
        Self { directory, reference, contigs, random }
    }

    /// Draws both reads of a fragment with a few errors; every fourth fragment starts in the middle of its contig.
    fn random_pair(&mut self) -> [String; 2] {
        let contig = self.random.below(self.contigs.len());
        let free = self.contigs[contig].len() - FRAGMENT_BASES;
        let start = if self.random.chance(0.25) { free / 2 } else { self.random.below(free + 1) };
        let fragment = &self.contigs[contig][start..start + FRAGMENT_BASES];
        let other = reverse_complement(fragment);
        [fragment, &other].map(|strand| {
            String::from_utf8(mutate(&strand[..READ_BASES], 0.004, 0.0, &mut self.random)).expect("bases are text")
        })
    }

    /// Writes a lane of pairs, whose names `name` makes of their numbers.
    fn paired_lane(&mut self, lane: usize, pairs: usize, name: impl Fn(usize) -> String) -> Lane {
        let mut texts = [String::new(), String::new()];
        for number in 0..pairs {
            for (text, bases) in texts.iter_mut().zip(self.random_pair()) {
                append_fastq(text, &name(number), &bases);
            }
        }
        self.lane(lane, &texts)
    }

    fn lane(&self, lane: usize, texts: &[String]) -> Lane {
        let write = |(mate, text): (usize, &String)| {
            let path = self.directory.join(format!("L{lane}_R{}.fastq", mate + 1));
            fs::write(&path, text).expect("scratch can be written to");
            path
        };
        let reads = texts.iter().enumerate().map(write).collect();
        Lane { reads, read_group: format!("@RG\\tID:g{lane}\\tSM:sample\\tLB:lib{}", lane % 7) }
    }

    fn align(&self, lanes: &[Lane], out: &Path) -> GodwitCommand {
        let command = godwit().arg("align").arg("--reference").arg(&self.reference);
        let add = |command: GodwitCommand, lane: &Lane| {
            command.arg("--reads").args(&lane.reads).args(["--read-group", &lane.read_group])
        };
        let command = lanes.iter().fold(command, add);
        command.args(["--sample", "sample", "--block-bases", "100000", "--out"]).arg(out)
    }

    /// Aligns and compares the records with those of bwa, samtools and Picard. Then aligns on two workers and compares
    /// the bytes. Returns the BAM.
    fn assert_same_as_reference(&self, lanes: &[Lane], words: &[&str]) -> PathBuf {
        let [one, two] = ["one", "two"].map(scratch::directory);
        self.align(lanes, &one).args(["--threads", "2"]).args(words).run_ok();
        let bam = one.join("sample.bam");
        let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
        let expected = run_reference_pipeline(&self.reference, lanes, &options);
        sam::assert_same(&expected.bam, &bam);
        metrics::assert_same(&expected.metrics.expect("duplicates are marked"), &one.join("sample.duplicates.txt"));
        self.align(lanes, &two).args(["--threads", "1", "--on", "local", "--nodes", "2"]).args(words).run_ok();
        assert!(have_same_bytes(&bam, &two.join("sample.bam")), "two nodes wrote other bytes than one process");
        bam
    }
}

fn command_output(command: &mut Command) -> String {
    String::from_utf8_lossy(&run_checked(command).stdout).into_owned()
}

fn have_same_bytes(one: &Path, other: &Path) -> bool {
    fs::read(one).expect("it was written") == fs::read(other).expect("it was written")
}

/// Appends a read without a comment.
fn append_fastq(text: &mut String, name: &str, bases: &str) {
    writeln!(text, "@{name}\n{bases}\n+\n{}", "I".repeat(bases.len())).expect("text grows");
}

fn illumina_name(number: usize) -> String {
    format!("INST:1:FC:1:1101:{}:{}", number % 997, number)
}

#[test]
fn a_reference_of_five_thousand_tiny_contigs_gives_what_bwa_gives() {
    needs!("bwa", "bcftools", "bgzip");
    needs_picard!();
    let mut case = Case::new((0..5_000).map(|number| 140 + number % 200));
    let lanes = [case.paired_lane(1, 6_000, illumina_name)];
    let bam = case.assert_same_as_reference(&lanes, &["--partitions", "128"]);
    let vcf = case.directory.join("s.vcf.gz");
    let call = godwit().arg("call").arg("--reference").arg(&case.reference).arg("--reads").arg(&bam);
    call.arg("--out").arg(&vcf).args(["--threads", "2"]).run_ok();
    let plain = format!("bcftools mpileup -Ou -f {} {} | bcftools call -mv", case.reference.display(), bam.display());
    let plain = command_output(Tool::require("bash").command().args(["-c", &plain]));
    let found = command_output(Tool::require("bgzip").command().arg("-dc").arg(&vcf));
    let [plain, found] =
        [&plain, &found].map(|text| text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>());
    assert!(plain.len() > 100, "{} records: this sample proves nothing", plain.len());
    assert_eq!(found, plain);
}

#[test]
fn a_thousand_read_groups_keep_their_reads_apart() {
    needs!("bwa", "samtools");
    needs_picard!();
    let mut case = Case::new([40_000, 9_000]);
    let lanes: Vec<Lane> = (0..1_000).map(|lane| case.paired_lane(lane, 3, |n| illumina_name(n + 10 * lane))).collect();
    let out = scratch::directory("groups");
    case.align(&lanes, &out).args(["--threads", "2"]).run_ok();
    let bam = out.join("sample.bam");
    let found = SamText::read(&bam);
    assert_eq!(found.header.iter().filter(|line| line.starts_with("@RG")).count(), 1_000);
    assert_eq!(found.records.len(), 6_000);
    // Mark duplicates again in the merged file with Picard and with godwit.
    let expected = out.join("expected.bam");
    let options = PicardOptions { optical_distance: 100, remove: false, marking: MarkingOptions::default() };
    picard::mark_duplicates(&bam, &expected, &out.join("expected.txt"), &options).expect("Picard takes them");
    sam::assert_same(&expected, &bam);
    metrics::assert_same(&out.join("expected.txt"), &out.join("sample.duplicates.txt"));
}

#[test]
fn one_pair_and_one_read_are_a_sample() {
    needs!("bwa");
    needs_picard!();
    let mut case = Case::new([20_000]);
    let pair = case.paired_lane(1, 1, illumina_name);
    case.assert_same_as_reference(std::slice::from_ref(&pair), &[]);
    let mut text = String::new();
    append_fastq(&mut text, "only", &case.random_pair()[0]);
    case.assert_same_as_reference(&[case.lane(2, &[text])], &[]);
    // No read is from the genome, so all records are unmapped and all partitions except one are empty.
    let mut text = String::new();
    append_fastq(&mut text, "junk", "ACACACACACACACACACACACACACACACAC");
    case.assert_same_as_reference(&[case.lane(3, &[text])], &[]);
}

#[test]
fn reads_of_ten_thousand_bases_come_out_as_bwa_aligns_them() {
    needs!("bwa");
    needs_picard!();
    let mut case = Case::new([120_000, 30_000]);
    let mut text = String::new();
    for number in 0..60 {
        let start = case.random.below(110_000);
        let bases = mutate(&case.contigs[0][start..start + 10_000], 0.02, 0.002, &mut case.random);
        let bases = if number % 2 == 0 { bases } else { reverse_complement(&bases) };
        append_fastq(&mut text, &format!("long{number}"), &String::from_utf8(bases).expect("bases are text"));
    }
    case.assert_same_as_reference(&[case.lane(1, &[text])], &["--partitions", "9"]);
}

#[test]
fn names_of_254_characters_are_taken_and_longer_ones_refused() {
    needs!("bwa");
    needs_picard!();
    let mut case = Case::new([20_000]);
    let name = |length: usize| move |number: usize| format!("{number:0length$}");
    let lanes = [case.paired_lane(1, 300, name(254))];
    let bam = case.assert_same_as_reference(&lanes, &[]);
    assert!(SamText::read(&bam).records.iter().all(|record| record.find('\t') == Some(254)));
    let lanes = [case.paired_lane(2, 3, name(255))];
    let out = scratch::directory("long-name");
    case.align(&lanes, &out).run().assert_rejected(&[EXIT_INPUT], &["L2_R1.fastq", "254"]);
    assert!(!out.join("sample.bam").exists());
}

/// Returns a library to preload: the wall clock jumps a day forward or back every few times it is read.
fn clock_fault_library() -> PathBuf {
    let library = scratch::directory("clock").join("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/clock/clock.c");
    let mut command = Tool::require("cc").command();
    run_checked(command.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl"));
    library
}

#[test]
fn a_wall_clock_that_jumps_changes_nothing() {
    needs!("bwa", "cc");
    let mut case = Case::new([60_000, 20_000]);
    let lanes = [case.paired_lane(1, 4_000, illumina_name)];
    let clock = clock_fault_library();
    let date = command_output(Tool::require("date").command().arg("+%s").env("LD_PRELOAD", &clock));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is after 1970").as_secs();
    assert!(
        date.trim().parse::<u64>().expect("date prints a number").abs_diff(now) > 40_000,
        "the clock does not jump"
    );
    let [calm, one, two] = ["calm", "one", "two"].map(scratch::directory);
    case.align(&lanes, &calm).run_ok();
    case.align(&lanes, &one).env("LD_PRELOAD", &clock).run_ok();
    let nodes = ["--threads", "1", "--on", "local", "--nodes", "2"];
    case.align(&lanes, &two).args(nodes).env("LD_PRELOAD", &clock).run_ok();
    for out in [one, two] {
        for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
            assert!(have_same_bytes(&calm.join(name), &out.join(name)), "{name} differs in {}", out.display());
        }
    }
}
