//! Jobs on a real SLURM cluster: the states that the launcher reports are those of the jobs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use godwit_fleet::launcher::{SlurmLauncher, SlurmProfile};
use godwit_fleet::{FleetError, JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
use godwit_tests::slurm::{self, SlurmCluster};
use godwit_tests::tool::run_checked;
use godwit_tests::wait::{WAIT_TIMEOUT, wait_for, wait_until};
use godwit_tests::{needs_host_namespaces, scratch};
use parking_lot::Mutex;

/// A script that waits until the file `go` exists in the working directory.
const WAIT_FOR_GO_FILE: &str = "until [ -e go ]; do sleep 0.05; done";

macro_rules! needs_slurm {
    () => {
        godwit_tests::needs_slurm!();
        // Start all slow jobs with the first test that runs. The tests that check their results come last in the order
        // of names.
        for slow in [&TIME_LIMIT, &PREEMPTED, &HEADLESS, &FORGOTTEN] {
            LazyLock::force(slow);
        }
    };
}

/// A job's directory, its cluster and its launcher.
struct SlurmJobFixture<'a> {
    cluster: &'a SlurmCluster,
    launcher: SlurmLauncher,
    directory: PathBuf,
}

impl SlurmJobFixture<'static> {
    fn new(label: &str) -> Self {
        Self::on_cluster(slurm::shared_cluster(), label, SlurmProfile::default())
    }
}

impl<'a> SlurmJobFixture<'a> {
    fn on_cluster(cluster: &'a SlurmCluster, label: &str, profile: SlurmProfile) -> Self {
        let profile = SlurmProfile { configuration: Some(cluster.slurm_conf()), ..profile };
        SlurmJobFixture { cluster, launcher: SlurmLauncher::new(profile), directory: scratch::directory(label) }
    }

    fn job_spec(&self, script: &str, workers: u32) -> JobSpec {
        JobSpec {
            name: "godwit-test".into(),
            command: ["bash", "-c", script].map(Into::into).into(),
            workers,
            cpus_per_worker: 1,
            memory_bytes_per_worker: Some(50 << 20),
            time_limit: None,
            working_directory: self.directory.clone(),
            environment: Vec::new(),
            job_directory: self.directory.join("job"),
        }
    }

    fn release_job(&self) {
        fs::write(self.directory.join("go"), "").expect("the directory can be written to");
    }

