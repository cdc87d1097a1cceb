//! Tools for gRPC that do not know Arrow: grpcurl and ghz.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::binary::godwit;
use godwit_tests::data_server::DataServer;
use godwit_tests::tool::run_checked;
use godwit_tests::{needs, scratch, skip};
use serde_json::Value;

use crate::run::formats::python_with;

/// Returns the path at which `tests/tools/grpc/fetch.sh` puts a program.
fn tool_path(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    cache.join("godwit/grpc-tools-1.9.3-0.121.0").join(name)
}

fn proto_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/godwit-flight/proto/Flight.proto")
}

fn start_server() -> (PathBuf, DataServer) {
    let root = scratch::directory("grpc");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\nchr2\t7\t8\n").expect("it can be written");
    let served = DataServer::start(&root, &[]);
    (root, served)
}

fn grpcurl_command(served: &DataServer, method: &str, message: &str) -> Command {
    let mut command = Command::new(tool_path("grpcurl"));
    command.args(["-plaintext", "-import-path"]).arg(proto_path().parent().expect("it is in a directory"));
    command.args(["-proto", "Flight.proto", "-d", message, &served.address]);
    command.arg(format!("arrow.flight.protocol.FlightService/{method}"));
    command
}

/// Returns the messages of a response.
fn grpcurl_messages(served: &DataServer, method: &str, message: &str) -> Vec<Value> {
    let output = run_checked(&mut grpcurl_command(served, method, message));
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.collect::<Result<_, _>>().expect("grpcurl prints JSON")
}

#[test]
fn a_client_that_knows_nothing_but_the_address_finds_out_the_rest() {
    needs!("python3");
    let directory = scratch::directory("reflection");
    let root = directory.join("root");
    std::fs::create_dir(&root).expect("it can be made");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\nchr2\t7\t8\n").expect("it can be written");
    let tokens = directory.join("tokens");
    let token = godwit().args(["token", "alice", "--tokens"]).arg(&tokens).run_ok().stdout;
    let ask = |served: &DataServer, words: &[&str]| {
        let mut command = python_with("reflection").expect("tools/python-packages.sh made it").command();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/reflection/reflection_client.py"));
        command.arg(&served.address).arg("a.bed").args(words).output().expect("it can be started")
    };
    for words in [vec![], vec!["--tokens", tokens.to_str().expect("it is text")]] {
        let served = DataServer::start(&root, &words);
        let shown: &[&str] = if words.is_empty() { &[] } else { &[token.trim()] };
        let told = ask(&served, shown);
        let lines = String::from_utf8_lossy(&told.stdout).into_owned();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 6, "{told:?}");
        for service in ["arrow.flight.protocol.FlightService", "grpc.health.v1.Health"] {
            assert!(lines[0].contains(service), "{lines:?}");
        }
        assert_eq!(lines[1..3], ["a.bed True 1", "1 messages have data"]);
        assert!(lines[3].contains("DropDataset"), "{lines:?}");
        let calls =
            "Handshake ListFlights GetFlightInfo PollFlightInfo GetSchema DoGet DoPut DoExchange DoAction ListActions";
        assert_eq!(lines[4..], [calls, "UNKNOWN PATH CMD"]);
        if !words.is_empty() {
            let refused = ask(&served, &[]);
            assert!(!refused.status.success() && refused.stdout.is_empty(), "{refused:?}");
        }
    }
}

#[test]
fn grpcurl_lists_and_fetches() {
    if !tool_path("grpcurl").exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", tool_path("grpcurl").display());
    }
    let (_root, served) = start_server();
    let listed = grpcurl_messages(&served, "ListFlights", "{}");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["flightDescriptor"]["path"][0], "a.bed");
    let info = grpcurl_messages(&served, "GetFlightInfo", "{\"type\":\"PATH\",\"path\":[\"a.bed\"]}");
    let ticket = info[0]["endpoint"][0]["ticket"].to_string();
    let data = grpcurl_messages(&served, "DoGet", &ticket);
    assert!(data.len() >= 2 && data.iter().any(|message| message["dataBody"].is_string()), "{data:?}");
    let actions = grpcurl_messages(&served, "ListActions", "{}");
    assert!(actions.iter().any(|action| action["type"] == "DropDataset"), "{actions:?}");
    assert_eq!(grpcurl_messages(&served, "DoAction", "{\"type\":\"Status\"}").len(), 1);
    let missing = grpcurl_command(&served, "GetFlightInfo", "{\"type\":\"PATH\",\"path\":[\"b.bed\"]}").output();
    let missing = missing.expect("grpcurl can be started");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("NotFound"), "{missing:?}");
}

#[test]
fn ghz_finds_every_one_of_many_calls_answered() {
    if !tool_path("ghz").exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", tool_path("ghz").display());
    }
    let (_root, served) = start_server();
    let mut command = Command::new(tool_path("ghz"));
    command.arg("--insecure").arg("--proto").arg(proto_path()).args(["-n", "4000", "-c", "50", "--connections", "10"]);
    command.args(["--call", "arrow.flight.protocol.FlightService.GetFlightInfo", "--format", "json"]);
    command.args(["-d", "{\"type\":1,\"path\":[\"a.bed\"]}", &served.address]);
    let told: Value = serde_json::from_slice(&run_checked(&mut command).stdout).expect("ghz prints JSON");
    assert_eq!(told["statusCodeDistribution"], serde_json::json!({ "OK": 4000 }), "{told}");
}
