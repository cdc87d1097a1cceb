//! The main job over many nodes: the bytes of the one-process run, whoever is lost on the way.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use godwit_tests::binary::{Finished, Godwit, Running};
use godwit_tests::marking::{Marking, Tagging};
use godwit_tests::pipeline::AlignOptions;
use godwit_tests::processes::{is_running, signal, wait_for_children, wait_until_gone};
use godwit_tests::random::Random;
use godwit_tests::reads::{Comments, Sample, SampleSpec};
use godwit_tests::slurm::{self, Cluster};
use godwit_tests::{needs, needs_slurm, scratch};

use super::{identity, resume};

const USAGE: i32 = 2;
const INPUT: i32 = 3;
const REMOTE: i32 = 6;
const INTERRUPTED: i32 = 130;
/// Runs with a fault at a random moment that CI makes.
const FAULTY_RUNS: u64 = 6;

/// Three lanes of several blocks each.
pub(super) fn sample() -> Arc<Sample> {
    let lanes = vec![2_000, 900, 1_500];
    Sample::get(&SampleSpec { seed: 31, lanes, paired: true, alternate: false, comments: Comments::Illumina })
}

pub(super) fn options() -> AlignOptions {
    AlignOptions { block_bases: 50_000, ..AlignOptions::default() }
}

/// Not told where: one process.
pub(super) fn align(out: &Path) -> Godwit {
    identity::align(&sample(), &options(), out).args(["--threads", "1", "--partitions", "12"])
}

pub(super) fn align_on_nodes(out: &Path, nodes: usize) -> Godwit {
    align(out).args(["--on", "local", "--nodes", &nodes.to_string(), "--json"])
}

/// Every output is that of one process, and nothing else was left.
pub(super) fn assert_same(expected: &Path, out: &Path, run: &Finished) {
    assert!(run.status.success(), "{}", run.report());
    for name in resume::OUTPUTS {
        let (expected, found) = (fs::read(expected.join(name)), fs::read(out.join(name)));
        let (expected, found) = (expected.expect("one process writes it"), found.expect("nodes write it"));
        assert!(found == expected, "{} differs\n{}", out.join(name).display(), run.report());
    }
    let mut names = scratch::names(out);
    names.retain(|name| name != "run.json" && name != "report.html");
    assert_eq!(names, resume::OUTPUTS, "{}", run.report());
}

pub(super) fn by_one_process() -> std::path::PathBuf {
    let out = scratch::directory("one-process");
    align(&out).succeeds();
    out
}

