//! `godwit sql-worker`: the process that `godwit serve` starts to run statements.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_flight::{Catalog, DatasetAccessList, Status};
use godwit_query::{QueryEngine, QueryResources, serve_statements};
use godwit_rules::{AuthorizedCatalog, Grants};
use godwit_serve::DatasetRoot;
use godwit_transfer::ReferenceStore;

use super::{cram_options, print, unfinished_jobs};
use crate::cli::SqlWorkerArgs;
use crate::failure::{Exit, Failure};

/// Fraction of a statement's memory that the engine may account for; the rest is for allocations that it does not count.
const ACCOUNTED_MEMORY_SHARE: f64 = 0.6;

/// Runs statements until stdin is closed, which the parent process holds open.
pub fn run(args: &SqlWorkerArgs) -> Result<(), Failure> {
    args.keys.load_keys()?;
    limit_memory(args.memory_bytes)?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // The parent has gone, so a running statement needs no cleanup.
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
            // With a policy, a statement without grants sees nothing.
            (true, None) => return Err(Status::internal("a bug in godwit: a statement came without its rules")),
        };
        Ok(QueryEngine::new(catalog, &limits)?.with_object_store(objects.clone())?.with_dataset_accesses(touches))
    };
    // Without a policy, the engine is opened before the first statement.
    let made = Mutex::new(if ruled { None } else { Some(engine_of(&[])) });
    let open = move |view: &[u8]| {
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.unwrap_or_else(|| engine_of(view))
    };
    runtime.block_on(serve_statements(open, &args.socket, || {
        // If printing fails, the parent has exited, and this process exits too.
        let _ = print("ready\n");
    }))?;
    Ok(())
}

/// Limits the private memory of the process; allocations beyond it abort the process.
fn limit_memory(bytes: u64) -> Result<(), Failure> {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: setrlimit reads a struct that lives on this stack frame for the whole call.
    match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Failure::new(Exit::Machine, format!("cannot limit the memory of a statement: {error}")))
        }
    }
}
