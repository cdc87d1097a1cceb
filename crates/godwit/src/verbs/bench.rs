//! `godwit bench`: measurements of this network and this host.

mod flight;
mod path;
mod query;
mod shuffle;

use std::io::{BufRead, BufReader};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use godwit_flight::{Address, ConnectionSecurity, DataPlane, Routes, Server, TransportOptions};
use tokio::runtime::Runtime;

use super::wait_for_stdin_close;
use crate::cli::BenchVerb;
use crate::failure::{Exit, Failure, log_event};

/// Start of the first line of a benchmark server, before its address.
const LISTENING: &str = "listening on ";

/// Runs a benchmark.
pub fn run(verb: &BenchVerb) -> Result<(), Failure> {
    match verb {
        BenchVerb::Flight(args) => flight::run(args),
        BenchVerb::Path(args) => path::run(args),
        BenchVerb::PathEmulator(args) => path::run_emulator(args),
        BenchVerb::Query(args) => query::run(args),
        BenchVerb::Shuffle(args) => shuffle::run(args),
    }
}

/// A server of this program in a separate process. Dropping it stops the server.
struct ServerProcess {
    child: Child,
    /// Its first line of output, which holds the address.
    first_line: String,
}

impl ServerProcess {
    /// Starts a server that exits when its stdin is closed, and waits until it prints its address.
    fn start(mut command: Command) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the server: {error}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        let mut server = Self { child, first_line: String::new() };
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut server.first_line).map_err(failed)?;
        }
        match server.first_line.is_empty() {
            true => Err(Failure::new(Exit::Machine, "the server did not start; see above".into())),
            false => Ok(server),
        }
    }

    /// Returns the URL in the first line of `godwit serve`.
    fn url(&self) -> &str {
        self.first_line.split_whitespace().find(|word| word.contains("://")).unwrap_or_default()
    }

    /// Returns the address in the first line of a benchmark server.
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

/// Returns the path of this program, to start it again.
fn current_program() -> Result<PathBuf, Failure> {
    let failed = |error| Failure::new(Exit::Machine, format!("cannot find this program: {error}"));
    std::env::current_exe().map_err(failed)
}

/// With `--json`, reports the next measurement as an event.
fn report_stage(json: bool, name: &str) {
    if json {
        log_event(&serde_json::json!({"event": "stage", "name": name}).to_string());
    }
}

fn new_runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))
}

/// Serves until the process is stopped, or until its stdin is closed.
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
    let wrong = || Failure::new(Exit::Usage, format!("{text} is no address; give HOST:PORT or unix:PATH"));
    found.map(Address::Tcp).ok_or_else(wrong)
}

/// Returns the CPU time of a process (proc(5): fields 14 and 15 of `stat`, in ticks; field 2 may hold blanks).
fn process_cpu_seconds(stat: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(stat).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // Linux uses 100 ticks per second in user space on all current platforms.
    Some(ticks / 100.0)
}
