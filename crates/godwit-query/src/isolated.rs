//! Statements in processes of their own, as a server asks for them.
//!
//! A worker runs one statement at a time. One that ends well is used again, one that does not is killed: its statement took too
//! long, its memory ran out, or its rows were wanted by nobody any more.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use datafusion::arrow::array::RecordBatch;
use futures_util::stream;
use godwit_flight::{
    Access, Address, Batches, Caller, Catalog, Client, Description, Download, FlightError, Pending, PlainRead, Ran,
    SqlEngine, StatementWorkers, Status, Tuning,
};
use godwit_process::Temporary;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use crate::plain::plain_read;
use crate::worker::{Request, schema_from_bytes};

/// How long a process whose connection broke may take to be gone.
const EXIT_PATIENCE: Duration = Duration::from_secs(2);

/// Batches between a worker and the client.
const BATCHES_AHEAD: usize = 2;

/// A batch and what is said beside it.
type Item = (RecordBatch, Bytes);

/// What statements of a server may have.
#[derive(Clone, Debug)]
pub struct StatementLimits {
    /// Bytes of memory of each, all told.
    pub memory_bytes: u64,
    /// How long each may take, from its start to its last row.
    pub time: Duration,
    /// Rows that each may give.
    pub rows: u64,
    /// How many run at a time; others wait.
    pub at_a_time: usize,
}

/// Runs statements in workers.
pub struct Isolated {
    pool: Arc<Pool>,
}

/// What a caller may see, in words that a worker knows.
type ViewOf = Box<dyn Fn(&Caller) -> Vec<u8> + Send + Sync>;

struct Pool {
    /// `None`: everybody sees everything.
    view_of: Option<ViewOf>,
    /// What starts a worker, but for its socket.
    command: Box<dyn Fn(&std::path::Path) -> Command + Send + Sync>,
    limits: StatementLimits,
    idle: Mutex<Vec<Worker>>,
    places: Arc<Semaphore>,
    scratch: PathBuf,
}

/// A process. Dropping it kills it.
struct Worker {
    process: WorkerProcess,
    /// The one view that it serves.
    view: Vec<u8>,
    client: Client,
    /// With its socket.
    _directory: Temporary<tempfile::TempDir>,
}

/// The process of a worker, which ends when this is dropped: also where a statement is given up while its worker starts.
struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Both fail only for a child that is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Isolated {
    /// Runs statements in processes that `command` starts for a socket; they serve it with [`crate::serve_statements`], and
    /// print a line once they do. Sockets are in directories below `scratch`.
    pub fn new(
        command: impl Fn(&std::path::Path) -> Command + Send + Sync + 'static,
        limits: StatementLimits,
        scratch: PathBuf,
    ) -> Self {
        Self::with_views(command, limits, scratch, None)
    }

    /// The same, where callers see different things: `view_of` says what, and a worker serves those of one view only.
    pub fn with_views(
        command: impl Fn(&std::path::Path) -> Command + Send + Sync + 'static,
        limits: StatementLimits,
        scratch: PathBuf,
        view_of: Option<ViewOf>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(limits.at_a_time.max(1)));
        let (command, idle) = (Box::new(command), Mutex::default());
        Self { pool: Arc::new(Pool { view_of, command, limits, idle, places, scratch }) }
    }

    fn view(&self, caller: &Caller) -> Vec<u8> {
        self.pool.view_of.as_ref().map(|view_of| view_of(caller)).unwrap_or_default()
    }
}

impl SqlEngine for Isolated {
    fn workers(&self) -> Option<StatementWorkers> {
        let limit = self.pool.limits.at_a_time.max(1);
        let busy = limit.saturating_sub(self.pool.places.available_permits());
        let idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        Some(StatementWorkers { busy, idle, limit })
    }

    /// Nobody counts the rows of what is read without a worker.
    fn plain_read(&self, catalog: Arc<dyn Catalog>, sql: &str) -> Option<PlainRead> {
        (self.pool.limits.rows == u64::MAX).then(|| plain_read(catalog, sql)).flatten()
    }

