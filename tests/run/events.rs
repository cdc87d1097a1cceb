//! `--json`: every line is an event as `docs/reference/events.md` defines it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use godwit_tests::binary::{godwit, path as godwit_path};
use godwit_tests::reference_pipeline::AlignOptions;
use godwit_tests::sample::{Sample, SampleSpec, TitleComments};
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::bwa_identity;

const EXIT_USAGE: i32 = 2;
const EXIT_MACHINE: i32 = 4;

/// The fields of each type of event: name, type, and whether the value may be null.
type EventSchema = BTreeMap<String, Vec<(String, String, bool)>>;

fn documented_schema() -> EventSchema {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/events.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    let mut schema = EventSchema::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| event")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (name, nullable) = match cells[1].strip_suffix(" ?") {
            Some(name) => (name, true),
            None => (cells[1], false),
        };
        schema.entry(cells[0].to_owned()).or_default().push((name.to_owned(), cells[2].to_owned(), nullable));
    }
    schema
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        _ => "something else",
    }
}

/// Parses lines as events and checks each against the page.
fn parse_checked_events(stderr: &str) -> Vec<Value> {
    let schema = documented_schema();
    let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    let events: Vec<Value> = stderr.lines().map(parse).collect();
    for event in &events {
        let kind = event["event"].as_str().unwrap_or_else(|| panic!("{event} has no kind"));
        let fields = schema.get(kind).unwrap_or_else(|| panic!("{event} is not documented"));
        let found: BTreeSet<&str> = event.as_object().expect("an object").keys().map(String::as_str).collect();
        let expected: BTreeSet<&str> = fields.iter().map(|(name, ..)| name.as_str()).chain(["event"]).collect();
        assert_eq!(found, expected, "{event}");
        for (name, kind, nullable) in fields {
            let found = json_type(&event[name]);
            assert!(found == kind || *nullable && found == "null", "{name} of {event} is a {found}");
        }
    }
    events
}

fn event_kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["event"].as_str()).collect()
}

fn sample() -> std::sync::Arc<Sample> {
    let lanes = vec![4000, 2000];
    Sample::cached(&SampleSpec { seed: 14, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
}

#[test]
fn every_line_is_a_documented_event_and_the_last_one_tells_the_end() {
    needs!("bwa");
    let out = scratch::directory("events");
    let aligned = bwa_identity::align(&sample(), &AlignOptions::default(), &out).arg("--json").run_ok();
    let marked = godwit().arg("markdup").arg(out.join("sample.bam")).arg("--out").arg(out.join("again.bam"));
    let marked = marked.arg("--json").run_ok();
    let indexed = godwit().arg("index").arg(sample().godwit_indexed_reference()).arg("--json").run_ok();
    for (finished, expected) in [
        (&aligned, &["stage", "aligned", "written", "message", "done"][..]),
        (&marked, &["reading", "done"]),
        (&indexed, &["stage", "done"]),
    ] {
        let events = parse_checked_events(&finished.stderr);
        let kinds = event_kinds(&events);
        assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| ["done", "error"].contains(kind)).count(), 1);
        assert_eq!(kinds.last(), Some(&"done"));
        assert_eq!(events.last().expect("there is one")["exit"], 0);
    }
}

#[test]
fn benchmarks_tell_events_on_stderr_and_results_as_json_or_a_table() {
    let flight = &["bench", "flight", "--bytes", "2M", "--rounds", "1", "--method", "get,put"][..];
    let shuffle = &["bench", "shuffle", "--bytes", "1M", "--rounds", "1", "--nodes", "1,2"][..];
    for words in [flight, shuffle] {
        let told = |format: &[&str]| godwit().args(words.iter().chain(format)).arg("--json").run_ok();
        let finished = told(&["--format", "json"]);
        let events = parse_checked_events(&finished.stderr);
        assert_eq!(event_kinds(&events), ["stage", "stage", "done"], "one for each result");
        let results: Value = serde_json::from_str(&finished.stdout).expect("the results are JSON");
        assert_eq!(results.as_array().map(Vec::len), Some(2), "{results}");
        let table = told(&[]);
        assert_eq!(event_kinds(&parse_checked_events(&table.stderr)), ["stage", "stage", "done"]);
        assert!(serde_json::from_str::<Value>(&table.stdout).is_err());
        assert_eq!(table.stdout.lines().count(), 3, "a line for each result below the head: {}", table.stdout);
        assert_eq!(godwit().args(words).run_ok().stderr, "", "without --json stderr is for people");
    }
    let refused = godwit().args(["bench", "shuffle", "--json", "--nodes", "4", "--bytes", "1"]).run();
    let (events, last) = refused.stderr.trim_end().rsplit_once('\n').expect("an event and the last line");
    assert!(last.starts_with("godwit: error: "), "{last}");
    assert_eq!(event_kinds(&parse_checked_events(events)), ["error"]);
    assert_eq!(refused.status.code(), Some(EXIT_USAGE));
}

