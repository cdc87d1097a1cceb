//! `godwit query`: runs an SQL statement on the datasets below a directory, or on those of a server.

use std::path::Path;
use std::sync::Arc;

use godwit_dataset::{Catalog, DatasetAccessList};
use godwit_query::{QueryEngine, QueryError, QueryResources, RemoteRows, Rows};
use godwit_rules::{AuthorizedCatalog, Grants, Policy};
use godwit_transfer::location::Location;

use super::credentials::{connect, open_pool, read_credentials, server_failure};
use super::row_output::{OutputRows, write_rows};
use super::{open_root, scratch_directory};
use crate::cli::{CommonArgs, QueryArgs};
use crate::failure::{Exit, Failure};
use crate::interruption;

/// Default memory limit for sorting, grouping and joining, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// Interval of checks whether a statement was cancelled.
const CANCEL_CHECK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(50);

/// Runs the statement and writes the resulting rows.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    args.keys.load_keys()?;
    run_until_cancelled(&args.common, run_statement(args))
}

/// Runs the future `work` of a verb until it returns, or until a signal cancels it.
pub(super) fn run_until_cancelled(
    common: &CommonArgs,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let cancelled = interruption::flag();
    let threads = common.thread_count();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let until_cancelled = async {
        while !cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
        }
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work => outcome,
            () = until_cancelled => {
                Err(Failure::new(Exit::Interrupted, "interrupted; no output was written".to_owned()))
            }
        }
    });
    // Do not wait for threads that read files: each exits when it cannot send its next batch.
    runtime.shutdown_background();
    outcome
}

async fn run_statement(args: &QueryArgs) -> Result<(), Failure> {
    let answer = match &args.at {
        Some(url) => {
            let pool =
                open_pool(&Location::parse(url)?, &args.access, &read_credentials(&args.access)?, args.common.json)?;
            let rows = match pool {
                Some(pool) => RemoteRows::query_pool(pool, &args.statement).await,
                None => RemoteRows::query_server(connect(url, &args.access).await?, &args.statement).await,
            };
            OutputRows::Remote(Box::new(rows.map_err(server_failure)?))
        }
        None => OutputRows::Local(query_directory(args).await?),
    };
    write_rows(answer, args.format.into(), args.out.as_deref()).await
}

async fn query_directory(args: &QueryArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let grants = match &args.policy {
        Some(policy) => Some(Policy::read(policy)?.grants_by_name(args.principal.as_deref().unwrap_or_default())),
        None => None,
    };
    let threads = args.common.thread_count();
    let engine = open_engine(directory, args.reference.as_deref(), &args.common, threads, grants)?;
    Ok(engine.query(&args.statement).await?)
}

/// Opens an SQL engine for the datasets below a directory or `s3://BUCKET/PREFIX`. If `grants` are given, statements
/// only see the data that these permit.
pub(super) fn open_engine(
    directory: &Path,
    reference: Option<&Path>,
    common: &CommonArgs,
    threads: usize,
    grants: Option<Grants>,
) -> Result<QueryEngine, Failure> {
    let root = open_root(directory, reference, common)?;
    let objects = root.object_store();
    let mut catalog: Arc<dyn Catalog> = Arc::new(root);
    if let Some(grants) = grants {
        catalog = Arc::new(AuthorizedCatalog::new(catalog, Arc::new(grants), DatasetAccessList::default()));
    }
    let memory_bytes = common.memory.unwrap_or(DEFAULT_MEMORY_BYTES) as usize;
    let limits = QueryResources { memory_bytes, threads, scratch_directory: Some(scratch_directory(common)) };
    Ok(QueryEngine::new(catalog, &limits)?.with_object_store(objects)?)
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let exit = match error {
            QueryError::InvalidStatement { .. } | QueryError::TableNotFound { .. } | QueryError::NotAQuery { .. } => {
                Exit::Usage
            }
            QueryError::MemoryLimit { .. } | QueryError::Output { .. } => Exit::Machine,
            QueryError::Execution { .. } => Exit::Input,
            QueryError::Dataset(error) => return error.into(),
        };
        Self::new(exit, godwit_formats::message_with_causes(&error))
    }
}
