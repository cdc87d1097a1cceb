//! Arrow's own integration scenarios for Flight, against the Go implementation, each way round.
//!
//! `cargo xtask conformance` builds the Go programs and runs this; without them it reports that it is skipped. The scenarios
//! are those of `arrow-flight-integration-client` 18.8; `""` is the round trip of a JSON file. `DoExchange`, for which Go's
//! programs have no scenario, is tested against a stock server and client in `tests/flight.rs`.

mod client;
mod data;
mod server;
mod session_messages;
mod sql;
mod sql_client;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use godwit_flight::Address;
use godwit_tests::{scratch, skip};
use tokio::runtime::Runtime;

const SCENARIOS: [&str; 15] = [
    "",
    "auth:basic_proto",
    "middleware",
    "ordered",
    "expiration_time:do_get",
    "expiration_time:list_actions",
    "expiration_time:cancel_flight_info",
    "expiration_time:renew_flight_endpoint",
    "location:reuse_connection",
    "poll_flight_info",
    "app_metadata_flight_info_endpoint",
    "session_options",
    "flight_sql",
    "flight_sql:extension",
    "flight_sql:ingestion",
];

/// Returns the path where `tests/tools/arrow-go/fetch.sh` puts a program.
fn go_program(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"))).unwrap_or_default();
    cache.join("godwit/arrow-go-18.8.0").join(name)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads can be started")
}

#[test]
fn the_go_client_passes_every_scenario_with_our_server() {
    let program = go_program("arrow-flight-integration-client");
    if !program.exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", program.display());
    }
    let directory = scratch::directory("conformance-server");
    let sent = data::batches(&[7, 0, 500]);
    let json = data::write_json(&sent, &go_program("arrow-json-integration-test"), &directory);
    let runtime = runtime();
    for scenario in SCENARIOS {
        let (address, state) = runtime.block_on(server::serve(scenario));
        let Address::Tcp(address) = address else { panic!("a TCP server") };
        let mut command = Command::new(&program);
        command.args(["-host", "127.0.0.1", "-port", &address.port().to_string(), "-scenario", scenario]);
        let output = command.arg("-path").arg(&json).output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scenario}: {said}");
        if scenario.is_empty() {
            // Go's client does not check the received data in this scenario (`ordered` does): the uploaded data are checked.
            let name = json.display().to_string();
            assert!(state.uploaded(&name).expect("it is uploaded") == sent, "what came is not what was in the file");
        }
    }
}

#[test]
fn our_client_passes_every_scenario_with_the_go_server() {
    let program = go_program("arrow-flight-integration-server");
    if !program.exists() {
        skip!("arrow-go", "no {}; cargo xtask conformance makes it", program.display());
    }
    let runtime = runtime();
    for scenario in SCENARIOS {
        let server = GoServer::start(&program, scenario);
        runtime.block_on(client::run_scenario(scenario, &server.address));
    }
}

#[test]
fn our_client_and_our_server_pass_every_scenario_together() {
    let runtime = runtime();
    for scenario in SCENARIOS {
        let (address, _) = runtime.block_on(server::serve(scenario));
        runtime.block_on(client::run_scenario(scenario, &address));
    }
}

/// A server of the Go implementation; dropping the value ends it.
struct GoServer {
    child: Child,
    address: Address,
}

impl GoServer {
    fn start(program: &std::path::Path, scenario: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["-port", "0", "-scenario", scenario]).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it listens");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("it says its port");
        Self { child, address: Address::Tcp(([127, 0, 0, 1], port).into()) }
    }
}

impl Drop for GoServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
