//! `godwit run --on slurm`: what becomes of the jobs of samples when they or `godwit run` are stopped.

use std::fs;
use std::path::{Path, PathBuf};

use godwit_fleet::JobHandle;
use godwit_tests::binary::GodwitCommand;
use godwit_tests::processes::{send_signal, wait_until_exited};
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::tool::run_checked;
use godwit_tests::wait::{wait_for, wait_until};
use godwit_tests::{needs, needs_slurm, scratch};

use super::cohort_runs::{report, run_samples, samples, write_sheet};

const EXIT_USAGE: i32 = 2;
const EXIT_INTERRUPTED: i32 = 130;

/// Two samples, whose jobs run until a file exists and then do their work.
struct GatedCohort {
    cluster: &'static SlurmCluster,
    sheet: PathBuf,
    out: PathBuf,
    gate: PathBuf,
}

impl GatedCohort {
    fn new(label: &str) -> Self {
        let directory = scratch::directory(label);
        let sheet = write_sheet(&directory, 2);
        Self { cluster: slurm::shared_cluster(), sheet, out: directory.join("out"), gate: directory.join("gate") }
    }

    fn command(&self) -> GodwitCommand {
        let wait = format!("until [ -e '{}' ]; do sleep 0.1; done", self.gate.display());
        let run = run_samples(&self.sheet, &self.out).args(["--on", "slurm", "--nodes", "2", "--slurm-memory", "300M"]);
        run.args(["--slurm-setup", &wait]).env("SLURM_CONF", self.cluster.slurm_conf())
    }

    fn open_gate(&self) {
        fs::write(&self.gate, "").expect("it can be written");
    }

    fn job_directory(&self, sample: &str) -> PathBuf {
        self.out.join(".godwit-run").join(sample)
    }

    /// Waits until the job of a sample has started, and returns its number.
    fn wait_for_job(&self, sample: &str) -> String {
        let directory = self.job_directory(sample);
        let id = wait_for("the job of a sample", || JobHandle::load(&directory).ok()).id;
        let has_started = |attempt: &Path| fs::read_to_string(attempt.join("job")).is_ok_and(|job| job.trim() == id);
        wait_until("the start of the job", || {
            scratch::entry_names(&directory.join("attempts"))
                .iter()
                .any(|name| has_started(&directory.join("attempts").join(name)))
        });
        id
    }

    fn wait_until_cancelled(&self, job: &str) {
        wait_until("the end of the job", || self.cluster.show_job(job).contains("JobState=CANCELLED"));
    }
}

#[test]
fn an_interrupted_run_cancels_its_jobs_and_names_them() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let cohort = GatedCohort::new("slurm-interrupted");
    let run = cohort.command().spawn();
    let jobs = ["s0", "s1"].map(|sample| cohort.wait_for_job(sample));
    send_signal(run.process_id(), libc::SIGTERM);
    let cancelled = format!("cancelled jobs {}, {} of SLURM", jobs[0], jobs[1]);
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &[&cancelled, "--resume"]);
    // SLURM may still be ending the jobs.
    cohort.open_gate();
    cohort.command().arg("--resume").run_ok();
    jobs.iter().for_each(|job| cohort.wait_until_cancelled(job));
    assert!(samples(&report(&cohort.out)).iter().all(|sample| sample["error"].is_null()));
}

#[test]
fn a_resumed_run_waits_for_the_jobs_that_a_killed_run_has_left() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let cohort = GatedCohort::new("slurm-adopted");
    let run = cohort.command().spawn();
    let jobs = ["s0", "s1"].map(|sample| cohort.wait_for_job(sample));
    send_signal(run.process_id(), libc::SIGKILL);
    wait_until_exited(&[run.process_id()]);
    // The run has no --resume, so it neither adopts the jobs nor starts second ones.
    let refused = cohort.command().run();
    let cancel = format!("scancel {}", jobs[0]);
    refused.assert_rejected(&[EXIT_USAGE], &["2 of 2 samples failed", &cancel, "--resume"]);
    let stderr = cohort.out.with_extension("stderr");
    let file = fs::File::create(&stderr).expect("a file can be made");
    let run = cohort.command().arg("--resume").stderr(file).spawn();
    let said = || fs::read_to_string(&stderr).unwrap_or_default();
    wait_until("both jobs to be adopted", || {
        jobs.iter().all(|job| said().contains(&format!("job {job} of an earlier command")))
    });
    cohort.open_gate();
    let done = run.wait_with_output();
    assert!(done.status.success(), "{}", said());
    for (sample, job) in ["s0", "s1"].into_iter().zip(&jobs) {
        let directory = cohort.job_directory(sample);
        assert_eq!(JobHandle::load(&directory).expect("it is there").id, *job, "{}", said());
        assert_eq!(scratch::entry_names(&directory.join("attempts")), ["0"], "{}", said());
    }
    assert!(samples(&report(&cohort.out)).iter().all(|sample| sample["error"].is_null()));
}

#[test]
fn a_sample_whose_job_the_user_cancels_is_not_retried() {
    needs!("bcftools", "bgzip");
    needs_slurm!();
    let cohort = GatedCohort::new("slurm-cancelled");
    let run = cohort.command().spawn();
    let jobs = ["s0", "s1"].map(|sample| cohort.wait_for_job(sample));
    run_checked(cohort.cluster.command("scancel").arg(&jobs[0]));
    cohort.wait_until_cancelled(&jobs[0]);
    cohort.open_gate();
    let cancelled = format!("job {} was cancelled", jobs[0]);
    let told = ["1 of 2 samples failed", "s0", &cancelled, "--resume"];
    run.wait_with_output().assert_rejected(&[EXIT_INTERRUPTED], &told);
    let told = report(&cohort.out);
    let starts: Vec<_> = samples(&told).iter().map(|sample| sample["tries"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(starts, [1, 0], "{told}");
    assert_eq!(scratch::entry_names(&cohort.job_directory("s0").join("attempts")), ["0"], "{told}");
    assert!(samples(&told)[1]["error"].is_null(), "{told}");
    cohort.command().arg("--resume").run_ok();
    assert!(samples(&report(&cohort.out)).iter().all(|sample| sample["error"].is_null()));
}
