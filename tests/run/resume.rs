//! Resuming after a fault: the output has the same bytes, little work is repeated, and no partial file has the name of
//! an output.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use godwit_tests::binary::GodwitCommand;
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy};
use godwit_tests::fault_injection::{Fault, count_file_changes, inject_fault};
use godwit_tests::processes::send_signal;
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::bwa_identity;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_INTERRUPTED: i32 = 130;
/// The number of fault positions of the sweep in CI for each fault.
const SWEEP_POINTS_PER_FAULT: u64 = 6;

/// The outputs whose bytes are the same in every run. `run.json` and `report.html` contain times.
pub(super) const OUTPUTS: [&str; 11] = [
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

/// Returns a sample of two lanes of a few blocks each.
fn sample() -> Arc<Sample> {
    let lanes = vec![500, 300];
    Sample::cached(&SampleSpec { seed: 21, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

fn options() -> AlignOptions {
    AlignOptions { block_bases: 30_000, ..AlignOptions::default() }
}

/// Returns an alignment with one thread, so that one partition is written at a time; its events are JSON on stderr.
fn align(out: &Path) -> GodwitCommand {
    bwa_identity::align(&sample(), &options(), out).args(["--threads", "1", "--partitions", "4", "--json"])
}

/// A run without a fault.
struct BaselineRun {
    out: PathBuf,
    blocks: usize,
    partitions: usize,
}

impl BaselineRun {
    fn run() -> Self {
        let out = scratch::directory("undisturbed");
        let finished = align(&out).run_ok();
        let undisturbed =
            Self { out, blocks: finished.count_events("aligned"), partitions: finished.count_events("written") };
        assert!(undisturbed.blocks >= 4 && undisturbed.partitions >= 4, "{}", finished.describe());
        undisturbed
    }

    /// Checks that each file with the name of an output is complete.
    fn assert_no_partial_file(&self, out: &Path) {
        for name in OUTPUTS {
            let Ok(found) = fs::read(out.join(name)) else { continue };
            let expected = fs::read(self.out.join(name)).expect("the undisturbed run wrote it");
            assert!(found == expected, "{} is there, but is not whole", out.join(name).display());
        }
        if let Ok(report) = fs::read_to_string(out.join("run.json")) {
            assert!(report.starts_with('{') && report.ends_with('}'), "{report}");
        }
    }

    /// Checks that `out` contains exactly the files of a run without a fault.
    fn assert_same(&self, out: &Path) {
        self.assert_no_partial_file(out);
        let mut names: Vec<String> = scratch::entry_names(out);
        names.retain(|name| name != "run.json" && name != "report.html");
        assert_eq!(names, OUTPUTS);
        assert!(out.join("run.json").is_file());
    }

    /// Stops a run at its `at`th change to a file, checks the files that it left, and resumes it.
    fn assert_resumes_after(&self, fault: Fault, at: u64) {
        let out = scratch::directory("stopped");
        let stopped = inject_fault(align(&out), &out, fault, at).run();
        if fault == Fault::Kill {
            assert!(stopped.status.code().is_none(), "{fault:?} at {at}: {}", stopped.describe());
        } else if !stopped.status.success() {
            stopped.assert_rejected(&[EXIT_MACHINE], &[]);
        }
        self.assert_no_partial_file(&out);
        let resumed = align(&out).arg("--resume").run();
        assert!(resumed.status.success(), "{fault:?} at {at}: {}\nthen {}", stopped.describe(), resumed.describe());
        self.assert_same(&out);
        for (event, all) in [("aligned", self.blocks), ("written", self.partitions)] {
            let done = stopped.count_events(event) + resumed.count_events(event);
            assert!(done <= all + 1, "{fault:?} at {at}: {done} of {all} {event}\n{}", resumed.describe());
        }
        fs::remove_dir_all(&out).expect("the scratch directory can be removed");
    }
}

/// Counts the changes to files that a run makes.
fn count_run_changes() -> u64 {
    let out = scratch::directory("counted");
    count_file_changes(align(&out), &out)
}

fn run_fault_sweep(every: impl Fn(u64) -> u64) {
    let (undisturbed, all) = (BaselineRun::run(), count_run_changes());
    for (fault, first) in [(Fault::Kill, 1), (Fault::Error, 2), (Fault::FullDisk, 3)] {
        for at in (first..=all).step_by(every(all) as usize) {
            undisturbed.assert_resumes_after(fault, at);
        }
    }
}

#[test]
fn a_run_stopped_at_any_of_some_changes_to_files_goes_on() {
    needs!("bwa", "cc");
    run_fault_sweep(|all| (all / SWEEP_POINTS_PER_FAULT).max(1));
}

#[test]
#[ignore = "minutes: a fault at every change to a file; run it after a change to the checkpoint"]
fn a_run_stopped_at_any_change_to_a_file_goes_on() {
    needs!("bwa", "cc");
    run_fault_sweep(|_| 1);
}

#[test]
fn a_run_killed_again_and_again_gets_to_its_end() {
    needs!("bwa", "cc");
    let (undisturbed, all) = (BaselineRun::run(), count_run_changes());
    // Stop each run after a half or a third of all file operations, not earlier: the work after the last partition has no
    // checkpoints, so one run must be able to do all of it.
    for share in [2, 3] {
        let out = scratch::directory("again-and-again");
        let mut runs = 0;
        while !inject_fault(align(&out).arg("--resume"), &out, Fault::Kill, all / share).run().status.success() {
            undisturbed.assert_no_partial_file(&out);
            runs += 1;
            assert!(runs < 50, "no end after {runs} runs");
        }
        assert!(runs > 0, "the first run was not stopped");
        undisturbed.assert_same(&out);
    }
}

#[test]
fn more_threads_or_less_memory_go_on_with_the_same_bytes() {
    needs!("bwa", "cc");
    let (undisturbed, all) = (BaselineRun::run(), count_run_changes());
    for share in [40, 60, 85] {
        let out = scratch::directory("other-threads");
        inject_fault(align(&out), &out, Fault::Kill, all * share / 100).run();
        let sample = sample();
        let words = ["--threads", "3", "--partitions", "4", "--memory", "80M", "--resume"];
        bwa_identity::align(&sample, &options(), &out).args(words).run_ok();
        undisturbed.assert_same(&out);
    }
}

/// Returns the output directory of a run that was killed while it was aligning.
fn killed_run() -> PathBuf {
    let out = scratch::directory("half-done");
    inject_fault(align(&out), &out, Fault::Kill, count_run_changes() * 4 / 10).run();
    assert!(out.join(".godwit/journal").is_file());
    out
}

#[test]
fn what_is_kept_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    needs!("bwa", "cc");
    let run = killed_run().join(".godwit");
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode(&run), 0o700);
    assert_eq!(scratch::entry_names(&run), ["blocks", "journal", "live", "parts", "windows"]);
    scratch::entry_names(&run).iter().for_each(|name| assert_eq!(mode(&run.join(name)), 0o600, "{name}"));
}

#[test]
fn other_options_inputs_or_references_are_refused_and_named() {
    needs!("bwa", "cc");
    let out = killed_run();
    let kept = scratch::entry_names(&out.join(".godwit"));
    let sample = sample();
    let refused = |options: &AlignOptions, words: &[&str], named: &[&str]| {
        let run = bwa_identity::align(&sample, options, &out).args(["--threads", "1", "--partitions", "4", "--resume"]);
        run.args(words).run().assert_rejected(&[EXIT_USAGE], named);
    };
    refused(&AlignOptions { block_bases: 40_000, ..options() }, &[], &["cannot resume", "30000", "40000"]);
    let remove = AlignOptions { duplicates: godwit_tests::reference_pipeline::DuplicateHandling::Remove, ..options() };
    refused(&remove, &[], &["cannot resume", "mark", "remove"]);
    refused(&AlignOptions { aligner_args: vec!["-M".into()], ..options() }, &[], &["cannot resume", "-M"]);
    // Change the reads in two ways: a file of another size, and a file of the same size in which only the checksum of a
    // block differs.
    let [first, lane] = &sample.lanes[..] else { panic!("the sample has two lanes") };
    let text = fs::read_to_string(&lane.reads[0]).expect("it is plain text");
    let directory = scratch::directory("other-reads");
    let other = directory.join("R1.fq");
    let with_reads = |named: &[&str]| {
        let command =
            godwit_tests::binary::godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference());
        let command = command.arg("--reads").args(&first.reads).arg("--read-group").arg(&first.read_group);
        let command = command.arg("--reads").arg(&other).arg(&lane.reads[1]).arg("--read-group").arg(&lane.read_group);
        let words = ["--sample", "sample", "--block-bases", "30000", "--threads", "1", "--partitions", "4", "--resume"];
        command.args(words).arg("--out").arg(&out).run().assert_rejected(&[EXIT_USAGE], named);
    };
    fs::write(&other, format!("{text}@more\nA\n+\nI\n")).expect("scratch can be written to");
    with_reads(&["cannot resume", "file 1 of lane 2"]);
    let middle = text.find('\n').expect("it has lines") + 1;
    let base = if text.as_bytes()[middle] == b'A' { "C" } else { "A" };
    fs::write(&other, format!("{}{base}{}", &text[..middle], &text[middle + 1..])).expect("scratch can be written to");
    with_reads(&["cannot resume", "file 1 of lane 2"]);
    assert_eq!(scratch::entry_names(&out.join(".godwit")), kept, "a refusal keeps what there is");
    // Modification times are not compared, so a copy of the files is accepted.
    fs::write(&other, &text).expect("scratch can be written to");
    align(&out).arg("--resume").run_ok();
    BaselineRun::run().assert_same(&out);
}

#[test]
fn other_reads_through_pipes_are_noticed_by_their_blocks() {
    needs!("bwa", "bash", "cc");
    let sample = sample();
    let lane = &sample.lanes[1];
    let out = scratch::directory("piped");
    let command = |environment: &str, filter: &str, words: &str| {
        format!(
            "{environment} {} align --reference {} --reads <({filter} {}) <(cat {}) --read-group '{}' --sample sample --threads 1 --partitions 4 \
             --block-bases 30000 --out {} {words}",
            godwit_tests::binary::path().display(),
            sample.godwit_indexed_reference().display(),
            lane.reads[0].display(),
            lane.reads[1].display(),
            lane.read_group,
            out.display(),
        )
    };
    let bash = |command: String| {
        let mut bash = godwit_tests::tool::Tool::require("bash").command();
        bash.args(["-c", &command]).output().expect("bash runs")
    };
    // Simulate a full disk after some, but not all, blocks were stored.
    let full = godwit_tests::fault_injection::fault_environment(&out, Fault::FullDisk, 40);
    let stopped = bash(command(&full, "cat", ""));
    assert_eq!(stopped.status.code(), Some(EXIT_MACHINE), "{}", String::from_utf8_lossy(&stopped.stderr));
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert!(said.contains("--resume"), "{said}");
    let refused = bash(command("", "sed 2s/A/C/", "--resume"));
    assert_eq!(refused.status.code(), Some(EXIT_USAGE), "{}", String::from_utf8_lossy(&refused.stderr));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("block 1 of lane 1"));
    let resumed = bash(command("", "cat", "--resume --json"));
    let said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    assert!(resumed.status.success() && said.contains("{\"event\":\"resumed\""), "{said}");
}

