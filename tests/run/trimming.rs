//! `--trim fastp`: the records of `fastp` followed by `bwa mem`, reads checked as strictly as without it, and failures of
//! fastp detected.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::reference_pipeline::{AlignOptions, Lane, run_reference_pipeline};
use godwit_tests::sam;
use godwit_tests::sample::Sample;
use godwit_tests::tool::Tool;
use godwit_tests::{metrics, needs, needs_picard, scratch};

/// Arguments that trim the ends of about every tenth read, and drop some reads.
const FASTP_ARGS: &str = "--cut_tail --cut_mean_quality 28 --length_required 60";

fn align(lanes: &[Lane], out: &Path) -> GodwitCommand {
    let command = godwit()
        .arg("align")
        .arg("--reference")
        .arg(Sample::two_lanes().godwit_indexed_reference())
        .arg("--out")
        .arg(out);
    let command = lanes.iter().fold(command, |command, lane| {
        command.arg("--reads").args(&lane.reads).arg("--read-group").arg(&lane.read_group)
    });
    command.args(["--sample", "sample", "--block-bases", "50000", "--trim", "fastp"])
}

/// Trims a lane with fastp, without godwit.
fn trim_with_fastp(lane: &Lane, interleaved: bool) -> Lane {
    let directory = scratch::directory("fastp");
    let mates = if interleaved { 2 } else { lane.reads.len() };
    let outputs: Vec<PathBuf> = (0..mates).map(|mate| directory.join(format!("R{mate}.fastq"))).collect();
    let mut command = Tool::require("fastp").command();
    for (option, file) in ["--in1", "--in2"].iter().zip(&lane.reads) {
        command.arg(option).arg(file);
    }
    for (option, file) in ["--out1", "--out2"].iter().zip(&outputs) {
        command.arg(option).arg(file);
    }
    if interleaved {
        command.arg("--interleaved_in");
    }
    command.args(["--thread", "1"]).args(FASTP_ARGS.split(' ')).current_dir(&directory);
    godwit_tests::tool::run_checked(&mut command);
    let size = |path: &PathBuf| std::fs::metadata(path).expect("fastp wrote it").len();
    assert!(size(&outputs[0]) > 0 && size(&outputs[0]) != size(&lane.reads[0]), "this trims nothing");
    Lane { reads: outputs, read_group: lane.read_group.clone() }
}

fn assert_same_as_reference(lanes: &[Lane], out: &Path) {
    let options = AlignOptions { block_bases: 50_000, ..AlignOptions::default() };
    let expected = run_reference_pipeline(&Sample::two_lanes().reference, lanes, &options);
    sam::assert_same(&expected.bam, &out.join("sample.bam"));
    metrics::assert_same(&expected.metrics.expect("duplicates were marked"), &out.join("sample.duplicates.txt"));
}

#[test]
fn trimmed_lanes_come_out_as_those_of_fastp_and_the_reference_pipeline() {
    needs!("bwa");
    needs!("fastp");
    needs_picard!();
    let lanes = &Sample::two_lanes().lanes;
    let directory = scratch::directory("trimmed");
    let expected: Vec<Lane> = lanes.iter().map(|lane| trim_with_fastp(lane, false)).collect();
    let bams = ["1", "4"].map(|threads| {
        let out = directory.join(threads);
        align(lanes, &out).args(["--threads", threads, "--trim-args", FASTP_ARGS]).run_ok();
        assert_same_as_reference(&expected, &out);
        for report in ["sample.L1.fastp.json", "sample.L1.fastp.html", "sample.L2.fastp.json", "sample.L2.fastp.html"] {
            let text = std::fs::read_to_string(out.join(report)).unwrap_or_default();
            assert!(text.contains("fastp"), "{report} is no report of fastp");
        }
        std::fs::read(out.join("sample.bam")).expect("it was written")
    });
    assert!(bams[0] == bams[1], "threads change bytes");
}

#[test]
fn single_and_interleaved_files_are_trimmed_too() {
    needs!("bwa");
    needs!("fastp");
    needs_picard!();
    let directory = scratch::directory("trimmed-one-file");
    let lane = &Sample::two_lanes().lanes[1];
    let single = Lane { reads: lane.reads[..1].to_vec(), read_group: lane.read_group.clone() };
    let out = directory.join("single");
    align(std::slice::from_ref(&single), &out).args(["--trim-args", FASTP_ARGS]).run_ok();
    assert_same_as_reference(&[trim_with_fastp(&single, false)], &out);
    assert!(out.join("sample.fastp.json").is_file());

    let both = directory.join("both.fastq");
    let [one, two] = [0, 1].map(|mate| std::fs::read_to_string(&lane.reads[mate]).expect("the sample was written"));
    let (one, two): (Vec<&str>, Vec<&str>) = (one.lines().collect(), two.lines().collect());
    let text: String = one.chunks(4).zip(two.chunks(4)).map(|(a, b)| [a, b].concat().join("\n") + "\n").collect();
    std::fs::write(&both, text).expect("the scratch directory can be written to");
    let both = Lane { reads: vec![both], read_group: lane.read_group.clone() };
    let out = directory.join("interleaved");
    align(std::slice::from_ref(&both), &out).args(["--interleaved", "--trim-args", FASTP_ARGS]).run_ok();
    assert_same_as_reference(&[trim_with_fastp(&both, true)], &out);
}

