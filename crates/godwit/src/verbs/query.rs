//! `godwit query`: runs an SQL statement on the datasets below a directory, or on those of a server.

mod copy_rows;
mod statement_files;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use godwit_cli::cli::{CommonArgs, KeyArgs, QueryArgs};
use godwit_cli::failure::Failure;
use godwit_dataset::{Catalog, DatasetAccessList, Principal};
use godwit_flight::{SqlEngine as _, StatementProgress};
use godwit_model::{ErrorKind, message_with_causes};
use godwit_query::{
    CopyStatement, ProcessSqlEngine, RemoteRows, Rows, StatementError, StatementLimits, StatementParameters,
    StatementProcessOptions, statement_tables,
};
use godwit_rules::{AuthorizedCatalog, Grants, Policy};
use godwit_transfer::location::Location;

use super::credentials::{connect, open_pool, read_credentials, server_failure};
use super::output_check::check_output;
use super::row_output::{OutputRows, write_rows};
use super::statement_processes::{open_program, process_command, with_keys};
use super::{open_root, scratch_directory};
use crate::interruption;

/// Default memory limit for sorting, grouping and joining, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// Interval of checks whether a statement was cancelled.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time for statement processes to be killed and their directories to be removed, before this process exits.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(250);
/// Time limit of a statement of the user of this process, who can stop it: a year.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

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
    let runtime =
        runtime.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot start threads: {error}")))?;
    let until_cancelled = async {
        while !cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::time::sleep(CANCEL_CHECK_INTERVAL).await;
        }
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = work => outcome,
            () = until_cancelled => {
                Err(Failure::new(ErrorKind::Interrupted, "interrupted; no output was written".to_owned()))
            }
        }
    });
    // Do not wait for threads that read files for long: each exits when it cannot send its next batch.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    outcome
}

async fn run_statement(args: &QueryArgs) -> Result<(), Failure> {
    if let Some(copy) = CopyStatement::parse(&args.statement)? {
        return copy_rows::copy_rows(args, &copy).await;
    }
    if args.header_from.is_some() {
        let problem = "--header-from is valid with COPY (SELECT ..) TO 'FILE' only";
        return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
    }
    if let Some(out) = &args.out {
        check_output("--out", out, &statement_files::option_files(args))?;
    }
    let parameters = read_parameters(args)?;
    let answer = match &args.at {
        Some(url) => {
            let pool =
                open_pool(&Location::parse(url)?, &args.access, &read_credentials(&args.access)?, args.common.json)?;
            let rows = match pool {
                Some(pool) => RemoteRows::query_pool(pool, &args.statement, &parameters).await,
                None => RemoteRows::query_server(connect(url, &args.access).await?, &args.statement, &parameters).await,
            };
            OutputRows::Remote(Box::new(rows.map_err(server_failure)?))
        }
        None => {
            let datasets = open_datasets(args, args.common.thread_count())?;
            if let Some(out) = &args.out {
                datasets.check_output("--out", out, &statement_tables(&args.statement))?;
            }
            OutputRows::Local(datasets.query(&args.statement, &parameters).await?)
        }
    };
    write_rows(answer, args.format.into(), args.out.as_deref()).await
}

/// Returns the values of the parameters of the statement.
fn read_parameters(args: &QueryArgs) -> Result<StatementParameters, Failure> {
    let Some(path) = &args.parameters_from else { return Ok(StatementParameters::new(args.parameters.clone())) };
    let failed = |kind, error: &dyn std::error::Error| {
        Failure::new(kind, format!("cannot read parameters from {}: {error}", path.display()))
    };
    let bytes = std::fs::read(path).map_err(|error| failed(ErrorKind::Machine, &error))?;
    StatementParameters::from_stream(&bytes).map_err(|error| failed(ErrorKind::Input, &error))
}

