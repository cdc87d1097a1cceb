//! `godwit bench`: what this network and this machine give.

mod flight;
mod path;
mod query;
mod shuffle;

use std::io::{BufRead, BufReader};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use godwit_flight::{Access, Address, DataPlane, Routes, Server, Tuning};
use tokio::runtime::Runtime;

use super::closed;
use crate::cli::BenchVerb;
use crate::failure::{Exit, Failure, log_event};

/// The beginning of the line of a server of a benchmark, before its address.
const LISTENING: &str = "listening on ";

/// Runs a benchmark.
pub fn run(verb: &BenchVerb) -> Result<(), Failure> {
    match verb {
        BenchVerb::Flight(args) => flight::run(args),
        BenchVerb::Path(args) => path::run(args),
        BenchVerb::PathEmulator(args) => path::emulate(args),
        BenchVerb::Query(args) => query::run(args),
        BenchVerb::Shuffle(args) => shuffle::run(args),
    }
}

/// A server of ours in a process of its own. Dropping it ends it.
struct OwnServer {
    child: Child,
    /// Its first line: where it is.
    said: String,
}

impl OwnServer {
    /// Starts a server that ends when its stdin is closed, and waits until it says where it is.
    fn start(mut command: Command) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the server: {error}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        let mut server = Self { child, said: String::new() };
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut server.said).map_err(failed)?;
        }
        match server.said.is_empty() {
            true => Err(Failure::new(Exit::Machine, "the server did not start; see above".into())),
            false => Ok(server),
        }
    }

    /// The URL in the line of `godwit serve`, wherever it stands.
    fn url(&self) -> &str {
        self.said.split_whitespace().find(|word| word.contains("://")).unwrap_or_default()
    }

    /// The address in the line of a server of a benchmark.
    fn address(&self) -> &str {
        self.said.trim().strip_prefix(LISTENING).unwrap_or_default()
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // Closing its stdin ends it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// This program, to be started once more.
fn program() -> Result<PathBuf, Failure> {
    let failed = |error| Failure::new(Exit::Machine, format!("cannot find this program: {error}"));
    std::env::current_exe().map_err(failed)
}

/// Says with `--json` what is measured next.
fn tell_stage(json: bool, name: &str) {
    if json {
        log_event(&serde_json::json!({"event": "stage", "name": name}).to_string());
    }
}

fn threads() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))
}

/// Serves until the process is stopped, or until its stdin is closed.
async fn serve(
    address: &Address,
    data: impl DataPlane,
    tuning: Tuning,
    until_stdin_closes: bool,
) -> Result<(), Failure> {
    let server = Server::bind(address, data, Routes::default(), Access::default(), tuning).await?;
    super::print(&format!("{LISTENING}{}\n", server.address()))?;
    tokio::select! {
        () = server.serve() => {}
        () = closed(until_stdin_closes) => {}
    }
    Ok(())
}

/// `HOST:PORT` or `unix:PATH`.
fn parse_address(text: &str) -> Result<Address, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Address::Unix(path.into()));
    }
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    let wrong = || Failure::new(Exit::Usage, format!("{text} is no address; give HOST:PORT or unix:PATH"));
    found.map(Address::Tcp).ok_or_else(wrong)
}

/// User and system time of a process so far (proc(5): fields 14 and 15 of `stat`, in clock ticks; the second may hold blanks).
fn process_seconds(stat: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(stat).ok()?;
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    // Linux tells user space 100 ticks a second on every machine it runs on today.
    Some(ticks / 100.0)
}
