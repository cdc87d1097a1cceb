//! `godwit bench flight`: both ends in processes of their own.

use std::process::Stdio;

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::scratch;

const USAGE: i32 = 2;
const MACHINE: i32 = 4;
const REMOTE: i32 = 6;

#[test]
fn every_method_socket_and_shape_moves_all_rows() {
    for socket in ["tcp", "unix"] {
        for (shape, row_bytes) in [("fixed", 32), ("alignments", 350)] {
            let words = ["bench", "flight", "--rounds", "2", "--streams", "1,3", "--rows", "1000", "--bytes", "3M"];
            let words = [&words[..], &["--format", "json", "--socket", socket, "--shape", shape]].concat();
            let finished = godwit().args(words).run();
            assert!(finished.status.success(), "{}", finished.report());
            let text = &finished.stdout;
            let rows = (3usize << 20).div_ceil(row_bytes * 1000) * 1000;
            assert_eq!(text.matches(&format!("\"rows\": {rows},")).count(), 4, "{text}");
            for told in ["\"method\": \"get\"", "\"method\": \"put\"", "\"streams\": 3", "\"cpu_s_per_gb\""] {
                assert_eq!(text.matches(told).count() % 2, 0, "{told}: {text}");
                assert!(text.contains(told), "{told}: {text}");
            }
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
    let words = ["bench", "flight", "--rounds", "1", "--bytes", "1M", "--at", &address];
    let finished = godwit().args(words).run();
    assert!(finished.status.success(), "{}", finished.report());
    let table = &finished.stdout;
    assert!(table.starts_with("method") && table.lines().count() == 3, "{table}");
    godwit().args(["bench", "flight", "--listen", &address]).run().refuses(&[MACHINE], &["cannot listen on", &address]);
    drop(server.stdin.take());
    assert!(server.wait().expect("it can be waited for").success());
    godwit().args(words).run().refuses(&[REMOTE], &["cannot connect", &address]);
    godwit().args(["bench", "flight", "--at", "nowhere"]).run().refuses(&[USAGE], &["nowhere is no address"]);
}