#[test]
fn a_finished_run_says_so_and_is_replaced_only_without_resume() {
    needs!("bwa");
    let undisturbed = BaselineRun::run();
    let out = scratch::directory("finished");
    align(&out).run_ok();
    let before = fs::metadata(out.join("sample.bam")).expect("it was written").modified().expect("it has a date");
    let again = bwa_identity::align(&sample(), &options(), &out).args(["--partitions", "4", "--resume"]).run_ok();
    assert!(again.stderr.contains("already complete"), "{}", again.describe());
    let after = fs::metadata(out.join("sample.bam")).expect("it is there").modified().expect("it has a date");
    assert_eq!(before, after);
    let other = AlignOptions { optical_distance: 2500, ..options() };
    let other = bwa_identity::align(&sample(), &other, &out).args(["--partitions", "4", "--resume"]).run();
    other.assert_rejected(&[EXIT_USAGE], &["--optical-distance 2500"]);
    let more = align(&out).args(["--format", "bam,cram", "--resume"]).run();
    more.assert_rejected(&[EXIT_USAGE], &["--format was bam in the stopped job, but is bam,cram now"]);
    // Remove one output: the next run writes it again.
    fs::remove_file(out.join("sample.bam.bai")).expect("it was written");
    assert_eq!(align(&out).arg("--resume").run_ok().count_events("aligned"), undisturbed.blocks);
    undisturbed.assert_same(&out);
    assert_eq!(align(&out).run_ok().count_events("aligned"), undisturbed.blocks);
    undisturbed.assert_same(&out);
}

