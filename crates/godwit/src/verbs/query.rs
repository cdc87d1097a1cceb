//! `godwit query`: SQL on the datasets below a directory, or of a server.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use godwit_flight::{Catalog, Touches};
use godwit_query::{Engine, Limits, Printer, QueryError, RemoteRows, RowFormat, Rows};
use godwit_rules::{GrantedCatalog, Policy};

use super::access::{connected, of_server};
use super::{cancel_on_signal, root_of, scratch_of};
use crate::cli::{Common, QueryArgs};
use crate::failure::{Exit, Failure};

/// Bytes that sorting, grouping and joining may hold where nothing is said.
const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// How often a statement looks whether it was cancelled.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(50);

/// Runs the statement and writes its rows.
pub fn run(args: &QueryArgs) -> Result<(), Failure> {
    let cancelled = cancel_on_signal()?;
    let threads = args.common.thread_count();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Machine, format!("cannot start threads: {error}")))?;
    let until_cancelled = async {
        while !cancelled.load(std::sync::atomic::Ordering::Relaxed) {
            tokio::time::sleep(PATIENCE).await;
        }
    };
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = answer(args) => outcome,
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
            let client = connected(url, &args.access).await?;
            Answer::There(Box::new(RemoteRows::ask(client, &args.statement).await.map_err(of_server)?))
        }
        None => Answer::Here(asked_here(args).await?),
    };
    match &args.out {
        Some(path) => to_file(answer, args.format.into(), path).await,
        None => to_stdout(answer, args.format.into()).await,
    }
}

/// Rows on their way, computed here or by a server.
enum Answer {
    Here(Rows),
    There(Box<RemoteRows>),
}

async fn asked_here(args: &QueryArgs) -> Result<Rows, Failure> {
    let directory = args.data.as_deref().unwrap_or(Path::new("."));
    let root = root_of(directory, args.reference.as_deref(), &args.common)?;
    let objects = root.objects();
    let mut catalog: Arc<dyn Catalog> = Arc::new(root);
    if let Some(policy) = &args.policy {
        let grants = Policy::read(policy)?.grants(args.who.as_deref().unwrap_or_default());
        catalog = Arc::new(GrantedCatalog::new(catalog, Arc::new(grants), Touches::default()));
    }
    let engine = Engine::new(catalog, &limits(&args.common))?.with_objects(objects)?;
    Ok(engine.query(&args.statement).await?)
}

/// What statements may have.
fn limits(common: &Common) -> Limits {
    let memory_bytes = common.memory.unwrap_or(DEFAULT_MEMORY_BYTES) as usize;
    Limits { memory_bytes, threads: common.thread_count(), scratch: Some(scratch_of(common)) }
}

/// A reader that has seen enough (`| head`) is no failure.
async fn to_stdout(rows: Answer, format: RowFormat) -> Result<(), Failure> {
    let out = Stdout { out: BufWriter::with_capacity(1 << 16, std::io::stdout()), closed: false };
    let mut out = write(rows, format, out).await?;
    out.flush().map_err(|error| Failure::new(Exit::Machine, format!("cannot write to stdout: {error}")))
}

async fn to_file(rows: Answer, format: RowFormat, path: &Path) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Machine,
            format!("cannot write {}: {error}; check the directory and its space", path.display()),
        )
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    let mut written = write(rows, format, BufWriter::with_capacity(1 << 20, file)).await?;
    written.flush().map_err(failed)?;
    let file = written.into_inner().map_err(|error| failed(error.into_error()))?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

async fn write<W: Write + Send>(mut rows: Answer, format: RowFormat, out: W) -> Result<W, Failure> {
    let schema = match &rows {
        Answer::Here(rows) => rows.schema(),
        Answer::There(rows) => rows.schema(),
    };
    let mut printer = Printer::new(format, schema, out)?;
    loop {
        let batch = match &mut rows {
            Answer::Here(rows) => rows.next().await?,
            Answer::There(rows) => rows.next().await.map_err(of_server)?,
        };
        let Some(batch) = batch else { break };
        printer.write(batch)?;
    }
    Ok(printer.finish()?)
}

/// Stdout, which swallows what comes when nobody reads it any more.
struct Stdout {
    out: BufWriter<std::io::Stdout>,
    closed: bool,
}

impl Stdout {
    fn tolerated<T>(&mut self, written: std::io::Result<T>, otherwise: T) -> std::io::Result<T> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(otherwise)
            }
            written => written,
        }
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.closed {
            return Ok(bytes.len());
        }
        let written = self.out.write(bytes);
        self.tolerated(written, bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.closed {
            return Ok(());
        }
        let flushed = self.out.flush();
        self.tolerated(flushed, ())
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let exit = match error {
            QueryError::Statement { .. } | QueryError::Refused { .. } => Exit::Usage,
            QueryError::Memory { .. } | QueryError::Output { .. } => Exit::Machine,
            QueryError::Execution { .. } => Exit::Input,
            QueryError::Dataset(error) => return error.into(),
        };
        Self::new(exit, godwit_formats::with_causes(&error))
    }
}
