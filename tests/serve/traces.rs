//! Trace spans of a server, sent to a collector that decodes them with OpenTelemetry's own messages.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{get, path_text};
use crate::run::formats::python_with;

const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const API_KEY: &str = "a key that nobody is told";
const SIGTERM: i32 = 15;

/// A collector, and the file of the spans that it received.
struct SpanCollector {
    child: Child,
    url: String,
    received_spans: PathBuf,
}

impl SpanCollector {
    fn start(directory: &Path) -> Self {
        let received_spans = directory.join("spans");
        let mut command = python_with("otlp").expect("tools/python-packages.sh made it").command();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/otlp/collector.py"));
        let mut child =
            command.arg(&received_spans).arg(API_KEY).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut port).expect("it tells its port");
        Self { child, url: format!("http://127.0.0.1:{}", port.trim()), received_spans }
    }

    fn spans(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.received_spans).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.received_spans).unwrap_or_default()
    }
}

impl Drop for SpanCollector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn calls_reads_and_statements_are_spans_of_the_clients_trace() {
    needs!("python3", "curl");
    let directory = scratch::directory("traces");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("hush.bed"), "chr1\t5\t9\nchr2\t7\t8\n").expect("it can be written");
    let collector = SpanCollector::start(&directory);
    let headers = format!("x-key={}", API_KEY.replace(' ', "%20"));
    let settings = [("OTEL_EXPORTER_OTLP_HEADERS", headers.as_str()), ("OTEL_SERVICE_NAME", "genomes")];
    let served = DataServer::start_with(&root, "127.0.0.1:0", &["--otlp", &collector.url], &settings);
    let url = format!("grpc+tcp://{}", served.address);
    let query =
        |sql: &str| godwit().args(["query", sql, "--at", &url, "--format", "csv"]).env("TRACEPARENT", TRACEPARENT);
    assert_eq!(query("SELECT contig FROM hush").run_ok().stdout, "contig\nchr1\nchr2\n");
    assert_eq!(query("SELECT sum(position) s FROM hush WHERE position < 1234567").run_ok().stdout, "s\n12\n");
    query("SELECT nothing FROM hush").run().assert_rejected(&[2], &["nothing"]);
    get(&served, "/reads/none.bam", &["--header", &format!("traceparent: {}", TRACEPARENT.replace("-01", "-00"))]);
    get(&served, "/api/me", &[]);
    get(&served, "/healthz", &[]);
    // The server sends the remaining spans when it stops.
    let (code, said) = served.stop(SIGTERM);
    assert_eq!((code, said.contains("warning")), (Some(0), false), "{said}");
    let spans = collector.spans();
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    let gets = named("arrow.flight.protocol.FlightService/DoGet");
    assert_eq!(gets.len(), 2, "{spans:#?}");
    let children: BTreeMap<&str, &Value> =
        spans.iter().filter_map(|span| Some((span["parent"].as_str()?, span))).collect();
    for (get, part, rows) in [(gets[0], "read", 2), (gets[1], "statement", 1)] {
        assert_eq!((get["trace"].as_str(), get["parent"].as_str()), (Some(TRACE_ID), Some("00f067aa0ba902b7")));
        assert_eq!((&get["kind"], &get["service"], &get["failed"]), (&2.into(), &"genomes".into(), &false.into()));
        assert_eq!(get["facts"]["rpc.grpc.status_code"], 0);
        assert_eq!(get["facts"]["rpc.method"], "DoGet");
        let child = children[get["span"].as_str().expect("text")];
        assert_eq!((&child["name"], &child["trace"]), (&part.into(), &TRACE_ID.into()));
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
    assert_ne!(page["trace"], TRACE_ID);
    let told = collector.text();
    for hidden in ["hush", "1234567", "nothing", API_KEY] {
        assert!(!told.contains(hidden), "{hidden} is told: {told}");
    }
}

