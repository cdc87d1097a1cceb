//! Jobs on machines that ssh reaches, against a real sshd.

use std::fs;
use std::path::Path;

use godwit_fleet::launcher::Ssh;
use godwit_fleet::{Ending, JobHandle, JobSpec, JobStatus, Launcher};
use godwit_tests::patience::{wait_for, wait_until};
use godwit_tests::processes::{children, is_running, signal, wait_until_gone};
use godwit_tests::skip;
use godwit_tests::ssh_server::{self, SshServer};

macro_rules! needs_sshd {
    () => {
        if !ssh_server::is_installed() {
            skip!("missing-tool", "openssh-server is not installed");
        }
    };
}

fn launcher(server: &SshServer, hosts: &str) -> Ssh {
    let path = server.directory().join("hosts");
    fs::write(&path, hosts).expect("it can be written");
    Ssh::new(path, vec!["-F".into(), server.client_configuration().to_string_lossy().into_owned()])
}

fn job(directory: &Path, script: &str, nodes: u32) -> JobSpec {
    JobSpec {
        name: "godwit-test".into(),
        command: ["sh", "-c", script, "a 'name'"].map(Into::into).into(),
        nodes,
        cpus_per_node: 1,
        memory_bytes_per_node: None,
        time_limit: None,
        working_directory: directory.to_owned(),
        environment: vec![("ODD".into(), "it's \"$x\" `y` \\ é\n!".into())],
        job_directory: directory.join("job"),
    }
}

fn outputs(job: &JobSpec) -> Vec<String> {
    let read = |node| fs::read_to_string(job.output_path(node)).expect("a node's log can be read");
    (0..job.nodes).map(read).collect()
}

fn wait_for_end(ssh: &Ssh, handle: &JobHandle) -> Ending {
    wait_for("the job's end", || match ssh.status(handle).unwrap_or_else(|error| panic!("{error}")) {
        JobStatus::Ended { how } => Some(how),
        JobStatus::Running { .. } => None,
        other => panic!("{other:?}"),
    })
}

/// The numbers that the workers and what they started printed, once they all have.
fn pids(job: &JobSpec, each: usize) -> Vec<u32> {
    // A line counts once it is whole.
    wait_until("the workers' start", || outputs(job).iter().all(|text| text.matches('\n').count() >= each));
    let number = |line: &str| line.parse().expect("a shell prints numbers of processes");
    outputs(job).iter().flat_map(|text| text.lines().take(each).map(number).collect::<Vec<_>>()).collect()
}

/// A worker that does not end when it is asked to, and a process it started.
const STUBBORN: &str = "echo $$; sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.1; done' & trap 'echo told' TERM; \
                        while :; do sleep 0.1; done";

#[test]
fn each_node_runs_the_command_on_its_host_with_its_words_as_they_were() {
    needs_sshd!();
    let server = SshServer::start();
    let directory = server.directory().join("it's \"odd\" $HOME #1");
    fs::create_dir(&directory).expect("it can be made");
    let ssh = launcher(&server, "# two machines\nnear slots=2\nfar\n");
    let script = r#"cat; pwd; echo "$GODWIT_NODE/$GODWIT_NODES $GODWIT_ATTEMPT $GODWIT_VERSION $0"; echo "$ODD" >&2"#;
    let job = job(&directory, script, 3);
    let shown = ssh.render(&job).expect("it can be shown");
    assert!(shown.contains("BatchMode=yes") && shown.contains(" -- far "), "{shown}");
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(wait_for_end(&ssh, &handle), Ending::Succeeded, "{:?}", fs::read_to_string(job.error_path(0)));
    for (node, text) in outputs(&job).iter().enumerate() {
        let version = godwit_fleet::VERSION;
        assert_eq!(*text, format!("{}\n{node}/3 0 {version} a 'name'\n", directory.display()));
        let said = fs::read_to_string(job.error_path(node as u32)).expect("a node's log can be read");
        assert_eq!(said, format!("{}\n", job.environment[0].1));
    }
    assert_eq!(fs::read_to_string(job.job_directory.join("script.sh")).expect("it is there"), shown);
}

#[test]
fn a_far_failure_is_told_with_its_status_and_its_host() {
    needs_sshd!();
    let server = SshServer::start();
    let ssh = launcher(&server, "near\nfar\n");
    let job = job(server.directory(), "[ $GODWIT_NODE = 0 ] || exit 9", 2);
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    let expected = Ending::Failed { what: "node 1 on far exited with status 9".into(), exit_code: Some(9) };
    assert_eq!(wait_for_end(&ssh, &handle), expected);
}

#[test]
fn far_processes_end_when_the_job_is_cancelled_or_its_launcher_goes() {
    needs_sshd!();
    let server = SshServer::start();
    let [cancelled, dropped] = ["cancelled", "dropped"].map(|name| {
        let ssh = launcher(&server, "near\nfar\n");
        let mut job = job(server.directory(), STUBBORN, 2);
        job.job_directory = server.directory().join(name);
        let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
        (ssh, job, handle)
    });
    let running = [pids(&cancelled.1, 2), pids(&dropped.1, 2)].concat();
    assert!(running.iter().all(|pid| is_running(*pid)), "{running:?}");
    let (ssh, job, handle) = cancelled;
    ssh.cancel(&handle).unwrap_or_else(|error| panic!("{error}"));
    drop(dropped.0);
    assert_eq!(wait_for_end(&ssh, &handle), Ending::Cancelled);
    assert!(outputs(&job).iter().all(|text| text.ends_with("told\n")), "{:?}", outputs(&job));
    wait_until_gone(&running);
}

#[test]
fn far_processes_end_when_the_connection_does() {
    needs_sshd!();
    let server = SshServer::start();
    let ssh = launcher(&server, "near\n");
    let job = job(server.directory(), STUBBORN, 1);
    let handle = ssh.submit(&job).unwrap_or_else(|error| panic!("{error}"));
    let running = pids(&job, 2);
    // ssh itself is killed, as by a machine that goes down: it can say nothing to the other side.
    let configuration = server.client_configuration().to_string_lossy().into_owned();
    let connections = children(std::process::id(), &configuration);
    assert_eq!(connections.len(), 1);
    signal(connections[0], libc::SIGKILL);
    let Ending::Failed { what, .. } = wait_for_end(&ssh, &handle) else { panic!("it was killed") };
    assert!(what.contains("node 0 on near was killed by signal 9"), "{what}");
    wait_until_gone(&running);
}
