//! Jobs on hosts that ssh reaches, against a real sshd.

use std::fs;
use std::path::Path;

use godwit_fleet::launcher::SshLauncher;
use godwit_fleet::{JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
use godwit_tests::processes::{child_processes, is_running, send_signal, wait_until_exited};
use godwit_tests::skip;
use godwit_tests::ssh_server::{self, SshServer};
use godwit_tests::wait::{wait_for, wait_until};

macro_rules! needs_sshd {
    () => {
        if !ssh_server::is_installed() {
            skip!("missing-tool", "openssh-server is not installed");
        }
    };
}

fn launcher(server: &SshServer, hosts: &str) -> SshLauncher {
    let path = server.directory().join("hosts");
    fs::write(&path, hosts).expect("it can be written");
    SshLauncher::new(path, vec!["-F".into(), server.client_configuration().to_string_lossy().into_owned()])
}

fn job_spec(directory: &Path, script: &str, workers: u32) -> JobSpec {
    JobSpec {
        name: "godwit-test".into(),
        command: ["sh", "-c", script, "a 'name'"].map(Into::into).into(),
        workers,
        cpus_per_worker: 1,
        memory_bytes_per_worker: None,
        time_limit: None,
        working_directory: directory.to_owned(),
        environment: vec![("ODD".into(), "it's \"$x\" `y` \\ é\n!".into())],
        job_directory: directory.join("job"),
    }
}

fn outputs(job: &JobSpec) -> Vec<String> {
    let read = |node| fs::read_to_string(job.stdout_path(node)).expect("a node's log can be read");
    (0..job.workers).map(read).collect()
}

fn wait_for_end(ssh: &SshLauncher, handle: &JobHandle) -> JobOutcome {
    wait_for("the job's end", || match ssh.status(handle).unwrap_or_else(|error| panic!("{error}")) {
        JobStatus::Ended { outcome } => Some(outcome),
        JobStatus::Running { .. } => None,
        other => panic!("{other:?}"),
    })
}

/// Returns the process ids that the workers and their children printed, once all have.
fn printed_process_ids(job: &JobSpec, each: usize) -> Vec<u32> {
    // Count only complete lines.
    wait_until("the workers' start", || outputs(job).iter().all(|text| text.matches('\n').count() >= each));
    let number = |line: &str| line.parse().expect("a shell prints numbers of processes");
    outputs(job).iter().flat_map(|text| text.lines().take(each).map(number).collect::<Vec<_>>()).collect()
}

/// A worker that ignores SIGTERM, and a child process that does too.
const IGNORES_SIGTERM_SCRIPT: &str = "echo $$; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & trap 'echo told' TERM; \
                        while :; do sleep 0.1; done";

#[test]
fn each_worker_runs_the_command_on_its_host_with_unchanged_arguments() {
    needs_sshd!();
    let server = SshServer::start();
    let directory = server.directory().join("it's \"odd\" $HOME #1");
    fs::create_dir(&directory).expect("it can be made");
    let ssh = launcher(&server, "# two machines\nnear slots=2\nfar\n");
    let script = r#"cat; pwd; echo "$GODWIT_NODE/$GODWIT_NODES $GODWIT_ATTEMPT $GODWIT_VERSION $0"; echo "$ODD" >&2"#;
    let job = job_spec(&directory, script, 3);
    let shown = ssh.render_script(&job).expect("it can be shown");
    assert!(shown.contains("BatchMode=yes") && shown.contains(" -- far "), "{shown}");
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(wait_for_end(&ssh, &handle), JobOutcome::Succeeded, "{:?}", fs::read_to_string(job.stderr_path(0)));
    for (node, text) in outputs(&job).iter().enumerate() {
        let version = godwit_fleet::VERSION;
        assert_eq!(*text, format!("{}\n{node}/3 0 {version} a 'name'\n", directory.display()));
        let said = fs::read_to_string(job.stderr_path(node as u32)).expect("a node's log can be read");
        assert_eq!(said, format!("{}\n", job.environment[0].1));
    }
    assert_eq!(fs::read_to_string(job.job_directory.join("script.sh")).expect("it is there"), shown);
}

#[test]
fn a_far_failure_is_told_with_its_status_and_its_host() {
    needs_sshd!();
    let server = SshServer::start();
    let ssh = launcher(&server, "near\nfar\n");
    let job = job_spec(server.directory(), "[ $GODWIT_NODE = 0 ] || exit 9", 2);
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    let expected =
        JobOutcome::Failed { description: "worker 1 on far exited with status 9".into(), exit_code: Some(9) };
    assert_eq!(wait_for_end(&ssh, &handle), expected);
}

#[test]
fn far_processes_end_when_the_job_is_cancelled_or_its_launcher_goes() {
    needs_sshd!();
    let server = SshServer::start();
    let [cancelled, dropped] = ["cancelled", "dropped"].map(|name| {
        let ssh = launcher(&server, "near\nfar\n");
        let mut job = job_spec(server.directory(), IGNORES_SIGTERM_SCRIPT, 2);
        job.job_directory = server.directory().join(name);
        let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
        (ssh, job, handle)
    });
    let running = [printed_process_ids(&cancelled.1, 2), printed_process_ids(&dropped.1, 2)].concat();
    assert!(running.iter().all(|pid| is_running(*pid)), "{running:?}");
    let (ssh, job, handle) = cancelled;
    ssh.cancel(&handle).unwrap_or_else(|error| panic!("{error}"));
    drop(dropped.0);
    assert_eq!(wait_for_end(&ssh, &handle), JobOutcome::Cancelled);
    assert!(outputs(&job).iter().all(|text| text.ends_with("told\n")), "{:?}", outputs(&job));
    wait_until_exited(&running);
}

#[test]
fn far_processes_end_when_the_connection_does() {
    needs_sshd!();
    let server = SshServer::start();
    let ssh = launcher(&server, "near\n");
    let job = job_spec(server.directory(), IGNORES_SIGTERM_SCRIPT, 1);
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    let running = printed_process_ids(&job, 2);
    // Kill the ssh client, as if its machine had failed: it sends no signal to the remote side.
    let configuration = server.client_configuration().to_string_lossy().into_owned();
    let connections = child_processes(std::process::id(), &configuration);
    assert_eq!(connections.len(), 1);
    send_signal(connections[0], libc::SIGKILL);
    let JobOutcome::Failed { description, .. } = wait_for_end(&ssh, &handle) else { panic!("it was killed") };
    assert!(description.contains("worker 0 on near was killed by signal 9"), "{description}");
    wait_until_exited(&running);
}
