//! Limits of a principal's calls, which leave capacity of a server for others.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use super::http_client::{get, path_text, python_output};
use super::refget::md5_of;

/// The bases of a sequence that takes two seconds at the rate of a principal.
const SLOW_SEQUENCE_BASES: usize = 4_000_000;
/// The bases of a sequence that does not fit into the buffers between a server and a slow client.
const LARGE_SEQUENCE_BASES: usize = 60_000_000;

/// Starts a server of one sequence, with tokens for alice and bob. Returns the server, their headers, and the path of the
/// sequence.
fn start_server(bases: usize, words: &[&str]) -> (DataServer, [String; 2], String) {
    let directory = scratch::directory("limits");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.fa"), format!(">a\n{}\n", "A".repeat(bases))).expect("it can be written");
    let tokens = directory.join("tokens");
    let bearer = |name: &str| {
        let told = godwit().args(["token", name, "--tokens", path_text(&tokens)]).run_ok().stdout;
        format!("authorization: Bearer {}", told.trim())
    };
    let callers = ["alice", "bob"].map(bearer);
    let served = DataServer::start(&root, &[&["--tokens", path_text(&tokens)], words].concat());
    let path = format!("/sequence/{}", md5_of(&"A".repeat(bases)));
    (served, callers, path)
}

/// Starts a client that receives slowly.
fn start_slow_client(served: &DataServer, path: &str, header: &str) -> Child {
    let mut command: Command = Tool::require("curl").command();
    command.args(["--silent", "--limit-rate", "100K", "--header", header, "--output", "/dev/null"]);
    command.arg(format!("http://{}{path}", served.address)).stdin(Stdio::null()).spawn().expect("it can be started")
}

#[test]
fn a_principal_has_a_limited_number_of_open_calls_and_others_have_theirs() {
    needs!("curl", "python3");
    let (served, [alice, bob], path) = start_server(LARGE_SEQUENCE_BASES, &["--calls-per-caller", "2"]);
    // Request a single base first, so that the server computes the digest before the measurement.
    assert_eq!(get(&served, &format!("{path}?start=0&end=1"), &["--header", &alice]).body, "A");
    let mut open = [start_slow_client(&served, &path, &alice), start_slow_client(&served, &path, &alice)];
    let is_refused = |header: &str| get(&served, "/sequence/service-info", &["--header", header]);
    wait_until("both are open", || is_refused(&alice).status == 429);
    let refused = is_refused(&alice);
    assert!(
        refused.body.contains("alice already has 2 open calls") && refused.header("retry-after").is_some(),
        "{refused:?}"
    );
    assert_eq!(is_refused(&bob).status, 200);
    // The server answers health checks even if the principal has reached its limit of calls.
    assert_eq!(get(&served, "/healthz", &["--header", &alice]).status, 200);
    let counted = python_output(&[
        "metric_samples",
        &format!("http://{}/metrics", served.address),
        "text/plain",
        bob.rsplit(' ').next().expect("a token"),
    ]);
    assert!(counted.lines().any(|line| line.contains("refused_callers") && line.contains("reason=limit")), "{counted}");
    for child in &mut open {
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
    }
    wait_until("who went away has no call open", || is_refused(&alice).status == 200);
}

#[test]
fn all_calls_of_a_principal_share_its_rate() {
    needs!("curl");
    // The rate is limited to 2 MB/s: a response of 4 MB takes two seconds, and a second one at the same time two more,
    // whatever the speed of the machine.
    let (served, [alice, bob], path) = start_server(SLOW_SEQUENCE_BASES, &["--rate-per-caller", "16M"]);
    let fetched = |header: &str| assert_eq!(get(&served, &path, &["--header", header]).body.len(), SLOW_SEQUENCE_BASES);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| fetched(&alice));
        scope.spawn(|| fetched(&alice));
    });
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds > 3.0, "8 MB came in {seconds} s");
    fetched(&bob);
    // Many short calls cannot evade the limit: a call that ends before it could be delayed delays the next call.
    let begun = Instant::now();
    for _ in 0..8 {
        let part = get(&served, &format!("{path}?start=0&end=1000000"), &["--header", &alice]);
        assert_eq!(part.body.len(), 1_000_000);
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds > 3.0, "8 MB came in {seconds} s");
}