    fn describe(&self, caller: &Caller, sql: String) -> Pending<'_, Description> {
        let request = Request { describe: true, sql, parameters: None, view: self.view(caller) };
        Box::pin(async move {
            let mut statement = Statement::start(self.pool.clone(), &request).await?;
            let first = statement.next().await?;
            let schema = statement.batches.schema().cloned();
            statement.end_well();
            let parameters = first.and_then(|(_, said)| schema_from_bytes(&said));
            let (Some(schema), Some(parameters)) = (schema, parameters) else {
                return Err(Status::internal("a bug in godwit: a statement was not described"));
            };
            Ok(Description { schema, parameters })
        })
    }

    fn run(&self, caller: &Caller, sql: String, parameters: Option<RecordBatch>) -> Pending<'_, Ran> {
        let request = Request { describe: false, sql, parameters, view: self.view(caller) };
        Box::pin(async move {
            let mut statement = Statement::start(self.pool.clone(), &request).await?;
            // The first batch has no rows, and says what the statement reads; the columns come with it.
            let head = statement.next().await?;
            let touched = head.and_then(|(_, said)| serde_json::from_slice(&said).ok());
            let touched = touched.ok_or_else(|| Status::internal("a bug in godwit: a statement without a head"))?;
            let first = statement.next().await?;
            let schema = statement.batches.schema().cloned();
            let schema = schema.ok_or_else(|| Status::internal("a bug in godwit: rows without columns"))?;
            let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
            tokio::spawn(pump(statement, first, sender));
            let batches =
                stream::unfold(
                    receiver,
                    |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) },
                );
            Ok(Ran { download: Download { schema, batches: Box::pin(batches) }, touched })
        })
    }
}

/// Passes rows on until there are no more, nobody wants more, or the time is over: a client that takes none of its rows
/// keeps no worker.
async fn pump(mut statement: Statement, first: Option<Item>, rows: mpsc::Sender<Result<Item, Status>>) {
    let (deadline, too_long) = (statement.deadline, statement.pool.too_long());
    let mut next = Ok(first);
    let failure = loop {
        let item = match next {
            Ok(Some(item)) => item,
            Ok(None) => return statement.end_well(),
            Err(status) => break status,
        };
        match tokio::time::timeout_at(deadline, rows.send(Ok(item))).await {
            Ok(Ok(())) => next = statement.next().await,
            Ok(Err(_)) => return,
            Err(_) => break too_long,
        }
    };
    drop(statement);
    // Where the client is gone there is nobody to tell.
    let _ = rows.send(Err(failure)).await;
}

/// A statement that is being run. Dropping it kills its worker.
struct Statement {
    worker: Worker,
    batches: Batches,
    pool: Arc<Pool>,
    deadline: Instant,
    rows: u64,
    _place: OwnedSemaphorePermit,
}

impl Statement {
    async fn start(pool: Arc<Pool>, request: &Request) -> Result<Self, Status> {
        let ticket = request.encode()?;
        let deadline = Instant::now() + pool.limits.time;
        let place = tokio::time::timeout_at(deadline, pool.places.clone().acquire_owned());
        let place = place
            .await
            .map_err(|_| Status::resource_exhausted("too many statements are being run; try again later"))?;
        let place = place.map_err(|_| Status::unavailable("the server is ending"))?;
        let mut worker = pool.clone().worker(&request.view).await?;
        let started = tokio::time::timeout_at(deadline, worker.client.download(ticket)).await;
        match started {
            Ok(Ok(batches)) => Ok(Self { worker, batches, pool, deadline, rows: 0, _place: place }),
            Ok(Err(error)) => Err(pool.blamed(&mut worker, error).await),
            Err(_) => Err(pool.too_long()),
        }
    }

    async fn next(&mut self) -> Result<Option<Item>, Status> {
        // Rows that are always there would never let the time run out.
        if Instant::now() > self.deadline {
            return Err(self.pool.too_long());
        }
        match tokio::time::timeout_at(self.deadline, self.batches.next()).await {
            Ok(Ok(item)) => {
                self.rows += item.as_ref().map_or(0, |(batch, _)| batch.num_rows() as u64);
                if self.rows > self.pool.limits.rows {
                    let problem = format!("the statement gives more than {} rows; add LIMIT", self.pool.limits.rows);
                    return Err(Status::resource_exhausted(problem));
                }
                Ok(item)
            }
            Ok(Err(error)) => Err(self.pool.blamed(&mut self.worker, error).await),
            Err(_) => Err(self.pool.too_long()),
        }
    }

    /// Gives the worker back.
    fn end_well(self) {
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.worker);
    }
}

