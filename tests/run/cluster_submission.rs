//! `--on slurm` before and after the submission of a job: inputs and options are checked first, and a job whose head
//! fails ends on all of its hosts.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_fleet::JobHandle;
use godwit_tests::binary::{GodwitCommand, godwit};
use godwit_tests::processes::send_signal;
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::tool::run_checked;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, needs_slurm, scratch};

use super::cluster::sample;

const EXIT_USAGE: i32 = 2;
const EXIT_INPUT: i32 = 3;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;
const EXIT_INTERRUPTED: i32 = 130;

/// Returns an alignment of `reads` in a job of the shared cluster; its number of hosts is missing.
fn align_as_job(reference: &Path, reads: &Path, out: &Path) -> GodwitCommand {
    align_on_cluster(slurm::shared_cluster(), reference, reads, out)
}

fn align_on_cluster(cluster: &SlurmCluster, reference: &Path, reads: &Path, out: &Path) -> GodwitCommand {
    let align = godwit().arg("align").arg("--reference").arg(reference).arg("--reads").arg(reads);
    let align = align.args(["--sample", "s", "--threads", "1", "--metrics", "off", "--out"]).arg(out);
    let align = align.args(["--on", "slurm", "--slurm-memory", "300M"]);
    align.env("SLURM_CONF", cluster.slurm_conf())
}

fn write_reads(directory: &Path) -> PathBuf {
    let path = directory.join("reads.fq");
    fs::write(&path, "@a\nACGT\n+\nIIII\n").expect("a file can be written");
    path
}

#[test]
fn wrong_inputs_are_refused_before_a_job_is_submitted() {
    needs!("bwa");
    needs_slurm!();
    let directory = scratch::directory("submission");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let reference = sample.godwit_indexed_reference();
    let [none, bare, damaged] = ["none.fq", "bare.fa", "damaged.fq"].map(|name| directory.join(name));
    fs::copy(reference, &bare).expect("it can be copied");
    fs::write(&damaged, "@a\nACGT\n+\nIII\n").expect("a file can be written");
    for (reference, reads, code, told) in [
        (reference, &*none, EXIT_MACHINE, "none.fq"),
        (&*none, &*reads, EXIT_MACHINE, "none.fq"),
        (&*bare, &*reads, EXIT_MACHINE, "godwit index"),
        (reference, &*damaged, EXIT_INPUT, "damaged.fq"),
        (reference, reference, EXIT_USAGE, "same file"),
    ] {
        for words in [&["--dry-run"][..], &[]] {
            align_as_job(reference, reads, &out)
                .args(["--nodes", "2"])
                .args(words)
                .run()
                .assert_rejected(&[code], &[told]);
            assert!(!out.exists(), "nothing is submitted");
        }
    }
    let call = godwit().arg("call").arg("--reference").arg(reference).arg("--reads").arg(directory.join("none.bam"));
    let call = call.arg("--out").arg(out.join("a.vcf.gz")).args(["--on", "slurm", "--nodes", "2"]);
    let call = call.env("SLURM_CONF", slurm::shared_cluster().slurm_conf());
    call.run().assert_rejected(&[EXIT_MACHINE], &["none.bam"]);
    assert!(!out.exists(), "nothing is submitted");
}

#[test]
fn a_dry_run_asks_slurm_about_its_options() {
    needs!("bwa");
    needs_slurm!();
    let directory = scratch::directory("submission-dry");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let dry_run = |nodes: &str| {
        align_as_job(sample.godwit_indexed_reference(), &reads, &out).args(["--dry-run", "--nodes", nodes])
    };
    let shown = dry_run("2").run_ok();
    assert!(shown.stdout.contains("#SBATCH --nodes=2\n") && shown.stdout.contains("--on allocation"), "{shown:?}");
    assert!(!shown.stderr.contains("did not check"), "{shown:?}");
    dry_run("2").args(["--slurm-partition", "nowhere"]).run().assert_rejected(&[EXIT_MACHINE], &["nowhere"]);
    dry_run("4000").run().assert_rejected(&[EXIT_MACHINE], &["sbatch --test-only"]);
    assert!(!out.exists(), "nothing is submitted");
}

#[test]
fn workers_end_when_the_head_of_their_job_has_failed() {
    needs!("bwa");
    needs_slurm!();
    let directory = scratch::directory("submission-failed");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let setup = format!("rm '{}'", reads.display());
    let run = align_as_job(sample.godwit_indexed_reference(), &reads, &out).args(["--nodes", "2"]);
    let run = run.args(["--slurm-setup", &setup]).run();
    run.assert_rejected(&[EXIT_MACHINE], &["reads.fq"]);
    // The worker ends because of the head, and not because it has waited for ten minutes.
    let worker = fs::read_to_string(out.join("slurm/logs/node-1.err")).expect("the worker has a log");
    assert_eq!(worker, "", "{}", run.describe());
    let head_mark = out.join("slurm/attempts/0/head-ended");
    assert!(head_mark.exists(), "{}", run.describe());
}

