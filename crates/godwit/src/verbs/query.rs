//! `godwit query`: SQL on the datasets below a directory, or of a server.

use std::path::Path;
use std::sync::Arc;

use godwit_flight::{Catalog, Touches};
use godwit_query::{Engine, Limits, QueryError, RemoteRows, Rows};
use godwit_rules::{GrantedCatalog, Grants, Policy};
use godwit_transfer::place::Place;

use super::access::{connected, credentials, of_server, pool_of};
use super::rows::{Answer, write_rows};
use super::{root_of, scratch_of};
use crate::cli::{Common, QueryArgs};
use crate::failure::{Exit, Failure};
use crate::interruption;

/// Bytes that sorting, grouping and joining may hold where nothing is said.
const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// How often a statement looks whether it was cancelled.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);

/// Runs the statement and writes its rows.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    args.keys.take()?;
    until_cancelled(&args.common, answer(args))
}

/// Waits for what a verb does, or for a signal to end.
pub(super) fn until_cancelled(common: &Common, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = common.thread_count();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let until_cancelled = async {
        while !cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::time::sleep(PATIENCE).await;
        }
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work => outcome,
            () = until_cancelled => Err(Failure::new(Exit::Interrupted, "interrupted; nothing was kept".to_owned())),
        }
    });
    // A thread that reads a file ends when its next batch is wanted by nobody.
    runtime.shutdown_background();
    outcome
}

async fn answer(args: &QueryArgs) -> Result<(), Failure> {
    let answer = match &args.at {
        Some(url) => {
            let pool = pool_of(&Place::parse(url)?, &args.access, &credentials(&args.access)?, args.common.json)?;
            let rows = match pool {
                Some(pool) => RemoteRows::ask_pool(pool, &args.statement).await,
                None => RemoteRows::ask(connected(url, &args.access).await?, &args.statement).await,
            };
            Answer::There(Box::new(rows.map_err(of_server)?))
        }
        None => Answer::Here(asked_here(args).await?),
    };
    write_rows(answer, args.format.into(), args.out.as_deref()).await
}

async fn asked_here(args: &QueryArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let grants = match &args.policy {
        Some(policy) => Some(Policy::read(policy)?.grants(args.who.as_deref().unwrap_or_default())),
        None => None,
    };
    let threads = args.common.thread_count();
    let engine = engine_over(directory, args.reference.as_deref(), &args.common, threads, grants)?;
    Ok(engine.query(&args.statement).await?)
}

/// What runs statements over the datasets below a directory, or below `s3://BUCKET/PREFIX`, or over what grants show of them.
pub(super) fn engine_over(
    directory: &Path,
    reference: Option<&Path>,
    common: &Common,
    threads: usize,
    grants: Option<Grants>,
) -> Result<Engine, Failure> {
    let root = root_of(directory, reference, common)?;
    let objects = root.objects();
    let mut catalog: Arc<dyn Catalog> = Arc::new(root);
    if let Some(grants) = grants {
        catalog = Arc::new(GrantedCatalog::new(catalog, Arc::new(grants), Touches::default()));
    }
    let memory_bytes = common.memory.unwrap_or(DEFAULT_MEMORY_BYTES) as usize;
    let limits = Limits { memory_bytes, threads, scratch: Some(scratch_of(common)) };
    Ok(Engine::new(catalog, &limits)?.with_objects(objects)?)
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let exit = match error {
            QueryError::Statement { .. } | QueryError::NoTable { .. } | QueryError::Refused { .. } => Exit::Usage,
            QueryError::Memory { .. } | QueryError::Output { .. } => Exit::Machine,
            QueryError::Execution { .. } => Exit::Input,
            QueryError::Dataset(error) => return error.into(),
        };
        Self::new(exit, godwit_formats::with_causes(&error))
    }
}
