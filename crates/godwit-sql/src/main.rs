//! `godwit-sql`: runs SQL statements for the `godwit` process that starts it, until that process closes its stdin or
//! exits. Requests and rows pass over a Unix socket. `godwit-sql --version` prints the version.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;

use godwit_dataset::{Catalog, DatasetAccessList};
use godwit_delta::ReferenceStore;
use godwit_flight::Status;
use godwit_io::crypt4gh::load_process_keys;
use godwit_process::{KEPT_ALLOCATOR_BYTES, keep_freed_memory};
use godwit_query::{PipelineJobs, READY_LINE, StatementProcessOptions};
use godwit_rules::{AuthorizedCatalog, Grants};
use godwit_serve::{CramOptions, DatasetRoot};
use godwit_sql::{QueryEngine, QueryResources, serve_statements};
use parking_lot::Mutex;

/// Fraction of the memory limit of a server's statement that the SQL engine may allocate in its own accounting. The
/// remaining memory is for allocations that the engine does not count.
const ACCOUNTED_MEMORY_SHARE: f64 = 0.6;

const USAGE: &str = "usage: godwit-sql --version (it is started by godwit query, godwit score and godwit serve)";

/// An error that stops the process.
type ProcessError = Box<dyn Error + Send + Sync>;
/// A function that opens the engine for encoded grants.
type EngineFactory = Box<dyn Fn(&[u8]) -> Result<QueryEngine, Status> + Send + Sync>;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // Do not print panics of decoders that are caught: their callers report them as errors.
        if !godwit_model::panics::is_catching_panics() {
            eprintln!("{panic}");
        }
    }));
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments.len() == 1 && arguments[0] == "--version" {
        println!("{READY_LINE}");
        return ExitCode::SUCCESS;
    }
    if arguments.is_empty() {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let outcome = StatementProcessOptions::from_arguments(arguments).map_err(Into::into).and_then(run_statements);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("godwit-sql: error: {}", godwit_model::message_with_causes(&*error));
            ExitCode::from(4)
        }
    }
}

fn run_statements(options: StatementProcessOptions) -> Result<(), ProcessError> {
    ignore_file_size_signal();
    load_process_keys(&options.keys, options.passphrase.as_deref())?;
    if options.is_for_server {
        limit_memory(options.memory_bytes)?;
        // The kept memory stays far below the limit.
        keep_freed_memory(
            (options.memory_bytes / 16).min(2 * KEPT_ALLOCATOR_BYTES as u64) as usize,
            options.threads + 1,
        );
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent process has exited or does not need the result, so exit even if a statement is running.
        std::process::exit(0);
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(options.threads.max(1)).enable_all().build()?;
    let socket = options.socket.clone();
    let open = engine_factory(options)?;
    runtime.block_on(serve_statements(open, &socket, || {
        // Ignore the error: if printing fails, the parent process has exited, and this process will exit too.
        let mut stdout = std::io::stdout();
        let _ = writeln!(stdout, "{READY_LINE}").and_then(|()| stdout.flush());
    }))?;
    Ok(())
}

/// Returns the function that opens the engine for encoded grants.
fn engine_factory(options: StatementProcessOptions) -> Result<EngineFactory, ProcessError> {
    let cram_reference = options.reference.clone().map(|reference| (reference, options.temp.clone()));
    let cram = CramOptions { program: options.godwit_program.clone(), reference: cram_reference };
    let root = DatasetRoot::new(&options.root, cram)?.with_unfinished_jobs(Arc::new(PipelineJobs));
    let references = ReferenceStore::new(options.reference.iter().cloned().collect(), options.threads);
    let root = root.with_references(references);
    let root = match &options.temporary {
        Some(directory) => root.with_temporary_directory(directory),
        None => root,
    };
    let share = if options.is_for_server { ACCOUNTED_MEMORY_SHARE } else { 1.0 };
    let memory_bytes = (options.memory_bytes as f64 * share) as usize;
    let (threads, scratch_directory) = (options.threads, Some(options.temp));
    let limits = QueryResources { memory_bytes, threads, scratch_directory };
    let objects = root.object_store();
    let (root, has_grants, is_for_server): (Arc<dyn Catalog>, _, _) =
        (Arc::new(root), options.has_grants, options.is_for_server);
    let open = move |grants: &[u8]| -> Result<QueryEngine, Status> {
        let accesses = DatasetAccessList::default();
        let catalog = match (has_grants, Grants::from_bytes(grants)) {
            (false, _) => root.clone(),
            (true, Some(grants)) => Arc::new(AuthorizedCatalog::new(root.clone(), Arc::new(grants), accesses.clone())),
            // The other process applies a policy, so it must send grants with every statement.
            (true, None) => return Err(Status::internal("a bug in godwit: a statement came without its rules")),
        };
        let engine = QueryEngine::new(catalog, &limits)?.with_object_store(objects.clone())?;
        let engine = engine.with_dataset_accesses(accesses);
        Ok(if is_for_server { engine } else { engine.with_plan_schema() })
    };
    // Without a policy, all statements see the same data, so open the engine before the first statement arrives.
    let opened = Mutex::new(if has_grants { None } else { Some(open(&[])) });
    Ok(Box::new(move |grants: &[u8]| {
        let opened = opened.lock().take();
        opened.unwrap_or_else(|| open(grants))
    }))
}

/// Ignores SIGXFSZ. If a file grows beyond `ulimit -f`, the write then fails with an error that is reported, and the
/// process is not killed.
fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is a valid disposition of SIGXFSZ, and no handler runs code.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Limits the private memory of this process. If an allocation exceeds the limit, the process aborts.
fn limit_memory(bytes: u64) -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: setrlimit only reads the struct, a local variable that outlives the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
