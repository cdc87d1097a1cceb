//! `align` on a cluster writes the same bytes as one process, also if a worker is lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_tests::binary::{GodwitCommand, GodwitOutput, GodwitProcess};
use godwit_tests::duplicate_options::{MarkingOptions, TaggingPolicy};
use godwit_tests::processes::{
    child_processes, is_running, send_signal, stop_when, wait_for_children, wait_until_exited,
};
use godwit_tests::random::Random;
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::{needs, needs_host_namespaces, needs_slurm, scratch};

use super::{bwa_identity, resume};

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_REMOTE: i32 = 6;
const EXIT_INTERRUPTED: i32 = 130;
/// The number of runs with a fault at a random moment in CI.
const RANDOM_FAULT_RUNS: u64 = 6;

/// Returns a sample of three lanes of several blocks each.
pub(super) fn sample() -> Arc<Sample> {
    let lanes = vec![2_000, 900, 1_500];
    Sample::cached(&SampleSpec { seed: 31, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

pub(super) fn options() -> AlignOptions {
    AlignOptions { block_bases: 50_000, ..AlignOptions::default() }
}

/// Returns an alignment in one process.
pub(super) fn align(out: &Path) -> GodwitCommand {
    bwa_identity::align(&sample(), &options(), out).args(["--threads", "1", "--partitions", "12"])
}

pub(super) fn align_on_workers(out: &Path, nodes: usize) -> GodwitCommand {
    align(out).args(["--on", "local", "--nodes", &nodes.to_string(), "--json"])
}

/// Checks that all outputs equal those of one process, and that no other file exists.
pub(super) fn assert_same(expected: &Path, out: &Path, run: &GodwitOutput) {
    assert!(run.status.success(), "{}", run.describe());
    for name in resume::OUTPUTS {
        let (expected, found) = (fs::read(expected.join(name)), fs::read(out.join(name)));
        let (expected, found) = (expected.expect("one process writes it"), found.expect("nodes write it"));
        assert!(found == expected, "{} differs\n{}", out.join(name).display(), run.describe());
    }
    let mut names = scratch::entry_names(out);
    names.retain(|name| name != "run.json" && name != "report.html");
    assert_eq!(names, resume::OUTPUTS, "{}", run.describe());
}

pub(super) fn by_one_process() -> std::path::PathBuf {
    let out = scratch::directory("one-process");
    align(&out).run_ok();
    out
}

/// Runs the head of a run until it reports `event` for the `count`th time, and leaves it stopped; its standard error is the
/// file `said`. Returns whether it was stopped before it ended.
pub(super) fn stop_at_event(said: &Path, event: &str, count: usize, run: &GodwitProcess) -> bool {
    stop_when(run.process_id(), event, || count_events(said, event) >= count)
}

fn count_events(said: &Path, event: &str) -> usize {
    fs::read_to_string(said).unwrap_or_default().matches(&format!("{{\"event\":\"{event}\"")).count()
}

/// Waits until a run reports `event` for the `count`th time, or has ended; its standard error is the file `said`.
pub(super) fn wait_for_event(said: &Path, event: &str, count: usize, run: &GodwitProcess) {
    while count_events(said, event) < count && is_running(run.process_id()) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn any_number_of_workers_writes_the_bytes_of_one_process() {
    needs!("bwa");
    let expected = by_one_process();
    for nodes in [1, 3, 8] {
        let out = scratch::directory("nodes");
        let run = align_on_workers(&out, nodes).run_ok();
        assert_same(&expected, &out, &run);
        let report = fs::read_to_string(out.join("run.json")).expect("it is there");
        let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
        let exchange = &report["exchange"];
        assert_eq!(exchange["nodes"].as_array().map(Vec::len), Some(nodes), "{report}");
        assert_eq!(exchange["lost_nodes"], 0);
        assert_eq!(exchange["fetched_bytes"].as_u64() > Some(0), nodes > 1, "{exchange}");
    }
}

#[test]
fn options_that_change_records_change_them_on_workers_too() {
    needs!("bwa");
    let tagging = MarkingOptions { tagging: TaggingPolicy::All, ..MarkingOptions::default() };
    let removing = MarkingOptions { remove_sequencing_duplicates: true, ..MarkingOptions::default() };
    for (marking, arguments) in [(tagging, vec![]), (removing, vec!["-M".to_owned(), "-Y".to_owned()])] {
        let options = AlignOptions { marking, aligner_args: arguments, ..options() };
        let [one, many] = ["one", "many"].map(scratch::directory);
        bwa_identity::align(&sample(), &options, &one).args(["--metrics", "off"]).run_ok();
        let nodes = ["--on", "local", "--nodes", "3", "--metrics", "off"];
        let run = bwa_identity::align(&sample(), &options, &many).args(nodes).run_ok();
        for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
            assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}\n{}", run.describe());
        }
    }
}

/// Returns the files of a data set, by name.
fn data_set_files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(directory.join(&name)).expect("it can be read");
        (name, bytes)
    };
    scratch::entry_names(directory).into_iter().map(read).collect()
}

