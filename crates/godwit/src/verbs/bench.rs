//! `godwit bench`: measures the throughput and latency of networks and servers.

mod flight;
mod path;
mod query;
mod shuffle;

use std::io::{BufRead, BufReader};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use godwit_cli::cli::BenchVerb;
use godwit_cli::failure::Failure;
use godwit_cli::log::log_event;
use godwit_flight::{Address, ConnectionSecurity, DataPlane, Routes, Server, TransportOptions};
use godwit_model::ErrorKind;
use tokio::runtime::Runtime;

use super::wait_for_stdin_close;

/// Text before the address in the first line that a benchmark server prints.
const LISTENING: &str = "listening on ";

/// Runs the benchmark that the subcommand selects.
pub fn run(verb: &BenchVerb) -> Result<(), Failure> {
    match verb {
        BenchVerb::Flight(args) => flight::run(args),
        BenchVerb::Path(args) => path::run(args),
        BenchVerb::PathEmulator(args) => path::run_emulator(args),
        BenchVerb::Query(args) => query::run(args),
        BenchVerb::Shuffle(args) => shuffle::run(args),
    }
}

/// A server in a separate process of this program. Dropping this value stops the server.
struct ServerProcess {
    child: Child,
    /// First line that the server has printed, which contains its address.
    first_line: String,
}

impl ServerProcess {
    /// Starts a server, and waits until it has printed its address. The server must exit when its stdin is closed.
    fn start(mut command: Command) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start the server: {error}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        let mut server = Self { child, first_line: String::new() };
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut server.first_line).map_err(failed)?;
        }
        match server.first_line.is_empty() {
            true => Err(Failure::new(ErrorKind::Machine, "the server did not start; see above".into())),
            false => Ok(server),
        }
    }

    /// Returns the URL of a server that was started with `godwit serve`.
    fn url(&self) -> &str {
        self.first_line.split_whitespace().find(|word| word.contains("://")).unwrap_or_default()
    }

    /// Returns the address of a server that was started with `godwit bench flight` or `godwit bench shuffle`.
    fn address(&self) -> &str {
        self.first_line.trim().strip_prefix(LISTENING).unwrap_or_default()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server exits when its stdin is closed.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns the path of this executable, for starting further processes of it.
fn current_program() -> Result<PathBuf, Failure> {
    let failed = |error| Failure::new(ErrorKind::Machine, format!("cannot find this program: {error}"));
    std::env::current_exe().map_err(failed)
}

/// Prints an event with the name of the measurement that starts now, if `json` is true.
fn report_stage(json: bool, name: &str) {
    if json {
        log_event(&serde_json::json!({"event": "stage", "name": name}).to_string());
    }
}

fn new_runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start threads: {error}")))
}

/// Runs a benchmark server until the process is stopped or, if `until_stdin_closes` is true, until stdin is closed.
async fn serve_until_stopped(
    address: &Address,
    data: impl DataPlane,
    tuning: TransportOptions,
    until_stdin_closes: bool,
) -> Result<(), Failure> {
    let server = Server::bind(address, data, Routes::default(), ConnectionSecurity::default(), tuning).await?;
    super::print(&format!("{LISTENING}{}\n", server.address()))?;
    tokio::select! {
        () = server.serve() => {}
        () = wait_for_stdin_close(until_stdin_closes) => {}
    }
    Ok(())
}

/// Parses `HOST:PORT` or `unix:PATH`.
fn parse_address(text: &str) -> Result<Address, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(path.into()));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let wrong = || Failure::new(ErrorKind::Usage, format!("{text} is not an address; use HOST:PORT or unix:PATH"));
    found.map(Address::Tcp).ok_or_else(wrong)
}

/// Returns the CPU time of a process in seconds, from fields 14 and 15 of its `/proc/PID/stat` (proc(5)). Field 2 may
/// contain spaces.
fn process_cpu_seconds(stat: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(stat).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // The fields are in clock ticks; Linux has 100 ticks per second in user space on all current platforms.
    Some(ticks / 100.0)
}
