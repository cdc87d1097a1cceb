//! `godwit bench path`: a network path between two network namespaces of this machine.

use std::path::Path;

use godwit_tests::binary::{GodwitOutput, godwit};
use godwit_tests::network_namespace::NetworkNamespace;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

/// Returns the missing requirement of an emulated path on this machine; `None` if a path can be created.
fn missing_requirement() -> Option<&'static str> {
    match NetworkNamespace::are_permitted() {
        false => Some("network namespaces may not be made"),
        true if !Path::new("/dev/net/tun").exists() => Some("no /dev/net/tun"),
        true => None,
    }
}

fn run_bench_path(words: &[&str]) -> GodwitOutput {
    godwit().args(["bench", "path", "--rate", "200M", "--bytes", "3M", "--rounds", "2"]).args(words).run()
}

fn network_namespaces() -> String {
    String::from_utf8(Tool::require("ip").run(["netns", "list"]).stdout).expect("names are text")
}

#[test]
fn a_copy_is_measured_over_an_emulated_path() {
    needs!("ip");
    if let Some(reason) = missing_requirement() {
        skip!("network-namespaces", "{reason}");
    }
    let temp = scratch::directory("bench-path");
    let temp = temp.to_str().expect("scratch paths are text");
    let finished =
        run_bench_path(&["--format", "json", "--json", "--rtt", "10", "--loss-per-second", "20", "--temp", temp]);
    assert!(finished.status.success(), "{}", finished.describe());
    let told: Value = serde_json::from_str(&finished.stdout).expect("the result is JSON");
    let number = |key: &str| told[key].as_f64().unwrap_or_else(|| panic!("{key} in {told}"));
    assert_eq!((number("bytes"), number("rounds")), (3.0 * 1024.0 * 1024.0, 2.0), "{told}");
    // Two copies, each of packets of at most 1500 bytes; the path never exceeds its rate.
    assert!(number("packets") > 2.0 * number("bytes") / 1500.0, "{told}");
    assert!(number("percent_of_payload") > 0.0 && number("percent_of_payload") < 100.0, "{told}");
    assert!(number("bound_percent") > 0.0 && number("bound_percent") < 100.0, "{told}");
    assert!(number("lost_at_random") > 0.0, "{told}");
    assert!(finished.stderr.lines().any(|line| line.contains("copy 2 of 2")), "{}", finished.stderr);
    let table = run_bench_path(&["--rtt", "5", "--temp", temp]);
    assert!(table.status.success() && table.stdout.lines().count() == 2, "{}", table.describe());
    assert_eq!(std::fs::read_dir(temp).expect("it is there").count(), 0, "nothing is left behind");
    assert!(!network_namespaces().contains("godwit-"), "{}", network_namespaces());
}

#[test]
fn missing_privileges_for_a_path_are_reported() {
    needs!("setpriv");
    // Where the tests run as root, a program without root's capabilities.
    let limited = Tool::require("setpriv")
        .command()
        .args(["--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(godwit_tests::binary::path())
        .args(["bench", "path"])
        .output();
    let output = limited.expect("it can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("sudo"), "{said}");
    for (words, expected) in
        [(["--queue", "4q"], "0.25bdp"), (["--rtt", "0"], "out of range"), (["--loss", "many"], "share")]
    {
        run_bench_path(&words).assert_rejected(&[2], &[expected]);
    }
}

#[test]
fn what_is_measured_of_paths_is_what_was_asked() {
    needs!("python3");
    let benchmarks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench");
    let mut python = Tool::require("python3").command();
    python.current_dir(benchmarks).env("PYTHONDONTWRITEBYTECODE", "1").args(["-m", "unittest", "tests.test_path"]);
    let said = python.output().expect("it can be started");
    let told = String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && told.contains("\nOK"), "{told}");
}
