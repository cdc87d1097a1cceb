//! `godwit serve`: serves the datasets below a directory over Arrow Flight and htsget.

mod authentication;
mod key_fetch;
mod nfs_export;
pub mod readiness;
mod span_export;
mod visa_file;

use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_auth::{Authenticator, Identities};
use godwit_cli::cli::{ServeArgs, TokenArgs};
use godwit_cli::failure::{Failure, print};
use godwit_dataset::web::WebService;
use godwit_dataset::{Authorizer, Principal};
use godwit_delta::ReferenceStore;
use godwit_flight::pool::{Membership, MembershipOptions, serve_dns};
use godwit_flight::{
    Address, CallLimits, DatasetService, DatasetServiceOptions, FileService, Server, SqlEngine, TransportOptions,
};
use godwit_model::ErrorKind;
use godwit_process::{KEPT_ALLOCATOR_BYTES, keep_freed_memory};
use godwit_query::{ProcessSqlEngine, StatementLimits, StatementProcessOptions};
use godwit_rules::PolicyStore;
use godwit_serve::{DatasetRoot, HttpService, HttpServiceOptions, SkippedEntry, TemporaryDatasets};
use godwit_transfer::{Credentials, DirectoryFileService, FileServiceOptions, RelayCache};
use signal_hook::consts::SIGHUP;

use self::authentication::ServerAuth;
use self::nfs_export::{BoundNfsExport, NfsExport};
use self::span_export::OtlpExporter;
use super::policy_audit::{open_access_log, open_policy_store, reload_policy_on_change};
use super::statement_processes::{open_program, process_command, with_keys};
use super::{open_root, wait_for_stdin_close};
use crate::interruption;
use crate::pool_file::PoolFile;

/// Minimum memory of a statement for each of its threads, in bytes.
const MIN_THREAD_MEMORY_BYTES: u64 = 64 << 20;
/// Maximum number of warnings at the start about files that are not served.
const MAX_WARNINGS: usize = 20;
/// Time without data after which the server pings a client, and also the time that the client has to respond before the
/// server closes the connection. Some clients respond late while they are busy; gRPC's own servers also wait 20 s.
const KEEP_ALIVE_PERIOD: Duration = Duration::from_secs(20);
/// Interval at which the server checks whether it must stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Serves until the process is stopped.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let reload = reload_on_hang_up()?;
    let cancelled = interruption::flag_with_grace(args.drain);
    godwit_cli::log::set_server_log(&args.common);
    let address = parse_listen_address("--listen", &args.listen)?;
    args.keys.load_keys()?;
    let runtime = start_runtime(args.common.thread_count())?;
    let admission = runtime.block_on(ServerAuth::from_args(args))?;
    admission.check_exposure(args, address)?;
    // This value must exist until the server stops, because dropping it removes the temporary datasets.
    let temporary =
        args.writable.then(|| TemporaryDatasets::new(&super::scratch_directory(&args.common))).transpose()?;
    let root = Arc::new(open_served_root(args, temporary.as_ref())?);
    let (datasets, skipped) = root.count_datasets()?;
    warn_about_skipped(&skipped);
    let (policy_store, log) = (open_policy_store(args, &root)?, open_access_log(args)?);
    let authorizer = policy_store.clone().map(|policy_store| policy_store as Arc<dyn Authorizer>);
    let outcome = runtime.block_on(async {
        let files = open_file_service(args, authorizer.clone())?;
        let (authenticator, tls) = (admission.authentication(), admission.tls());
        let pool = join_pool(args, &authenticator)?;
        let engine = Some(statement_engine(args, temporary.as_ref(), policy_store.clone()));
        // Bind all addresses before any is served: if another process uses one, clients of the others see no server.
        let nfs = BoundNfsExport::bind(args, policy_store.clone(), log.clone()).await?;
        let web_service = Some(open_web_service(args, &root, authorizer.clone(), nfs.as_ref()));
        let exporter = OtlpExporter::start(args)?;
        let tracer = span_export::build_tracer(exporter.as_ref(), &args.common);
        let options = DatasetServiceOptions {
            authorizer,
            access_log: log.clone(),
            web_service,
            tracer,
            ..DatasetServiceOptions::default()
        };
        let node = DatasetService::with_pool(root, engine, files, pool.clone(), options);
        let (encrypted, routes) = (tls.is_some(), node.routes());
        let server =
            Server::bind_with_auth(&Address::Tcp(address), node, routes, authenticator, tls, server_tuning(args))
                .await?;
        start_dns_server(args, pool.as_ref()).await?;
        let nfs = nfs.map(BoundNfsExport::serve);
        print_address(args, datasets, encrypted, server.address())?;
        readiness::notify(readiness::READY);
        tokio::spawn(admission.reload_on_change(reload, log.clone()));
        if let Some((policy_store, path)) = policy_store.zip(args.policy.clone()) {
            tokio::spawn(reload_policy_on_change(policy_store, path, log));
        }
        if let Some(pool) = &pool {
            pool.watch_members();
        }
        let until_told = async {
            wait_for_stop(&cancelled, args.until_stdin_closes).await;
            readiness::notify(readiness::STOPPING);
            // Announce the stop to the pool, so that clients send new requests to other members.
            if let Some(pool) = &pool {
                pool.drain();
            }
        };
        let closed = server.serve_until(until_told, args.drain).await;
        NfsExport::stop(nfs).await;
        if let Some(exporter) = exporter {
            exporter.close().await;
        }
        if closed > 0 {
            godwit_cli::log::log_warning(&format!("{closed} connections did not end within --drain and were closed"));
        }
        Ok(())
    });
    // Do not wait for threads that read files: each exits when it cannot send its next batch.
    runtime.shutdown_background();
    outcome
}