#[test]
fn columns_are_the_same_also_when_a_worker_is_lost_while_writing_them() {
    needs!("bwa");
    let formats = ["--format", "bam,parquet,arrow", "--metrics", "off"];
    let one = scratch::directory("columns-one");
    align(&one).args(formats).run_ok();
    for lost in [false, true] {
        let many = scratch::directory("columns-many");
        let said = many.with_extension("said");
        let stderr = fs::File::create(&said).expect("a file can be made");
        let run = align_on_workers(&many, 3).args(formats).stderr(stderr).spawn();
        if lost {
            let nodes = wait_for_children(run.process_id(), "node", 3);
            stop_at_event(&said, "written", 2, &run);
            send_signal(nodes[1], libc::SIGKILL);
            send_signal(run.process_id(), libc::SIGCONT);
        }
        let run = run.wait_with_output();
        assert!(run.status.success(), "{}\n{}", run.describe(), fs::read_to_string(&said).unwrap_or_default());
        for name in ["sample.parquet", "sample.arrow"] {
            assert!(data_set_files(&one.join(name)) == data_set_files(&many.join(name)), "{name}");
        }
        for name in ["sample.bam", "sample.bam.bai", "sample.manifest.json"] {
            assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}");
        }
    }
}

/// Kills or stops one of four workers at a random time. Returns whether the head detected the loss; the run may end
/// before that.
fn run_losing_a_worker(seed: u64, expected: &Path) -> bool {
    let mut random = Random::new(seed);
    let out = scratch::directory("faulty");
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = align_on_workers(&out, 4).stderr(stderr).spawn();
    let nodes = wait_for_children(run.process_id(), "node", 4);
    let (event, count) = *random.pick(&[
        ("aligned", 1),
        ("aligned", 4),
        ("aligned", 12),
        ("aligned", 20),
        ("written", 1),
        ("written", 5),
    ]);
    wait_for_event(&said, event, count, &run);
    std::thread::sleep(Duration::from_millis(random.below(30) as u64));
    // SIGSTOP simulates a host without power: the connection stays open, but the worker is silent.
    let (how, victim) = (*random.pick(&[libc::SIGKILL, libc::SIGKILL, libc::SIGSTOP]), *random.pick(&nodes));
    send_signal(victim, how);
    let run = run.wait_with_output();
    let told = format!(
        "seed {seed}: signal {how} to a node after {count} {event}; {}",
        fs::read_to_string(&said).unwrap_or_default()
    );
    assert!(run.status.success(), "{told}");
    assert_same(expected, &out, &run);
    wait_until_exited(&[victim]);
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    let count = |name: &str| report["exchange"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"));
    // Each lost worker costs at most eight alignments: the blocks that it was aligning, and its aligned blocks without
    // a second copy. Stragglers are blocks of slow workers.
    let lost = count("lost_nodes");
    assert!(count("alignments") <= count("blocks") + count("stragglers") + 8 * lost, "{told}\n{report}");
    lost > 0
}

#[test]
fn losing_a_worker_at_any_moment_changes_no_byte() {
    needs!("bwa");
    let expected = by_one_process();
    let noticed = (0..RANDOM_FAULT_RUNS).filter(|seed| run_losing_a_worker(*seed, &expected)).count();
    assert!(noticed > 0, "no run lost a node: nothing was tested");
}

#[test]
#[ignore = "minutes: fifty faults at random moments"]
fn losses_at_fifty_moments_change_no_byte() {
    needs!("bwa");
    let expected = by_one_process();
    let noticed = (100..150).filter(|seed| run_losing_a_worker(*seed, &expected)).count();
    assert!(noticed >= 25, "only {noticed} runs lost a node");
}

#[test]
fn without_any_worker_the_run_fails_and_leaves_nothing() {
    needs!("bwa");
    let out = scratch::directory("lost");
    let run = align_on_workers(&out, 2).spawn();
    let head = run.process_id();
    assert!(stop_when(head, "two workers", || child_processes(head, "node").len() == 2), "the run was over");
    child_processes(head, "node").into_iter().for_each(|node| send_signal(node, libc::SIGKILL));
    send_signal(head, libc::SIGCONT);
    run.wait_with_output().assert_rejected(&[EXIT_REMOTE], &["no worker is left"]);
    assert_eq!(scratch::entry_names(&out), Vec::<String>::new());
}

#[test]
fn workers_that_cannot_start_report_why_at_once() {
    needs!("bwa");
    let out = scratch::directory("hopeless");
    let started = Instant::now();
    let run = align_on_workers(&out, 2).args(["--aligner", "bwa"]).env("GODWIT_BWA", "/nowhere/godwit-bwa").run();
    run.assert_rejected(&[EXIT_REMOTE], &["no worker is left", "/nowhere/godwit-bwa"]);
    // A head waits a minute for workers that may still connect, but not for workers that have exited.
    assert!(started.elapsed() < Duration::from_secs(50), "the run does not wait for workers that cannot connect");
    assert_eq!(scratch::entry_names(&out), Vec::<String>::new());
}

#[test]
fn workers_end_with_their_head() {
    needs!("bwa");
    for how in [libc::SIGKILL, libc::SIGINT] {
        let out = scratch::directory("headless");
        let run = align_on_workers(&out, 2).spawn();
        let head = run.process_id();
        let nodes = wait_for_children(head, "node", 2);
        send_signal(head, how);
        let run = run.wait_with_output();
        if how == libc::SIGINT {
            run.assert_rejected(&[EXIT_INTERRUPTED], &["interrupted"]);
            assert_eq!(scratch::entry_names(&out), Vec::<String>::new());
        }
        wait_until_exited(&nodes);
    }
}

#[test]
fn broken_reads_are_named_as_by_one_process() {
    needs!("bwa");
    let directory = scratch::directory("broken");
    let reads = directory.join("broken.fq");
    fs::write(&reads, "@a\nACGT\n+\nIIII\n@b\nACGT\n+\nIII\n").expect("a file can be written");
    let out = directory.join("out");
    let sample = sample();
    let run = godwit_tests::binary::godwit().arg("align").arg("--reference").arg(sample.godwit_indexed_reference());
    let run = run.arg("--reads").arg(&reads).args(["--sample", "s", "--out"]).arg(&out);
    run.args(["--on", "local", "--nodes", "2"]).run().assert_rejected(&[EXIT_INPUT], &["broken.fq", "record 2"]);
    // The head checks the first reads of each lane before it writes any file.
    assert!(!out.exists());
}

#[test]
fn what_workers_do_not_support_is_rejected_before_anything_is_made() {
    needs!("bwa");
    let out = scratch::directory("refused").join("out");
    let template = "bowtie2 -x {index} --interleaved {reads}";
    align_on_workers(&out, 2)
        .args(["--aligner", template])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["bowtie2 does not support --on"]);
    assert!(!out.exists());
}