#[test]
fn what_fastp_passes_over_is_refused_all_the_same() {
    needs!("bwa");
    needs!("fastp");
    let directory = scratch::directory("trimmed-broken");
    let lane = &Sample::two_lanes().lanes[1];
    let text = std::fs::read_to_string(&lane.reads[0]).expect("the sample was written");
    let lines: Vec<&str> = text.lines().collect();
    let spaced = lines[41].replacen(char::is_alphanumeric, " ", 1);
    let damaged: Vec<&str> =
        lines.iter().enumerate().map(|(at, line)| if at == 41 { &spaced[..] } else { line }).collect();
    let cut = lines[..lines.len() - 1].join("\n") + "\n";
    for (name, text, words) in [
        ("space.fastq", damaged.join("\n") + "\n", "record 11 (line 42)".to_owned()),
        ("cut.fastq", cut, format!("record {} (line {})", lines.len() / 4, lines.len())),
    ] {
        let path = directory.join(name);
        std::fs::write(&path, text).expect("the scratch directory can be written to");
        let out = directory.join("out");
        let broken = Lane { reads: vec![path], read_group: lane.read_group.clone() };
        align(&[broken], &out).run().assert_rejected(&[3], &[name, &words]);
        assert_no_output(&out);
    }
}

/// Writes a script named `fastp` that prints a version if requested, and otherwise executes `work`.
fn fake_fastp(directory: &Path, version: &str, work: &str) -> PathBuf {
    let path = directory.join(format!("fastp-{version}"));
    let text = format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 'fastp {version}' >&2; exit; }}\n{work}\n");
    scratch::write_executable(&path, &text);
    path
}

/// Checks that no output has its final name. Finished alignments are kept, hidden, for `--resume`.
fn assert_no_output(directory: &Path) {
    let names = std::fs::read_dir(directory).expect("the run made it").flatten().map(|entry| entry.file_name());
    let outputs: Vec<_> = names.filter(|name| !name.to_string_lossy().starts_with('.')).collect();
    assert!(outputs.is_empty(), "{outputs:?} is left");
}

#[test]
fn a_fastp_that_is_missing_old_dead_or_forgetful_ends_the_run() {
    needs!("bwa");
    let directory = scratch::directory("no-fastp");
    let out = directory.join("out");
    let run = |program: &Path, words: &[&str]| {
        align(&Sample::two_lanes().lanes[1..2], &out).env("GODWIT_FASTP", program).args(words).run()
    };
    run(Path::new("/nowhere/fastp"), &[]).assert_rejected(&[4], &["/nowhere/fastp", "GODWIT_FASTP"]);
    run(&fake_fastp(&directory, "0.20.1", "exit 0"), &[]).assert_rejected(&[4], &["0.20.1", "0.23 or later"]);
    let dead = fake_fastp(&directory, "0.23.9", "echo 'out of luck' >&2; exit 9");
    let finished = run(&dead, &[]);
    assert!(finished.stderr.contains("out of luck") && finished.stderr.contains("--in1"), "{}", finished.describe());
    assert_eq!(finished.status.code(), Some(5), "{}", finished.describe());
    // A `fastp` that copies only the first reads and exits with status 0.
    let script = "while [ $# -gt 0 ]; do case $1 in --in1) a=$2;; --in2) b=$2;; --out1) x=$2;; --out2) y=$2;; \
        --json) j=$2;; esac; shift; done; head -n 400 \"$a\" > $x; head -n 400 \"$b\" > $y; \
        echo '{\"summary\": {\"before_filtering\": {\"total_reads\": 200}}}' > \"$j\"";
    run(&fake_fastp(&directory, "0.24.0", script), &[]).assert_rejected(&[5], &["200 of 1800 reads"]);
    // If the aligner fails, fastp ends with a broken pipe. The error is that of the aligner.
    let aligner = directory.join("aligner");
    scratch::write_executable(&aligner, "#!/bin/sh\nhead -c 1000 >/dev/null\necho 'no luck' >&2\nexit 9\n");
    let template = format!("{} {{index}} {{reads}}", aligner.display());
    let failed = align(&Sample::two_lanes().lanes[1..2], &directory.join("other")).args(["--aligner", &template]).run();
    failed.assert_rejected(&[5], &["no luck"]);
    assert!(!failed.stderr.contains("signal"), "{}", failed.describe());
    let fine = fake_fastp(&directory, "0.25.0", "exit 0");
    run(&fine, &["--trim-args", "--out1 x"]).assert_rejected(&[2], &["--out1"]);
    assert_no_output(&out);
}
