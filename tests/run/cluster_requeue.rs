//! Jobs by ssh and of a real SLURM cluster that are started again: after a requeue, a time limit, a preemption, or a
//! power failure of the head's host. The bytes are the same, and almost nothing is aligned twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use godwit_tests::binary::{GodwitCommand, GodwitProcess};
use godwit_tests::processes::{find_processes, send_signal};
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, needs_host_namespaces, scratch, skip};

use super::cluster::{assert_same, assert_same_from_slurm_job, options, stop_at_event, wait_for_event};
use super::cluster_resume::{align_stdin, exchange_report, number_field};
use super::{bwa_identity, slurm as jobs};

const HOSTS: u64 = 2;

/// Returns a sample whose alignment takes longer than SLURM needs to carry out a request.
fn sample() -> Arc<Sample> {
    let lanes = vec![20_000, 16_000];
    Sample::cached(&SampleSpec { seed: 32, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

pub(super) fn align(out: &Path) -> GodwitCommand {
    bwa_identity::align(&sample(), &options(), out).args(["--threads", "1", "--partitions", "12"])
}

/// A running job on hosts of a test cluster.
struct ClusterJob<'c> {
    cluster: &'c SlurmCluster,
    out: PathBuf,
    run: GodwitProcess,
}

impl<'c> ClusterJob<'c> {
    fn start(cluster: &'c SlurmCluster, words: &[&str]) -> Self {
        let out = scratch::directory("requeued").join("out");
        Self::submit(cluster, align(&out), out, words)
    }

    fn submit(cluster: &'c SlurmCluster, align: GodwitCommand, out: PathBuf, words: &[&str]) -> Self {
        let run = align
            .args(["--on", "slurm", "--nodes", &HOSTS.to_string(), "--json", "--slurm-memory", "300M"])
            .args(words)
            .env("SLURM_CONF", cluster.slurm_conf())
            .spawn();
        Self { cluster, out, run }
    }

    fn wait_until_aligned(&self, blocks: usize) {
        wait_for_event(&self.out.join("slurm/logs/node-0.err"), "aligned", blocks, &self.run);
    }

    /// Waits until the log of the job's script contains `words`.
    fn wait_for_log(&self, words: &str) {
        let log = self.out.join("slurm/job.log");
        wait_until(words, || fs::read_to_string(&log).unwrap_or_default().contains(words));
    }

    fn id(&self) -> String {
        let handle = fs::read_to_string(self.out.join("slurm/handle.json")).expect("it was submitted");
        let handle: serde_json::Value = serde_json::from_str(&handle).expect("it is JSON");
        handle["id"].as_str().expect("a handle has one").to_owned()
    }

    /// Checks that the bytes are those of one process, that the job was started `starts` times, and that only what was in
    /// flight was aligned again.
    fn assert_ends_as(self, expected: &Path, starts: usize) {
        let finished = self.run.wait_with_output();
        let attempts = scratch::entry_names(&self.out.join("slurm/attempts")).len();
        let said = fs::read_to_string(self.out.join("slurm/logs/node-0.err")).expect("the head writes it");
        let aligned = said.matches("{\"event\":\"aligned\"").count() as u64;
        assert!(finished.status.success(), "{}\n{said}", finished.describe());
        let exchange = exchange_report(&self.out);
        println!("{attempts} starts: {exchange}");
        assert_same_from_slurm_job(expected, &self.out, &finished);
        assert_eq!(attempts, starts, "{}", finished.describe());
        let (blocks, kept) = (number_field(&exchange, "blocks"), number_field(&exchange, "kept_blocks"));
        assert_eq!(kept > 0, starts > 1, "{exchange}\n{said}");
        // A restart costs at most four blocks for each worker: three that it was aligning, and one that it was
        // reporting.
        assert!(aligned <= blocks + (starts as u64 - 1) * 4 * HOSTS, "{aligned} aligned: {exchange}");
        assert!(
            number_field(&exchange, "alignments") <= blocks - kept + number_field(&exchange, "stragglers"),
            "{exchange}"
        );
    }
}

pub(super) fn by_one_process() -> &'static Path {
    static OUT: OnceLock<PathBuf> = OnceLock::new();
    OUT.get_or_init(|| {
        let out = scratch::directory("one-process");
        align(&out).run_ok();
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
fn a_requeued_job_resumes_with_what_its_hosts_have_in_scratch() {
    needs_slurm!();
    let expected = by_one_process();
    let cluster = SlurmCluster::start(HOSTS as u32);
    // The simulated hosts have separate directories of this name.
    let temp = cluster.scratch().join("godwit");
    let job = ClusterJob::start(&cluster, &["--temp", temp.to_str().expect("it is UTF-8")]);
    job.wait_until_aligned(12);
    run_checked(job.cluster.command("scontrol").args(["requeue", &job.id()]));
    job.assert_ends_as(expected, 2);
}

#[test]
fn a_job_that_is_told_of_its_time_limit_goes_on_after_it() {
    needs_slurm!();
    let expected = by_one_process();
    let job = ClusterJob::start(slurm::shared_cluster(), &[]);
    job.wait_until_aligned(12);
    // Send the signal that SLURM sends with `--signal=B:TERM@SECONDS` before the time limit.
    run_checked(job.cluster.command("scancel").args(["--batch", "--signal=TERM", &job.id()]));
    job.wait_for_log("queueing again");
    job.assert_ends_as(expected, 2);
}

#[test]
fn a_job_whose_head_alone_is_killed_is_started_again() {
    needs_slurm!();
    let expected = by_one_process();
    let job = ClusterJob::start(slurm::shared_cluster(), &[]);
    job.wait_until_aligned(12);
    let out = job.out.to_str().expect("it is UTF-8");
    let heads = find_processes(&["align", "allocation", out], &["GODWIT_NODE=0"]);
    // Only the head has this command line; workers and srun have others.
    assert_eq!(heads.len(), 1, "{heads:?}");
    send_signal(heads[0], libc::SIGKILL);
    job.wait_for_log("queueing again");
    job.assert_ends_as(expected, 2);
}

#[test]
fn a_job_that_had_to_make_room_goes_on_after_the_other() {
    needs_slurm!();
    let cluster = SlurmCluster::start(HOSTS as u32);
    let expected = by_one_process();
    let job = ClusterJob::start(&cluster, &["--slurm-partition", "low", "--slurm-argument=--exclusive"]);
    job.wait_until_aligned(12);
    jobs::run_exclusively(&cluster, "high");
    job.assert_ends_as(expected, 2);
}

#[test]
fn a_restart_of_the_controller_does_not_touch_a_run() {
    needs_slurm!();
    let expected = by_one_process();
    let cluster = SlurmCluster::start(HOSTS as u32);
    let job = ClusterJob::start(&cluster, &[]);
    job.wait_until_aligned(1);
    cluster.wait_until_state_saved(&job.id());
    cluster.inject_fault("kill", "head");
    cluster.inject_fault("start", "head");
    job.assert_ends_as(expected, 1);
}

#[test]
fn a_head_on_another_machine_goes_on_from_what_the_first_one_wrote_down() {
    needs_slurm!();
    let cluster = SlurmCluster::start(HOSTS as u32);
    needs_host_namespaces!(cluster);
    let expected = by_one_process();
    // The scratch directory of the head's host is removed. The other host has second copies of all slices.
    let temp = cluster.scratch().join("godwit");
    let job = ClusterJob::start(&cluster, &["--temp", temp.to_str().expect("it is UTF-8")]);
    job.wait_until_aligned(40);
    cluster.inject_fault("kill", "gw1");
    cluster.clear_scratch("gw1");
    cluster.inject_fault("start", "gw1");
    job.assert_ends_as(expected, 2);
}

#[test]
fn power_loss_of_the_head_costs_only_what_was_in_flight() {
    needs_slurm!();
    let cluster = SlurmCluster::start(HOSTS as u32);
    needs_host_namespaces!(cluster);
    let expected = by_one_process();
    let job = ClusterJob::start(&cluster, &[]);
    job.wait_until_aligned(12);
    cluster.inject_fault("kill", "gw1");
    cluster.inject_fault("start", "gw1");
    job.assert_ends_as(expected, 2);
}

/// Starts the head of a job, as the SLURM script does on the first host.
fn start_head(out: &Path, job_directory: &Path, attempt: u64) -> GodwitProcess {
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
        .spawn()
}

#[test]
fn a_head_that_was_thought_dead_gives_way_to_the_next_start_of_its_job() {
    needs!("bwa");
    let expected = by_one_process();
    let directory = scratch::directory("twins");
    let (out, jobs) = (directory.join("out"), directory.join("job"));
    let said = |attempt: u64| out.with_extension(format!("said-{attempt}"));
    let first = start_head(&out, &jobs, 0);
    // The first head stays stopped while its files are open, and continues after its job was started on another host.
    assert!(stop_at_event(&said(0), "aligned", 12, &first), "the job was over");
    let second = start_head(&out, &jobs, 1);
    let waits = || fs::read_to_string(said(1)).unwrap_or_default().contains("an earlier attempt of this job");
    wait_until("the second head to wait for the first", waits);
    send_signal(first.process_id(), libc::SIGCONT);
    let (first, second) = (first.wait_with_output(), second.wait_with_output());
    let told = [0, 1].map(|attempt| fs::read_to_string(said(attempt)).unwrap_or_default());
    assert!(!first.status.success() && told[0].contains("attempt 1"), "{}", told[0]);
    assert!(second.status.success(), "{}", told[1]);
    assert_same(expected, &out, &second);
    assert!(number_field(&exchange_report(&out), "kept_blocks") >= 12, "{}", exchange_report(&out));
}

#[test]
fn standard_input_is_kept_for_a_job_and_for_its_next_start() {
    needs_slurm!();
    let sample = sample();
    let reads = &sample.lanes[0].reads[0];
    let one = scratch::directory("stdin-one");
    align_stdin(&one, reads).run_ok();
    let out = scratch::directory("stdin-slurm").join("out");
    let job = ClusterJob::submit(slurm::shared_cluster(), align_stdin(&out, reads), out, &[]);
    job.wait_until_aligned(6);
    run_checked(job.cluster.command("scontrol").args(["requeue", &job.id()]));
    let ClusterJob { out, run, .. } = job;
    let finished = run.wait_with_output();
    assert!(finished.status.success(), "{}", finished.describe());
    assert_eq!(scratch::entry_names(&out.join("slurm/attempts")).len(), 2, "{}", finished.describe());
    assert!(number_field(&exchange_report(&out), "kept_blocks") > 0);
    for name in ["sample.bam", "sample.bam.bai", "sample.duplicates.txt"] {
        assert!(fs::read(one.join(name)).ok() == fs::read(out.join(name)).ok(), "{name}");
    }
    assert!(!out.join("slurm/standard-input").exists(), "it is not needed any more");
}

#[test]
fn a_run_over_ssh_resumes_with_what_its_hosts_have_after_its_head_is_killed() {
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
    let first = run().stderr(fs::File::create(&said).expect("a file can be made")).spawn();
    stop_at_event(&said, "aligned", 20, &first);
    send_signal(first.process_id(), libc::SIGKILL);
    first.wait_with_output();
    // Workers of the first head may still run for a short time. The workers of the second head wait until these have
    // released their locks.
    let second = run().arg("--resume").run();
    assert_same(expected, &out, &second);
    assert!(number_field(&exchange_report(&out), "kept_blocks") >= 19, "{}", exchange_report(&out));
    assert_eq!(scratch::entry_names(&temp), Vec::<String>::new());
}