/// Waits until a run says `event` for the `count`th time, or is over; what it says goes to a file.
pub(super) fn wait_until_said(said: &Path, event: &str, count: usize, run: &Running) {
    let wanted = format!("{{\"event\":\"{event}\"");
    loop {
        let text = fs::read_to_string(said).unwrap_or_default();
        if text.matches(&wanted).count() >= count || !is_running(run.process_id()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn any_number_of_nodes_writes_the_bytes_of_one_process() {
    needs!("bwa");
    let expected = by_one_process();
    for nodes in [1, 2, 4, 8] {
        let out = scratch::directory("nodes");
        let run = align_on_nodes(&out, nodes).succeeds();
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
fn options_that_change_records_change_them_on_nodes_too() {
    needs!("bwa");
    let tagging = Marking { tagging: Tagging::All, ..Marking::default() };
    let removing = Marking { remove_sequencing: true, ..Marking::default() };
    for (marking, arguments) in [(tagging, vec![]), (removing, vec!["-M".to_owned(), "-Y".to_owned()])] {
        let options = AlignOptions { marking, aligner_args: arguments, ..options() };
        let [one, many] = ["one", "many"].map(scratch::directory);
        identity::align(&sample(), &options, &one).args(["--metrics", "off"]).succeeds();
        let nodes = ["--on", "local", "--nodes", "3", "--metrics", "off"];
        let run = identity::align(&sample(), &options, &many).args(nodes).succeeds();
        for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
            assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}\n{}", run.report());
        }
    }
}

/// The files of a data set, by name.
fn data_set(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(directory.join(&name)).expect("it can be read");
        (name, bytes)
    };
    scratch::names(directory).into_iter().map(read).collect()
}

#[test]
fn columns_come_out_the_same_also_where_a_node_is_lost_while_it_writes_them() {
    needs!("bwa");
    let formats = ["--format", "bam,parquet,arrow", "--metrics", "off"];
    let one = scratch::directory("columns-one");
    align(&one).args(formats).succeeds();
    for lost in [false, true] {
        let many = scratch::directory("columns-many");
        let said = many.with_extension("said");
        let stderr = fs::File::create(&said).expect("a file can be made");
        let run = align_on_nodes(&many, 3).args(formats).stderr(stderr).start();
        if lost {
            let nodes = wait_for_children(run.process_id(), "node", 3);
            wait_until_said(&said, "written", 2, &run);
            signal(nodes[1], libc::SIGKILL);
        }
        let run = run.finish();
        assert!(run.status.success(), "{}\n{}", run.report(), fs::read_to_string(&said).unwrap_or_default());
        for name in ["sample.parquet", "sample.arrow"] {
            assert!(data_set(&one.join(name)) == data_set(&many.join(name)), "{name}");
        }
        for name in ["sample.bam", "sample.bam.bai", "sample.manifest.json"] {
            assert!(fs::read(one.join(name)).ok() == fs::read(many.join(name)).ok(), "{name}");
        }
    }
}

/// One node of four is lost in a way, at a moment, both drawn from the seed. Returns whether the run noticed: it may be over
/// too soon.
fn lose_one(seed: u64, expected: &Path) -> bool {
    let mut random = Random::new(seed);
    let out = scratch::directory("faulty");
    let said = out.with_extension("said");
    let stderr = fs::File::create(&said).expect("a file can be made");
    let run = align_on_nodes(&out, 4).stderr(stderr).start();
    let nodes = wait_for_children(run.process_id(), "node", 4);
    let (event, count) = *random.pick(&[
        ("aligned", 1),
        ("aligned", 4),
        ("aligned", 12),
        ("aligned", 20),
        ("written", 1),
        ("written", 5),
    ]);
    wait_until_said(&said, event, count, &run);
    std::thread::sleep(Duration::from_millis(random.below(30) as u64));
    // A node that is stopped is as silent as one without power.
    let (how, victim) = (*random.pick(&[libc::SIGKILL, libc::SIGKILL, libc::SIGSTOP]), *random.pick(&nodes));
    signal(victim, how);
    let run = run.finish();
    let told = format!(
        "seed {seed}: signal {how} to a node after {count} {event}; {}",
        fs::read_to_string(&said).unwrap_or_default()
    );
    assert!(run.status.success(), "{told}");
    assert_same(expected, &out, &run);
    wait_until_gone(&[victim]);
    let report = fs::read_to_string(out.join("run.json")).expect("it is there");
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    let count = |name: &str| report["exchange"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"));
    // What the node had in flight: under way, or aligned and not yet on a second node. Slow nodes are not lost ones.
    let lost = count("lost_nodes");
    assert!(count("alignments") <= count("blocks") + count("stragglers") + 8 * lost, "{told}\n{report}");
    lost > 0
}

#[test]
fn losing_a_node_at_any_moment_changes_no_byte() {
    needs!("bwa");
    let expected = by_one_process();
    let noticed = (0..FAULTY_RUNS).filter(|seed| lose_one(*seed, &expected)).count();
    assert!(noticed > 0, "no run lost a node: nothing was tested");
}

#[test]
#[ignore = "minutes: fifty faults at random moments"]
fn losses_at_fifty_moments_change_no_byte() {
    needs!("bwa");
    let expected = by_one_process();
    let noticed = (100..150).filter(|seed| lose_one(*seed, &expected)).count();
    assert!(noticed >= 25, "only {noticed} runs lost a node");
}

#[test]
fn without_any_node_the_run_ends_with_an_error_and_leaves_nothing() {
    needs!("bwa");
    let out = scratch::directory("lost");
    let run = align_on_nodes(&out, 2).start();
    let head = run.process_id();
    wait_for_children(head, "node", 2).into_iter().for_each(|node| signal(node, libc::SIGKILL));
    run.finish().refuses(&[REMOTE], &["no node is left"]);
    assert_eq!(scratch::names(&out), Vec::<String>::new());
}

#[test]
fn nodes_that_cannot_begin_say_why_at_once() {
    needs!("bwa");
    let out = scratch::directory("hopeless");
    let started = Instant::now();
    let run = align_on_nodes(&out, 2).args(["--aligner", "bwa"]).env("GODWIT_BWA", "/nowhere/godwit-bwa").run();
    run.refuses(&[REMOTE], &["no node is left", "/nowhere/godwit-bwa"]);
    // A run waits a minute for nodes that may come.
    assert!(started.elapsed() < Duration::from_secs(50), "nobody was waited for");
    assert_eq!(scratch::names(&out), Vec::<String>::new());
}

#[test]
fn nodes_end_with_their_head() {
    needs!("bwa");
    for how in [libc::SIGKILL, libc::SIGINT] {
        let out = scratch::directory("headless");
        let run = align_on_nodes(&out, 2).start();
        let head = run.process_id();
        let nodes = wait_for_children(head, "node", 2);
        signal(head, how);
        let run = run.finish();
        if how == libc::SIGINT {
            run.refuses(&[INTERRUPTED], &["interrupted"]);
            assert_eq!(scratch::names(&out), Vec::<String>::new());
        }
        wait_until_gone(&nodes);
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
    let run = godwit_tests::binary::godwit().arg("align").arg("--reference").arg(sample.indexed_by_godwit());
    let run = run.arg("--reads").arg(&reads).args(["--sample", "s", "--out"]).arg(&out);
    run.args(["--on", "local", "--nodes", "2"]).run().refuses(&[INPUT], &["broken.fq", "record 2"]);
    // The first reads of every lane are checked before anything is written.
    assert!(!out.exists());
}

#[test]
fn what_nodes_cannot_do_is_refused_before_anything_is_made() {
    needs!("bwa");
    let out = scratch::directory("refused").join("out");
    let template = "bowtie2 -x {index} --interleaved {reads}";
    align_on_nodes(&out, 2).args(["--aligner", template]).run().refuses(&[USAGE], &["bowtie2 cannot be spread"]);
    assert!(!out.exists());
}

#[test]
fn two_runs_over_nodes_do_not_share_a_directory() {
    needs!("bwa");
    let out = scratch::directory("shared");
    let first = align_on_nodes(&out, 2).start();
    wait_for_children(first.process_id(), "node", 2);
    align_on_nodes(&out, 2).run().refuses(&[4], &["another godwit"]);
    assert!(first.finish().status.success());
}

/// A run as a job of SLURM: `OUT/slurm` has the logs of its nodes.
pub(super) fn align_on_slurm(out: &Path, cluster: &Cluster, nodes: usize) -> Godwit {
    align(out)
        .args(["--on", "slurm", "--nodes", &nodes.to_string(), "--json", "--slurm-memory", "300M"])
        .env("SLURM_CONF", cluster.configuration())
}

pub(super) fn assert_same_by_slurm(expected: &Path, out: &Path, run: &Finished) {
    let logs: Vec<String> =
        (0..8).filter_map(|node| fs::read_to_string(out.join(format!("slurm/logs/node-{node}.err"))).ok()).collect();
    assert!(run.status.success(), "{}\n{logs:#?}", run.report());
    assert!(out.join("slurm/script.sh").is_file());
    fs::remove_dir_all(out.join("slurm")).expect("it can be removed");
    assert_same(expected, out, run);
}

#[test]
fn a_slurm_job_of_four_nodes_writes_the_bytes_of_one_process() {
    needs!("bwa");
    needs_slurm!();
    let expected = by_one_process();
    let out = scratch::directory("slurm-run").join("out");
    let run = align_on_slurm(&out, slurm::shared(), 4).run();
    let report = fs::read_to_string(out.join("run.json")).unwrap_or_default();
    assert_same_by_slurm(&expected, &out, &run);
    let report: serde_json::Value = serde_json::from_str(&report).expect("it is JSON");
    assert_eq!(report["exchange"]["nodes"].as_array().map(Vec::len), Some(4), "{report}");
}

#[test]
fn power_loss_of_a_node_of_a_slurm_job_changes_no_byte() {
    needs!("bwa");
    needs_slurm!();
    let cluster = Cluster::start(3);
    if !cluster.has_own_nodes() {
        return;
    }
    let expected = by_one_process();
    let out = scratch::directory("slurm-power").join("out");
    let run = align_on_slurm(&out, &cluster, 3).start();
    wait_until_said(&out.join("slurm/logs/node-0.err"), "aligned", 3, &run);
    cluster.strike("kill", "gw3");
    assert_same_by_slurm(&expected, &out, &run.finish());
}