/// Prints the number of datasets and the address of the server.
fn print_address(
    args: &ServeArgs,
    datasets: usize,
    encrypted: bool,
    address: impl std::fmt::Display,
) -> Result<(), Failure> {
    let scheme = if encrypted { "grpc+tls" } else { "grpc+tcp" };
    let noun = if datasets == 1 { "dataset" } else { "datasets" };
    print(&format!("{datasets} {noun} of {} at {scheme}://{address}\n", args.root.display()))
}

/// Starts the runtime with its threads.
fn start_runtime(threads: usize) -> Result<tokio::runtime::Runtime, Failure> {
    keep_freed_memory(KEPT_ALLOCATOR_BYTES, threads + 1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start threads: {error}")))
}

/// Creates the HTTP service, which offers htsget, refget and the web page.
fn open_web_service(
    args: &ServeArgs,
    root: &Arc<DatasetRoot>,
    rules: Option<Arc<dyn Authorizer>>,
    nfs: Option<&BoundNfsExport>,
) -> Arc<dyn WebService> {
    let (public_url, references) = (args.public_url.clone(), args.reference.clone());
    let nfs_health = nfs.map(BoundNfsExport::health_check);
    Arc::new(HttpService::new(root.clone(), HttpServiceOptions { rules, public_url, references, nfs_health }))
}

/// Opens the datasets below the directory or bucket of `--root`.
fn open_served_root(args: &ServeArgs, temporary: Option<&TemporaryDatasets>) -> Result<DatasetRoot, Failure> {
    if args.writable && DatasetRoot::is_bucket_url(&args.root) {
        let problem = format!("datasets of {} are read-only; omit --writable", args.root.display());
        return Err(Failure::new(ErrorKind::Usage, problem));
    }
    for reference in &args.reference {
        let failed = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", reference.display()));
        std::fs::File::open(reference).map_err(failed)?;
    }
    let root = open_root(&args.root, args.reference.first().map(PathBuf::as_path), &args.common)?;
    let root = root.with_references(ReferenceStore::new(args.reference.clone(), args.common.thread_count()));
    Ok(match temporary {
        Some(temporary) => root.with_put_directories(temporary, args.put_memory)?,
        None => root,
    })
}

/// Prints warnings about the files and directories below the root that are not served.
fn warn_about_skipped(skipped: &[SkippedEntry]) {
    for entry in skipped.iter().take(MAX_WARNINGS) {
        godwit_cli::log::log_warning(&format!("{} is not served: {}", entry.path.display(), entry.reason));
    }
    if skipped.len() > MAX_WARNINGS {
        let more = skipped.len() - MAX_WARNINGS;
        godwit_cli::log::log_warning(&format!("{more} more entries are not served"));
    }
}

/// Starts the DNS server for the name of the pool, if `--dns` is given.
async fn start_dns_server(args: &ServeArgs, pool: Option<&Arc<Membership>>) -> Result<(), Failure> {
    let Some((place, pool)) = args.dns.as_ref().zip(pool) else { return Ok(()) };
    let socket = tokio::net::UdpSocket::bind(place).await.map_err(|error| {
        let problem = format!("cannot serve DNS at {place}: {error}; choose another --dns HOST:PORT");
        Failure::new(ErrorKind::Machine, problem)
    })?;
    tokio::spawn(serve_dns(socket, pool.clone()));
    Ok(())
}

/// Opens the service for `godwit copy`; returns `None` if the root is a bucket.
fn open_file_service(
    args: &ServeArgs,
    rules: Option<Arc<dyn Authorizer>>,
) -> Result<Option<Arc<dyn FileService>>, Failure> {
    if DatasetRoot::is_bucket_url(&args.root) {
        return Ok(None);
    }
    let options = FileServiceOptions {
        writable: args.writable,
        ca_certificates: args.ca.clone(),
        relay_enabled: args.relay,
        relay_cache: args.relay_cache.as_deref().map(|directory| open_relay_cache(directory, args)).transpose()?,
        mirror_uris: args.also_at.clone(),
        references: args.reference.clone(),
        threads: args.common.thread_count(),
        rules,
    };
    Ok(Some(Arc::new(DirectoryFileService::new(args.root.clone(), options))))
}

/// Opens the cache for relayed files in a directory.
fn open_relay_cache(directory: &Path, args: &ServeArgs) -> Result<Arc<RelayCache>, Failure> {
    Ok(Arc::new(RelayCache::open(directory, args.relay_cache_size, godwit_cli::log::log_warning)?))
}

/// Minimum length of the secret of a pool, in bytes; the secret serves as a key.
const MIN_SECRET_BYTES: usize = 32;

/// Creates the membership of this server in its pool; returns `None` without `--pool`.
fn join_pool(args: &ServeArgs, authenticator: &Authenticator) -> Result<Option<Arc<Membership>>, Failure> {
    let Some(path) = &args.pool else { return Ok(None) };
    let file = PoolFile::read(path)?;
    let secret = args.pool_secret.as_deref().map(read_secret).transpose()?;
    if secret.is_none() && !matches!(authenticator, Authenticator::Disabled) {
        let problem = "--pool with --tokens requires --pool-secret: it authenticates the pool members to each other \
                       and signs tickets";
        return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
    }
    // Connections to other members use the certificate of this server as the client certificate, if members require
    // one.
    let identity = args.tls_client_ca.as_ref().and(args.tls_cert.clone().zip(args.tls_key.clone()));
    let credentials = Credentials { ca_certificates: args.ca.clone(), identity, ..Credentials::default() };
    let options = MembershipOptions {
        name: file.name.clone(),
        policy: file.policy,
        members: file.resolve_members(&credentials)?,
        secret,
        notify: Arc::new(godwit_cli::log::log_message),
    };
    Ok(Some(Arc::new(Membership::new(options))))
}

fn read_secret(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display())))?;
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        let problem = format!(
            "{} has fewer than {MIN_SECRET_BYTES} characters; `openssl rand -hex 32` makes a secret",
            path.display()
        );
        return Err(Failure::new(ErrorKind::Input, problem));
    }
    Ok(secret.to_owned())
}

