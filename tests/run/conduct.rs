//! How a run treats what is around it: other runs, the files it reads, pipes, signals, a closed terminal.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::patience::wait_until;
use godwit_tests::pipeline::AlignOptions;
use godwit_tests::processes::{handles, signal};
use godwit_tests::reads::{Comments, Sample, SampleSpec};
use godwit_tests::tool::{Tool, succeed};
use godwit_tests::{needs, sam, scratch};

use super::identity;

const USAGE: i32 = 2;
const MACHINE: i32 = 4;
const INTERRUPTED: i32 = 130;

fn sample(templates: usize) -> std::sync::Arc<Sample> {
    let lanes = vec![templates];
    Sample::get(&SampleSpec { seed: 12, lanes, paired: true, alternate: false, comments: Comments::Illumina })
}

/// A small marked BAM of godwit's own.
fn marked() -> PathBuf {
    let out = scratch::directory("conduct");
    identity::align(&sample(400), &AlignOptions::default(), &out).succeeds();
    out.join("sample.bam")
}

/// Waits until a run has made a file.
fn wait_for(path: &Path) {
    wait_until(&path.display().to_string(), || path.exists());
}

#[test]
fn an_input_is_never_replaced_by_the_output_made_from_it() {
    needs!("bwa");
    let bam = marked();
    let link = bam.with_file_name("link.bam");
    std::os::unix::fs::symlink(&bam, &link).expect("a link can be made");
    let before = fs::read(&bam).expect("it can be read");
    for (input, out) in [(&bam, &bam), (&link, &bam)] {
        godwit().arg("markdup").arg(input).arg("--out").arg(out).run().refuses(&[USAGE], &["replace the input"]);
    }
    assert!(fs::read(&bam).expect("it can be read") == before);
}

#[test]
fn one_file_given_twice_is_refused() {
    needs!("bwa");
    let sample = sample(400);
    let one = &sample.lanes[0].reads[0];
    let out = scratch::directory("twice");
    let command = godwit().arg("align").arg("--reference").arg(sample.indexed_by_godwit()).arg("--reads");
    let finished = command.arg(one).arg(one).args(["--sample", "s", "--out"]).arg(&out).run();
    finished.refuses(&[USAGE], &["same file"]);
}

#[test]
fn reads_come_through_pipes() {
    needs!("bwa", "bash");
    let sample = sample(400);
    let out = scratch::directory("pipes");
    let expected = out.join("files");
    identity::align(&sample, &AlignOptions::default(), &expected).succeeds();
    let lane = &sample.lanes[0];
    let command = format!(
        "{} align --reference {} --reads <(cat {}) <(cat {}) --read-group '{}' --sample sample --quiet --out {}",
        godwit_path().display(),
        sample.indexed_by_godwit().display(),
        lane.reads[0].display(),
        lane.reads[1].display(),
        lane.read_group,
        out.join("piped").display(),
    );
    succeed(Tool::need("bash").command().args(["-c", &command]));
    let without_group = command.replace(&format!("--read-group '{}'", lane.read_group), "").replace("/piped", "/made");
    succeed(Tool::need("bash").command().args(["-c", &without_group]));
    sam::assert_same(&expected.join("sample.bam"), &out.join("piped/sample.bam"));
    assert!(out.join("made/sample.bam").is_file());
}

#[test]
fn markdup_gives_the_same_from_a_pipe_as_from_a_file() {
    needs!("bwa", "bash");
    let bam = marked();
    let [from_file, from_pipe] = ["file.bam", "pipe.bam"].map(|name| bam.with_file_name(name));
    godwit().arg("markdup").arg(&bam).arg("--out").arg(&from_file).succeeds();
    let command = format!("{} markdup <(cat {}) --out {}", godwit_path().display(), bam.display(), from_pipe.display());
    succeed(Tool::need("bash").command().args(["-c", &command]));
    assert!(fs::read(from_file).expect("it can be read") == fs::read(from_pipe).expect("it can be read"));
}

#[test]
fn a_second_run_into_the_same_output_is_refused_while_the_first_goes_on() {
    needs!("bwa");
    let sample = sample(20_000);
    let out = scratch::directory("two-runs");
    let first = identity::align(&sample, &AlignOptions::default(), &out).args(["--threads", "1"]).start();
    let part = out.join(".sample.bam.godwit-part");
    wait_for(&part);
    let second = identity::align(&sample, &AlignOptions::default(), &out).run();
    second.refuses(&[MACHINE], &["another godwit"]);
    let first = first.finish();
    assert!(first.status.success(), "{}", first.report());
    assert!(!part.exists());
}

#[test]
fn a_failed_rerun_does_not_put_new_statistics_beside_an_old_bam() {
    needs!("bwa");
    let bam = marked();
    let out = bam.with_file_name("again.bam");
    godwit().arg("markdup").arg(&bam).arg("--out").arg(&out).succeeds();
    // The last name is taken by a directory, so publishing fails after the others were renamed.
    let report = bam.with_file_name("again.run.json");
    fs::remove_file(&report).expect("it was written");
    fs::create_dir(&report).expect("a directory can be made");
    let again = godwit().arg("markdup").arg(&bam).args(["--duplicates", "remove", "--out"]).arg(&out).run();
    again.refuses(&[MACHINE], &["again.run.json"]);
    let left = scratch::names(bam.parent().expect("it lies in a directory"));
    assert!(!left.iter().any(|name| name.ends_with("godwit-part")), "{left:?}");
}

#[test]
fn an_interrupted_run_leaves_nothing_and_no_aligner() {
    needs!("bwa");
    let sample = sample(20_000);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let out = scratch::directory("interrupted");
        // The slower of the two aligners leaves seconds of work behind the moment from which on signals are handled.
        let align = identity::align(&sample, &AlignOptions::default(), &out);
        let run = align.args(["--threads", "1", "--aligner", "bwa"]).start();
        wait_until("its handlers", || handles(run.process_id(), number));
        signal(run.process_id(), number);
        let finished = run.finish();
        finished.refuses(&[INTERRUPTED], &["interrupted"]);
        assert_eq!(scratch::names(&out), [] as [String; 0]);
    }
}

#[test]
fn a_full_stderr_does_not_stop_a_run() {
    needs!("bwa", "bash");
    let bam = marked();
    let out = bam.with_file_name("silent.bam");
    let command =
        format!("{} markdup {} --json --out {} 2>/dev/full", godwit_path().display(), bam.display(), out.display());
    succeed(Tool::need("bash").command().args(["-c", &command]));
    assert!(out.is_file());
}

#[test]
fn every_line_of_json_progress_is_an_event() {
    needs!("bwa");
    let out = scratch::directory("json");
    let finished = identity::align(&sample(400), &AlignOptions::default(), &out).arg("--json").succeeds();
    let lines: Vec<&str> = finished.stderr.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("{\"event\":\"") && line.ends_with('}')), "{}", finished.report());
    assert!(lines.iter().any(|line| line.contains("\"aligned\"")), "{}", finished.report());
}

#[test]
fn missing_arguments_are_named_in_the_last_line() {
    godwit().args(["align", "--sample", "s"]).run().refuses(&[USAGE], &["--reference", "--reads", "--out"]);
}
