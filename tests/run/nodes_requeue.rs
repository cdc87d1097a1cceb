//! Jobs by ssh, and of a real SLURM cluster, that are started again: for a requeue, a time limit, to make room, after the power of the
//! head's node is gone. The same bytes, and next to nothing aligned twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use godwit_tests::binary::{Godwit, Running};
use godwit_tests::patience::wait_until;
use godwit_tests::processes::{signal, with_words};
use godwit_tests::reads::{Comments, Sample, SampleSpec};
use godwit_tests::slurm::{self, Cluster};
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::tool::succeed;
use godwit_tests::{needs, scratch, skip};

use super::nodes::{assert_same, assert_same_by_slurm, options, wait_until_said};
use super::nodes_resume::{align_stdin, exchange, number};
use super::{identity, slurm as jobs};

const NODES: u64 = 2;

/// Enough to last until SLURM has done what it is asked to.
fn sample() -> Arc<Sample> {
    let lanes = vec![20_000, 16_000];
    Sample::get(&SampleSpec { seed: 32, lanes, paired: true, alternate: false, comments: Comments::Illumina })
}

pub(super) fn align(out: &Path) -> Godwit {
    identity::align(&sample(), &options(), out).args(["--threads", "1", "--partitions", "12"])
}

/// A job while it runs.
struct Job<'c> {
    cluster: &'c Cluster,
    out: PathBuf,
    run: Running,
}

impl<'c> Job<'c> {
    fn start(cluster: &'c Cluster, words: &[&str]) -> Self {
        let out = scratch::directory("requeued").join("out");
        Self::submit(cluster, align(&out), out, words)
    }

    fn submit(cluster: &'c Cluster, align: Godwit, out: PathBuf, words: &[&str]) -> Self {
        let run = align
            .args(["--on", "slurm", "--nodes", &NODES.to_string(), "--json", "--slurm-memory", "300M"])
            .args(words)
            .env("SLURM_CONF", cluster.configuration())
            .start();
        Self { cluster, out, run }
    }

    fn wait_until_aligned(&self, blocks: usize) {
        wait_until_said(&self.out.join("slurm/logs/node-0.err"), "aligned", blocks, &self.run);
    }

    /// Waits until the job's script says something.
    fn wait_for_log(&self, words: &str) {
        let log = self.out.join("slurm/job.log");
        wait_until(words, || fs::read_to_string(&log).unwrap_or_default().contains(words));
    }

    fn id(&self) -> String {
        let handle = fs::read_to_string(self.out.join("slurm/handle.json")).expect("it was submitted");
        let handle: serde_json::Value = serde_json::from_str(&handle).expect("it is JSON");
        handle["id"].as_str().expect("a handle has one").to_owned()
    }

    /// Its bytes are those of one process, it was started `starts` times, and only what was in flight was aligned again.
    fn ends_as(self, expected: &Path, starts: usize) {
        let finished = self.run.finish();
        let attempts = scratch::names(&self.out.join("slurm/attempts")).len();
        let said = fs::read_to_string(self.out.join("slurm/logs/node-0.err")).expect("the head writes it");
        let aligned = said.matches("{\"event\":\"aligned\"").count() as u64;
        assert!(finished.status.success(), "{}\n{said}", finished.report());
        let exchange = exchange(&self.out);
        println!("{attempts} starts: {exchange}");
        assert_same_by_slurm(expected, &self.out, &finished);
        assert_eq!(attempts, starts, "{}", finished.report());
        let (blocks, kept) = (number(&exchange, "blocks"), number(&exchange, "kept_blocks"));
        assert_eq!(kept > 0, starts > 1, "{exchange}\n{said}");
        // Three blocks with each node, and one that it was telling of.
        assert!(aligned <= blocks + (starts as u64 - 1) * 4 * NODES, "{aligned} aligned: {exchange}");
        assert!(number(&exchange, "alignments") <= blocks - kept + number(&exchange, "stragglers"), "{exchange}");
    }
}

pub(super) fn by_one_process() -> &'static Path {
    static OUT: OnceLock<PathBuf> = OnceLock::new();
    OUT.get_or_init(|| {
        let out = scratch::directory("one-process");
        align(&out).succeeds();
        out
    })
}