#[test]
fn a_server_goes_on_without_its_collector_and_says_so_once() {
    needs!("curl");
    let directory = scratch::directory("traces-lost");
    // Choose a port on which no process listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("there is one");
    let settings = [("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{free}"))];
    let settings = settings.each_ref().map(|(name, value)| (*name, value.as_str()));
    let served = DataServer::start_with(&directory, "127.0.0.1:0", &[], &settings);
    for _ in 0..20 {
        assert_eq!(get(&served, "/api/me", &[]).status, 200);
    }
    let (code, said) = served.stop(SIGTERM);
    assert_eq!((code, said.matches("rejects spans").count()), (Some(0), 1), "{said}");
    let wrong =
        godwit().args(["serve", "--root", path_text(&directory), "--listen", "127.0.0.1:0", "--otlp", "host:4317"]);
    wrong.run().assert_rejected(&[2], &["--otlp http://"]);
}

#[test]
fn what_a_server_fetches_for_a_client_belongs_to_the_clients_trace() {
    needs!("python3");
    let directory = scratch::directory("traces-on");
    let [near, far] = ["near", "far"].map(|name| directory.join(name));
    for root in [&near, &far] {
        std::fs::create_dir(root).expect("it can be made");
    }
    std::fs::write(far.join("x.txt"), "text of a file\n").expect("it can be written");
    let collector = SpanCollector::start(&directory);
    let key = format!("x-key={}", API_KEY.replace(' ', "%20"));
    let settings = [("OTEL_EXPORTER_OTLP_HEADERS", key.as_str())];
    let source = DataServer::start_with(&far, "127.0.0.1:0", &["--otlp", &collector.url], &settings);
    let relay = DataServer::start_with(&near, "127.0.0.1:0", &["--relay"], &[]);
    let url = |served: &DataServer, name: &str| format!("grpc+tcp://{}/{name}", served.address);
    let copy = godwit().args(["copy", &url(&source, "x.txt"), path_text(&directory.join("x.txt"))]);
    copy.args(["--relay", &format!("grpc+tcp://{}", relay.address)]).env("TRACEPARENT", TRACEPARENT).run_ok();
    assert_eq!(std::fs::read_to_string(directory.join("x.txt")).expect("it is there"), "text of a file\n");
    assert_eq!(relay.stop(SIGTERM).0, Some(0));
    source.stop(SIGTERM);
    wait_until("spans are there", || !collector.spans().is_empty());
    let spans = collector.spans();
    // All spans must belong to the trace of the client, also those of requests that the relay makes. The relay itself
    // exports no spans.
    assert!(spans.iter().all(|span| span["trace"] == TRACE_ID), "{spans:#?}");
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
        let told = godwit().args(["token", name, "--tokens", path_text(&tokens)]).run_ok().stdout;
        told.trim().to_owned()
    };
    let alice = token("alice");
    for level in ["error", "warn", "info", "debug"] {
        let settings =
            [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9"), ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2")];
        let words = ["--tokens", path_text(&tokens), "--json", "--log", level];
        let served = DataServer::start_with(&root, "127.0.0.1:0", &words, &settings);
        let shown = format!("authorization: Bearer {alice}");
        let sql = r#"{"sql": "SELECT contig FROM hush WHERE position < 7654321"}"#;
        let asked = ["--header", &shown, "--header", "content-type: application/json", "--data", sql];
        assert_eq!(get(&served, "/api/query", &asked).status, 200);
        assert!(get(&served, "/reads/hush.bed?x=1", &["--header", &shown]).status >= 400);
        assert_eq!(get(&served, "/api/me", &["--header", "authorization: Bearer hunter3"]).status, 401);
        let bob = token("bob");
        let is_let_in =
            || get(&served, "/api/me", &["--header", &format!("authorization: Bearer {bob}")]).status == 200;
        wait_until("a new token is good", is_let_in);
        let (code, said) = served.stop(SIGTERM);
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
