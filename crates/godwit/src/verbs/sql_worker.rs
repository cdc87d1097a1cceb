//! `godwit sql-worker`: the process in which `godwit serve` runs SQL statements.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_delta::ReferenceStore;
use godwit_flight::{Catalog, DatasetAccessList, Status};
use godwit_query::{QueryEngine, QueryResources, serve_statements};
use godwit_rules::{AuthorizedCatalog, Grants};
use godwit_serve::DatasetRoot;

use super::{cram_options, print, unfinished_jobs};
use crate::cli::SqlWorkerArgs;
use crate::failure::{Exit, Failure};

/// Fraction of the memory limit of a statement that the SQL engine may allocate in its own accounting. The remaining
/// memory is for allocations that the engine does not count.
const ACCOUNTED_MEMORY_SHARE: f64 = 0.6;

/// Runs statements for the parent process, a server, until the parent closes stdin or exits.
pub fn run(args: &SqlWorkerArgs) -> Result<(), Failure> {
    args.keys.load_keys()?;
    limit_memory(args.memory_bytes)?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent process has exited or does not need the result, so exit even if a statement is running.
        std::process::exit(0);
    });
    let threads = args.threads as usize;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let root = DatasetRoot::new(&args.root, cram_options(args.reference.as_deref(), &args.temp))?;
    let root = root.with_unfinished_jobs(Arc::new(unfinished_jobs::PipelineJobs));
    let root = root.with_references(ReferenceStore::new(args.reference.iter().cloned().collect(), threads));
    let root = match &args.temporary {
        Some(directory) => root.with_temporary_directory(directory),
        None => root,
    };
    let memory_bytes = (args.memory_bytes as f64 * ACCOUNTED_MEMORY_SHARE) as usize;
    let limits = QueryResources { memory_bytes, threads, scratch_directory: Some(args.temp.clone()) };
    let objects = root.object_store();
    let (root, ruled): (Arc<dyn Catalog>, _) = (Arc::new(root), args.ruled);
    let engine_of = move |view: &[u8]| -> Result<QueryEngine, Status> {
        let touches = DatasetAccessList::default();
        let catalog = match (ruled, Grants::from_bytes(view)) {
            (false, _) => root.clone(),
            (true, Some(grants)) => Arc::new(AuthorizedCatalog::new(root.clone(), Arc::new(grants), touches.clone())),
            // The server applies a policy, so it must send grants with every statement.
            (true, None) => return Err(Status::internal("a bug in godwit: a statement came without its rules")),
        };
        Ok(QueryEngine::new(catalog, &limits)?.with_object_store(objects.clone())?.with_dataset_accesses(touches))
    };
    // Without a policy, all statements see the same data, so open the engine before the first statement arrives.
    let made = Mutex::new(if ruled { None } else { Some(engine_of(&[])) });
    let open = move |view: &[u8]| {
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.unwrap_or_else(|| engine_of(view))
    };
    runtime.block_on(serve_statements(open, &args.socket, || {
        // Ignore the error: if printing fails, the parent process has exited, and this process will exit too.
        let _ = print("ready\n");
    }))?;
    Ok(())
}

/// Limits the private memory of this process. If an allocation exceeds the limit, the process aborts.
fn limit_memory(bytes: u64) -> Result<(), Failure> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: setrlimit only reads the struct, a local variable that outlives the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Failure::new(Exit::Machine, format!("cannot limit the memory of a statement: {error}")))
        }
    }
}
