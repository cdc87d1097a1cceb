//! `godwit bench flight`: Arrow Flight between two processes, as the published benchmarks of Flight measure it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_flight::measure::{
    BareStreams, Measuring, Shape, Transferred, Workload, download, exchange, prepare, stream, upload,
};
use godwit_flight::{
    Access, Address, Client, ClientTls, FlightError, Routes, Server, ServerTls, Tuning, make_identity,
};
use godwit_formats::with_causes;
use godwit_process::Temporary;
use serde_json::{Value, json};

use super::{LISTENING, OwnServer, closed, parse_address, process_seconds, program, tell_stage, threads};
use crate::cli::{BenchFlightArgs, BenchMethod, BenchShape, BenchSocket, TableFormat};
use crate::failure::{Exit, Failure};

/// Whom the certificate made for a measurement is for.
const SERVER_NAME: &str = "localhost";

/// Measures, or serves until it is stopped.
pub fn run(args: &BenchFlightArgs) -> Result<(), Failure> {
    let runtime = threads()?;
    match &args.listen {
        Some(address) => runtime.block_on(serve(&parse_address(address)?, args)),
        None => {
            let results = runtime.block_on(measure(args))?;
            match args.format {
                TableFormat::Json => super::super::print(&format!("{:#}\n", Value::from(results))),
                TableFormat::Table => super::super::print(&table(&results)),
            }
        }
    }
}

/// Flight, and bare streams of the same beside it.
async fn serve(address: &Address, args: &BenchFlightArgs) -> Result<(), Failure> {
    let identity = args
        .identity
        .as_deref()
        .map(|directory| ServerTls::from_files(&directory.join("certificate.pem"), &directory.join("key.pem"), None));
    let tls = identity.transpose().map_err(|error| Failure::new(Exit::Machine, with_causes(&error)))?;
    let bare = BareStreams::bind(address, tls.clone(), Tuning::default()).await?;
    let data = Measuring::default();
    let told = data.clone().with_bare_streams(bare.address().clone());
    let access = Access { token: None, tls };
    let server = Server::bind(address, told, Routes::default(), access, Tuning::default()).await?;
    super::super::print(&format!("{LISTENING}{}\n", server.address()))?;
    tokio::select! {
        () = server.serve() => {}
        () = bare.serve(data) => {}
        () = closed(args.until_stdin_closes) => {}
    }
    Ok(())
}

/// A server of our own, in a process of its own as the peers have it.
struct Peer {
    server: OwnServer,
    /// Its socket or certificate; goes with it.
    _files: Temporary<tempfile::TempDir>,
    tls: Option<ClientTls>,
}

impl Peer {
    fn start(socket: BenchSocket, tls: bool) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot start the server: {error}"));
        let files = Temporary::create(|| tempfile::Builder::new().prefix("godwit-bench-").tempdir()).map_err(failed)?;
        let mut command = Command::new(program()?);
        command.args(["bench", "flight", "--until-stdin-closes", "--listen"]);
        command.arg(match socket {
            BenchSocket::Tcp => "127.0.0.1:0".to_owned(),
            BenchSocket::Unix => format!("unix:{}", files.path().join("socket").display()),
        });
        let mut trusted = None;
        if tls {
            let refused = |error| Failure::new(Exit::Machine, with_causes(&error));
            let (certificate, _) = make_identity(files.path(), SERVER_NAME).map_err(refused)?;
            trusted = Some(ClientTls::from_files(&certificate, SERVER_NAME, None).map_err(refused)?);
            command.arg("--identity").arg(files.path());
        }
        Ok(Self { server: OwnServer::start(command)?, _files: files, tls: trusted })
    }

    fn address(&self) -> &str {
        self.server.address()
    }
}

/// What is measured against.
struct Measured {
    address: Address,
    access: Access<ClientTls>,
    /// Where the server's process is described, where it runs here.
    process: Option<PathBuf>,
}

impl Measured {
    async fn connect(&self) -> Result<Client, FlightError> {
        Client::connect(&self.address, self.access.clone(), Tuning::default()).await
    }
}

async fn measure(args: &BenchFlightArgs) -> Result<Vec<Value>, Failure> {
    if args.tls && matches!(args.socket, BenchSocket::Unix) {
        return Err(Failure::new(Exit::Usage, "--tls is for TCP; a Unix socket does not leave the machine".into()));
    }
    let own = match &args.at {
        Some(_) => None,
        None => Some(Peer::start(args.socket, args.tls)?),
    };
    let server = Measured {
        address: parse_address(args.at.as_deref().or(own.as_ref().map(Peer::address)).unwrap_or_default())?,
        access: Access { token: None, tls: own.as_ref().and_then(|own| own.tls.clone()) },
        process: own.as_ref().map(|own| PathBuf::from(format!("/proc/{}/stat", own.server.child.id()))),
    };
    let shape = match args.shape {
        BenchShape::Fixed => Shape::Fixed { columns: args.row_bytes.div_ceil(8) as usize },
        BenchShape::Alignments => Shape::Alignments,
    };
    let workload = Workload { shape, rows_per_batch: args.rows as usize, bytes: args.bytes as usize };
    let mut results = Vec::new();
    for method in &args.method {
        let batches = match method {
            BenchMethod::Get | BenchMethod::Stream => {
                prepare(&server.connect().await?, workload).await?;
                Arc::default()
            }
            BenchMethod::Put | BenchMethod::Exchange => Arc::new(workload.batches()),
        };
        for streams in &args.streams {
            tell_stage(args.json, &format!("{}, streams: {streams}", word(*method)));
            let mut clients = Vec::new();
            for _ in 0..*streams {
                clients.push(server.connect().await?);
            }
            let mut rounds = Vec::new();
            for _ in 0..args.rounds {
                let before = cpu_seconds(server.process.as_deref());
                let transferred = match method {
                    BenchMethod::Get => download(&clients, workload).await?,
                    BenchMethod::Put => upload(&clients, &batches).await?,
                    BenchMethod::Exchange => exchange(&clients, &batches).await?,
                    BenchMethod::Stream => {
                        stream(&clients[0], &server.address, &server.access, workload, clients.len()).await?
                    }
                };
                rounds.push((transferred, cpu_seconds(server.process.as_deref()) - before));
            }
            results.push(told(args, *method, *streams, &server.address, &rounds));
        }
    }
    Ok(results)
}

/// CPU time of this process and the server's so far.
fn cpu_seconds(server: Option<&Path>) -> f64 {
    let own = Path::new("/proc/self/stat");
    [Some(own), server].into_iter().flatten().map(|stat| process_seconds(stat).unwrap_or_default()).sum()
}

/// A method as the command line has it.
fn word(method: BenchMethod) -> &'static str {
    match method {
        BenchMethod::Get => "get",
        BenchMethod::Put => "put",
        BenchMethod::Exchange => "exchange",
        BenchMethod::Stream => "stream",
    }
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
        "method": word(method),
        "shape": match args.shape { BenchShape::Fixed => "fixed", BenchShape::Alignments => "alignments" },
        "rows_per_batch": args.rows,
        "streams": streams,
        "server": address.to_string(),
        "tls": args.tls,
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
    let mut text = "method    shape       rows/batch  streams      MB/s  slowest  fastest  CPU s/GB\n".to_owned();
    for result in results {
        let word = |key: &str| result[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| result[key].as_f64().unwrap_or_default();
        text += &format!(
            "{:<9} {:<11} {:>10} {:>8} {:>9.0} {:>8.0} {:>8.0} {:>9.2}\n",
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
