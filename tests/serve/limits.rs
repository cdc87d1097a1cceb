//! What one caller may take of a server, so that something is left for others.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use godwit_tests::binary::godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::served::Served;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};

use super::refget::md5_of;
use super::web::{ask, by_python, text};

/// Bases of a sequence that takes two seconds at the rate of a caller.
const BASES: usize = 4_000_000;
/// Bases of one that does not fit into what lies between a server and a client that is slow.
const LONG: usize = 60_000_000;

/// A server of one sequence with tokens for alice and bob, and the way to the sequence.
fn served(bases: usize, words: &[&str]) -> (Served, [String; 2], String) {
    let directory = scratch::directory("limits");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.fa"), format!(">a\n{}\n", "A".repeat(bases))).expect("it can be written");
    let tokens = directory.join("tokens");
    let bearer = |name: &str| {
        let told = godwit().args(["token", name, "--tokens", text(&tokens)]).succeeds().stdout;
        format!("authorization: Bearer {}", told.trim())
    };
    let callers = ["alice", "bob"].map(bearer);
    let served = Served::start(&root, &[&["--tokens", text(&tokens)], words].concat());
    let path = format!("/sequence/{}", md5_of(&"A".repeat(bases)));
    (served, callers, path)
}

/// Fetches slowly.
fn slow(served: &Served, path: &str, header: &str) -> Child {
    let mut command: Command = Tool::need("curl").command();
    command.args(["--silent", "--limit-rate", "100K", "--header", header, "--output", "/dev/null"]);
    command.arg(format!("http://{}{path}", served.address)).stdin(Stdio::null()).spawn().expect("it can be started")
}

#[test]
fn a_caller_has_so_many_calls_open_and_others_have_theirs() {
    needs!("curl", "python3");
    let (served, [alice, bob], path) = served(LONG, &["--calls-per-caller", "2"]);
    // The digest is taken once.
    assert_eq!(ask(&served, &format!("{path}?start=0&end=1"), &["--header", &alice]).body, "A");
    let mut open = [slow(&served, &path, &alice), slow(&served, &path, &alice)];
    let is_refused = |header: &str| ask(&served, "/sequence/service-info", &["--header", header]);
    wait_until("both are open", || is_refused(&alice).status == 429);
    let refused = is_refused(&alice);
    assert!(refused.body.contains("alice has 2 calls open") && refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(is_refused(&bob).status, 200);
    // Who asks how the server is, is answered.
    assert_eq!(ask(&served, "/healthz", &["--header", &alice]).status, 200);
    let counted = by_python(&[
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
fn all_calls_of_a_caller_share_its_rate() {
    needs!("curl");
    // 2 MB a second: 4 MB take two, and as much more beside them two more, whatever the machine does.
    let (served, [alice, bob], path) = served(BASES, &["--rate-per-caller", "16M"]);
    let fetched = |header: &str| assert_eq!(ask(&served, &path, &["--header", header]).body.len(), BASES);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| fetched(&alice));
        scope.spawn(|| fetched(&alice));
    });
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds > 3.0, "8 MB came in {seconds} s");
    fetched(&bob);
    // Nor do many short ones get round it: each is over before it could be held back, and the next one is.
    let begun = Instant::now();
    for _ in 0..8 {
        let part = ask(&served, &format!("{path}?start=0&end=1000000"), &["--header", &alice]);
        assert_eq!(part.body.len(), 1_000_000);
    }
    let seconds = begun.elapsed().as_secs_f64();
    assert!(seconds > 3.0, "8 MB came in {seconds} s");
}
