//! `godwit sql-worker`: what `godwit serve` starts to run statements.

use std::io::Read as _;
use std::sync::{Arc, Mutex, PoisonError};

use godwit_flight::{Catalog, Status, Touches};
use godwit_query::{Engine, Limits, serve_statements};
use godwit_rules::{GrantedCatalog, Grants};
use godwit_serve::Root;
use godwit_transfer::References;

use super::{cram_access, live, print};
use crate::cli::SqlWorkerArgs;
use crate::failure::{Exit, Failure};

/// What the engine counts of the memory of a statement: the rest is for what it does not count.
const COUNTED_SHARE: f64 = 0.6;

/// Runs statements until its stdin ends, which whoever started it holds.
pub fn run(args: &SqlWorkerArgs) -> Result<(), Failure> {
    args.keys.take()?;
    limit_memory(args.memory_bytes)?;
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // Whatever is being run is wanted by nobody: nothing is to be put in order.
        std::process::exit(0);
    });
    let threads = args.threads as usize;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let root = Root::new(&args.root, cram_access(args.reference.as_deref(), &args.temp))?;
    let root = root.with_runs(Arc::new(live::OfPipeline));
    let root = root.with_references(References::new(args.reference.iter().cloned().collect(), threads));
    let root = match &args.temporary {
        Some(directory) => root.with_temporary(directory),
        None => root,
    };
    let memory_bytes = (args.memory_bytes as f64 * COUNTED_SHARE) as usize;
    let limits = Limits { memory_bytes, threads, scratch: Some(args.temp.clone()) };
    let objects = root.objects();
    let (root, ruled): (Arc<dyn Catalog>, _) = (Arc::new(root), args.ruled);
    let engine_of = move |view: &[u8]| -> Result<Engine, Status> {
        let touches = Touches::default();
        let catalog = match (ruled, Grants::from_bytes(view)) {
            (false, _) => root.clone(),
            (true, Some(grants)) => Arc::new(GrantedCatalog::new(root.clone(), Arc::new(grants), touches.clone())),
            // Where there are rules, nothing is seen without them.
            (true, None) => return Err(Status::internal("a bug in godwit: a statement came without its rules")),
        };
        Ok(Engine::new(catalog, &limits)?.with_objects(objects.clone())?.with_touches(touches))
    };
    // Where everybody sees the same, the first statement need not wait for it.
    let made = Mutex::new(if ruled { None } else { Some(engine_of(&[])) });
    let open = move |view: &[u8]| {
        let made = made.lock().unwrap_or_else(PoisonError::into_inner).take();
        made.unwrap_or_else(|| engine_of(view))
    };
    runtime.block_on(serve_statements(open, &args.socket, || {
        // Who does not hear it has ended, and so does this process.
        let _ = print("ready\n");
    }))?;
    Ok(())
}

/// Holds the process to that many bytes of memory of its own: what asks for more is ended by the allocator.
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
