//! Entries below the root of a server that cannot be served: the server names them, and serves all others.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use godwit_tests::data_server::DataServer;
use godwit_tests::tool::Tool;
use godwit_tests::{needs, scratch};
use serde_json::Value;

use super::http_client::{get, path_text};

#[test]
fn entries_that_cannot_be_served_are_named_and_keep_no_other_from_being_served() {
    needs!("curl", "mkfifo");
    let root = scratch::directory("skipped");
    let path = |name: &str| root.join(name);
    std::fs::create_dir_all(path("deep/er")).expect("it can be made");
    for name in ["x.bed", "deep/er/y.bed"] {
        std::fs::write(path(name), "chr1\t5\t9\n").expect("it can be written");
    }
    std::fs::write(path("damaged.bam"), "no BAM").expect("it can be written");
    std::fs::write(path("damaged.vcf.gz"), b"\x1f\x8b\x08").expect("it can be written");
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"odd\xff.bed")), "chr1\t5\t9\n").expect("it can be written");
    symlink("../..", path("deep/er/up")).expect("a link can be made");
    symlink("nowhere.bed", path("dangling.bed")).expect("a link can be made");
    symlink("itself.bam", path("itself.bam")).expect("a link can be made");
    Tool::require("mkfifo").run([path_text(&path("fifo.bam"))]);
    let served = DataServer::start(&root, &[]);
    assert!(served.ready_line.starts_with("4 datasets of "), "{}", served.ready_line);
    let told: Value = serde_json::from_str(&get(&served, "/api/datasets", &[]).body).expect("it is JSON");
    let listed: Vec<(&str, bool)> = told["datasets"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|dataset| (dataset["name"].as_str().expect("a name"), dataset["problem"].is_string()))
        .collect();
    let expected = [("damaged.bam", true), ("damaged.vcf.gz", true), ("deep/er/y.bed", false), ("x.bed", false)];
    assert_eq!(listed, expected);
    let question = r#"{"sql": "SELECT count(*) FROM \"deep/er/y.bed\""}"#;
    let words = ["--header", "content-type: application/json", "--data", question];
    assert_eq!(get(&served, "/api/query", &words).status, 200);
    // A removed entry is no longer listed.
    std::fs::remove_file(path("x.bed")).expect("it is there");
    let told = get(&served, "/api/datasets", &[]).body;
    assert!(!told.contains("x.bed") && told.contains("y.bed"), "{told}");
    let (code, said) = served.stop(libc::SIGTERM);
    assert_eq!(code, Some(0), "{said}");
    for (name, reason) in [
        ("deep/er/up", "a directory that contains the link"),
        ("dangling.bed", "No such file"),
        ("itself.bam", "symbolic link"),
        ("fifo.bam", "neither a file nor a directory"),
        ("odd", "not UTF-8"),
    ] {
        let is_named = |line: &str| Path::new(line).to_string_lossy().contains(name) && line.contains(reason);
        assert!(said.lines().any(is_named), "{name}: {said}");
    }
    assert_eq!(said.lines().filter(|line| line.contains("is not served")).count(), 5, "{said}");
}
