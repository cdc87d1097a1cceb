//! `--dry-run`: its predictions are close to the measured values, a run that would fail is rejected, and no file is
//! written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use godwit_tests::binary::{GodwitCommand, godwit, path as godwit_path};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::bwa_identity;

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;

fn sample(lanes: &[usize]) -> std::sync::Arc<Sample> {
    let lanes = lanes.to_vec();
    Sample::cached(&SampleSpec { seed: 15, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

/// Returns the plan of a command, which must not write below `out`.
fn dry_run_plan(command: GodwitCommand, out: &Path) -> Value {
    let entries = |path: &Path| fs::read_dir(path).map(|entries| entries.count()).unwrap_or(0);
    let before = entries(out);
    let finished = command.args(["--dry-run", "--json", "--quiet"]).run_ok();
    assert_eq!(entries(out), before, "a dry run writes nothing");
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.describe()))
}

fn number_value(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn assert_within(factor: f64, estimate: f64, truth: f64, what: &str) {
    let fine = estimate <= truth * factor && estimate * factor >= truth;
    assert!(fine, "{what}: {estimate} was promised and {truth} came, more than a factor of {factor}");
}

/// The resources that a run used: events, CPU seconds and the peak memory of its largest process.
struct ResourceUsage {
    stderr: String,
    cpu_seconds: f64,
    peak_bytes: f64,
}

/// A script that runs the command in its arguments and prints the resource usage. The script uses little memory,
/// because Linux adds the peak memory of the starting process to that of the started one.
const MEASURE_SCRIPT: &str = "
import resource, subprocess, sys
status = subprocess.call(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)
";

/// Runs godwit with these arguments, and measures the resources of godwit and its child processes.
fn run_measured(words: &[std::ffi::OsString]) -> ResourceUsage {
    let mut command = Command::new("python3");
    command.args(["-c", MEASURE_SCRIPT]).arg(godwit_path()).args(words).args(["--json", "--no-config"]);
    let output = command.output().expect("python3 starts");
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    let numbers: Vec<f64> = stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let &[0.0, cpu_seconds, peak_kilobytes] = &numbers[..] else { panic!("{stdout}: {stderr}") };
    ResourceUsage { stderr, cpu_seconds, peak_bytes: peak_kilobytes * 1024.0 }
}

#[test]
fn estimates_hold_against_the_run() {
    needs!("bwa");
    let sample = sample(&[20_000, 8_000]);
    let directory = scratch::directory("estimates");
    let out = directory.join("out");
    let mut words: Vec<std::ffi::OsString> = vec!["align".into(), "--reference".into()];
    words.push(sample.godwit_indexed_reference().into());
    for lane in &sample.lanes {
        words.push("--reads".into());
        words.extend(lane.reads.iter().map(Into::into));
    }
    // Limit the memory, so that the job writes records to scratch files.
    for word in ["--sample", "s", "--threads", "2", "--block-bases", "500000", "--memory", "67M", "--out"] {
        words.push(word.into());
    }
    words.push(out.clone().into());
    let plan = dry_run_plan(godwit().args(&words), &out);
    assert!(!out.exists());
    let taken = run_measured(&words);
    let report = fs::read_to_string(out.join("run.json")).expect("a report was written");
    let report: Value = serde_json::from_str(&report).expect("it is JSON");
    let stage = |name: &str| {
        let stages = report["stages"].as_array().expect("stages are a list");
        stages.iter().find(|stage| stage["name"] == name).unwrap_or_else(|| panic!("no stage {name}")).clone()
    };
    assert_eq!(plan["within"]["reads"], 1.0, "so small an input is counted");
    assert_eq!(plan["reads"], stage("read")["rows"]);
    let blocks = taken.stderr.lines().filter(|line| line.contains("\"event\":\"aligned\"")).count();
    assert_eq!(plan["blocks"], blocks);
    let written = fs::metadata(out.join("s.bam")).expect("it was written").len() as f64;
    assert_within(number_value(&plan["within"]["disk"]), number_value(&plan["output"]["bytes"]), written, "output");
    let spilled = number_value(&stage("align and sort")["bytes"]);
    assert!(spilled > 1e6, "the run has little memory, but spilled {spilled}");
    assert_within(number_value(&plan["within"]["disk"]), number_value(&plan["scratch"]["bytes"]), spilled, "scratch");
    let promised = number_value(&plan["memory"]["aligner_bytes"]).max(number_value(&plan["memory"]["godwit_bytes"]));
    assert!(
        taken.peak_bytes < promised * number_value(&plan["within"]["memory"]),
        "{} of {promised}",
        taken.peak_bytes
    );
    // Compare the CPU time, because other processes run on the machine. Accept twice the stated factor, because a small
    // genome aligns faster than a large one.
    let factor = 2.0 * number_value(&plan["within"]["time"]);
    assert_within(factor, number_value(&plan["cpu_seconds"]), taken.cpu_seconds, "CPU seconds");

    let again = out.join("again.bam");
    let command = godwit().arg("markdup").arg(out.join("s.bam")).arg("--out").arg(&again);
    let plan = self::dry_run_plan(command.args(["--threads", "1", "--memory", "200M"]), &out);
    assert_within(
        number_value(&plan["within"]["reads"]),
        number_value(&plan["reads"]),
        number_value(&report["records"]),
        "records",
    );
    assert_within(
        number_value(&plan["within"]["disk"]),
        number_value(&plan["output"]["bytes"]),
        written,
        "output of markdup",
    );
}

#[test]
fn large_inputs_are_estimated_from_their_head() {
    needs!("bwa");
    let sample = sample(&[20_000, 8_000]);
    let directory = scratch::directory("large");
    let reference = sample.godwit_indexed_reference();
    for gzip in [true, false] {
        let prefix = directory.join(if gzip { "zipped" } else { "plain" });
        let command = godwit().arg("simulate").arg("--reference").arg(reference).args(["--pairs", "60000", "--out"]);
        let made = command.arg(&prefix).args(gzip.then_some("--gzip")).run_ok().stdout;
        let reads: Vec<PathBuf> = made.lines().map(PathBuf::from).collect();
        let command = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").args(reads);
        let plan = dry_run_plan(command.args(["--sample", "s", "--out"]).arg(directory.join("out")), &directory);
        assert!(number_value(&plan["lanes"][0]["sampled"]) < 0.9, "{plan}");
        assert_within(number_value(&plan["within"]["reads"]), number_value(&plan["reads"]), 120_000.0, "reads");
    }
}

#[test]
fn what_a_run_would_refuse_a_dry_run_refuses_too() {
    needs!("bwa", "bash");
    let sample = sample(&[300]);
    let directory = scratch::directory("refused");
    let out = directory.join("out");
    let reference = sample.godwit_indexed_reference();
    let bare = directory.join("bare ref.fa");
    fs::copy(reference, &bare).expect("it can be copied");
    fs::write(directory.join("1.fq"), "@a\nACGT\n+\nIIII\n").expect("a file can be written");
    fs::write(directory.join("2.fq"), "@b\nACGT\n+\nIIII\n").expect("a file can be written");
    fs::create_dir_all(directory.join("taken/s.bam")).expect("a directory can be made");
    let run = |reference: &Path, reads: &[&str], out: &Path, words: &[&str]| {
        let command = godwit().current_dir(&directory).arg("align").arg("--reference").arg(reference).arg("--reads");
        command.args(reads).args(["--sample", "s", "--out"]).arg(out).args(words)
    };
    let one = &["1.fq"][..];
    /// Reference, reads, output, further arguments, exit code, and expected message.
    type DryRunCase<'c> = (&'c Path, &'c [&'c str], &'c Path, &'c [&'c str], i32, &'c str);
    let cases: [DryRunCase<'_>; 8] = [
        (&bare, one, &out, &[], EXIT_MACHINE, "run `godwit index"),
        (reference, &["1.fq", "2.fq"], &out, &[], EXIT_INPUT, "2.fq"),
        (reference, &["3.fq"], &out, &[], EXIT_MACHINE, "3.fq"),
        (reference, &["1.fq", "1.fq"], &out, &[], EXIT_USAGE, "same file"),
        (reference, one, &out, &["--aligner-args", "-t 3"], EXIT_USAGE, "-t"),
        (reference, one, &out, &["--memory", "1M"], EXIT_USAGE, "--memory"),
        (reference, one, &directory.join("taken"), &[], EXIT_MACHINE, "s.bam"),
        (reference, one, &directory.join("1.fq/below"), &[], EXIT_MACHINE, "below"),
    ];
    for (reference, reads, out, words, code, told) in cases {
        let there = out.exists();
        run(reference, reads, out, words).arg("--dry-run").run().assert_rejected(&[code], &[told]);
        assert_eq!(out.exists(), there, "a dry run writes nothing");
        run(reference, reads, out, words).run().assert_rejected(&[code], &[told]);
    }
    run(reference, one, &out, &["--memory", "900T", "--dry-run"]).run().assert_rejected(&[EXIT_MACHINE], &["memory"]);
    let markdup = godwit().current_dir(&directory).args(["markdup", "1.fq", "--out", "m.bam", "--dry-run"]);
    markdup.run().assert_rejected(&[EXIT_INPUT], &["1.fq"]);
    assert!(!directory.join("m.bam").exists());
}

#[test]
fn a_dry_run_tells_people_and_leaves_pipes_alone() {
    needs!("bwa", "bash");
    let sample = sample(&[300]);
    let directory = scratch::directory("told");
    let finished = bwa_identity::align(&sample, &AlignOptions::default(), &directory).arg("--dry-run").run_ok();
    for word in ["reads", "600", "memory of the aligner", "scratch", "time", "(counted)", "factor of 1.5"] {
        assert!(finished.stdout.contains(word), "{word}: {}", finished.describe());
    }
    let command = format!(
        "{} align --reference {} --reads <(cat {}) --sample s --out {} --dry-run",
        godwit_path().display(),
        sample.godwit_indexed_reference().display(),
        sample.lanes[0].reads[0].display(),
        directory.join("out").display()
    );
    let output = Tool::require("bash").command().args(["-c", &command]).output().expect("bash runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("unknown"), "{stdout}");
}

/// Returns the bytes of a file, or of all files of a directory.
fn total_bytes(path: &Path) -> u64 {
    let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    match found.is_dir() {
        true => scratch::entry_names(path).iter().map(|name| total_bytes(&path.join(name))).sum(),
        false => found.len(),
    }
}

/// Returns the reference of the sample alone, with an index for one aligner.
fn reference_for(sample: &Sample, aligner: &str, directory: &Path) -> PathBuf {
    let reference = directory.join(format!("{aligner}.fa"));
    fs::copy(&sample.reference, &reference).expect("it can be copied");
    godwit().arg("index").arg(&reference).args(["--aligner", aligner]).run_ok();
    reference
}

#[test]
fn estimates_hold_for_other_aligners_and_formats() {
    needs!("minimap2");
    let sample = sample(&[20_000, 8_000]);
    let directory = scratch::directory("others");
    for (aligner, formats) in [("bwa-mem3", &["bam", "parquet"][..]), ("minimap2", &["cram"]), ("minimap2", &["arrow"])]
    {
        let out = directory.join(formats.join("-"));
        let mut words: Vec<std::ffi::OsString> = vec!["align".into(), "--reference".into()];
        words.push(reference_for(&sample, aligner, &directory).into());
        for lane in &sample.lanes {
            words.push("--reads".into());
            words.extend(lane.reads.iter().map(Into::into));
        }
        let formats_word = formats.join(",");
        let words_of_case =
            ["--aligner", aligner, "--format", &formats_word, "--threads", "1", "--sample", "s", "--out"];
        words.extend(words_of_case.map(Into::into));
        words.push(out.clone().into());
        let plan = dry_run_plan(godwit().args(&words), &out);
        let taken = run_measured(&words);
        let written: u64 = formats.iter().map(|format| total_bytes(&out.join(format!("s.{format}")))).sum();
        let what = format!("output of {aligner} as {formats_word}");
        assert_within(
            number_value(&plan["within"]["disk"]),
            number_value(&plan["output"]["bytes"]),
            written as f64,
            &what,
        );
        let promised =
            number_value(&plan["memory"]["aligner_bytes"]).max(number_value(&plan["memory"]["godwit_bytes"]));
        assert!(
            taken.peak_bytes < promised * number_value(&plan["within"]["memory"]),
            "{what}: {} of {promised}",
            taken.peak_bytes
        );
        let factor = 2.0 * number_value(&plan["within"]["time"]);
        assert_within(factor, number_value(&plan["cpu_seconds"]), taken.cpu_seconds, &format!("CPU seconds, {what}"));
        assert!(plan["aligner"].as_str().is_some_and(|told| told.starts_with(aligner)), "{plan}");
    }
}

#[test]
fn every_aligner_and_every_kind_of_input_can_be_tried() {
    needs!("minimap2", "fastp", "samtools");
    let sample = sample(&[300]);
    let directory = scratch::directory("kinds");
    let bare = directory.join("bare.fa");
    fs::copy(&sample.reference, &bare).expect("it can be copied");
    let run = |reference: &Path, reads: &[PathBuf], words: &[&str]| {
        let command = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").args(reads);
        command.args(["--sample", "s", "--out"]).arg(directory.join("out")).args(words)
    };
    let reads = &sample.lanes[0].reads;
    for aligner in ["bwa-mem3", "minimap2", "no-such-aligner {index} {reads}"] {
        for last in ["--dry-run", "--resume"] {
            let words = ["--aligner", aligner, last];
            run(&bare, reads, &words).run().assert_rejected(
                &[EXIT_MACHINE],
                &[if aligner.contains('{') { "no-such-aligner" } else { "godwit index" }],
            );
        }
    }
    let reference = reference_for(&sample, "minimap2", &directory);
    let trimmed = dry_run_plan(run(&reference, reads, &["--aligner", "minimap2", "--trim", "fastp"]), &directory);
    assert_eq!(trimmed["reads"], 600);
    assert!(trimmed["notes"][0].as_str().is_some_and(|note| note.contains("before trimming by fastp")), "{trimmed}");
    let bam = directory.join("unaligned.bam");
    let import = ["import".as_ref(), "-1".as_ref(), reads[0].as_os_str(), "-2".as_ref(), reads[1].as_os_str()];
    Tool::require("samtools").run(import.into_iter().chain(["-o".as_ref(), bam.as_os_str()]));
    let reference = reference_for(&sample, "bwa-mem3", &directory);
    let unaligned = dry_run_plan(run(&reference, std::slice::from_ref(&bam), &["--aligner", "bwa-mem3"]), &directory);
    assert_eq!((&unaligned["reads"], &unaligned["lanes"][0]["sampled"]), (&600.into(), &1.0.into()));
    let stdin = || fs::File::open(&bam).expect("it was made");
    let (mut cat, pipe) = open_pipe(&bam);
    let piped_in = dry_run_plan(run(&reference, &["-".into()], &["--aligner", "bwa-mem3"]).stdin(pipe), &directory);
    assert!(piped_in["reads"].is_null() && piped_in["output"]["bytes"].is_null(), "{piped_in}");
    drop(cat.wait());
    let marked = godwit().args(["markdup", "-", "--out"]).arg(directory.join("m.bam"));
    assert_eq!(dry_run_plan(marked.stdin(stdin()), &directory)["verb"], "markdup");
}

/// Starts `cat` on a file, and returns it with the pipe of its output.
fn open_pipe(path: &Path) -> (std::process::Child, std::process::ChildStdout) {
    let mut child = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().expect("cat starts");
    let stdout = child.stdout.take().expect("it was asked for");
    (child, stdout)
}

#[test]
fn a_cluster_run_is_planned_for_all_workers() {
    needs!("bwa");
    let sample = sample(&[300]);
    let out = scratch::directory("nodes");
    let dry = |words: &[&str]| bwa_identity::align(&sample, &AlignOptions::default(), &out).args(words);
    let alone = dry_run_plan(dry(&["--threads", "2"]), &out);
    let spread = dry_run_plan(dry(&["--on", "local", "--nodes", "3", "--threads", "2"]), &out);
    assert_eq!((&spread["nodes"], &spread["threads"]), (&3.into(), &6.into()));
    assert_eq!(number_value(&spread["memory"]["aligner_bytes"]), 3.0 * number_value(&alone["memory"]["aligner_bytes"]));
    assert!(number_value(&spread["seconds"]) < number_value(&alone["seconds"]), "{spread}");
    let refused = dry(&["--on", "local", "--aligner", "bowtie2 -x {index} {reads}", "--dry-run"]);
    refused.run().assert_rejected(&[EXIT_USAGE], &["does not support --on"]);
}

#[test]
fn a_dry_run_tells_what_is_there_already() {
    needs!("bwa");
    let sample = sample(&[300]);
    let out = scratch::directory("there");
    let dry = || bwa_identity::align(&sample, &AlignOptions::default(), &out);
    assert_eq!(dry_run_plan(dry(), &out)["notes"], Value::Array(Vec::new()));
    dry().run_ok();
    let notes = dry_run_plan(dry(), &out)["notes"].to_string();
    assert!(notes.contains("sample.bam exists and will be replaced"), "{notes}");
    // Create the journal of a stopped job, then lock it like a running job.
    fs::create_dir(out.join(".godwit")).expect("a directory can be made");
    let journal = out.join(".godwit/journal");
    fs::write(&journal, "x").expect("a file can be written");
    let notes = dry_run_plan(dry(), &out)["notes"].to_string();
    assert!(notes.contains("--resume resumes it"), "{notes}");
    let held = fs::File::open(&journal).expect("it was made");
    held.lock().expect("no other process has the lock");
    dry().arg("--dry-run").run().assert_rejected(&[EXIT_MACHINE], &["another godwit process is using this file"]);
}