#[test]
fn two_cluster_runs_do_not_share_a_directory() {
    needs!("bwa");
    let out = scratch::directory("shared");
    let first = align_on_workers(&out, 2).spawn();
    wait_for_children(first.process_id(), "node", 2);
    align_on_workers(&out, 2).run().assert_rejected(&[4], &["another godwit"]);
    assert!(first.wait_with_output().status.success());
}

/// Returns an alignment that runs as a SLURM job. `OUT/slurm` contains the logs of its workers.
pub(super) fn align_as_slurm_job(out: &Path, cluster: &SlurmCluster, nodes: usize) -> GodwitCommand {
    align(out)
        .args(["--on", "slurm", "--nodes", &nodes.to_string(), "--json", "--slurm-memory", "300M"])
        .env("SLURM_CONF", cluster.slurm_conf())
}

pub(super) fn assert_same_from_slurm_job(expected: &Path, out: &Path, run: &GodwitOutput) {
    let logs: Vec<String> =
        (0..8).filter_map(|node| fs::read_to_string(out.join(format!("slurm/logs/node-{node}.err"))).ok()).collect();
    assert!(run.status.success(), "{}\n{logs:#?}", run.describe());
    assert!(out.join("slurm/script.sh").is_file());
    fs::remove_dir_all(out.join("slurm")).expect("it can be removed");
    assert_same(expected, out, run);
}

#[test]
fn a_slurm_job_of_four_workers_writes_the_bytes_of_one_process() {
    needs!("bwa");
    needs_slurm!();
    let expected = by_one_process();
    let out = scratch::directory("slurm-run").join("out");
    let run = align_as_slurm_job(&out, slurm::shared_cluster(), 4).run();
    let report = fs::read_to_string(out.join("run.json")).unwrap_or_default();
    assert_same_from_slurm_job(&expected, &out, &run);
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["exchange"]["nodes"].as_array().map(Vec::len), Some(4), "{report}");
}

#[test]
fn power_loss_of_a_host_of_a_slurm_job_changes_no_byte() {
    needs!("bwa");
    needs_slurm!();
    let cluster = SlurmCluster::start(3);
    needs_host_namespaces!(cluster);
    let expected = by_one_process();
    let out = scratch::directory("slurm-power").join("out");
    let run = align_as_slurm_job(&out, &cluster, 3).spawn();
    wait_for_event(&out.join("slurm/logs/node-0.err"), "aligned", 3, &run);
    cluster.inject_fault("kill", "gw3");
    assert_same_from_slurm_job(&expected, &out, &run.wait_with_output());
}