fn server_tuning(args: &ServeArgs) -> TransportOptions {
    TransportOptions {
        message_limit_bytes: args.message_limit,
        max_connections: args.connections as usize,
        call_limits: CallLimits {
            concurrent_calls: args.calls_per_caller,
            bytes_per_s: args.rate_per_caller.map(|bits| (bits / 8).max(1)),
        },
        keep_alive_interval: KEEP_ALIVE_PERIOD,
        keep_alive_timeout: KEEP_ALIVE_PERIOD,
        ..TransportOptions::default()
    }
}

/// Creates the SQL engine, which runs each statement in a process of `godwit-sql`. Without this program, the server
/// rejects the statements that need it.
fn statement_engine(
    args: &ServeArgs,
    temporary: Option<&TemporaryDatasets>,
    policy_store: Option<Arc<PolicyStore>>,
) -> Arc<dyn SqlEngine> {
    if let Err(error) = open_program() {
        godwit_cli::log::log_warning(&format!("most SQL statements will fail: {error}"));
    }
    let limits = StatementLimits {
        memory_bytes: args.statement_memory,
        timeout: args.statement_time,
        max_rows: args.statement_rows.unwrap_or(u64::MAX),
        max_concurrent: args.statements as usize,
    };
    // Limit the threads of a statement by its memory, because each thread stores record batches.
    let threads = args.common.thread_count().min((args.statement_memory / MIN_THREAD_MEMORY_BYTES).max(1) as usize);
    let options = with_keys(
        StatementProcessOptions {
            root: args.root.clone(),
            reference: args.reference.first().cloned(),
            temporary: temporary.map(|temporary| temporary.directory().to_owned()),
            memory_bytes: limits.memory_bytes,
            threads,
            is_for_server: true,
            has_grants: policy_store.is_some(),
            ..StatementProcessOptions::default()
        },
        &args.keys,
    );
    let command = move |socket: &Path| {
        let mut command = process_command(&options, socket)?;
        command.stderr(Stdio::null());
        Ok(command)
    };
    let encode_grants = policy_store
        .map(|policy_store| Box::new(move |principal: &Principal| policy_store.encode_grants(principal)) as _);
    let scratch = super::scratch_directory(&args.common);
    Arc::new(ProcessSqlEngine::with_grants(command, limits, scratch, encode_grants))
}