impl Pool {
    /// A worker of the view that waits, or else a fresh one.
    async fn worker(self: Arc<Self>, view: &[u8]) -> Result<Worker, Status> {
        let waiting = self.waiting(view);
        if let Some(mut worker) = waiting
            && matches!(worker.process.0.try_wait(), Ok(None))
        {
            return Ok(worker);
        }
        let failed =
            |problem: String| Status::unavailable(format!("a process for the statement cannot be started: {problem}"));
        let pool = self.clone();
        let started = tokio::task::spawn_blocking(move || pool.start()).await;
        let (process, directory, socket) =
            started.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        let client = Client::connect(&Address::Unix(socket), Access::default(), Tuning::default()).await;
        let client = client.map_err(|error| failed(error.to_string()))?;
        Ok(Worker { process, view: view.to_vec(), client, _directory: directory })
    }

    /// A worker of the view that waits. Where there is none, those of other views make room: whoever asks has a place, and there
    /// are no more processes than places.
    fn waiting(&self, view: &[u8]) -> Option<Worker> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = idle.iter().rposition(|worker| worker.view == view) {
            return Some(idle.remove(at));
        }
        let room = self.places.available_permits();
        let too_many = idle.len().saturating_sub(room);
        idle.drain(..too_many);
        None
    }

    fn start(&self) -> std::io::Result<(WorkerProcess, Temporary<tempfile::TempDir>, PathBuf)> {
        let directory = Temporary::create(|| tempfile::Builder::new().prefix("godwit-sql-").tempdir_in(&self.scratch))?;
        let socket = directory.path().join("s");
        let mut command = (self.command)(&socket);
        // Its stdin is held by this process, so that it sees its end.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut process = WorkerProcess(child);
        let mut line = String::new();
        let read = process.0.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
        if !matches!(read, Some(Ok(1..))) {
            let _ = process.0.kill();
            let status = process.0.wait()?;
            return Err(std::io::Error::other(format!("it ended with {status}")));
        }
        Ok((process, directory, socket))
    }

    fn too_long(&self) -> Status {
        Status::deadline_exceeded(format!("the statement took longer than it may, {} s", self.limits.time.as_secs()))
    }

    /// The error of a statement: what its worker said, or how it died.
    async fn blamed(&self, worker: &mut Worker, error: FlightError) -> Status {
        // Any other error means that the process is gone.
        if let FlightError::Status { status, .. } = error {
            return *status;
        }
        let ended = wait_briefly(&mut worker.process.0).await;
        let memory_mib = self.limits.memory_bytes >> 20;
        match ended.and_then(|status| status.signal()) {
            Some(libc::SIGABRT | libc::SIGKILL | libc::SIGSEGV | libc::SIGBUS) => Status::resource_exhausted(format!(
                "the statement needed more memory than it may have, {memory_mib} MiB; ask for fewer rows or columns"
            )),
            _ => Status::internal(format!("the process of the statement was lost: {error}")),
        }
    }
}

/// How a process ended that is about to.
async fn wait_briefly(child: &mut Child) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + EXIT_PATIENCE;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_is_given_up_while_its_worker_starts_leaves_no_process() {
        let scratch = tempfile::tempdir().unwrap();
        let named = scratch.path().join("process");
        let written = named.clone();
        let command = move |_: &std::path::Path| {
            let mut shell = Command::new("sh");
            // It starts when it is told to, and does not end by itself.
            shell.args(["-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; until [ -e \"$0.go\" ]; do sleep 0.01; done; echo; exec sleep 1000"]);
            shell.arg(&written);
            shell
        };
        let (memory_bytes, rows, time) = (1 << 30, u64::MAX, Duration::from_secs(600));
        let limits = StatementLimits { memory_bytes, time, rows, at_a_time: 1 };
        let isolated = Isolated::new(command, limits, scratch.path().to_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let running = isolated.run(&Caller::default(), "SELECT 1".to_owned(), None);
            tokio::select! {
                _ = running => panic!("its worker has not started"),
                () = async { while !named.exists() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
            }
        });
        let process = std::fs::read_to_string(&named).unwrap().trim().to_owned();
        std::fs::write(named.with_added_extension("go"), "").unwrap();
        // The runtime ends when what it began on other threads has ended.
        drop(runtime);
        assert!(!std::path::Path::new("/proc").join(&process).exists(), "process {process} is left");
    }
}
