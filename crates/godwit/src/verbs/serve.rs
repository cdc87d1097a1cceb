//! `godwit serve`: the datasets below a directory, over Arrow Flight and htsget.

mod admission;
mod keys;
mod readiness;
mod traces;
mod visas;

use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use godwit_flight::pool::{Membership, MembershipOptions, answer_names};
use godwit_flight::web::WebService;
use godwit_flight::{
    Address, CallerLimits, FileService, Gate, Identities, Node, NodeOptions, Rules, Server, SqlEngine, Tuning,
};
use godwit_rules::Rulebook;
use godwit_serve::{Pages, PagesOptions, Root, SkippedEntry, Temporary};
use godwit_transfer::{Credentials, Files, FilesOptions, References, RelayCache};
use signal_hook::consts::SIGHUP;

use self::admission::Admission;
use self::traces::Exporter;
use super::rules::{keep_fresh, log_of, rulebook_of};
use super::{closed, root_of};
use crate::cli::{ServeArgs, TokenArgs};
use crate::failure::{Exit, Failure, print};
use crate::interruption;
use crate::pool_file::PoolFile;

/// Memory of a statement for each of its threads, at least.
#[cfg(feature = "sql")]
const THREAD_BYTES: u64 = 64 << 20;
/// Entries that are not served and are named when the server starts.
const MAX_WARNINGS: usize = 20;
/// After so long without a word a client is asked for a sign of life, and given up after as long again: clients of other makes answer late
/// while their program is busy with something else, and gRPC's own servers give them 20 s.
const SILENCE: Duration = Duration::from_secs(20);
/// How often the server looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(50);

/// Serves until it is told to end.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let reload = hang_up()?;
    let cancelled = interruption::flag_with_grace(args.drain);
    crate::failure::speak_as(&args.common);
    let address = address_of(&args.listen)?;
    args.keys.take()?;
    let threads = args.common.thread_count();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let admission = runtime.block_on(Admission::of(args))?;
    admission.refuse_the_open(args, address)?;
    // Held until the end: its directories go with it.
    let temporary = args.writable.then(|| Temporary::new(&super::scratch_of(&args.common))).transpose()?;
    let root = opened_root(args, temporary.as_ref())?;
    let root = Arc::new(root);
    let (datasets, skipped) = root.survey()?;
    warn_of_skipped(&skipped);
    let (book, log) = (rulebook_of(args, &root)?, log_of(args)?);
    let rules = book.clone().map(|book| book as Arc<dyn Rules>);
    let outcome = runtime.block_on(async {
        let files = files_of(args, rules.clone())?;
        let (gate, tls) = (admission.gate(), admission.tls());
        let pool = pool_of(args, &gate)?;
        let engine = engine_of(args, temporary.as_ref(), book.clone());
        let (public_url, references) = (args.public_url.clone(), args.reference.clone());
        let pages = PagesOptions { rules: rules.clone(), public_url, references };
        let web: Option<Arc<dyn WebService>> = Some(Arc::new(Pages::new(root.clone(), pages)));
        let exporter = Exporter::start(args)?;
        let tracer = traces::tracer_of(exporter.as_ref(), &args.common);
        let options = NodeOptions { rules, log: log.clone(), web, tracer, ..NodeOptions::default() };
        let node = Node::in_pool(root, engine, files, pool.clone(), options);
        let (encrypted, routes) = (tls.is_some(), node.routes());
        let server = Server::bind_guarded(&Address::Tcp(address), node, routes, gate, tls, tuning_of(args)).await?;
        answer_dns(args, pool.as_ref()).await?;
        let scheme = if encrypted { "grpc+tls" } else { "grpc+tcp" };
        let noun = if datasets == 1 { "dataset" } else { "datasets" };
        print(&format!("{datasets} {noun} of {} at {scheme}://{}\n", args.root.display(), server.address()))?;
        readiness::told(readiness::READY);
        tokio::spawn(admission.keep_fresh(reload, log.clone()));
        if let Some((book, path)) = book.zip(args.policy.clone()) {
            tokio::spawn(keep_fresh(book, path, log));
        }
        if let Some(pool) = &pool {
            pool.watch();
        }
        let until_told = async {
            until(&cancelled, args.until_stdin_closes).await;
            readiness::told(readiness::STOPPING);
            // Whoever still asks is sent elsewhere.
            if let Some(pool) = &pool {
                pool.drain();
            }
        };
        let closed = server.serve_until(until_told, args.drain).await;
        if let Some(exporter) = exporter {
            exporter.close().await;
        }
        if closed > 0 {
            crate::failure::log_warning(&format!("{closed} connections did not end in time and were closed"));
        }
        Ok(())
    });
    // A thread that reads a file ends when its next batch is wanted by nobody.
    runtime.shutdown_background();
    outcome
}