macro_rules! needs_slurm {
    () => {
        needs!("bwa");
        if !slurm::is_installed() {
            skip!("missing-tool", "SLURM and munge are not installed");
        }
    };
}

#[test]
fn a_job_that_is_queued_again_goes_on_with_what_its_nodes_have_in_scratch() {
    needs_slurm!();
    let expected = by_one_process();
    let cluster = Cluster::start(NODES as u32);
    // Each node has a directory of its own by that name.
    let temp = cluster.scratch().join("godwit");
    let job = Job::start(&cluster, &["--temp", temp.to_str().expect("it is UTF-8")]);
    job.wait_until_aligned(12);
    succeed(job.cluster.command("scontrol").args(["requeue", &job.id()]));
    job.ends_as(expected, 2);
}

#[test]
fn a_job_that_is_told_of_its_time_limit_goes_on_after_it() {
    needs_slurm!();
    let expected = by_one_process();
    let job = Job::start(slurm::shared(), &[]);
    job.wait_until_aligned(12);
    // What `--signal=B:TERM@SECONDS` does when it is time.
    succeed(job.cluster.command("scancel").args(["--batch", "--signal=TERM", &job.id()]));
    job.wait_for_log("queueing again");
    job.ends_as(expected, 2);
}

#[test]
fn a_job_whose_head_alone_is_killed_is_started_again() {
    needs_slurm!();
    let expected = by_one_process();
    let job = Job::start(slurm::shared(), &[]);
    job.wait_until_aligned(12);
    let out = job.out.to_str().expect("it is UTF-8");
    let heads = with_words(&["align", "allocation", out], &["GODWIT_NODE=0"]);
    // The head's nodes, and what srun started it with, have other words.
    assert_eq!(heads.len(), 1, "{heads:?}");
    signal(heads[0], libc::SIGKILL);
    job.wait_for_log("queueing again");
    job.ends_as(expected, 2);
}

#[test]
fn a_job_that_had_to_make_room_goes_on_after_the_other() {
    needs_slurm!();
    let cluster = Cluster::start(NODES as u32);
    let expected = by_one_process();
    let job = Job::start(&cluster, &["--slurm-partition", "low", "--slurm-argument=--exclusive"]);
    job.wait_until_aligned(12);
    jobs::run_exclusively(&cluster, "high");
    job.ends_as(expected, 2);
}

#[test]
fn a_restart_of_the_controller_does_not_touch_a_run() {
    needs_slurm!();
    let expected = by_one_process();
    let cluster = Cluster::start(NODES as u32);
    let job = Job::start(&cluster, &[]);
    job.wait_until_aligned(1);
    cluster.wait_until_saved(&job.id());
    cluster.strike("kill", "head");
    cluster.strike("start", "head");
    job.ends_as(expected, 1);
}

#[test]
fn a_head_on_another_machine_goes_on_from_what_the_first_one_wrote_down() {
    needs_slurm!();
    let cluster = Cluster::start(NODES as u32);
    if !cluster.has_own_nodes() {
        return;
    }
    let expected = by_one_process();
    // What lies there is gone with the head's node, but not what is on the other one: second copies of all slices.
    let temp = cluster.scratch().join("godwit");
    let job = Job::start(&cluster, &["--temp", temp.to_str().expect("it is UTF-8")]);
    job.wait_until_aligned(40);
    cluster.strike("kill", "gw1");
    cluster.empty_scratch("gw1");
    cluster.strike("start", "gw1");
    job.ends_as(expected, 2);
}

#[test]
fn power_loss_of_the_head_costs_only_what_was_in_flight() {
    needs_slurm!();
    let cluster = Cluster::start(NODES as u32);
    if !cluster.has_own_nodes() {
        return;
    }
    let expected = by_one_process();
    let job = Job::start(&cluster, &[]);
    job.wait_until_aligned(12);
    cluster.strike("kill", "gw1");
    cluster.strike("start", "gw1");
    job.ends_as(expected, 2);
}

