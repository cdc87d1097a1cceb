//! Spans of what a server does, sent to a collector that reads them with OpenTelemetry's own messages.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::patience::wait_until;
use godwit_tests::served::Served;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::web::{ask, text};
use crate::run::formats::python_with;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SECRET: &str = "a key that nobody is told";
const TERM: i32 = 15;

/// A collector, and what it was told.
struct Collector {
    child: Child,
    url: String,
    told: PathBuf,
}

impl Collector {
    fn start(directory: &Path) -> Self {
        let told = directory.join("spans");
        let mut command = python_with("otlp").expect("tools/python-packages.sh made it").command();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/otlp/collector.py"));
        let mut child = command.arg(&told).arg(SECRET).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it tells its port");
        Self { child, url: format!("http://127.0.0.1:{}", port.trim()), told }
    }

    fn spans(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.told).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.told).unwrap_or_default()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn calls_their_reading_and_statements_are_spans_of_the_callers_trace() {
    needs!("python3", "curl");
    let directory = scratch::directory("traces");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("hush.bed"), "chr1\t5\t9\nchr2\t7\t8\n").expect("it can be written");
    let collector = Collector::start(&directory);
    let headers = format!("x-key={}", SECRET.replace(' ', "%20"));
    let settings = [("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()), ("OTEL_SERVICE_NAME", "genomes")];
    let served = Served::start_with(&root, "127.0.0.1:0", &["--otlp", &collector.url], &settings);
    let url = format!("grpc+tcp://{}", served.address);
    let query = |sql: &str| godwit().args(["query", sql, "--at", &url, "--format", "csv"]).env("TRACEPARENT", PARENT);
    assert_eq!(query("SELECT contig FROM hush").succeeds().stdout, "contig\nchr1\nchr2\n");
    assert_eq!(query("SELECT sum(position) s FROM hush WHERE position < 1234567").succeeds().stdout, "s\n12\n");
    query("SELECT nothing FROM hush").run().refuses(&[2], &["nothing"]);
    ask(&served, "/reads/none.bam", &["--header", &format!("traceparent: {}", PARENT.replace("-01", "-00"))]);
    ask(&served, "/api/me", &[]);
    ask(&served, "/healthz", &[]);
    // What is left is sent at the end.
    let (code, said) = served.end(TERM);
    assert_eq!((code, said.contains("warning")), (Some(0), false), "{said}");
    let spans = collector.spans();
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let gets = named("arrow.flight.protocol.FlightService/DoGet");
    assert_eq!(gets.len(), 2, "{spans:#?}");
    let children: BTreeMap<&str, &Value> =
        spans.iter().filter_map(|span| Some((span["parent"].as_str()?, span))).collect();
    for (get, part, rows) in [(gets[0], "read", 2), (gets[1], "statement", 1)] {
        assert_eq!((get["trace"].as_str(), get["parent"].as_str()), (Some(TRACE), Some("00f067aa0ba902b7")));
        assert_eq!((&get["kind"], &get["service"], &get["failed"]), (&2.into(), &"genomes".into(), &false.into()));
        assert_eq!(get["facts"]["rpc.grpc.status_code"], 0);
        assert_eq!(get["facts"]["rpc.method"], "DoGet");
        let child = children[get["span"].as_str().expect("text")];
        assert_eq!((&child["name"], &child["trace"]), (&part.into(), &TRACE.into()));
        assert_eq!(child["facts"]["godwit.rows"], rows);
    }
    let infos = named("arrow.flight.protocol.FlightService/GetFlightInfo");
    let codes: Vec<i64> = infos.iter().filter_map(|info| info["facts"]["rpc.grpc.status_code"].as_i64()).collect();
    assert_eq!(codes, [0, 0, 3], "what callers do wrong is no failure of the server: {infos:#?}");
    assert!(infos.iter().all(|info| info["failed"] == false));
    let pages: Vec<&Value> = spans.iter().filter(|span| span["facts"]["http.route"].is_string()).collect();
    let [page] = pages[..] else { panic!("one is kept, one the caller has not, one is of health: {pages:#?}") };
    assert_eq!((&page["name"], &page["parent"]), (&"GET Page".into(), &"".into()));
    assert_eq!(page["facts"]["http.response.status_code"], 200);
    assert_ne!(page["trace"], TRACE);
    let told = collector.text();
    for hidden in ["hush", "1234567", "nothing", SECRET] {
        assert!(!told.contains(hidden), "{hidden} is told: {told}");
    }
}

#[test]
fn a_server_goes_on_without_its_collector_and_says_so_once() {
    needs!("curl");
    let directory = scratch::directory("traces-lost");
    // A port that nobody listens at.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("there is one");
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{free}"))];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let served = Served::start_with(&directory, "127.0.0.1:0", &[], &settings);
    for _ in 0..20 {
        assert_eq!(ask(&served, "/api/me", &[]).status, 200);
    }
    let (code, said) = served.end(TERM);
    assert_eq!((code, said.matches("does not take spans").count()), (Some(0), 1), "{said}");
    let wrong = godwit().args(["serve", "--root", text(&directory), "--listen", "127.0.0.1:0", "--otlp", "host:4317"]);
    wrong.run().refuses(&[2], &["--otlp http://"]);
}

#[test]
fn what_a_server_fetches_for_a_caller_belongs_to_the_callers_trace() {
    needs!("python3");
    let directory = scratch::directory("traces-on");
    let [near, far] = ["near", "far"].map(|name| directory.join(name));
    for root in [&near, &far] {
        std::fs::create_dir(root).expect("it can be made");
    }
    std::fs::write(far.join("x.txt"), "text of a file\n").expect("it can be written");
    let collector = Collector::start(&directory);
    let key = format!("x-key={}", SECRET.replace(' ', "%20"));
    let settings = [("OTEL_EXPORTER_OTLP_HEADERS", key.as_str())];
    let source = Served::start_with(&far, "127.0.0.1:0", &["--otlp", &collector.url], &settings);
    let relay = Served::start_with(&near, "127.0.0.1:0", &["--relay"], &[]);
    let url = |served: &Served, name: &str| format!("grpc+tcp://{}/{name}", served.address);
    let copy = godwit().args(["copy", &url(&source, "x.txt"), text(&directory.join("x.txt"))]);
    copy.args(["--relay", &format!("grpc+tcp://{}", relay.address)]).env("TRACEPARENT", PARENT).succeeds();
    assert_eq!(std::fs::read_to_string(directory.join("x.txt")).expect("it is there"), "text of a file\n");
    assert_eq!(relay.end(TERM).0, Some(0));
    source.end(TERM);
    wait_until("spans are there", || !collector.spans().is_empty());
    let spans = collector.spans();
    // Also those that the relay asked for, which makes none itself.
    assert!(spans.iter().all(|span| span["trace"] == TRACE), "{spans:#?}");
    let gets = spans.iter().filter(|span| span["facts"]["rpc.method"] == "DoGet").count();
    assert!(gets > 0, "{spans:#?}");
}

#[test]
fn the_log_is_json_where_that_is_asked_for_and_has_no_secret_at_any_level() {
    needs!("curl");
    let directory = scratch::directory("traces-log");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("hush.bed"), "chr1\t5\t9\n").expect("it can be written");
    let tokens = directory.join("tokens");
    let token = |name: &str| {
        let told = godwit().args(["token", name, "--tokens", text(&tokens)]).succeeds().stdout;
        told.trim().to_owned()
    };
    let alice = token("alice");
    for level in ["error", "warn", "info", "debug"] {
        let settings =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2")];
        let words = ["--tokens", text(&tokens), "--json", "--log", level];
        let served = Served::start_with(&root, "127.0.0.1:0", &words, &settings);
        let shown = format!("authorization: Bearer {alice}");
        let sql = r#"{"sql": "SELECT contig FROM hush WHERE position < 7654321"}"#;
        let asked = ["--header", &shown, "--header", "content-type: application/json", "--data", sql];
        assert_eq!(ask(&served, "/api/query", &asked).status, 200);
        assert!(ask(&served, "/reads/hush.bed?x=1", &["--header", &shown]).status >= 400);
        assert_eq!(ask(&served, "/api/me", &["--header", "authorization: Bearer hunter3"]).status, 401);
        let bob = token("bob");
        let is_let_in =
            || ask(&served, "/api/me", &["--header", &format!("authorization: Bearer {bob}")]).status == 200;
        wait_until("a new token is good", is_let_in);
        let (code, said) = served.end(TERM);
        assert_eq!(code, Some(0), "{said}");
        let events: Vec<Value> =
            said.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
        let count = |event: &str| events.iter().filter(|found| found["event"] == event).count();
        let (warnings, messages, calls) = (count("warning"), count("message"), count("call"));
        assert_eq!(
            (warnings > 0, messages > 0, calls >= 4),
            (level != "error", matches!(level, "info" | "debug"), level == "debug"),
            "{said}"
        );
        for hidden in [alice.as_str(), &bob, "hunter", "hush", "7654321", "alice", "bob"] {
            assert!(!said.contains(hidden), "{level}: {hidden} is in {said}");
        }
    }
}
