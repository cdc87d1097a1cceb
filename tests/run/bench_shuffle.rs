//! `godwit bench shuffle`: workers in separate processes, and peers started by hand.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::processes;
use serde_json::Value;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;

/// A server of one of the benchmarks, and its address.
struct BenchServer {
    child: Child,
    address: String,
}

impl BenchServer {
    fn start(benchmark: &str) -> Self {
        let mut child = Command::new(godwit_path())
            .args(["bench", benchmark, "--until-stdin-closes", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("godwit can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().strip_prefix("listening on ").expect("it listens").to_owned();
        Self { child, address }
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it can be waited for").success() || std::thread::panicking());
    }
}

fn bench_results(words: &[&str]) -> Vec<Value> {
    let told = godwit().args(["bench", "shuffle", "--rounds", "2", "--format", "json"]).args(words).run_ok().stdout;
    serde_json::from_str(&told).expect("it prints a list in JSON")
}

fn number_value(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_worker_fetches_its_slice_from_every_other_and_every_stage_is_reported() {
    let results = bench_results(&["--nodes", "1,2,3", "--bytes", "1M,3000001", "--message", "64K"]);
    let told: Vec<(u64, u64)> = results
        .iter()
        .map(|result| (result["nodes"].as_u64().expect("nodes"), result["bytes_per_node"].as_u64().expect("bytes")))
        .collect();
    assert_eq!(told, [(1, 1 << 20), (1, 3_000_001), (2, 1 << 20), (2, 3_000_001), (3, 1 << 20), (3, 3_000_001)]);
    for (result, (nodes, bytes)) in results.iter().zip(told) {
        let fetched = bytes / nodes * (nodes - 1);
        assert_eq!(result["fetched_bytes_per_node"].as_u64(), Some(fetched), "{result}");
        let stages = result["stages"].as_object().expect("stages");
        assert_eq!(stages.keys().collect::<Vec<_>>(), ["make", "connect", "transfer", "verify"]);
        let shares: f64 = stages.values().map(|stage| number_value(&stage["share"])).sum();
        assert!((shares - 1.0).abs() < 1e-6, "{result}");
        assert!(stages.values().all(|stage| number_value(&stage["seconds"]) > 0.0), "{result}");
        assert!(number_value(&result["exposed_s"]) <= number_value(&result["overlapped_s"]), "{result}");
        assert_eq!(result["mb_per_s_by_node"].as_array().map(Vec::len), Some(nodes as usize), "{result}");
        if nodes == 1 {
            assert!(result["mb_per_s"].is_null() && result["cpu_s_per_gb"].is_null(), "{result}");
            continue;
        }
        let seconds = number_value(&result["stages"]["transfer"]["seconds"]);
        let expected = fetched as f64 / 1e6 / seconds;
        assert!((number_value(&result["mb_per_s_per_node"]) / expected - 1.0).abs() < 1e-6, "{result}");
        assert!((number_value(&result["mb_per_s"]) / expected / nodes as f64 - 1.0).abs() < 1e-6, "{result}");
    }
}

#[test]
fn messages_of_any_length_arrive_whole() {
    for message in ["1", "256", "1G"] {
        let results = bench_results(&["--nodes", "2", "--bytes", "20001", "--message", message]);
        assert_eq!(results[0]["fetched_bytes_per_node"].as_u64(), Some(10_000), "{message}");
    }
}

#[test]
fn the_table_has_a_line_for_each_measurement() {
    let words = ["bench", "shuffle", "--nodes", "1,2", "--bytes", "100K,1M", "--rounds", "1"];
    let table = godwit().args(words).run_ok().stdout;
    assert!(table.starts_with("nodes ") && table.lines().count() == 5, "{table}");
    let columns: Vec<usize> = table.lines().skip(1).map(|line| line.split_whitespace().count()).collect();
    assert_eq!(columns, [13; 4], "{table}");
}

#[test]
fn peers_started_by_hand_are_fetched_from_all_at_once() {
    let peers = [BenchServer::start("shuffle"), BenchServer::start("shuffle")];
    let addresses = format!("{},{}", peers[0].address, peers[1].address);
    let results = bench_results(&["--peers", &addresses, "--bytes", "300K,3M"]);
    for (result, bytes) in results.iter().zip([300u64 << 10, 3 << 20]) {
        assert_eq!(result["nodes"].as_u64(), Some(3));
        assert_eq!(result["fetched_bytes_per_node"].as_u64(), Some(bytes / 3 * 2), "{result}");
        assert_eq!(result["mb_per_s_by_node"].as_array().map(Vec::len), Some(1), "only this node is timed: {result}");
        assert_eq!(result["peers"].as_array().map(Vec::len), Some(2));
    }
}

#[test]
fn a_peer_that_is_missing_or_another_program_and_a_port_that_is_taken_are_told() {
    let peer = BenchServer::start("shuffle");
    let taken = ["bench", "shuffle", "--listen", &peer.address];
    godwit().args(taken).run().assert_rejected(&[EXIT_MACHINE], &["cannot listen on", &peer.address]);
    let other = BenchServer::start("flight");
    let both = format!("{},{}", peer.address, other.address);
    let shuffle = |peers: &str| godwit().args(["bench", "shuffle", "--bytes", "1M", "--peers", peers]).run();
    shuffle(&both).assert_rejected(&[EXIT_REMOTE], &[&other.address, "invalid workload"]);
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.local_addr().expect("it has an address").to_string()
    };
    shuffle(&format!("{},{gone}", peer.address)).assert_rejected(&[EXIT_REMOTE], &["cannot connect", &gone]);
}

#[test]
fn what_cannot_be_measured_is_refused_before_anything_starts() {
    let refuses = |code: i32, words: &[&str], told: &[&str]| {
        godwit().args(["bench", "shuffle"]).args(words).run().assert_rejected(&[code], told);
    };
    refuses(EXIT_USAGE, &["--peers", "nowhere"], &["nowhere is not an address"]);
    refuses(EXIT_USAGE, &["--nodes", "33"], &["33"]);
    refuses(EXIT_USAGE, &["--nodes", "8", "--bytes", "7"], &["--bytes 7", "8 workers"]);
    refuses(EXIT_USAGE, &["--nodes", "2", "--message", "5G"], &["--message", "too large"]);
    refuses(EXIT_USAGE, &["--nodes", "2", "--peers", "127.0.0.1:1"], &["--nodes", "--peers"]);
    refuses(EXIT_MACHINE, &["--nodes", "2", "--bytes", "1000T"], &["memory", "--bytes"]);
}

#[test]
fn a_worker_that_dies_ends_the_measurement_and_all_others() {
    let words = ["bench", "shuffle", "--nodes", "3", "--bytes", "1M", "--message", "256", "--rounds", "1000"];
    let running = godwit().args(words).spawn();
    let nodes = processes::wait_for_children(running.process_id(), "--node", 3);
    processes::send_signal(nodes[1], libc::SIGKILL);
    let finished = running.wait_with_output();
    // The exit code depends on the process that reports the loss first: the process that started the workers, or a
    // worker that was fetching from the lost worker.
    finished.assert_rejected(&[EXIT_MACHINE, EXIT_REMOTE], &[]);
    processes::wait_until_exited(&nodes);
}

#[test]
fn workers_end_when_the_measurement_is_killed() {
    let words = ["bench", "shuffle", "--nodes", "2", "--bytes", "64M", "--message", "256", "--rounds", "1000"];
    let running = godwit().args(words).spawn();
    let nodes = processes::wait_for_children(running.process_id(), "--node", 2);
    processes::send_signal(running.process_id(), libc::SIGKILL);
    assert!(!running.wait_with_output().status.success());
    processes::wait_until_exited(&nodes);
}
