//! `godwit query --at`: a server gives the results of a directory.

use std::path::{Path, PathBuf};

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::data_server::DataServer;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};

use serde_json::Value;

use crate::run::formats::aligned_sample;

fn path_text(path: &Path) -> &str {
    path.to_str().expect("scratch paths are text")
}

fn query_server(served: &DataServer, words: &[&str]) -> GodwitOutput {
    let url = format!("grpc+tcp://{}", served.address);
    godwit().args(["query", "--at", &url]).args(words).run()
}

#[test]
fn a_server_gives_the_rows_of_its_directory() {
    needs!("bwa", "samtools");
    let (_, out) = aligned_sample();
    let served = DataServer::start(&out, &[]);
    for statement in [
        "SELECT contig, count(*) AS reads FROM reads('sample.bam') GROUP BY contig ORDER BY contig",
        "SELECT name, position, tag_NM FROM reads('sample.bam') WHERE region('chr2:20000-22000') ORDER BY name, flags",
        "SELECT name FROM reads('sample.bam') WHERE position < -5",
    ] {
        for format in ["csv", "table", "json"] {
            let here =
                godwit().args(["query", "--data", path_text(&out), "--format", format, statement]).run_ok().stdout;
            let there = query_server(&served, &["--format", format, statement]);
            assert!(there.status.success(), "{}", there.describe());
            assert_eq!(there.stdout, here, "{statement} as {format}");
        }
    }
    query_server(&served, &["SELEC 1"]).assert_rejected(&[2], &["SELEC"]);
    query_server(&served, &["SELECT 1 FROM reads('none.bam')"]).assert_rejected(&[2], &["none.bam"]);
    query_server(&served, &["--data", ".", "SELECT 1"]).assert_rejected(&[2], &["--data", "--at"]);
    godwit().args(["query", "--at", "somewhere", "SELECT 1"]).run().assert_rejected(&[2], &["grpc+tls://"]);
    let gone = served.address.clone();
    drop(served);
    godwit().args(["query", "--at", &format!("grpc+tcp://{gone}"), "SELECT 1"]).run().assert_rejected(&[6], &[&gone]);
}

#[test]
fn a_server_that_asks_for_a_token_is_shown_it() {
    let directory = scratch::directory("remote-token");
    let (root, tokens, token) = (directory.join("root"), directory.join("tokens"), directory.join("token"));
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let told = godwit().args(["token", "alice", "--tokens", path_text(&tokens)]).run_ok().stdout;
    std::fs::write(&token, told).expect("it can be written");
    let served = DataServer::start(&root, &["--tokens", path_text(&tokens)]);
    let statement = "SELECT count(*) AS n FROM \"a.bed\"";
    let found = query_server(&served, &["--format", "csv", "--token-file", path_text(&token), statement]);
    assert!(found.status.success() && found.stdout == "n\n1\n", "{}", found.describe());
    query_server(&served, &[statement]).assert_rejected(&[6], &["token"]);
}

#[test]
fn statements_are_measured_at_a_server_and_over_a_directory() {
    let root = scratch::directory("bench-query");
    let rows: String = (0..3000).map(|row| format!("chr1\t{row}\t{}\n", row + 5)).collect();
    std::fs::write(root.join("a.bed"), rows).expect("it can be written");
    let served = DataServer::start(&root, &[]);
    let url = format!("grpc+tcp://{}", served.address);
    let (all, none) = ("SELECT contig, position FROM \"a.bed\"", "SELECT 1 FROM \"a.bed\" WHERE position < 0");
    for asked in [["--at", &url], ["--data", path_text(&root)]] {
        let measure = |more: &[&str]| {
            let words = ["bench", "query", "--clients", "1,3", "--rounds", "4", all, none];
            godwit().args(words).args(asked).args(more).run_ok().stdout
        };
        let results: Value = serde_json::from_str(&measure(&["--format", "json"])).expect("the results are JSON");
        let list = results.as_array().expect("a list");
        let told: Vec<_> =
            list.iter().map(|one| (one["clients"].as_u64(), one["answers"].as_u64(), one["rows"].as_u64())).collect();
        let of = |clients, rows| (Some(clients), Some(4 * clients), Some(rows));
        assert_eq!(told, [of(1, 3000), of(3, 3000), of(1, 0), of(3, 0)], "{results}");
        for one in list {
            let times =
                ["first_rows_ms", "median_ms", "p95_ms", "slowest_ms"].map(|key| one[key].as_f64().unwrap_or_default());
            assert!(times.is_sorted() && times[0] > 0.0, "{one}");
        }
        assert_eq!(list[0]["statement"], all);
        assert!(list[0]["bytes"].as_u64() > Some(3000 * 8), "{results}");
        assert_eq!(measure(&[]).lines().count(), 5, "a line for each result below the head");
    }
    let bench = |words: &[&str]| godwit().args(["bench", "query"]).args(words).run();
    bench(&[all]).assert_rejected(&[2], &["--at", "--data"]);
    bench(&["--at", &url]).assert_rejected(&[2], &["SQL"]);
    bench(&["--at", &url, "SELEC 1"]).assert_rejected(&[2], &["SELEC"]);
    bench(&["--data", path_text(&root.join("none")), all]).assert_rejected(&[4], &["the server did not start"]);
    drop(served);
    bench(&["--at", &url, all]).assert_rejected(&[6], &[&url["grpc+tcp://".len()..]]);
}

/// Returns the entries of a directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[test]
fn statements_leave_no_scratch_directory_even_if_they_fail_or_the_server_is_killed() {
    let (root, scratch) = (scratch::directory("query-scratch"), scratch::directory("query-scratch-temp"));
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\n").expect("it can be written");
    let start = || DataServer::start(&root, &["--temp", path_text(&scratch)]);
    let run_statement = |served: &DataServer| {
        let found = query_server(served, &["--format", "csv", "SELECT count(*) + 1 AS n FROM \"a.bed\""]);
        assert!(found.status.success() && found.stdout == "n\n2\n", "{}", found.describe());
    };
    let served = start();
    for _ in 0..3 {
        // The server kills the process of a failed statement.
        query_server(&served, &["SELECT length(none) FROM \"a.bed\""]).assert_rejected(&[2], &["none"]);
    }
    run_statement(&served);
    let of_processes = || entries(&scratch).iter().map(|server| entries(server).len()).collect::<Vec<_>>();
    wait_until("only the directory of the running process is left", || of_processes() == [1]);
    assert_eq!(served.stop(libc::SIGTERM).0, Some(0));
    assert_eq!(entries(&scratch), Vec::<PathBuf>::new());
    let served = start();
    run_statement(&served);
    served.stop(libc::SIGKILL);
    let left = entries(&scratch);
    assert_eq!(left.len(), 1, "{left:?}");
    let served = start();
    run_statement(&served);
    let now = entries(&scratch);
    assert!(now.len() == 1 && now != left, "{now:?}, {left:?}");
    assert_eq!(served.stop(libc::SIGTERM).0, Some(0));
    assert_eq!(entries(&scratch), Vec::<PathBuf>::new());
}
