//! Metrics of a server, read with the parsers of Prometheus' own client and compared with the known calls.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::wait::wait_until;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{get, path_text, python_output, shell_blocks};

const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0";

/// Creates a root with a table of three rows.
fn metrics_root() -> std::path::PathBuf {
    let root = scratch::directory("metrics");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\nchr2\t7\t8\nchr2\t9\t10\n").expect("it can be written");
    root
}

/// Returns values by name and labels, the content type of the response, and the families.
fn metric_samples(served: &DataServer, accept: &str, token: &str) -> (BTreeMap<String, f64>, String, BTreeSet<String>) {
    let told = python_output(&["metric_samples", &format!("http://{}/metrics", served.address), accept, token]);
    let mut lines = told.lines();
    let kind = lines.next().expect("the type comes first").to_owned();
    let (mut values, mut families) = (BTreeMap::new(), BTreeSet::new());
    for line in lines {
        let fields: Vec<&str> = line.split('\t').collect();
        let [family, name, labels, value] = fields[..] else { panic!("{line}") };
        let labels = if labels == "-" { String::new() } else { format!("{{{labels}}}") };
        let unique = values.insert(format!("{name}{labels}"), value.parse().expect("it is a number")).is_none();
        assert!(unique, "{line} is told twice");
        families.insert(family.to_owned());
    }
    (values, kind, families)
}

fn repository_file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn calls_rows_bytes_and_workers_are_counted_and_both_formats_say_the_same() {
    needs!("python3", "curl");
    let root = metrics_root();
    let audit = root.join(".audit");
    let served = DataServer::start(&root, &["--statements", "3", "--audit", path_text(&audit)]);
    let url = format!("grpc+tcp://{}", served.address);
    let query = |sql: &str| godwit().args(["query", sql, "--at", &url, "--format", "csv"]).run();
    assert_eq!(query("SELECT count(*) n FROM a").stdout, "n\n3\n");
    assert_eq!(query("SELECT contig FROM a").stdout.lines().count(), 4);
    query("SELECT nothing FROM a").assert_rejected(&[2], &["nothing"]);
    get(&served, "/reads/none.bam", &[]);
    let value = |name: &str| metric_samples(&served, "text/plain", "").0.get(name).copied();
    // Wait: the server counts a call after it has sent the last byte, which may be after the exit of the client.
    wait_until("both answers are counted", || value("godwit_calls_total{status=Ok,verb=DoGet}") == Some(2.0));
    wait_until("none is open", || value("godwit_open_calls{verb=DoGet}") == Some(0.0));
    let (older, kind, _) = metric_samples(&served, "text/plain;version=0.0.4", "");
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    for (name, expected) in [
        ("godwit_sent_rows_total{verb=DoGet}", 4.0),
        ("godwit_call_seconds_count{verb=DoGet}", 2.0),
        ("godwit_calls_total{status=404,verb=Htsget}", 1.0),
        ("godwit_statement_workers{state=busy}", 0.0),
        ("godwit_statement_workers_limit", 3.0),
        ("godwit_received_rows_total{verb=DoPut}", 0.0),
        ("godwit_open_calls{verb=Metrics}", 1.0),
    ] {
        assert_eq!(older.get(name), Some(&expected), "{name} in {older:#?}");
    }
    assert!(older["godwit_sent_bytes_total{verb=DoGet}"] > 100.0);
    assert!(
        older["godwit_call_seconds_bucket{le=+Inf,verb=DoGet}"]
            >= older["godwit_call_seconds_bucket{le=0.001,verb=DoGet}"]
    );
    assert!(older.keys().any(|name| name.starts_with("godwit_calls_total{status=InvalidArgument,")), "{older:#?}");
    let lines = std::fs::read_to_string(&audit).expect("it is there").lines().count() as f64;
    let audited = older.iter().filter(|(name, _)| name.starts_with("godwit_audit_lines_total{"));
    assert_eq!(audited.map(|(_, count)| count).sum::<f64>(), lines);
    let (open, kind, _) = metric_samples(&served, OPENMETRICS_TYPE, "");
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let names = |values: &BTreeMap<String, f64>| -> BTreeSet<String> { values.keys().cloned().collect() };
    assert_eq!(names(&older), names(&open));
    // The metrics must not contain names of datasets or columns.
    assert!(!open.keys().any(|name| name.contains("contig") || name.contains("bed")), "{open:#?}");
}

