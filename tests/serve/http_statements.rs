//! SQL statements over plain HTTP (`POST /sql`), by curl.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{HttpResponse, get, run_guide_page};
use super::web_page::start_server_with_policy;

/// A statement that does not end within the time of a test.
const ENDLESS: &str = "SELECT sum(a.value * b.value) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";

/// Starts a server of a BED file with three intervals.
fn start_server(words: &[&str]) -> DataServer {
    let root = scratch::directory("http-statements");
    std::fs::write(root.join("x.bed"), "chr1\t5\t9\nchr1\t7\t19\nchr2\t1\t2\n").expect("it can be written");
    DataServer::start(&root, words)
}

/// Sends a statement as text, with further arguments of curl.
fn post(served: &DataServer, sql: &str, words: &[&str]) -> HttpResponse {
    let header = ["--header", "content-type: application/sql", "--data-binary", sql];
    get(served, "/sql", &[&header[..], words].concat())
}

/// Returns the status, and the name of the gRPC code in the JSON of an error response.
fn error_code(response: &HttpResponse) -> String {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    let body: Value = serde_json::from_str(&response.body).unwrap_or_else(|error| panic!("{error}: {response:?}"));
    assert!(body["error"].as_str().is_some_and(|text| !text.is_empty()), "{response:?}");
    format!("{} {}", response.status, body["code"].as_str().unwrap_or("no code"))
}