#[test]
fn whole_templates_and_tags_of_sets_go_on_with_the_same_bytes() {
    needs!("bwa", "cc");
    let marking = MarkingOptions {
        query_grouped: true,
        tagging: TaggingPolicy::All,
        tag_set_members: true,
        ..MarkingOptions::default()
    };
    let options = AlignOptions { marking, ..options() };
    let sample = sample();
    let run = |out: &Path| {
        bwa_identity::align(&sample, &options, out).args(["--threads", "1", "--partitions", "4", "--json"])
    };
    let whole = scratch::directory("whole-templates");
    let all = count_file_changes(run(&whole), &whole);
    for share in [40, 90] {
        let out = scratch::directory("stopped-templates");
        inject_fault(run(&out), &out, Fault::Kill, all * share / 100).run();
        let resumed = run(&out).arg("--resume").run_ok();
        assert!(resumed.stderr.contains("{\"event\":\"resumed\""), "{}", resumed.describe());
        for name in OUTPUTS {
            assert!(fs::read(out.join(name)).expect("it is") == fs::read(whole.join(name)).expect("it is"), "{name}");
        }
    }
}

#[test]
fn without_resume_a_stopped_run_is_started_over_and_says_what_that_costs() {
    needs!("bwa", "cc");
    let (undisturbed, out) = (BaselineRun::run(), killed_run());
    let again = align(&out).run_ok();
    assert!(again.stderr.contains("--resume"), "{}", again.describe());
    assert_eq!(again.count_events("aligned"), undisturbed.blocks);
    undisturbed.assert_same(&out);
}