/// The head of a start of a job, as SLURM's script would run it on the first node.
fn head(out: &Path, job_directory: &Path, attempt: u64) -> Running {
    let mark = job_directory.join(format!("attempts/{attempt}"));
    fs::create_dir_all(&mark).expect("it can be made");
    fs::write(mark.join("job"), "7\n").expect("it can be written");
    let said = fs::File::create(out.with_extension(format!("said-{attempt}"))).expect("a file can be made");
    align(out)
        .args(["--on", "allocation", "--nodes", "1", "--json"])
        .env("GODWIT_JOB_DIRECTORY", job_directory)
        .env("GODWIT_NODE", "0")
        .env("GODWIT_ATTEMPT", attempt.to_string())
        .stderr(said)
        .start()
}

#[test]
fn a_head_that_was_thought_dead_gives_way_to_the_next_start_of_its_job() {
    needs!("bwa");
    let expected = by_one_process();
    let directory = scratch::directory("twins");
    let (out, jobs) = (directory.join("out"), directory.join("job"));
    let said = |attempt: u64| out.with_extension(format!("said-{attempt}"));
    let first = head(&out, &jobs, 0);
    wait_until_said(&said(0), "aligned", 12, &first);
    // It falls silent, with everything it has open, and wakes up when its job was started somewhere else.
    signal(first.process_id(), libc::SIGSTOP);
    let second = head(&out, &jobs, 1);
    let waits = || fs::read_to_string(said(1)).unwrap_or_default().contains("an earlier start of this job");
    wait_until("the second head to wait for the first", waits);
    signal(first.process_id(), libc::SIGCONT);
    let (first, second) = (first.finish(), second.finish());
    let told = [0, 1].map(|attempt| fs::read_to_string(said(attempt)).unwrap_or_default());
    assert!(!first.status.success() && told[0].contains("attempt 1"), "{}", told[0]);
    assert!(second.status.success(), "{}", told[1]);
    assert_same(expected, &out, &second);
    assert!(number(&exchange(&out), "kept_blocks") >= 12, "{}", exchange(&out));
}

#[test]
fn standard_input_is_kept_for_a_job_and_for_its_next_start() {
    needs_slurm!();
    let sample = sample();
    let reads = &sample.lanes[0].reads[0];
    let one = scratch::directory("stdin-one");
    align_stdin(&one, reads).succeeds();
    let out = scratch::directory("stdin-slurm").join("out");
    let job = Job::submit(slurm::shared(), align_stdin(&out, reads), out, &[]);
    job.wait_until_aligned(6);
    succeed(job.cluster.command("scontrol").args(["requeue", &job.id()]));
    let Job { out, run, .. } = job;
    let finished = run.finish();
    assert!(finished.status.success(), "{}", finished.report());
    assert_eq!(scratch::names(&out.join("slurm/attempts")).len(), 2, "{}", finished.report());
    assert!(number(&exchange(&out), "kept_blocks") > 0);
    for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
        assert!(fs::read(one.join(name)).ok() == fs::read(out.join(name)).ok(), "{name}");
    }
    assert!(!out.join("slurm/standard-input").exists(), "it is not needed any more");
}

#[test]
fn by_ssh_a_run_whose_head_was_killed_goes_on_with_what_its_hosts_have() {
    needs!("bwa");
    if !ssh_server::is_installed() {
        skip!("missing-tool", "openssh-server is not installed");
    }
    let (server, expected) = (SshServer::start(), by_one_process());
    let directory = server.directory();
    let (out, said, temp) = (directory.join("out"), directory.join("said"), directory.join("scratch"));
    fs::write(directory.join("hosts"), "near\nfar\n").expect("it can be written");
    let run = || {
        let ssh = format!("-F{}", server.client_configuration().display());
        let run = align(&out).args(["--on", "ssh", "--nodes", "2", "--json", "--ssh-option", &ssh, "--hosts"]);
        run.arg(directory.join("hosts")).args(["--interface", "127.0.0.1", "--temp"]).arg(&temp)
    };
    let first = run().stderr(fs::File::create(&said).expect("a file can be made")).start();
    wait_until_said(&said, "aligned", 20, &first);
    signal(first.process_id(), libc::SIGKILL);
    first.finish();
    // Nodes of the first head may still be there for a moment: those of the next one wait for what they hold.
    let second = run().arg("--resume").run();
    assert_same(expected, &out, &second);
    assert!(number(&exchange(&out), "kept_blocks") >= 19, "{}", exchange(&out));
    assert_eq!(scratch::names(&temp), Vec::<String>::new());
}