/// The datasets below the root, as they are served.
fn opened_root(args: &ServeArgs, temporary: Option<&Temporary>) -> Result<Root, Failure> {
    if args.writable && Root::is_elsewhere(&args.root) {
        let problem = format!("datasets of {} are only read; leave --writable out", args.root.display());
        return Err(Failure::new(Exit::Usage, problem));
    }
    for reference in &args.reference {
        let failed = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", reference.display()));
        std::fs::File::open(reference).map_err(failed)?;
    }
    let root = root_of(&args.root, args.reference.first().map(PathBuf::as_path), &args.common)?;
    let root = root.with_references(References::new(args.reference.clone(), args.common.thread_count()));
    Ok(match temporary {
        Some(temporary) => root.writable(temporary, args.put_memory)?,
        None => root,
    })
}

/// Names the entries below the root that are not served.
fn warn_of_skipped(skipped: &[SkippedEntry]) {
    for entry in skipped.iter().take(MAX_WARNINGS) {
        crate::failure::log_warning(&format!("{} is not served: {}", entry.path.display(), entry.reason));
    }
    if skipped.len() > MAX_WARNINGS {
        let more = skipped.len() - MAX_WARNINGS;
        crate::failure::log_warning(&format!("{more} more entries are not served"));
    }
}

/// Answers questions of DNS for the pool's name, where that is wanted.
async fn answer_dns(args: &ServeArgs, pool: Option<&Arc<Membership>>) -> Result<(), Failure> {
    let Some((place, pool)) = args.dns.as_ref().zip(pool) else { return Ok(()) };
    let socket = tokio::net::UdpSocket::bind(place).await.map_err(|error| {
        let problem = format!("cannot answer questions of DNS at {place}: {error}; choose another --dns HOST:PORT");
        Failure::new(Exit::Machine, problem)
    })?;
    tokio::spawn(answer_names(socket, pool.clone()));
    Ok(())
}

/// What gives out files as they are, where they are here.
fn files_of(args: &ServeArgs, rules: Option<Arc<dyn Rules>>) -> Result<Option<Arc<dyn FileService>>, Failure> {
    if Root::is_elsewhere(&args.root) {
        return Ok(None);
    }
    let options = FilesOptions {
        writable: args.writable,
        authority: args.ca.clone(),
        relays: args.relay,
        relay_cache: args.relay_cache.as_deref().map(|directory| cache_in(directory, args)).transpose()?,
        also_at: args.also_at.clone(),
        references: args.reference.clone(),
        threads: args.common.thread_count(),
        rules,
    };
    let files = Files::new(args.root.clone(), options);
    Ok(Some(Arc::new(files.map_err(no_files)?)))
}

/// What a relay keeps of what it sends on.
fn cache_in(directory: &Path, args: &ServeArgs) -> Result<Arc<RelayCache>, Failure> {
    Ok(Arc::new(RelayCache::open(directory, args.relay_cache_size, crate::failure::log_warning)?))
}

/// Bytes of a secret, at least: as many as a key has.
const SECRET_BYTES: usize = 32;

/// This server's part in a pool.
fn pool_of(args: &ServeArgs, gate: &Gate) -> Result<Option<Arc<Membership>>, Failure> {
    let Some(path) = &args.pool else { return Ok(None) };
    let file = PoolFile::read(path)?;
    let secret = args.pool_secret.as_deref().map(secret_in).transpose()?;
    if secret.is_none() && !matches!(gate, Gate::Open) {
        let problem =
            "--pool with --tokens needs --pool-secret: other nodes are let in by it, and tickets are signed with it";
        return Err(Failure::new(Exit::Usage, problem.to_owned()));
    }
    // A server that is asked for a certificate shows its own.
    let identity = args.tls_client_ca.as_ref().and(args.tls_cert.clone().zip(args.tls_key.clone()));
    let credentials = Credentials { authority: args.ca.clone(), identity, ..Credentials::default() };
    let options = MembershipOptions {
        name: file.name.clone(),
        policy: file.policy,
        members: file.members(&credentials)?,
        secret,
        notice: Arc::new(crate::failure::log_message),
    };
    Ok(Some(Arc::new(Membership::new(options))))
}

fn secret_in(path: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display())))?;
    let secret = bytes.trim_ascii();
    if secret.len() < SECRET_BYTES {
        let problem = format!(
            "{} holds fewer than {SECRET_BYTES} characters; `openssl rand -hex 32` makes a secret",
            path.display()
        );
        return Err(Failure::new(Exit::Input, problem));
    }
    Ok(secret.to_owned())
}

fn tuning_of(args: &ServeArgs) -> Tuning {
    Tuning {
        message_limit_bytes: args.message_limit,
        connections: args.connections as usize,
        callers: CallerLimits {
            calls: args.calls_per_caller,
            bytes_per_s: args.rate_per_caller.map(|bits| (bits / 8).max(1)),
        },
        keep_alive_interval: SILENCE,
        keep_alive_timeout: SILENCE,
        ..Tuning::default()
    }
}