#[test]
fn rows_that_are_put_are_counted() {
    needs!("python3", "curl");
    let root = metrics_root();
    let served = DataServer::start(&root, &["--writable"]);
    let put = "import pyarrow\nfrom pyarrow import flight\n\
        client = flight.connect('grpc+tcp://ADDRESS')\ntable = pyarrow.table({'x': list(range(77))})\n\
        descriptor = flight.FlightDescriptor.for_path('new')\nwriter, answers = client.do_put(descriptor, table.schema)\n\
        with writer:\n    writer.write_table(table)\n    writer.done_writing()\n    answers.read()\n";
    let python = crate::run::formats::pyarrow_python().expect("tools/python-packages.sh made it");
    python.run(["-c", &put.replace("ADDRESS", &served.address)]);
    let value = |name: &str| metric_samples(&served, OPENMETRICS_TYPE, "").0.get(name).copied();
    wait_until("the rows are counted", || value("godwit_received_rows_total{verb=DoPut}") == Some(77.0));
    assert!(value("godwit_received_bytes_total{verb=DoPut}").is_some_and(|bytes| bytes > 77.0 * 8.0));
}

#[test]
fn metrics_are_returned_to_authenticated_clients() {
    needs!("python3", "curl");
    let root = metrics_root();
    let tokens = scratch::directory("metrics-tokens").join("tokens");
    let token = godwit().args(["token", "prometheus", "--tokens", path_text(&tokens)]).run_ok().stdout;
    let served = DataServer::start(&root, &["--tokens", path_text(&tokens)]);
    for words in [&[][..], &["--header", "authorization: Bearer nonsense"]] {
        let refused = get(&served, "/metrics", words);
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{refused:?}");
    }
    let (values, ..) = metric_samples(&served, OPENMETRICS_TYPE, token.trim());
    assert_eq!(values["godwit_refused_callers_total{reason=token}"], 2.0);
    assert!(!values.keys().any(|name| name.contains("verb=prometheus") || name.contains("alice")), "{values:#?}");
    let written = get(
        &served,
        "/metrics",
        &["--request", "POST", "--header", &format!("authorization: Bearer {}", token.trim())],
    );
    assert_eq!((written.status, written.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn every_metric_is_documented_and_every_query_of_the_dashboard_names_one() {
    needs!("python3");
    let served = DataServer::start(&metrics_root(), &[]);
    let (values, ..) = metric_samples(&served, "text/plain", "");
    for sample in ["godwit_refused_callers_total{reason=host}", "godwit_audit_lines_total{outcome=failed}"] {
        assert_eq!(values.get(sample), Some(&0.0), "{sample} before its first event, in {values:#?}");
    }
    get(&served, "/elsewhere", &["--header", "host: other.example.org"]);
    let (values, _, families) = metric_samples(&served, "text/plain", "");
    let name = |sample: &String| sample.split('{').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = values.keys().map(name).collect();

    let page = repository_file("docs/reference/metrics.md");
    let documented: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).map(str::to_owned).collect();
    let with_endings = |family: &String| match names.contains(&format!("{family}_total")) {
        true => format!("{family}_total"),
        false => family.clone(),
    };
    let told: BTreeSet<String> = families.iter().map(with_endings).collect();
    assert_eq!(documented, told, "docs/reference/metrics.md lists what is told");

    let dashboard: Value = serde_json::from_str(&repository_file("packaging/grafana/godwit.json")).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("each asks something"));
    let queries: Vec<&str> = targets.map(|target| target["expr"].as_str().expect("a query is text")).collect();
    let variable = dashboard["templating"]["list"][1]["query"]["query"].as_str().expect("it is text");
    let mut used = BTreeSet::new();
    for query in queries.iter().chain([&variable]) {
        let words = query.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        let metrics: Vec<&str> = words.filter(|word| word.starts_with("godwit_")).collect();
        assert!(!metrics.is_empty(), "{query} asks for nothing of ours");
        for metric in metrics {
            assert!(names.contains(metric), "{query}: there is no {metric} in {names:#?}");
            used.insert(metric.trim_end_matches("_bucket").to_owned());
        }
        let balanced = |open: char, close: char| query.matches(open).count() == query.matches(close).count();
        assert!(balanced('(', ')') && balanced('{', '}') && balanced('[', ']'), "{query}");
    }
    assert_eq!(used, documented, "each metric is on the dashboard");
}

#[test]
fn every_command_of_the_page_about_monitoring_works() {
    needs!("bash", "curl");
    let served = DataServer::start(&metrics_root(), &[]);
    let blocks = shell_blocks("monitoring.md");
    assert!(!blocks.is_empty(), "the page has lost its commands");
    for block in blocks {
        let block = block.replace("127.0.0.1:8815", &served.address);
        let told = godwit_tests::tool::Tool::require("bash").run(["-euo", "pipefail", "-c", &block]).stdout;
        assert!(String::from_utf8_lossy(&told).contains("godwit_build_info"), "{block}");
    }
}
