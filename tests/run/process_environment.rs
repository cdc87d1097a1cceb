//! Influences on a run from outside: other runs, changed input files, pipes, signals, and a closed terminal.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::processes::{handles_signal, send_signal};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::{Tool, run_checked};
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, sam, scratch};

use super::bwa_identity;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_INTERRUPTED: i32 = 130;

fn sample(templates: usize) -> std::sync::Arc<Sample> {
    let lanes = vec![templates];
    Sample::cached(&SampleSpec { seed: 12, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

/// Returns a small marked BAM that godwit wrote.
fn marked_bam() -> PathBuf {
    let out = scratch::directory("conduct");
    bwa_identity::align(&sample(400), &AlignOptions::default(), &out).run_ok();
    out.join("sample.bam")
}

/// Waits until a run has created a file.
fn wait_for_file(path: &Path) {
    wait_until(&path.display().to_string(), || path.exists());
}

#[test]
fn an_input_is_never_replaced_by_the_output_made_from_it() {
    needs!("bwa");
    let bam = marked_bam();
    let link = bam.with_file_name("link.bam");
    std::os::unix::fs::symlink(&bam, &link).expect("a link can be made");
    let before = fs::read(&bam).expect("it can be read");
    for (input, out) in [(&bam, &bam), (&link, &bam)] {
        godwit()
            .arg("markdup")
            .arg(input)
            .arg("--out")
            .arg(out)
            .run()
            .assert_rejected(&[EXIT_USAGE], &["replace the input"]);
    }
    assert!(fs::read(&bam).expect("it can be read") == before);
}

#[test]
fn one_file_given_twice_is_refused() {
    needs!("bwa");
    let sample = sample(400);
    let one = &sample.lanes[0].reads[0];
    let out = scratch::directory("twice");
    let command = godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference()).arg("--reads");
    let finished = command.arg(one).arg(one).args(["--sample", "s", "--out"]).arg(&out).run();
    finished.assert_rejected(&[EXIT_USAGE], &["same file"]);
}

#[test]
fn reads_come_through_pipes() {
    needs!("bwa", "bash");
    let sample = sample(400);
    let out = scratch::directory("pipes");
    let expected = out.join("files");
    bwa_identity::align(&sample, &AlignOptions::default(), &expected).run_ok();
    let lane = &sample.lanes[0];
    let command = format!(
        "{} align --reference {} --reads <(cat {}) <(cat {}) --read-group '{}' --sample sample --quiet --out {}",
        godwit_path().display(),
        sample.godwit_indexed_reference().display(),
        lane.reads[0].display(),
        lane.reads[1].display(),
        lane.read_group,
        out.join("piped").display(),
    );
    run_checked(Tool::require("bash").command().args(["-c", &command]));
    let without_group = command.replace(&format!("--read-group '{}'", lane.read_group), "").replace("/piped", "/made");
    run_checked(Tool::require("bash").command().args(["-c", &without_group]));
    sam::assert_same(&expected.join("sample.bam"), &out.join("piped/sample.bam"));
    assert!(out.join("made/sample.bam").is_file());
}

#[test]
fn markdup_gives_the_same_from_a_pipe_as_from_a_file() {
    needs!("bwa", "bash");
    let bam = marked_bam();
    let [from_file, from_pipe] = ["file.bam", "pipe.bam"].map(|name| bam.with_file_name(name));
    godwit().arg("markdup").arg(&bam).arg("--out").arg(&from_file).run_ok();
    let command = format!("{} markdup <(cat {}) --out {}", godwit_path().display(), bam.display(), from_pipe.display());
    run_checked(Tool::require("bash").command().args(["-c", &command]));
    assert!(fs::read(from_file).expect("it can be read") == fs::read(from_pipe).expect("it can be read"));
}

#[test]
fn a_second_run_into_the_same_output_is_refused_while_the_first_goes_on() {
    needs!("bwa");
    let sample = sample(20_000);
    let out = scratch::directory("two-runs");
    let first = bwa_identity::align(&sample, &AlignOptions::default(), &out).args(["--threads", "1"]).spawn();
    let part = out.join(".sample.bam.godwit-part");
    wait_for_file(&part);
    let second = bwa_identity::align(&sample, &AlignOptions::default(), &out).run();
    second.assert_rejected(&[EXIT_MACHINE], &["another godwit"]);
    let first = first.wait_with_output();
    assert!(first.status.success(), "{}", first.describe());
    assert!(!part.exists());
}

#[test]
fn a_failed_rerun_does_not_put_new_statistics_beside_an_old_bam() {
    needs!("bwa");
    let bam = marked_bam();
    let out = bam.with_file_name("again.bam");
    godwit().arg("markdup").arg(&bam).arg("--out").arg(&out).run_ok();
    // Create a directory with the name of the last output, so that its rename fails after the other outputs were
    // renamed.
    let report = bam.with_file_name("again.run.json");
    fs::remove_file(&report).expect("it was written");
    fs::create_dir(&report).expect("a directory can be made");
    let again = godwit().arg("markdup").arg(&bam).args(["--duplicates", "remove", "--out"]).arg(&out).run();
    again.assert_rejected(&[EXIT_MACHINE], &["again.run.json"]);
    let left = scratch::entry_names(bam.parent().expect("it lies in a directory"));
    assert!(!left.iter().any(|name| name.ends_with("godwit-part")), "{left:?}");
}

#[test]
fn an_interrupted_run_leaves_nothing_and_no_aligner() {
    needs!("bwa");
    let sample = sample(20_000);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let out = scratch::directory("interrupted");
        // Use the slower aligner, which still has seconds of work when the signal handlers are installed.
        let align = bwa_identity::align(&sample, &AlignOptions::default(), &out);
        let run = align.args(["--threads", "1", "--aligner", "bwa"]).spawn();
        wait_until("its handlers", || handles_signal(run.process_id(), number));
        send_signal(run.process_id(), number);
        let finished = run.wait_with_output();
        finished.assert_rejected(&[EXIT_INTERRUPTED], &["interrupted"]);
        assert_eq!(scratch::entry_names(&out), [] as [String; 0]);
    }
}

#[test]
fn a_full_stderr_does_not_stop_a_run() {
    needs!("bwa", "bash");
    let bam = marked_bam();
    let out = bam.with_file_name("silent.bam");
    let command =
        format!("{} markdup {} --json --out {} 2>/dev/full", godwit_path().display(), bam.display(), out.display());
    run_checked(Tool::require("bash").command().args(["-c", &command]));
    assert!(out.is_file());
}

#[test]
fn every_line_of_json_progress_is_an_event() {
    needs!("bwa");
    let out = scratch::directory("json");
    let finished = bwa_identity::align(&sample(400), &AlignOptions::default(), &out).arg("--json").run_ok();
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert!(
        lines.iter().all(|line| line.starts_with("{\"event\":\"") && line.ends_with('}')),
        "{}",
        finished.describe()
    );
    assert!(lines.iter().any(|line| line.contains("\"aligned\"")), "{}", finished.describe());
}

#[test]
fn missing_arguments_are_named_in_the_last_line() {
    godwit()
        .args(["align", "--sample", "s"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--reference", "--reads", "--out"]);
}