/// What runs the statements of a server: processes of this program.
#[cfg(feature = "sql")]
fn engine_of(
    args: &ServeArgs,
    temporary: Option<&Temporary>,
    book: Option<Arc<Rulebook>>,
) -> Option<Arc<dyn SqlEngine>> {
    use godwit_flight::Caller;
    use godwit_query::{Isolated, StatementLimits};

    let limits = StatementLimits {
        memory_bytes: args.statement_memory,
        time: args.statement_time,
        rows: args.statement_rows.unwrap_or(u64::MAX),
        at_a_time: args.statements as usize,
    };
    let scratch = super::scratch_of(&args.common);
    // Each thread has batches of its own in hand.
    let threads = args.common.thread_count().min((args.statement_memory / THREAD_BYTES).max(1) as usize);
    let (root, temp) = (args.root.clone(), scratch.clone());
    let reference = args.reference.first().cloned();
    let temporary = temporary.map(|temporary| temporary.directory().to_owned());
    let (memory, memory_bytes) = (limits.memory_bytes, limits.memory_bytes.to_string());
    let (ruled, keys) = (book.is_some(), args.keys.words());
    let command = move |socket: &Path| {
        // Also where the file that this process was started from is gone or another by now.
        let mut command = std::process::Command::new("/proc/self/exe");
        command.arg("sql-worker").arg("--root").arg(&root).arg("--socket").arg(socket).arg("--temp").arg(&temp);
        command.args(["--memory-bytes", &memory_bytes, "--threads", &threads.to_string()]);
        command.envs(allocator(memory, threads));
        if let Some(temporary) = &temporary {
            command.arg("--temporary").arg(temporary);
        }
        if let Some(reference) = &reference {
            command.arg("--reference").arg(reference);
        }
        command.args(&keys);
        if ruled {
            command.arg("--ruled");
        }
        command
    };
    let view_of = book.map(|book| Box::new(move |caller: &Caller| book.grants_of(caller)) as _);
    Some(Arc::new(Isolated::with_views(command, limits, scratch, view_of)))
}

/// What the C library's allocator of a process for statements is told (mallopt(3)): to keep some of what it has been given for the
/// next batch or statement. As it comes it gives pages back at every end, and fetching them again is a seventh of the time of
/// grouping a million rows. There are few arenas, so that what they keep is far from what the process may have.
#[cfg(feature = "sql")]
fn allocator(memory_bytes: u64, threads: usize) -> [(&'static str, String); 3] {
    let kept_bytes = (memory_bytes / 16).min(32 << 20);
    [
        ("MALLOC_TRIM_THRESHOLD_", kept_bytes.to_string()),
        ("MALLOC_MMAP_THRESHOLD_", (kept_bytes / 4).to_string()),
        ("MALLOC_ARENA_MAX", (threads + 1).to_string()),
    ]
}

/// Without SQL there is nothing that runs it.
#[cfg(not(feature = "sql"))]
fn engine_of(
    _args: &ServeArgs,
    _temporary: Option<&Temporary>,
    _book: Option<Arc<Rulebook>>,
) -> Option<Arc<dyn SqlEngine>> {
    None
}

fn no_files(status: godwit_flight::Status) -> Failure {
    Failure::new(Exit::Machine, status.message().to_owned())
}

/// The flag that SIGHUP sets: the files that say who may connect are read again. A server that was started at a terminal ends when the
/// terminal is lost.
fn hang_up() -> Result<Arc<AtomicBool>, Failure> {
    let reload = Arc::new(AtomicBool::new(false));
    if std::io::stdin().is_terminal() {
        interruption::end_with_the_terminal()?;
        return Ok(reload);
    }
    let registered = signal_hook::flag::register(SIGHUP, reload.clone());
    registered.map_err(|error| Failure::new(Exit::Machine, format!("cannot handle signals: {error}")))?;
    Ok(reload)
}

/// Ends when the flag is set.
async fn until(cancelled: &AtomicBool, stdin_closes: bool) {
    let signalled = async {
        while !cancelled.load(Ordering::Relaxed) {
            tokio::time::sleep(PATIENCE).await;
        }
    };
    tokio::select! {
        () = signalled => {}
        () = closed(stdin_closes) => {}
    }
}

fn address_of(listen: &str) -> Result<SocketAddr, Failure> {
    let wrong = |problem: String| Failure::new(Exit::Usage, format!("--listen {listen}: {problem}; write HOST:PORT"));
    let mut found = listen.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("no address has that name".to_owned()))
}

/// Makes a token and keeps its hash.
pub fn make_token(args: &TokenArgs) -> Result<(), Failure> {
    if args.name.is_empty() || args.name.starts_with('#') || args.name.contains(char::is_whitespace) {
        return Err(Failure::new(Exit::Usage, format!("{:?} is no name: it must have no white space", args.name)));
    }
    let token = godwit_flight::Token::random();
    append_privately(&args.tokens, &Identities::line_of(&args.name, &token))?;
    print(&format!("{}\n", token.text()))
}

fn append_privately(path: &Path, line: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let failed =
        |error: std::io::Error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display()));
    let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(line.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}
