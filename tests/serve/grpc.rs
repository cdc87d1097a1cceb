//! Tools that know gRPC and nothing of Arrow: grpcurl and ghz.

use std::path::{Path, PathBuf};
use std::process::Command;

use godwit_tests::served::Served;
use godwit_tests::tool::succeed;
use godwit_tests::{scratch, skip};
use serde_json::Value;

/// Where `tests/tools/grpc/fetch.sh` puts a program.
fn program(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    cache.join("godwit/grpc-tools-1.9.3-0.121.0").join(name)
}

fn protocol() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/grpc/flight.proto")
}

fn served() -> (PathBuf, Served) {
    let root = scratch::directory("grpc");
    std::fs::write(root.join("a.bed"), "chr1\t5\t9\nchr2\t7\t8\n").expect("it can be written");
    let served = Served::start(&root, &[]);
    (root, served)
}

fn asking(served: &Served, method: &str, message: &str) -> Command {
    let mut command = Command::new(program("grpcurl"));
    command.args(["-plaintext", "-import-path"]).arg(protocol().parent().expect("it is in a directory"));
    command.args(["-proto", "flight.proto", "-d", message, &served.address]);
    command.arg(format!("arrow.flight.protocol.FlightService/{method}"));
    command
}

/// The messages of an answer.
fn answered(served: &Served, method: &str, message: &str) -> Vec<Value> {
    let output = succeed(&mut asking(served, method, message));
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.collect::<Result<_, _>>().expect("grpcurl prints JSON")
}

#[test]
fn grpcurl_lists_and_fetches() {
    if !program("grpcurl").exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", program("grpcurl").display());
    }
    let (_root, served) = served();
    let listed = answered(&served, "ListFlights", "{}");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["flightDescriptor"]["path"][0], "a.bed");
    let info = answered(&served, "GetFlightInfo", "{\"type\":\"PATH\",\"path\":[\"a.bed\"]}");
    let ticket = info[0]["endpoint"][0]["ticket"].to_string();
    let data = answered(&served, "DoGet", &ticket);
    assert!(data.len() >= 2 && data.iter().any(|message| message["dataBody"].is_string()), "{data:?}");
    let actions = answered(&served, "ListActions", "{}");
    assert!(actions.iter().any(|action| action["type"] == "DropDataset"), "{actions:?}");
    assert_eq!(answered(&served, "DoAction", "{\"type\":\"Status\"}").len(), 1);
    let missing = asking(&served, "GetFlightInfo", "{\"type\":\"PATH\",\"path\":[\"b.bed\"]}").output();
    let missing = missing.expect("grpcurl can be started");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("NotFound"), "{missing:?}");
}

#[test]
fn ghz_finds_every_one_of_many_calls_answered() {
    if !program("ghz").exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", program("ghz").display());
    }
    let (_root, served) = served();
    let mut command = Command::new(program("ghz"));
    command.arg("--insecure").arg("--proto").arg(protocol()).args(["-n", "4000", "-c", "50", "--connections", "10"]);
    command.args(["--call", "arrow.flight.protocol.FlightService.GetFlightInfo", "--format", "json"]);
    command.args(["-d", "{\"type\":1,\"path\":[\"a.bed\"]}", &served.address]);
    let told: Value = serde_json::from_slice(&succeed(&mut command).stdout).expect("ghz prints JSON");
    assert_eq!(told["statusCodeDistribution"], serde_json::json!({ "OK": 4000 }), "{told}");
}