#[test]
fn a_resumed_run_waits_for_its_job_that_has_not_ended() {
    needs!("bwa");
    needs_slurm!();
    let directory = scratch::directory("submission-adopted");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let align = || align_as_job(sample.godwit_indexed_reference(), &reads, &out).args(["--nodes", "1"]);
    align().args(["--no-wait", "--slurm-argument=--hold"]).run_ok();
    let job = || JobHandle::load(&out.join("slurm")).expect("it was submitted").id;
    let id = job();
    align().run().assert_rejected(&[EXIT_USAGE], &[&format!("scancel {id}"), "--resume"]);
    let found = align().args(["--resume", "--no-wait"]).run_ok();
    assert!(found.stderr.contains(&format!("job {id} of an earlier command has not ended")), "{}", found.describe());
    let stderr = directory.join("stderr");
    let run = align().arg("--resume").stderr(fs::File::create(&stderr).expect("a file can be made")).spawn();
    let said = || fs::read_to_string(&stderr).unwrap_or_default();
    wait_until("the job to be adopted", || said().contains(&format!("job {id} is pending (JobHeldUser)")));
    run_checked(slurm::shared_cluster().command("scontrol").args(["release", &id]));
    assert!(run.wait_with_output().status.success(), "{}", said());
    assert!(out.join("s.bam").exists() && job() == id, "{}", said());
    assert_eq!(scratch::entry_names(&out.join("slurm/attempts")), ["0"], "{}", said());
    // The job has ended, so the same command submits another one.
    align().arg("--resume").run_ok();
    assert_ne!(job(), id);
}

#[test]
fn a_run_that_is_resumed_while_its_cancelled_job_ends_submits_another_job() {
    needs!("bwa");
    needs_slurm!();
    let directory = scratch::directory("submission-cancelled");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let align = || align_as_job(sample.godwit_indexed_reference(), &reads, &out).args(["--nodes", "1"]);
    // The script ignores the signal for some seconds, in which SLURM is ending the job.
    let setup = format!("trap '' TERM; touch '{0}/running'; for i in 1 2 3; do sleep 1; done", directory.display());
    let run = align().args(["--slurm-setup", &setup]).spawn();
    wait_until("the job to run", || directory.join("running").exists());
    send_signal(run.process_id(), libc::SIGTERM);
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &["cancelled job", "--resume"]);
    let cancelled = JobHandle::load(&out.join("slurm")).expect("it was submitted").id;
    align().arg("--resume").run_ok();
    assert_ne!(JobHandle::load(&out.join("slurm")).expect("it was submitted").id, cancelled);
    assert!(out.join("s.bam").exists());
}

#[test]
fn a_job_that_slurm_has_forgotten_is_reported_with_its_state_and_log() {
    needs!("bwa");
    needs_slurm!();
    let cluster = SlurmCluster::start(1);
    let directory = scratch::directory("submission-forgotten");
    let (sample, reads, out) = (sample(), write_reads(&directory), directory.join("out"));
    let run = align_on_cluster(&cluster, sample.godwit_indexed_reference(), &reads, &out);
    let stderr = directory.join("stderr");
    let file = fs::File::create(&stderr).expect("a file can be made");
    let run = run.args(["--slurm-setup", "sleep 1000"]).stderr(file).spawn();
    let said = || fs::read_to_string(&stderr).unwrap_or_default();
    wait_until("the job to run", || said().contains("is running on "));
    let id = JobHandle::load(&out.join("slurm")).expect("it was submitted").id;
    cluster.inject_fault("kill", "head");
    cluster.delete_job_state();
    cluster.inject_fault("start", "head");
    let run = run.wait_with_output();
    let (said, lost) = (said(), format!("job {id} is lost: SLURM does not list the job"));
    assert_eq!(run.status.code(), Some(EXIT_REMOTE), "{said}");
    let last = said.trim_end().lines().last().unwrap_or_default();
    for words in ["godwit: error: ", &lost, "its last known state is running on ", "out/slurm/job.log", "--resume"] {
        assert!(last.contains(words), "{words}: {said}");
    }
    assert!(said.contains("has an unknown state: SLURM does not list") && !said.contains("(None)"), "{said}");
}