#[test]
fn rows_have_the_format_that_the_client_accepts() {
    needs!("curl");
    let served = start_server(&[]);
    let sql = "SELECT contig, position FROM \"x.bed\" ORDER BY position";
    let rows = |accept: &str| post(&served, sql, &["--header", &format!("accept: {accept}")]);
    let lines = post(&served, sql, &[]);
    assert_eq!((lines.status, lines.header("content-type")), (200, Some("application/x-ndjson")));
    assert_eq!(lines.header("content-length"), None);
    let (chr1, chr2) = (r#"{"contig":"chr1","position":"#, r#"{"contig":"chr2","position":"#);
    assert_eq!(lines.body, format!("{chr2}1}}\n{chr1}5}}\n{chr1}7}}\n"));
    assert_eq!(rows("text/csv").body, "contig,position\nchr2,1\nchr1,5\nchr1,7\n");
    assert_eq!(rows("text/tab-separated-values").body, "contig\tposition\nchr2\t1\nchr1\t5\nchr1\t7\n");
    assert_eq!(error_code(&rows("text/html")), "406 no code");
    // No rows are a header, or an empty body.
    let none = "SELECT contig FROM \"x.bed\" WHERE position > 100";
    assert_eq!(post(&served, none, &["--header", "accept: text/csv"]).body, "contig\n");
    assert_eq!(post(&served, none, &[]).body, "");
}

#[test]
fn an_arrow_stream_is_read_by_pyarrow() {
    needs!("curl", "python3");
    let served = start_server(&[]);
    let script = "import sys, pyarrow.ipc\n\
        table = pyarrow.ipc.open_stream(sys.stdin.buffer).read_all()\n\
        print(table.num_rows, sum(table['position'].to_pylist()))\n";
    let mut sender = Tool::require("curl").command();
    sender.args(["--silent", "--fail", "--header", "content-type: application/sql", "--data-binary"]);
    sender.args(["SELECT position FROM \"x.bed\"", "--header", "accept: application/vnd.apache.arrow.stream"]);
    let mut sender =
        sender.arg(format!("http://{}/sql", served.address)).stdout(Stdio::piped()).spawn().expect("curl starts");
    let mut python = crate::run::formats::python_with("columns").expect("tools/python-packages.sh made it").command();
    let stream = sender.stdout.take().expect("it is piped");
    let output = python.args(["-c", script]).stdin(stream).output().expect("python starts");
    assert!(sender.wait().expect("curl ends").success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3 13", "{output:?}");
}

#[test]
fn parameters_are_values_and_not_text_of_the_statement() {
    needs!("curl");
    let served = start_server(&[]);
    let json = |body: &str| get(&served, "/sql", &["--header", "content-type: application/json", "--data", body]);
    let found = json(
        r#"{"sql": "SELECT position FROM \"x.bed\" WHERE contig = $1 AND position > $2", "parameters": ["chr1", 5]}"#,
    );
    assert_eq!((found.status, found.body.as_str()), (200, "{\"position\":7}\n"));
    let quoted = json(r#"{"sql": "SELECT position FROM \"x.bed\" WHERE contig = $1", "parameters": ["' OR true --"]}"#);
    assert_eq!((quoted.status, quoted.body.as_str()), (200, ""));
    for count in ["1", "\"1\""] {
        let limited = r#"{"sql": "SELECT position FROM \"x.bed\" ORDER BY position LIMIT $1 OFFSET $2", "parameters": [COUNT, COUNT]}"#;
        let limited = json(&limited.replace("COUNT", count));
        assert_eq!((limited.status, limited.body.as_str()), (200, "{\"position\":5}\n"), "{count}");
    }
    assert_eq!(error_code(&json(r#"{"sql": "SELECT $1", "parameters": [[1]]}"#)), "400 InvalidArgument");
    assert_eq!(error_code(&json("no JSON")), "400 InvalidArgument");
}

#[test]
fn errors_are_json_with_an_http_status() {
    needs!("curl");
    let served = start_server(&["--statement-rows", "10", "--statement-time", "2s"]);
    assert_eq!(error_code(&post(&served, "nonsense", &[])), "400 InvalidArgument");
    assert_eq!(error_code(&post(&served, "SELECT * FROM nothing", &[])), "404 NotFound");
    assert_eq!(error_code(&post(&served, "DROP TABLE x", &[])), "403 PermissionDenied");
    assert_eq!(error_code(&post(&served, "SELECT * FROM generate_series(1, 11)", &[])), "429 ResourceExhausted");
    assert_eq!(error_code(&post(&served, ENDLESS, &[])), "504 DeadlineExceeded");
    // A browser sends these content types to other sites without asking them first.
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let form = get(&served, "/sql", &["--header", &format!("content-type: {kind}"), "--data", "SELECT 1"]);
        assert_eq!(error_code(&form), "415 no code");
    }
    let read = get(&served, "/sql", &[]);
    assert_eq!((error_code(&read).as_str(), read.header("allow")), ("405 no code", Some("POST")));
    let long = scratch::directory("http-statements-long").join("long.sql");
    std::fs::write(&long, format!("SELECT '{}'", "a".repeat(2 << 20))).expect("it can be written");
    assert_eq!(error_code(&post(&served, &format!("@{}", long.display()), &[])), "413 no code");
}

#[test]
fn callers_get_the_rows_that_the_rules_allow() {
    needs!("curl");
    let (served, [alice, bob]) = start_server_with_policy();
    let sql = "SELECT * FROM people";
    assert_eq!(error_code(&post(&served, sql, &[])), "401 Unauthenticated");
    let by = |token: &str, sql: &str| post(&served, sql, &["--header", &format!("authorization: Bearer {token}")]);
    assert_eq!(by(&alice, sql).body, "{\"subject\":\"ann\",\"age\":34}\n{\"subject\":\"bea\",\"age\":61}\n");
    assert_eq!(by(&bob, sql).body, "{\"age\":34}\n");
    let refused = by(&bob, "SELECT * FROM secret");
    assert!((400..500).contains(&refused.status) && !refused.body.contains("treasure"), "{refused:?}");
}

#[test]
fn a_statement_ends_when_its_client_disconnects() {
    needs!("curl");
    // Only one statement may run, so that the next one waits for the end of the first.
    let served = start_server(&["--statements", "1"]);
    let url = format!("http://{}/sql", served.address);
    let start = |sql: &str| {
        let mut command: Command = Tool::require("curl").command();
        command.args(["--silent", "--header", "content-type: application/sql", "--data-binary", sql, &url]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it can be started")
    };
    let busy = || {
        let text = get(&served, "/metrics", &[]).body;
        text.lines().any(|line| line.starts_with("godwit_statement") && line.contains("busy") && line.ends_with(" 1"))
    };
    // The second statement has sent rows before its client disconnects.
    let after_rows = format!("SELECT 1.0 UNION ALL {ENDLESS}");
    for sql in [ENDLESS, &after_rows] {
        let mut client = start(sql);
        wait_until("the statement runs", busy);
        std::thread::sleep(Duration::from_millis(300));
        client.kill().expect("it can be ended");
        client.wait().expect("it ends");
        let started = Instant::now();
        assert_eq!(post(&served, "SELECT 1 AS one", &[]).body, "{\"one\":1}\n");
        assert!(started.elapsed() < Duration::from_secs(20), "the statement of the lost client still ran");
    }
}

#[test]
fn a_response_that_fails_later_is_not_a_complete_one() {
    needs!("curl");
    let served = start_server(&["--statement-rows", "50000"]);
    let mut command = Tool::require("curl").command();
    command.args(["--silent", "--header", "content-type: application/sql", "--data-binary"]);
    command.args(["SELECT * FROM generate_series(1, 200000)", &format!("http://{}/sql", served.address)]);
    let output = command.output().expect("curl starts");
    // 18: the transfer was closed before its end.
    assert_eq!(output.status.code(), Some(18), "{} bytes", output.stdout.len());
    assert!(!output.stdout.is_empty());
}

#[test]
fn every_command_of_the_page_about_statements_over_http_works() {
    needs!("curl", "bash", "python3");
    let root = scratch::directory("http-statements-guide");
    std::fs::write(root.join("targets.bed"), "chr1\t1000\t2000\tone\nchr1\t1500\t9000\ttwo\n")
        .expect("it can be written");
    run_guide_page("http-sql.md", &DataServer::start(&root, &[]), &root);
}