/// Opens the datasets of a query, which `threads` threads read.
fn open_datasets(args: &QueryArgs, threads: usize) -> Result<DirectoryDatasets<'_>, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let grants = match &args.policy {
        Some(policy) => Some(Policy::read(policy)?.grants_by_name(args.principal.as_deref().unwrap_or_default())),
        None => None,
    };
    let datasets = DirectoryDatasets::open(directory, args.reference.as_deref(), &args.common, threads)?;
    Ok(DirectoryDatasets { grants, keys: args.keys.clone(), ..datasets })
}

/// The datasets below a directory or `s3://BUCKET/PREFIX`, for SQL statements of the user of this process.
pub(super) struct DirectoryDatasets<'a> {
    catalog: Arc<dyn Catalog>,
    directory: PathBuf,
    reference: Option<PathBuf>,
    common: &'a CommonArgs,
    threads: usize,
    /// If given, statements only see the data that these grants permit.
    grants: Option<Grants>,
    keys: KeyArgs,
}

impl<'a> DirectoryDatasets<'a> {
    /// Opens the datasets, which `threads` threads read.
    pub(super) fn open(
        directory: &Path,
        reference: Option<&Path>,
        common: &'a CommonArgs,
        threads: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            catalog: Arc::new(open_root(directory, reference, common)?),
            directory: directory.to_owned(),
            reference: reference.map(Path::to_owned),
            common,
            threads,
            grants: None,
            keys: KeyArgs::default(),
        })
    }

    /// Runs a statement with values for its parameters. A statement that only reads rows of one dataset runs in this
    /// process, any other in a process of `godwit-sql`.
    pub(super) async fn query(&self, sql: &str, parameters: &StatementParameters) -> Result<Rows, Failure> {
        let engine = self.engine();
        if parameters.is_empty()
            && let Some(scan) = engine.direct_scan(self.authorized_catalog(), sql)
        {
            return Ok(Rows::read_direct_scan(scan, self.threads)?);
        }
        open_program().map_err(|error| {
            Failure::new(ErrorKind::Machine, format!("SQL statements need another program: {error}"))
        })?;
        let principal = Principal::default();
        let row = match parameters.is_empty() {
            true => None,
            false => {
                let described = engine.describe_statement(&principal, sql.to_owned(), None).await;
                let described = described.map_err(StatementError::from)?;
                let row = parameters.to_row(&described.parameters);
                Some(row.map_err(|error| Failure::new(ErrorKind::Usage, message_with_causes(&error)))?)
            }
        };
        let result = engine.execute(&principal, sql.to_owned(), row, StatementProgress::default()).await;
        Ok(result.map_err(StatementError::from)?.into())
    }

    /// Returns the catalog with only the datasets, rows and columns that the grants permit.
    fn authorized_catalog(&self) -> Arc<dyn Catalog> {
        let catalog = self.catalog.clone();
        match &self.grants {
            Some(grants) => {
                Arc::new(AuthorizedCatalog::new(catalog, Arc::new(grants.clone()), DatasetAccessList::default()))
            }
            None => catalog,
        }
    }

    fn engine(&self) -> ProcessSqlEngine {
        let memory_bytes = self.common.memory.unwrap_or(DEFAULT_MEMORY_BYTES);
        let options = with_keys(
            StatementProcessOptions {
                root: self.directory.clone(),
                reference: self.reference.clone(),
                memory_bytes,
                threads: self.threads,
                has_grants: self.grants.is_some(),
                ..StatementProcessOptions::default()
            },
            &self.keys,
        );
        let only_events = self.common.json;
        let command = move |socket: &Path| {
            let mut command = process_command(&options, socket)?;
            command.stderr(if only_events { Stdio::null() } else { Stdio::inherit() });
            Ok(command)
        };
        let limits =
            StatementLimits { memory_bytes, timeout: STATEMENT_TIMEOUT, max_rows: u64::MAX, max_concurrent: 1 };
        let grants = self.grants.as_ref().map(Grants::to_bytes);
        let encode_grants = grants.map(|grants| Box::new(move |_: &Principal| grants.clone()) as _);
        ProcessSqlEngine::with_grants(command, limits, scratch_directory(self.common), encode_grants)
    }
}
