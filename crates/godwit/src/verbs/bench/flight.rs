//! `godwit bench flight`: Arrow Flight between two processes, as the published benchmarks of Flight measure it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use godwit_flight::measure::{Measuring, Shape, Transferred, Workload, download, prepare, upload};
use godwit_flight::{Access, Address, Client, Tuning};
use serde_json::{Value, json};

use super::{parse_address, process_seconds, serve, threads};
use crate::cli::{BenchFlightArgs, BenchMethod, BenchShape, BenchSocket, TableFormat};
use crate::failure::{Exit, Failure};

/// Measures, or serves until it is stopped.
pub fn run(args: &BenchFlightArgs) -> Result<(), Failure> {
    let runtime = threads()?;
    match &args.listen {
        Some(address) => {
            let data = Measuring::default();
            runtime.block_on(serve(&parse_address(address)?, data, Tuning::default(), args.until_stdin_closes))
        }
        None => {
            let results = runtime.block_on(measure(args))?;
            match args.format {
                TableFormat::Json => super::super::print(&format!("{:#}\n", Value::from(results))),
                TableFormat::Table => super::super::print(&table(&results)),
            }
        }
    }
}

/// A server of our own, in a process of its own as the peers have it.
struct OwnServer {
    child: Child,
    address: String,
    socket: Option<PathBuf>,
}

impl OwnServer {
    fn start(socket: BenchSocket) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the server: {error}"));
        let path = std::env::temp_dir().join(format!("godwit-bench-{}.sock", std::process::id()));
        let (wanted, socket) = match socket {
            BenchSocket::Tcp => ("127.0.0.1:0".to_owned(), None),
            BenchSocket::Unix => (format!("unix:{}", path.display()), Some(path)),
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["bench", "flight", "--until-stdin-closes", "--listen", &wanted]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(failed)?;
        }
        let address = line.trim().strip_prefix("listening on ").unwrap_or_default().to_owned();
        let server = Self { child, address, socket };
        match server.address.is_empty() {
            true => Err(Failure::new(Exit::Machine, "the server did not start; see above".into())),
            false => Ok(server),
        }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // Closing its stdin ends it.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        if let Some(socket) = &self.socket {
            let _ = std::fs::remove_file(socket);
        }
    }
}

async fn measure(args: &BenchFlightArgs) -> Result<Vec<Value>, Failure> {
    let own = match &args.at {
        Some(_) => None,
        None => Some(OwnServer::start(args.socket)?),
    };
    let address = parse_address(args.at.as_deref().or(own.as_ref().map(|own| &own.address[..])).unwrap_or_default())?;
    let shape = match args.shape {
        BenchShape::Fixed => Shape::Fixed { columns: args.row_bytes.div_ceil(8) as usize },
        BenchShape::Alignments => Shape::Alignments,
    };
    let workload = Workload { shape, rows_per_batch: args.rows as usize, bytes: args.bytes as usize };
    let server_process = own.as_ref().map(|own| PathBuf::from(format!("/proc/{}/stat", own.child.id())));
    let mut results = Vec::new();
    for method in &args.method {
        let batches = match method {
            BenchMethod::Get => {
                prepare(&Client::connect(&address, Access::default(), Tuning::default()).await?, workload).await?;
                Arc::default()
            }
            BenchMethod::Put => Arc::new(workload.batches()),
        };
        for streams in &args.streams {
            let mut clients = Vec::new();
            for _ in 0..*streams {
                clients.push(Client::connect(&address, Access::default(), Tuning::default()).await?);
            }
            let mut rounds = Vec::new();
            for _ in 0..args.rounds {
                let before = cpu_seconds(server_process.as_deref());
                let transferred = match method {
                    BenchMethod::Get => download(&clients, workload).await?,
                    BenchMethod::Put => upload(&clients, &batches).await?,
                };
                rounds.push((transferred, cpu_seconds(server_process.as_deref()) - before));
            }
            results.push(told(args, *method, *streams, &address, &rounds));
        }
    }
    Ok(results)
}

/// CPU time of this process and the server's so far.
fn cpu_seconds(server: Option<&Path>) -> f64 {
    let own = Path::new("/proc/self/stat");
    [Some(own), server].into_iter().flatten().map(|stat| process_seconds(stat).unwrap_or_default()).sum()
}

/// One line of the results: medians, and the slowest and fastest round.
fn told(
    args: &BenchFlightArgs,
    method: BenchMethod,
    streams: u32,
    address: &Address,
    rounds: &[(Transferred, f64)],
) -> Value {
    let mut rates: Vec<f64> =
        rounds.iter().map(|(round, _)| round.bytes as f64 / 1e6 / round.duration.as_secs_f64()).collect();
    let mut costs: Vec<f64> = rounds.iter().map(|(round, cpu)| cpu / (round.bytes as f64 / 1e9)).collect();
    rates.sort_by(f64::total_cmp);
    costs.sort_by(f64::total_cmp);
    json!({
        "method": match method { BenchMethod::Get => "get", BenchMethod::Put => "put" },
        "shape": match args.shape { BenchShape::Fixed => "fixed", BenchShape::Alignments => "alignments" },
        "rows_per_batch": args.rows,
        "streams": streams,
        "server": address.to_string(),
        "bytes": rounds[0].0.bytes,
        "rows": rounds[0].0.rows,
        "rounds": rounds.len(),
        "mb_per_s": rates[rates.len() / 2],
        "mb_per_s_slowest": rates[0],
        "mb_per_s_fastest": rates[rates.len() - 1],
        // Both ends where the server is ours, else this one.
        "cpu_s_per_gb": costs[costs.len() / 2],
    })
}

fn table(results: &[Value]) -> String {
    let mut text = "method  shape       rows/batch  streams      MB/s  slowest  fastest  CPU s/GB\n".to_owned();
    for result in results {
        let word = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| result[key].as_f64().unwrap_or_default();
        text += &format!(
            "{:<7} {:<11} {:>10} {:>8} {:>9.0} {:>8.0} {:>8.0} {:>9.2}\n",
            word("method"),
            word("shape"),
            number("rows_per_batch"),
            number("streams"),
            number("mb_per_s"),
            number("mb_per_s_slowest"),
            number("mb_per_s_fastest"),
            number("cpu_s_per_gb"),
        );
    }
    text
}
