use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use godwit_tests::processes::{is_running, wait_until_exited};
use godwit_tests::wait::wait_until;

use super::*;
use crate::launcher::JobOutcome;
use crate::launcher::job_spec::tests::job;

fn shell(directory: &Path, script: &str, nodes: u32) -> JobSpec {
    job(directory, &["sh", "-c", script], nodes)
}

fn wait_for_outcome(local: &LocalLauncher, handle: &JobHandle) -> JobOutcome {
    loop {
        match local.status(handle).unwrap() {
            JobStatus::Ended { outcome } => return outcome,
            JobStatus::Running { .. } => std::thread::sleep(Duration::from_millis(5)),
            other => panic!("{other:?}"),
        }
    }
}

fn outputs(job: &JobSpec) -> Vec<String> {
    (0..job.workers).map(|node| fs::read_to_string(job.stdout_path(node)).unwrap()).collect()
}

/// Parses the process ID that a worker printed.
fn pid(output: &str) -> u32 {
    output.lines().next().unwrap().parse().unwrap()
}

#[test]
fn each_worker_runs_the_command_with_its_own_number_and_logs() {
    let scratch = tempfile::tempdir().unwrap();
    let script = r#"cat; pwd; echo "$GODWIT_NODE/$GODWIT_NODES $GODWIT_ATTEMPT $GODWIT_VERSION $ODD"; echo no >&2"#;
    let mut job = shell(scratch.path(), script, 3);
    job.environment = vec![("ODD".into(), "it's\n$x".into())];
    let local = LocalLauncher::new();
    let rendered = local.render_script(&job).unwrap();
    let handle = local.submit(&job).unwrap();
    assert_eq!(wait_for_outcome(&local, &handle), JobOutcome::Succeeded);
    assert_eq!(JobHandle::load(&job.job_directory).unwrap(), handle);
    let here = &scratch.path().canonicalize().unwrap();
    let expected = |attempt: u64| {
        (0..3).map(move |node| format!("{}\n{node}/3 {attempt} {} it's\n$x\n", here.display(), crate::VERSION))
    };
    assert_eq!(outputs(&job), expected(0).collect::<Vec<_>>());
    assert_eq!(fs::read_to_string(job.stderr_path(2)).unwrap(), "no\n");
    // The rendered script equals the script that was run. Running it in a shell has the same result.
    assert_eq!(fs::read_to_string(job.job_directory.join("script.sh")).unwrap(), rendered);
    let status = Command::new("sh").args(["-c", &rendered]).stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
    assert_eq!(outputs(&job), expected(0).map(|text| text.repeat(2)).collect::<Vec<_>>());
    let modes = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(modes(&job.job_directory), 0o700);
    for file in ["script.sh", "handle.json", "logs/node-0.out", "logs/node-0.err"] {
        assert_eq!(modes(&job.job_directory.join(file)), 0o600, "{file}");
    }
    // A second start of the same job has a higher attempt number.
    assert!(local.render_script(&job).unwrap().contains("GODWIT_ATTEMPT=1\n"));
    wait_for_outcome(&local, &local.submit(&job).unwrap());
    assert!(outputs(&job)[0].ends_with(&expected(1).next().unwrap()));
}

