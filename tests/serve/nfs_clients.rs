//! Files over NFSv3, with the programs of libnfs as clients.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::random::Random;
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

/// Size of the copied file, bytes: several requests, and a part of one.
const FILE_BYTES: usize = 5_000_001;

/// Returns a port that is free at this moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it is bound").port()
}

fn url(port: u16, path: &str) -> String {
    format!("nfs://127.0.0.1/{path}?nfsport={port}&mountport={port}")
}

fn run(tool: &str, words: &[&str]) -> Output {
    Tool::require(tool).command().args(words).output().expect("it starts")
}

/// Creates a directory of a writer, one that the rules hide, and rules for the address of this host.
fn write_data(directory: &Path) -> (PathBuf, PathBuf) {
    let root = directory.join("root");
    for name in ["run7", "hidden"] {
        std::fs::create_dir_all(root.join(name)).expect("it can be made");
        std::fs::write(root.join(name).join("S.txt"), name).expect("it can be written");
    }
    let policy = directory.join("rules.toml");
    let rules = "[addresses]\n'127.0.0.0/8' = 'sequencer'\n[[rule]]\nname = 'runs'\nwho = ['sequencer']\n\
                 datasets = ['run*/**']\nwrite = true\n";
    std::fs::write(&policy, rules).expect("it can be written");
    (root, policy)
}

#[test]
fn programs_of_libnfs_read_and_write_what_the_rules_permit() {
    needs!("nfs-ls", "nfs-cat", "nfs-cp");
    let directory = scratch::directory("nfs");
    let (root, policy) = write_data(&directory);
    let (port, audit) = (free_port(), directory.join("audit.jsonl"));
    let listen = format!("127.0.0.1:{port}");
    let text = |path: &Path| path.to_str().expect("scratch paths are text").to_owned();
    let (policy, audit_text) = (text(&policy), text(&audit));
    let words = ["--nfs", &listen, "--policy", &policy, "--audit", &audit_text, "--writable"];
    let server = DataServer::start(&root, &words);
    let listed = Tool::require("nfs-ls").run([url(port, "")]);
    let listed = String::from_utf8(listed.stdout).expect("it is text");
    assert!(listed.contains("run7") && !listed.contains("hidden"), "{listed}");
    assert_eq!(Tool::require("nfs-cat").run([url(port, "run7/S.txt")]).stdout, b"run7");
    assert!(!run("nfs-cat", &[&url(port, "hidden/S.txt")]).status.success());

    let mut random = Random::new(45);
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|_| random.next_u64() as u8).collect();
    let local = directory.join("local.bin");
    std::fs::write(&local, &bytes).expect("it can be written");
    Tool::require("nfs-cp").run([text(&local), url(port, "run7/copied.bin")]);
    assert!(scratch::read(&root.join("run7/copied.bin")) == bytes, "the copy has other bytes");
    let back = directory.join("back.bin");
    Tool::require("nfs-cp").run([url(port, "run7/copied.bin"), text(&back)]);
    assert!(scratch::read(&back) == bytes, "the copy back has other bytes");
    assert!(!run("nfs-cp", &[&text(&local), &url(port, "hidden/copied.bin")]).status.success());
    assert!(!root.join("hidden/copied.bin").exists());

    let (code, log) = server.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("NFS: 127.0.0.1 mounts /run7 as sequencer"), "{log}");
    let audited = String::from_utf8(scratch::read(&audit)).expect("it is text");
    for call in ["NFS CREATE from 127.0.0.1", "NFS WRITE from 127.0.0.1", "NFS READ from 127.0.0.1"] {
        assert!(audited.contains(call), "{call}: {audited}");
    }
    godwit().args(["audit", "verify", &audit_text]).run_ok();
}

#[test]
fn a_copy_continues_at_the_server_that_takes_over_the_address() {
    needs!("nfs-cp");
    let directory = scratch::directory("nfs-failover");
    let (root, policy) = write_data(&directory);
    let (port, local) = (free_port(), directory.join("local.bin"));
    let bytes: Vec<u8> = (0..20 * FILE_BYTES as u64).map(|at| ((at * at) >> 11) as u8).collect();
    std::fs::write(&local, &bytes).expect("it can be written");
    let (listen, policy) = (format!("127.0.0.1:{port}"), policy.to_str().expect("scratch paths are text").to_owned());
    let words = ["--nfs", &listen, "--policy", &policy, "--writable"];
    let first = DataServer::start(&root, &words);
    let mut command = Tool::require("nfs-cp").command();
    let mut copy = command.arg(&local).arg(url(port, "run7/copied.bin")).spawn().expect("it starts");
    let copied = root.join("run7/copied.bin");
    wait_until("a part is copied", || copied.metadata().is_ok_and(|found| found.len() > FILE_BYTES as u64));
    first.stop(libc::SIGKILL);
    let _second = DataServer::start(&root, &words);
    assert!(copy.wait().expect("it can be waited for").success());
    assert!(scratch::read(&copied) == bytes, "the copy has other bytes");
}

#[test]
fn clients_without_rules_are_served_only_on_this_host_or_on_request() {
    let directory = scratch::directory("nfs-exposure");
    let (root, _) = write_data(&directory);
    let root = root.to_str().expect("scratch paths are text");
    let failed = godwit().args(["serve", "--root", root, "--listen", "127.0.0.1:0", "--nfs", "0.0.0.0:0"]).run();
    assert_eq!(failed.status.code(), Some(2), "{}", failed.stderr);
    assert!(failed.stderr.contains("[addresses]") && failed.stderr.contains("--insecure"), "{}", failed.stderr);
}

#[test]
fn nothing_is_served_if_an_address_of_the_server_is_in_use() {
    let directory = scratch::directory("nfs-in-use");
    let (root, _) = write_data(&directory);
    let root = root.to_str().expect("scratch paths are text");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = other.local_addr().expect("it is bound").to_string();
    let failed = godwit().args(["serve", "--root", root, "--listen", &address, "--nfs", "127.0.0.1:0"]).run();
    failed.assert_rejected(&[4], &["cannot listen on", &address]);
    assert!(!failed.stderr.contains("NFS at"), "{}", failed.stderr);
}

/// Returns the status and the text of the health check of NFS.
fn nfs_health(address: &str) -> String {
    let words =
        ["--silent", "--max-time", "5", "--write-out", "%{http_code}", &format!("http://{address}/healthz/nfs")];
    String::from_utf8(run("curl", &words).stdout).expect("it is text").replace('\n', " ")
}

#[test]
fn the_health_of_the_nfs_server_is_reported_without_authentication() {
    needs!("curl");
    let directory = scratch::directory("nfs-health");
    let (root, _) = write_data(&directory);
    let tokens = directory.join("tokens.txt");
    let tokens = tokens.to_str().expect("scratch paths are text");
    godwit().args(["token", "alice", "--tokens", tokens]).run_ok();
    let without = DataServer::start(&root, &["--tokens", tokens]);
    assert_eq!(nfs_health(&without.address), "this server does not serve files over NFS 404");
    let server = DataServer::start(&root, &["--tokens", tokens, "--insecure", "--nfs", "127.0.0.1:0"]);
    assert_eq!(nfs_health(&server.address), "SERVING 200");
}