/// Returns a flag that SIGHUP sets, which requests the server to reload its authentication files. If stdin is a
/// terminal, SIGHUP means that the terminal was lost, and stops the server instead.
fn reload_on_hang_up() -> Result<Arc<AtomicBool>, Failure> {
    let reload = Arc::new(AtomicBool::new(false));
    if std::io::stdin().is_terminal() {
        interruption::end_on_hang_up()?;
        return Ok(reload);
    }
    let registered = signal_hook::flag::register(SIGHUP, reload.clone());
    registered.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot handle signals: {error}")))?;
    Ok(reload)
}

/// Waits until a signal has set `cancelled` or, if `stdin_closes` is true, until stdin is closed.
async fn wait_for_stop(cancelled: &AtomicBool, stdin_closes: bool) {
    let signalled = async {
        while !cancelled.load(Ordering::Relaxed) {
            tokio::time::sleep(STOP_CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        () = signalled => {}
        () = wait_for_stdin_close(stdin_closes) => {}
    }
}

/// Resolves the address in an option.
fn parse_listen_address(option: &str, listen: &str) -> Result<SocketAddr, Failure> {
    let wrong =
        |problem: String| Failure::new(ErrorKind::Usage, format!("{option} {listen}: {problem}; write HOST:PORT"));
    let mut found = listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no address has that name".to_owned()))
}

/// Runs `godwit token`: creates a token, prints it on stdout, and appends its hash to the token file.
pub fn create_token(args: &TokenArgs) -> Result<(), Failure> {
    if args.name.is_empty() || args.name.starts_with('#') || args.name.contains(char::is_whitespace) {
        return Err(Failure::new(
            ErrorKind::Usage,
            format!("{:?} is not a valid name: it must not be empty, start with # or contain white space", args.name),
        ));
    }
    let token = godwit_auth::Token::random();
    append_private_line(&args.tokens, &Identities::format_line(&args.name, &token))?;
    print(&format!("{}\n", token.as_str()))
}

fn append_private_line(path: &Path, line: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed =
        |error: std::io::Error| Failure::new(ErrorKind::Machine, format!("cannot write {}: {error}", path.display()));
    let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}