    fn status(&self, handle: &JobHandle) -> JobStatus {
        self.launcher.status(handle).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until the launcher reports a status that the test accepts, and returns this status.
    fn wait_for_status(&self, handle: &JobHandle, what: &str, is_it: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let status = self.status(handle);
            if is_it(&status) {
                return status;
            }
            let log = || fs::read_to_string(self.directory.join("job/job.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "not {what}, but {status:?}; the script said:\n{}", log());
            std::thread::sleep(Duration::from_millis(150));
        }
    }

    fn wait_until_running(&self, handle: &JobHandle) -> Vec<String> {
        match self.wait_for_status(handle, "running", |status| matches!(status, JobStatus::Running { .. })) {
            JobStatus::Running { workers, is_batch_host_lost: false, .. } => workers,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for_end(&self, handle: &JobHandle) -> JobOutcome {
        match self.wait_for_status(handle, "ended", |status| matches!(status, JobStatus::Ended { .. })) {
            JobStatus::Ended { outcome } => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn wait_for_file(&self, name: &str) {
        wait_until(name, || self.directory.join(name).exists());
    }
}

fn submit(bench: &SlurmJobFixture<'_>, job: &JobSpec) -> JobHandle {
    bench.launcher.submit(job).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the output of the workers' commands, in the order of the hosts.
fn outputs(job: &JobSpec) -> Vec<String> {
    let read = |node| fs::read_to_string(job.stdout_path(node)).expect("a node's log can be read");
    (0..job.workers).map(read).collect()
}

fn file_mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

#[test]
fn a_job_waits_runs_and_ends_and_slurm_was_told_what_was_shown() {
    needs_slurm!();
    let profile = SlurmProfile {
        account: Some("lab".into()),
        qos: Some("fast".into()),
        extra_arguments: vec!["--hold".into(), "--comment=it's 100% \"odd\" #1".into()],
        setup: vec!["SET_UP=yes".into(), "export SET_UP".into()],
        ..SlurmProfile::default()
    };
    let mut bench = SlurmJobFixture::on_cluster(slurm::shared_cluster(), "slurm", profile);
    // Use a path with all characters that need quoting in a shell or in sbatch.
    bench.directory = bench.directory.join("it's 50% \"odd\" #1 $HOME");
    fs::create_dir(&bench.directory).expect("it can be made");
    let script = format!(
        "{WAIT_FOR_GO_FILE}; pwd; echo $GODWIT_NODE/$GODWIT_NODES $GODWIT_ATTEMPT \"$SET_UP $ODD\"; cat; hostname"
    );
    let mut job = bench.job_spec(&script, 4);
    job.environment = vec![("ODD".into(), "it's\n$x".into())];
    let shown = bench.launcher.render_script(&job).expect("it can be shown");
    assert!(!job.job_directory.exists(), "showing changes nothing");

    let handle = submit(&bench, &job);
    assert_eq!(JobHandle::load(&job.job_directory).expect("it is there"), handle);
    let submitted = run_checked(bench.cluster.command("scontrol").args(["write", "batch_script", &handle.id, "-"]));
    assert_eq!(String::from_utf8_lossy(&submitted.stdout).trim_end(), shown.trim_end());
    let JobStatus::Pending { reason } = bench.status(&handle) else { panic!("it is held") };
    assert_eq!(reason, "JobHeldUser");
    let told = bench.cluster.show_job(&handle.id);
    for word in
        ["Account=lab", "Comment=it's 100% \"odd\" #1", "Requeue=1", "NumNodes=4", "mem=200M", "JobName=godwit-test"]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(shown.contains("#SBATCH --qos=fast\n") && shown.contains(godwit_fleet::VERSION), "{shown}");

    run_checked(bench.cluster.command("scontrol").args(["release", &handle.id]));
    assert_eq!(bench.wait_until_running(&handle), ["gw1", "gw2", "gw3", "gw4"]);
    bench.release_job();
    assert_eq!(bench.wait_for_end(&handle), JobOutcome::Succeeded);
    for (node, text) in outputs(&job).iter().enumerate() {
        let expected = format!("{}\n{node}/4 0 yes it's\n$x\n", bench.directory.display());
        let host = text.strip_prefix(&expected).unwrap_or_else(|| panic!("{text:?} is not {expected:?}"));
        assert!(!bench.cluster.has_host_namespaces() || host == format!("gw{}\n", node + 1), "{host}");
    }
    assert_eq!(file_mode(&job.job_directory), 0o700);
    for file in ["script.sh", "handle.json", "job.log", "logs/node-3.out", "logs/node-0.err"] {
        assert_eq!(file_mode(&job.job_directory.join(file)), 0o600, "{file}");
    }
    bench.launcher.cancel(&handle).expect("one that has ended may be cancelled");
    assert_eq!(bench.wait_for_end(&handle), JobOutcome::Succeeded);
}

#[test]
fn a_cancelled_job_is_told_to_end_and_not_queued_again() {
    needs_slurm!();
    let bench = SlurmJobFixture::new("slurm-cancel");
    let script = "trap 'echo told; exit 3' TERM; touch started.$GODWIT_NODE; while :; do sleep 0.1; done";
    let job = bench.job_spec(script, 2);
    let handle = submit(&bench, &job);
    bench.wait_for_file("started.0");
    bench.wait_for_file("started.1");
    bench.launcher.cancel(&handle).expect("it can be cancelled");
    assert_eq!(bench.wait_for_end(&handle), JobOutcome::Cancelled);
    assert_eq!(outputs(&job), ["told\n", "told\n"]);
    // A job that was requeued instead of cancelled would be pending.
    let told = bench.cluster.show_job(&handle.id);
    assert!(told.contains("JobState=CANCELLED") && told.contains("Restarts=0"), "{told}");
    assert_eq!(scratch::entry_names(&job.job_directory.join("attempts")), ["0"]);
}

#[test]
fn a_job_that_is_queued_again_is_a_later_attempt() {
    needs_slurm!();
    let bench = SlurmJobFixture::new("slurm-requeue");
    let script = "echo $GODWIT_ATTEMPT; [ $GODWIT_ATTEMPT -gt 0 ] || { touch started; sleep 1000; }";
    let job = bench.job_spec(script, 2);
    let handle = submit(&bench, &job);
    bench.wait_for_file("started");
    bench.launcher.requeue(&handle).expect("it can be queued again");
    let JobStatus::Pending { .. } =
        bench.wait_for_status(&handle, "pending", |status| matches!(status, JobStatus::Pending { .. }))
    else {
        unreachable!("that was waited for")
    };
    assert_eq!(bench.wait_for_end(&handle), JobOutcome::Succeeded);
    assert_eq!(outputs(&job)[0], "0\n1\n");
}

#[test]
fn a_job_that_is_submitted_twice_has_two_attempts_of_different_numbers() {
    needs_slurm!();
    let bench = SlurmJobFixture::new("slurm-twin");
    let job = bench.job_spec(&format!("echo $GODWIT_ATTEMPT; {WAIT_FOR_GO_FILE}; [ $GODWIT_ATTEMPT = 1 ]"), 1);
    let handles = [submit(&bench, &job), submit(&bench, &job)];
    // The second attempt has the higher number. Wait for the content of its file, because the file is empty at first.
    let path = job.job_directory.join("attempts/1/job");
    let second = wait_for("the second attempt", || fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n')));
    bench.release_job();
    for handle in &handles {
        let succeeded = bench.wait_for_end(handle) == JobOutcome::Succeeded;
        assert_eq!(succeeded, handle.id == second.trim(), "{handle:?}");
    }
}

#[test]
fn a_worker_that_fails_fails_the_job_when_the_others_are_done() {
    needs_slurm!();
    let bench = SlurmJobFixture::new("slurm-failure");
    let job = bench.job_spec(&format!("[ $GODWIT_NODE != 1 ] || exit 7; {WAIT_FOR_GO_FILE}; echo done"), 3);
    let handle = submit(&bench, &job);
    bench.wait_until_running(&handle);
    bench.release_job();
    let JobOutcome::Failed { description, exit_code } = bench.wait_for_end(&handle) else { panic!("it failed") };
    assert_eq!(exit_code, Some(7), "{description}");
    assert_eq!(outputs(&job), ["done\n", "", "done\n"]);
}

#[test]
fn setup_that_ends_the_script_is_no_success_and_what_slurm_refuses_is_told() {
    needs_slurm!();
    let site = |profile| SlurmJobFixture::on_cluster(slurm::shared_cluster(), "slurm-site", profile);
    let bench = site(SlurmProfile { setup: vec!["exit 0".into()], ..SlurmProfile::default() });
    let handle = submit(&bench, &bench.job_spec("true", 1));
    let JobOutcome::Failed { description, .. } = bench.wait_for_end(&handle) else { panic!("it did nothing") };
    assert!(description.contains("before the workers were started"), "{description}");

    let bench = site(SlurmProfile { partition: Some("nowhere".into()), ..SlurmProfile::default() });
    let error = bench.launcher.submit(&bench.job_spec("true", 1)).expect_err("there is no such partition");
    assert!(matches!(error, FleetError::CommandRejected { .. }), "{error}");
    assert!(error.to_string().contains("invalid partition specified: nowhere"), "{error}");

    // A job with the same number but another owner must not be cancelled.
    let bench = site(SlurmProfile::default());
    let theirs = submit(&bench, &bench.job_spec(WAIT_FOR_GO_FILE, 1));
    let ours = JobHandle { directory: scratch::directory("slurm-other"), ..theirs.clone() };
    assert!(matches!(bench.status(&ours), JobStatus::Unknown { .. }));
    bench.launcher.cancel(&ours).expect("there is nothing to cancel");
    assert!(matches!(bench.launcher.requeue(&ours), Err(FleetError::ForeignJob { .. })));
    bench.release_job();
    assert_eq!(bench.wait_for_end(&theirs), JobOutcome::Succeeded);
}

/// SLURM checks time limits every 30 s, so this test takes as long.
static TIME_LIMIT: LazyLock<BackgroundTest> = LazyLock::new(|| {
    BackgroundTest::start(|| {
        // Replace squeue by a function that fails at its first call, like a controller that does not respond.
        let silent = r#"squeue() { if [ -e "$mark/asked" ]; then command squeue "$@"; else touch "$mark/asked"; return 1; fi; }"#;
        let profile = SlurmProfile { stop_before_limit_s: 60, setup: vec![silent.into()], ..SlurmProfile::default() };
        let bench = SlurmJobFixture::on_cluster(slurm::shared_cluster(), "slurm-limit", profile);
        let script = "echo $GODWIT_ATTEMPT; [ $GODWIT_ATTEMPT = 0 ] || exit 0; trap 'echo kept; exit 130' TERM; \
                      while :; do sleep 0.1; done";
        let mut job = bench.job_spec(script, 2);
        job.time_limit = Some(Duration::from_secs(60));
        let handle = submit(&bench, &job);
        assert_eq!(bench.wait_for_end(&handle), JobOutcome::Succeeded);
        // SLURM may send the signal up to a minute early: before the worker has a handler for it, or before the worker
        // has started.
        let expected = ["0\nkept\n1\n", "0\n1\n", "1\n"];
        let found = outputs(&job);
        assert!(found.iter().all(|output| expected.contains(&output.as_str())), "{found:?}");
        let log = fs::read_to_string(job.job_directory.join("job.log")).expect("the script's log can be read");
        let again = |line: &str| line.contains("attempt 0 stopped with status 1") && line.ends_with("queueing again");
        assert!(log.lines().any(again), "{log}");
    })
});

#[test]
fn when_its_time_is_nearly_over_a_job_keeps_what_it_has_and_goes_on_later() {
    needs_slurm!();
    TIME_LIMIT.finish();
}

/// Slow tests with separate clusters, because they change the state of jobs, hosts and controllers.
static PREEMPTED: LazyLock<BackgroundTest> =
    LazyLock::new(|| BackgroundTest::start(|| check_preempted_job_is_requeued(&SlurmCluster::start(1))));
static HEADLESS: LazyLock<BackgroundTest> =
    LazyLock::new(|| BackgroundTest::start(|| check_headless_job_is_requeued(&SlurmCluster::start(2))));
static FORGOTTEN: LazyLock<BackgroundTest> =
    LazyLock::new(|| BackgroundTest::start(|| check_forgotten_job_is_unknown(&SlurmCluster::start(1))));

#[test]
fn when_it_has_to_make_room_a_job_keeps_what_it_has_and_goes_on_later() {
    needs_slurm!();
    PREEMPTED.finish();
}

#[test]
fn when_the_batch_host_dies_the_job_is_headless_and_can_be_requeued() {
    needs_slurm!();
    HEADLESS.finish();
}

#[test]
fn when_slurm_forgets_a_job_it_is_unknown_and_no_success() {
    needs_slurm!();
    FORGOTTEN.finish();
}

/// Returns the profile of a job that requests its hosts exclusively.
fn exclusive_profile(partition: &str) -> SlurmProfile {
    SlurmProfile {
        partition: Some(partition.into()),
        extra_arguments: vec!["--exclusive".into()],
        ..SlurmProfile::default()
    }
}

/// Runs a job that does nothing, with exclusive use of a host.
pub(super) fn run_exclusively(cluster: &SlurmCluster, partition: &str) {
    let bench = SlurmJobFixture::on_cluster(cluster, "slurm-high", exclusive_profile(partition));
    let job = submit(&bench, &bench.job_spec("true", 1));
    assert_eq!(bench.wait_for_end(&job), JobOutcome::Succeeded);
}

fn check_preempted_job_is_requeued(cluster: &SlurmCluster) {
    let low = SlurmJobFixture::on_cluster(cluster, "slurm-low", exclusive_profile("low"));
    let script = "echo $GODWIT_ATTEMPT; [ $GODWIT_ATTEMPT = 0 ] || exit 0; trap 'echo kept; exit 130' TERM; \
                  touch started; while :; do sleep 0.1; done";
    let job = low.job_spec(script, 1);
    let handle = submit(&low, &job);
    low.wait_for_file("started");
    run_exclusively(cluster, "high");
    assert_eq!(low.wait_for_end(&handle), JobOutcome::Succeeded);
    assert_eq!(outputs(&job), ["0\nkept\n1\n"]);
}

/// Checks a job whose script's host loses power. Where hosts are only processes, the processes of the job would continue.
fn check_headless_job_is_requeued(cluster: &SlurmCluster) {
    needs_host_namespaces!(cluster);
    let bench = SlurmJobFixture::on_cluster(cluster, "slurm-headless", SlurmProfile::default());
    let job = bench.job_spec(&format!("touch started.$GODWIT_NODE; {WAIT_FOR_GO_FILE}; echo $GODWIT_ATTEMPT"), 2);
    let handle = submit(&bench, &job);
    bench.wait_for_file("started.0");
    bench.wait_for_file("started.1");
    assert_eq!(bench.wait_until_running(&handle), ["gw1", "gw2"]);
    cluster.inject_fault("kill", "gw1");
    let is_headless = |status: &JobStatus| matches!(status, JobStatus::Running { is_batch_host_lost: true, .. });
    let status = bench.wait_for_status(&handle, "headless", is_headless);
    assert_eq!(
        status,
        JobStatus::Running {
            workers: vec!["gw2".into()],
            indexes: None,
            is_batch_host_lost: true,
            is_completing: false
        }
    );
    cluster.inject_fault("start", "gw1");
    bench.launcher.requeue(&handle).expect("it can be queued again");
    bench.wait_for_file("job/attempts/1/job");
    bench.release_job();
    assert_eq!(bench.wait_for_end(&handle), JobOutcome::Succeeded);
    assert!(outputs(&job).iter().all(|text| text.ends_with("1\n")), "{:?}", outputs(&job));
}

/// Checks a job that the controller has forgotten after its death, as when it dies within five seconds of `sbatch`.
fn check_forgotten_job_is_unknown(cluster: &SlurmCluster) {
    let bench = SlurmJobFixture::on_cluster(cluster, "slurm-forgotten", SlurmProfile::default());
    let job = bench.job_spec(WAIT_FOR_GO_FILE, 1);
    let handle = submit(&bench, &job);
    cluster.inject_fault("kill", "head");
    let error = bench.launcher.status(&handle).expect_err("the controller does not respond");
    assert!(matches!(error, FleetError::SchedulerUnavailable { .. }), "{error}");
    cluster.delete_job_state();
    cluster.inject_fault("start", "head");
    let status = wait_for("the controller's answer", || match bench.launcher.status(&handle) {
        Ok(status) => Some(status),
        Err(FleetError::SchedulerUnavailable { .. }) => None,
        Err(error) => panic!("{error}"),
    });
    assert!(matches!(status, JobStatus::Unknown { .. }), "{status:?}");
    bench.launcher.cancel(&handle).expect("there is nothing to cancel");
}

/// A slow test that runs on its own thread.
struct BackgroundTest(Mutex<Option<JoinHandle<()>>>);

impl BackgroundTest {
    fn start(run: impl FnOnce() + Send + 'static) -> Self {
        Self(Mutex::new(Some(std::thread::spawn(run))))
    }

    fn finish(&self) {
        let thread = self.0.lock().take().expect("one test asks once");
        if let Err(panic) = thread.join() {
            // Repeat the panic message: the test harness has captured it for the test that started the thread, and
            // shows it only if that test fails.
            let said = panic.downcast_ref::<String>().map(String::as_str);
            panic!("{}", said.or_else(|| panic.downcast_ref().copied()).unwrap_or("it panicked"));
        }
    }
}