#[test]
fn progress_is_the_share_of_the_input_that_is_aligned() {
    needs!("bwa");
    let out = scratch::directory("fractions");
    // The input has twelve blocks, but is much smaller than the read-ahead buffers.
    let options = AlignOptions { block_bases: 100_000, ..AlignOptions::default() };
    let finished = bwa_identity::align(&sample(), &options, &out).arg("--json").run_ok();
    let events = parse_checked_events(&finished.stderr);
    let aligned: Vec<&Value> = events.iter().filter(|event| event["event"] == "aligned").collect();
    let reads = aligned.last().expect("blocks were aligned")["reads"].as_f64().expect("a number");
    assert!(aligned.len() >= 10, "{} blocks", aligned.len());
    let mut last = 0.0;
    for event in &aligned {
        let fraction = event["fraction"].as_f64().expect("the inputs are files");
        let share = event["reads"].as_f64().expect("a number") / reads;
        // The fraction is that of bytes. It differs from the fraction of reads, because reads take fewer bytes in
        // compressed lanes.
        assert!((fraction - share).abs() < 0.4 && fraction >= last, "{event}: {share} of the reads");
        last = fraction;
    }
    assert!(aligned[0]["fraction"].as_f64().expect("a number") < 0.2, "{}", aligned[0]);
    assert_eq!(last, 1.0);
}

#[test]
fn a_failure_is_an_event_and_the_plain_last_line() {
    let out = scratch::directory("failure");
    let words = ["align", "--reference", "/no/ref.fa", "--reads", "/no/a.fq", "--sample", "s", "--json", "--out"];
    let missing = godwit().args(words).arg(&out).run();
    let usage = godwit().args(["align", "--json", "--threads", "0"]).run();
    for (finished, code) in [(&missing, EXIT_MACHINE), (&usage, EXIT_USAGE)] {
        finished.assert_rejected(&[code], &[]);
        let (events, last) = finished.stderr.trim_end().rsplit_once('\n').expect("there are two lines");
        let events = parse_checked_events(events);
        let error = events.last().expect("there is an event");
        assert_eq!((error["event"].as_str(), error["exit"].as_i64()), (Some("error"), Some(i64::from(code))));
        assert_eq!(format!("godwit: error: {}", error["message"].as_str().unwrap_or_default()), last);
    }
}

#[test]
fn quiet_and_progress_and_log_mean_the_same_for_events() {
    needs!("bwa");
    let run = |words: &[&str]| {
        let out = scratch::directory("quiet");
        let finished = bwa_identity::align(&sample(), &AlignOptions::default(), &out).args(words).run_ok();
        finished.stderr
    };
    assert_eq!(event_kinds(&parse_checked_events(&run(&["--json", "--quiet"]))), ["done"]);
    assert_eq!(
        event_kinds(&parse_checked_events(&run(&["--json", "--progress", "none"]))),
        ["message", "message", "done"]
    );
    let no_outcome = run(&["--json", "--log", "warn"]);
    let events = parse_checked_events(&no_outcome);
    assert!(event_kinds(&events).contains(&"aligned") && !event_kinds(&events).contains(&"message"));
    assert_eq!(run(&["--quiet"]), "");
    assert_eq!(run(&["--progress", "none"]).lines().filter(|line| line.starts_with("godwit: ")).count(), 2);
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    needs!("bash");
    for words in ["--help", "align --help", "--version", "completions bash", "config show", "man --markdown"] {
        let command = format!("{} {words} > /dev/full", godwit_path().display());
        let output = Tool::require("bash").command().args(["-c", &command]).output().expect("bash runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(EXIT_MACHINE), "{words}: {stderr}");
        assert!(stderr.starts_with("godwit: error: cannot write to stdout"), "{words}: {stderr}");
        let command = format!("{} {words} | head -c 1 > /dev/null; exit ${{PIPESTATUS[0]}}", godwit_path().display());
        let output = Tool::require("bash").command().args(["-c", &command]).output().expect("bash runs");
        assert!(output.status.success(), "a reader that has seen enough is no failure: {words}");
    }
}