#[test]
fn a_damaged_block_is_aligned_again() {
    needs!("bwa", "cc");
    let (undisturbed, out) = (BaselineRun::run(), killed_run());
    let blocks = out.join(".godwit/blocks");
    let mut bytes = fs::read(&blocks).expect("it is there");
    bytes[100] ^= 1;
    fs::write(&blocks, bytes).expect("it can be written");
    let again = align(&out).arg("--resume").run_ok();
    assert!(again.stderr.contains("{\"event\":\"resumed\""), "{}", again.describe());
    undisturbed.assert_same(&out);
}

#[test]
fn data_in_another_directory_is_found_again_and_removed() {
    needs!("bwa", "cc");
    let (undisturbed, all) = (BaselineRun::run(), count_run_changes());
    let (out, temp) = (scratch::directory("with-temp"), scratch::directory("temp"));
    let words = |run: GodwitCommand| run.arg("--temp").arg(&temp);
    let stopped = inject_fault(words(align(&out)), &out, Fault::Kill, all / 10).run();
    assert!(stopped.status.code().is_none(), "{}", stopped.describe());
    assert_eq!(scratch::entry_names(&out.join(".godwit")), ["journal", "live"]);
    let resumed = words(align(&out)).arg("--resume").run_ok();
    assert!(resumed.stderr.contains("{\"event\":\"resumed\""), "{}", resumed.describe());
    undisturbed.assert_same(&out);
    assert_eq!(scratch::entry_names(&temp), [] as [String; 0]);
}

#[test]
fn an_interrupted_run_says_how_to_go_on() {
    needs!("bwa");
    let lanes = vec![20_000];
    let spec = SampleSpec { seed: 12, lanes, paired: true, alternate: false, comments: TitleComments::Illumina };
    let (sample, options) = (Sample::cached(&spec), AlignOptions { block_bases: 100_000, ..AlignOptions::default() });
    let out = scratch::directory("interrupted");
    let run = bwa_identity::align(&sample, &options, &out).args(["--threads", "1"]).spawn();
    let blocks = out.join(".godwit/blocks");
    wait_until("blocks to be kept", || fs::metadata(&blocks).map_or(0, |found| found.len()) >= 200_000);
    send_signal(run.process_id(), libc::SIGINT);
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &["interrupted", "--resume"]);
    assert_eq!(scratch::entry_names(&out).iter().filter(|name| !name.starts_with('.')).count(), 0);
    let resumed = bwa_identity::align(&sample, &options, &out).args(["--threads", "1", "--resume", "--json"]).run_ok();
    assert!(resumed.stderr.contains("{\"event\":\"resumed\""), "{}", resumed.describe());
    let whole = scratch::directory("whole");
    bwa_identity::align(&sample, &options, &whole).run_ok();
    assert!(fs::read(whole.join("sample.bam")).expect("it is") == fs::read(out.join("sample.bam")).expect("it is"));
    assert!(!out.join(".godwit").exists());
}