#[test]
fn a_worker_that_fails_is_named_and_the_others_run_on() {
    let scratch = tempfile::tempdir().unwrap();
    let job = shell(scratch.path(), r#"[ $GODWIT_NODE != 1 ] || exit 9; while [ ! -e go ]; do sleep 0.01; done"#, 3);
    let local = LocalLauncher::new();
    let handle = local.submit(&job).unwrap();
    let workers = vec!["worker 0".into(), "worker 2".into()];
    let others =
        JobStatus::Running { workers, indexes: Some(vec![0, 2]), is_batch_host_lost: false, is_completing: false };
    wait_until("the failure of one", || local.status(&handle).unwrap() == others);
    fs::write(scratch.path().join("go"), "").unwrap();
    let how = wait_for_outcome(&local, &handle);
    assert_eq!(how, JobOutcome::Failed { description: "worker 1 exited with status 9".into(), exit_code: Some(9) });
}

#[test]
fn cancelling_lets_processes_end_by_themselves_and_then_ends_what_they_left() {
    let scratch = tempfile::tempdir().unwrap();
    let script = r#"trap 'echo bye; exit 3' TERM; sh -c 'trap "" TERM; sleep 1000' & echo $!; wait"#;
    let job = shell(scratch.path(), script, 2);
    let local = LocalLauncher::new();
    let handle = local.submit(&job).unwrap();
    wait_until("the start", || outputs(&job).iter().all(|text| text.ends_with('\n')));
    let left: Vec<u32> = outputs(&job).iter().map(|text| pid(text)).collect();
    assert!(left.iter().all(|pid| is_running(*pid)));
    local.cancel(&handle).unwrap();
    assert_eq!(wait_for_outcome(&local, &handle), JobOutcome::Cancelled);
    assert!(outputs(&job).iter().all(|text| text.ends_with("bye\n")));
    wait_until_exited(&left);
    local.cancel(&handle).expect("one that has ended may be cancelled");
}

#[test]
fn a_job_whose_time_is_over_is_ended() {
    let scratch = tempfile::tempdir().unwrap();
    let mut job = shell(scratch.path(), "sleep 1000", 2);
    job.time_limit = Some(Duration::from_millis(100));
    let local = LocalLauncher::new();
    let handle = local.submit(&job).unwrap();
    assert_eq!(wait_for_outcome(&local, &handle), JobOutcome::TimeLimit);
}

#[test]
fn processes_end_with_the_launcher_and_are_unknown_to_other_launchers() {
    let scratch = tempfile::tempdir().unwrap();
    let job = shell(scratch.path(), "trap '' TERM; echo $$; while :; do sleep 0.1; done", 2);
    let local = LocalLauncher::new();
    let handle = local.submit(&job).unwrap();
    wait_until("the start", || outputs(&job).iter().all(|text| text.ends_with('\n')));
    let other = LocalLauncher::new();
    assert!(matches!(other.status(&handle).unwrap(), JobStatus::Unknown { .. }));
    assert!(matches!(other.cancel(&handle), Err(FleetError::ForeignJob { .. })));
    drop(local);
    // The launcher was dropped, which waits until all processes have ended.
    assert!(!outputs(&job).iter().any(|text| is_running(pid(text))));
}

#[test]
fn a_missing_program_is_reported_and_no_process_stays() {
    let scratch = tempfile::tempdir().unwrap();
    let job = job(scratch.path(), &["/nowhere/godwit", "node"], 2);
    let error = LocalLauncher::new().submit(&job).unwrap_err();
    assert_eq!(error.to_string(), "cannot start /nowhere/godwit node");
}

/// The test below runs this function in a separate process, which starts a job and is then killed.
#[test]
fn a_launcher_that_is_killed() {
    let Some(directory) = std::env::var_os("GODWIT_TEST_KILLED_LAUNCHER") else { return };
    let local = LocalLauncher::new();
    local.submit(&shell(Path::new(&directory), "echo $$; exec sleep 1000", 2)).unwrap();
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn processes_die_with_a_launcher_that_is_killed() {
    let scratch = tempfile::tempdir().unwrap();
    let mut launcher = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "launcher::local::tests::a_launcher_that_is_killed"])
        .env("GODWIT_TEST_KILLED_LAUNCHER", scratch.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let logs = job(scratch.path(), &[], 2);
    let read = || -> Vec<String> {
        (0..2).map(|node| fs::read_to_string(logs.stdout_path(node)).unwrap_or_default()).collect()
    };
    wait_until("the start", || read().iter().all(|text| text.ends_with('\n')));
    let running: Vec<u32> = read().iter().map(|text| pid(text)).collect();
    assert!(running.iter().all(|pid| is_running(*pid)));
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    wait_until_exited(&running);
}
