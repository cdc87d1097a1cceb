//! `godwit bench flight`: measures the throughput of Arrow Flight between two processes, in the way of the published
//! benchmarks of Arrow Flight.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use godwit_cli::cli::{BenchFlightArgs, BenchMethod, BenchShape, BenchSocket, TableFormat};
use godwit_cli::failure::Failure;
use godwit_flight::measure::{
    BareStreamServer, Shape, TransferStats, Workload, WorkloadDataPlane, download, exchange, prepare_workload,
    receive_bare_streams, upload,
};
use godwit_flight::{
    Address, Client, ClientTls, ConnectionSecurity, FlightError, Routes, Server, ServerTls, TransportOptions,
    create_identity,
};
use godwit_model::ErrorKind;
use godwit_model::message_with_causes;
use godwit_process::TemporaryItem;
use serde_json::{Value, json};

use super::{
    LISTENING, ServerProcess, current_program, new_runtime, parse_address, process_cpu_seconds, report_stage,
    wait_for_stdin_close,
};

/// Host name in the certificate that is created for a measurement with TLS.
const SERVER_NAME: &str = "localhost";

/// Measures and prints the results or, with `--listen`, runs as the server until it is stopped.
pub fn run(args: &BenchFlightArgs) -> Result<(), Failure> {
    let runtime = new_runtime()?;
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

/// Runs the benchmark server, which offers the data over Flight, and the same bytes over a plain socket.
async fn serve(address: &Address, args: &BenchFlightArgs) -> Result<(), Failure> {
    let identity = args
        .identity
        .as_deref()
        .map(|directory| ServerTls::from_files(&directory.join("certificate.pem"), &directory.join("key.pem"), None));
    let tls = identity.transpose().map_err(|error| Failure::new(ErrorKind::Machine, message_with_causes(&error)))?;
    let bare = BareStreamServer::bind(address, tls.clone(), TransportOptions::default()).await?;
    let data = WorkloadDataPlane::default();
    let service = data.clone().with_bare_streams(bare.address().clone());
    let access = ConnectionSecurity { token: None, tls };
    let server = Server::bind(address, service, Routes::default(), access, TransportOptions::default()).await?;
    super::super::print(&format!("{LISTENING}{}\n", server.address()))?;
    tokio::select! {
        () = server.serve() => {}
        () = bare.serve(data) => {}
        () = wait_for_stdin_close(args.until_stdin_closes) => {}
    }
    Ok(())
}

/// A benchmark server in a separate process, so that client and server do not share threads.
struct BenchServer {
    server: ServerProcess,
    /// Directory of the server's Unix socket or certificate, which is removed on drop.
    _files: TemporaryItem<tempfile::TempDir>,
    tls: Option<ClientTls>,
}

impl BenchServer {
    fn start(socket: BenchSocket, tls: bool) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot start the server: {error}"));
        let files =
            TemporaryItem::create(|| tempfile::Builder::new().prefix("godwit-bench-").tempdir()).map_err(failed)?;
        let mut command = Command::new(current_program()?);
        command.args(["bench", "flight", "--until-stdin-closes", "--listen"]);
        command.arg(match socket {
            BenchSocket::Tcp => "127.0.0.1:0".to_owned(),
            BenchSocket::Unix => format!("unix:{}", files.path().join("socket").display()),
        });
        let mut trusted = None;
        if tls {
            let refused = |error| Failure::new(ErrorKind::Machine, message_with_causes(&error));
            let (certificate, _) = create_identity(files.path(), SERVER_NAME).map_err(refused)?;
            trusted = Some(ClientTls::from_files(&certificate, SERVER_NAME, None).map_err(refused)?);
            command.arg("--identity").arg(files.path());
        }
        Ok(Self { server: ServerProcess::start(command)?, _files: files, tls: trusted })
    }

    fn address(&self) -> &str {
        self.server.address()
    }
}

/// The server that is measured.
struct BenchTarget {
    address: Address,
    access: ConnectionSecurity<ClientTls>,
    /// Path of `/proc/PID/stat` of the server process; `None` if the server runs on another host.
    process: Option<PathBuf>,
}

impl BenchTarget {
    async fn connect(&self) -> Result<Client, FlightError> {
        Client::connect(&self.address, self.access.clone(), TransportOptions::default()).await
    }
}

async fn measure(args: &BenchFlightArgs) -> Result<Vec<Value>, Failure> {
    if args.tls && matches!(args.socket, BenchSocket::Unix) {
        return Err(Failure::new(ErrorKind::Usage, "--tls requires TCP; omit it for a Unix socket".into()));
    }
    let own = match &args.at {
        Some(_) => None,
        None => Some(BenchServer::start(args.socket, args.tls)?),
    };
    let server = BenchTarget {
        address: parse_address(args.at.as_deref().or(own.as_ref().map(BenchServer::address)).unwrap_or_default())?,
        access: ConnectionSecurity { token: None, tls: own.as_ref().and_then(|own| own.tls.clone()) },
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
                prepare_workload(&server.connect().await?, workload).await?;
                Arc::default()
            }
            BenchMethod::Put | BenchMethod::Exchange => Arc::new(workload.batches()),
        };
        for streams in &args.streams {
            report_stage(args.json, &format!("{}, streams: {streams}", method_name(*method)));
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
                        receive_bare_streams(&clients[0], &server.address, &server.access, workload, clients.len())
                            .await?
                    }
                };
                rounds.push((transferred, cpu_seconds(server.process.as_deref()) - before));
            }
            results.push(result_json(args, *method, *streams, &server.address, &rounds));
        }
    }
    Ok(results)
}

/// Returns the CPU time of this process plus that of the server process so far, in seconds.
fn cpu_seconds(server: Option<&Path>) -> f64 {
    let own = Path::new("/proc/self/stat");
    [Some(own), server].into_iter().flatten().map(|stat| process_cpu_seconds(stat).unwrap_or_default()).sum()
}

/// Returns the name of a method as in the option `--method`.
fn method_name(method: BenchMethod) -> &'static str {
    match method {
        BenchMethod::Get => "get",
        BenchMethod::Put => "put",
        BenchMethod::Exchange => "exchange",
        BenchMethod::Stream => "stream",
    }
}

/// Returns the result of one measurement: the medians of its rounds, and the slowest and the fastest round.
fn result_json(
    args: &BenchFlightArgs,
    method: BenchMethod,
    streams: u32,
    address: &Address,
    rounds: &[(TransferStats, f64)],
) -> Value {
    let mut rates: Vec<f64> =
        rounds.iter().map(|(round, _)| round.bytes as f64 / 1e6 / round.duration.as_secs_f64()).collect();
    let mut costs: Vec<f64> = rounds.iter().map(|(round, cpu)| cpu / (round.bytes as f64 / 1e9)).collect();
    rates.sort_by(f64::total_cmp);
    costs.sort_by(f64::total_cmp);
    json!({
        "method": method_name(method),
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
        // CPU time of client and server if the server is local, otherwise of the client only.
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
