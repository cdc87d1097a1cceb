//! `godwit bench flight`: both ends in separate processes.

use std::process::Stdio;

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::scratch;

const METHODS: &str = "get,put,exchange,stream";
const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;
const EXIT_REMOTE: i32 = 6;

#[test]
fn every_method_socket_and_shape_moves_all_rows() {
    for socket in ["tcp", "unix"] {
        for (shape, row_bytes) in [("fixed", 32), ("alignments", 350)] {
            let words = ["bench", "flight", "--rounds", "2", "--streams", "1,3", "--rows", "1000", "--bytes", "3M"];
            let words = [&words[..], &["--method", METHODS, "--socket", socket, "--shape", shape]].concat();
            assert_moves_all_rows(&words, (3usize << 20).div_ceil(row_bytes * 1000) * 1000, 2);
        }
    }
}

#[test]
fn large_batches_and_encrypted_connections_move_all_rows() {
    let words = ["bench", "flight", "--method", METHODS, "--rounds", "1", "--bytes", "10M"];
    let large = [&words[..], &["--rows", "1000000"]].concat();
    assert_moves_all_rows(&large, 1_000_000, 1);
    assert_moves_all_rows(
        &[&words[..], &["--rows", "1000", "--tls"]].concat(),
        (10usize << 20).div_ceil(32_000) * 1000,
        1,
    );
}

/// Checks that every method, with each of `stream_counts` numbers of streams, moves all rows and reports the time.
#[track_caller]
fn assert_moves_all_rows(words: &[&str], rows: usize, stream_counts: usize) {
    let finished = godwit().args(words.iter().copied()).args(["--format", "json"]).run();
    assert!(finished.status.success(), "{}", finished.describe());
    let results: serde_json::Value = serde_json::from_str(&finished.stdout).expect("the results are JSON");
    let results = results.as_array().expect("the results are a list");
    for method in METHODS.split(',') {
        let found: Vec<_> = results.iter().filter(|result| result["method"] == method).collect();
        assert_eq!(found.len(), stream_counts, "{method}: {}", finished.stdout);
        for result in found {
            assert_eq!(result["rows"], rows, "{method}");
            assert!(result["cpu_s_per_gb"].is_number() && result["mb_per_s"].as_f64() > Some(0.0), "{result}");
            assert_eq!(result["tls"], words.contains(&"--tls"), "{result}");
        }
    }
}

#[test]
fn a_server_started_by_hand_is_measured_and_addresses_that_are_wrong_are_told() {
    let directory = scratch::directory("flight");
    let address = format!("unix:{}", directory.join("socket").display());
    let mut server = std::process::Command::new(godwit_path())
        .args(["bench", "flight", "--until-stdin-closes", "--listen", &address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("godwit can be started");
    let mut line = String::new();
    let stdout = server.stdout.take().expect("stdout is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).expect("it says where it listens");
    assert_eq!(line.trim(), format!("listening on {address}"));
    let words = ["bench", "flight", "--method", METHODS, "--rounds", "1", "--bytes", "1M", "--at", &address];
    let finished = godwit().args(words).run();
    assert!(finished.status.success(), "{}", finished.describe());
    let table = &finished.stdout;
    assert!(table.starts_with("method") && table.lines().count() == 5, "{table}");
    godwit()
        .args(["bench", "flight", "--listen", &address])
        .run()
        .assert_rejected(&[EXIT_MACHINE], &["cannot listen on", &address]);
    drop(server.stdin.take());
    assert!(server.wait().expect("it can be waited for").success());
    godwit().args(words).run().assert_rejected(&[EXIT_REMOTE], &["cannot connect", &address]);
    godwit()
        .args(["bench", "flight", "--at", "nowhere"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["nowhere is not an address"]);
    godwit()
        .args(["bench", "flight", "--tls", "--socket", "unix"])
        .run()
        .assert_rejected(&[EXIT_USAGE], &["--tls requires TCP"]);
}
