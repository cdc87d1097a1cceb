//! Runs SQL statements in separate processes of the program `godwit-sql`.
//!
//! A statement process runs one statement at a time. If the statement succeeds, the process is reused. If the statement
//! exceeds its time or memory limit, or if the client cancels the statement, the process is killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures_util::stream;
use godwit_dataset::{Catalog, Principal};
use godwit_flight::{
    Address, Batches, Client, Code, ConnectionSecurity, DirectScan, Download, ErrorReason, FlightError, SqlEngine,
    StatementDescription, StatementProgress, StatementResult, StatementWorkers, Status, StatusFuture,
};
use godwit_process::{LockedDirectory, TemporaryItem};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use crate::direct_scan::parse_direct_scan;
use crate::statement_request::{
    READY_LINE, StatementRequest, fraction_from_bytes, schema_from_bytes, statement_transport_options,
};

/// Maximum time to wait for the exit of a statement process after its connection has failed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of batches that are queued between a statement process and the client.
const MAX_QUEUED_BATCHES: usize = 2;

/// First part of the name of the directory for all statement processes of a server.
const PROCESSES_DIRECTORY_PREFIX: &str = "godwit-sql.";
/// Longest path of a Unix socket, bytes (sockaddr_un without the terminating zero).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// A record batch and the application metadata (`app_metadata`) that is sent with it.
type BatchWithMetadata = (RecordBatch, Bytes);

/// Limits that apply to each statement of a server, and to their number.
#[derive(Clone, Debug)]
pub struct StatementLimits {
    /// Memory limit of each statement process, bytes.
    pub memory_bytes: u64,
    /// Time limit of each statement, from its start to its last row.
    pub timeout: Duration,
    /// Maximum number of rows that a statement may return.
    pub max_rows: u64,
    /// Maximum number of concurrent statements; further statements wait.
    pub max_concurrent: usize,
}

/// An SQL engine that runs statements in separate processes.
pub struct ProcessSqlEngine {
    pool: Arc<StatementProcessPool>,
}

/// A function that encodes the grants of a principal, which determine the datasets that a statement process may read.
type GrantsEncoder = Box<dyn Fn(&Principal) -> Vec<u8> + Send + Sync>;

/// A function that returns the command that starts a statement process for a socket path. It fails if the program is
/// missing.
type ProcessCommand = Box<dyn Fn(&Path) -> io::Result<Command> + Send + Sync>;

struct StatementProcessPool {
    /// Encodes the grants of a principal; `None`: every principal may see all datasets.
    encode_grants: Option<GrantsEncoder>,
    /// Returns the command that starts a statement process, which must listen on this socket path.
    process_command: ProcessCommand,
    limits: StatementLimits,
    idle: Mutex<Vec<StatementProcess>>,
    permits: Arc<Semaphore>,
    /// The directory below which the directory of the processes is created.
    scratch_directory: PathBuf,
    /// The directory that contains the directories of all processes, which is created for the first one.
    processes_directory: Mutex<Option<LockedDirectory>>,
}

/// A running statement process. Dropping this value kills the process.
struct StatementProcess {
    child: ProcessGuard,
    /// The encoded grants for which the process runs statements. A process serves one set of grants only.
    grants: Vec<u8>,
    client: Client,
    /// The directory with the socket and the scratch files of the process, which is removed with this value. It is
    /// declared after `child`, so that the process is killed first.
    _directory: TemporaryItem<tempfile::TempDir>,
}

/// A statement process that is not ready yet. Dropping this value kills the process and removes its directory, in this
/// order.
struct StartingProcess {
    child: ProcessGuard,
    directory: TemporaryItem<tempfile::TempDir>,
    socket: PathBuf,
    /// The directory, if `socket` names it by this descriptor.
    _open_directory: Option<File>,
}

/// A child process that is killed when this value is dropped, even if the statement is cancelled while the process
/// starts.
struct ProcessGuard(Child);

impl ProcessGuard {
    /// Waits until the process prints a line on its stdout, which it does when it is ready. No thread is blocked
    /// meanwhile, so that the caller may stop waiting.
    async fn wait_until_ready(&mut self) -> io::Result<()> {
        let mut line = String::new();
        if let Some(stdout) = self.0.stdout.take() {
            let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
            if matches!(BufReader::new(stdout).read_line(&mut line).await, Ok(1..)) {
                return match line.trim_end() {
                    READY_LINE => Ok(()),
                    other => Err(io::Error::other(format!("it is {other}, but {READY_LINE} is required"))),
                };
            }
        }
        let _ = self.0.kill();
        let status = self.0.wait()?;
        Err(io::Error::other(format!("the process {}", godwit_process::describe_exit(status))))
    }
}

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        // Ignore errors of both calls: they fail only if the child process has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl ProcessSqlEngine {
    /// Creates an engine. `command` returns the command that starts a statement process for a socket path. The process
    /// must be `godwit-sql`, which listens on this path and prints [`READY_LINE`] when it is ready. Each process has a
    /// private directory below `scratch`, which contains its socket and is removed after the process has exited. The
    /// process should also create its scratch files there, because it may be killed before it can remove them.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::path::Path;
    /// use std::process::Command;
    /// use std::time::Duration;
    ///
    /// use godwit_flight::{SqlEngine as _, StatementWorkers};
    /// use godwit_query::{ProcessSqlEngine, StatementLimits};
    ///
    /// let limits = StatementLimits {
    ///     memory_bytes: 1 << 30,
    ///     timeout: Duration::from_secs(60),
    ///     max_rows: 1_000_000,
    ///     max_concurrent: 4,
    /// };
    /// let command = |socket: &Path| {
    ///     let mut command = Command::new("statement-worker");
    ///     command.arg("--socket").arg(socket);
    ///     Ok(command)
    /// };
    /// let engine = ProcessSqlEngine::new(command, limits, std::env::temp_dir());
    /// // Processes start with the first statements.
    /// assert_eq!(engine.statement_workers(), Some(StatementWorkers { busy: 0, idle: 0, limit: 4 }));
    /// ```
    pub fn new(
        command: impl Fn(&Path) -> io::Result<Command> + Send + Sync + 'static,
        limits: StatementLimits,
        scratch: PathBuf,
    ) -> Self {
        Self::with_grants(command, limits, scratch, None)
    }

    /// Creates an engine as [`Self::new`] does, with a function that encodes the grants of a principal. Statements of
    /// principals with different grants never run in the same process.
    pub fn with_grants(
        command: impl Fn(&Path) -> io::Result<Command> + Send + Sync + 'static,
        limits: StatementLimits,
        scratch_directory: PathBuf,
        encode_grants: Option<GrantsEncoder>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(limits.max_concurrent.max(1)));
        let (process_command, idle) = (Box::new(command), Mutex::default());
        Self {
            pool: Arc::new(StatementProcessPool {
                encode_grants,
                process_command,
                limits,
                idle,
                permits,
                scratch_directory,
                processes_directory: Mutex::default(),
            }),
        }
    }

    fn grants_of(&self, principal: &Principal) -> Vec<u8> {
        self.pool.encode_grants.as_ref().map(|view_of| view_of(principal)).unwrap_or_default()
    }
}

impl SqlEngine for ProcessSqlEngine {
    fn statement_workers(&self) -> Option<StatementWorkers> {
        let limit = self.pool.limits.max_concurrent.max(1);
        let busy = limit.saturating_sub(self.pool.permits.available_permits());
        let idle = self.pool.idle.lock().len();
        Some(StatementWorkers { busy, idle, limit })
    }

    /// Returns a direct scan only if `max_rows` is unlimited, because the rows of direct scans are not counted.
    fn direct_scan(&self, catalog: Arc<dyn Catalog>, sql: &str) -> Option<DirectScan> {
        (self.pool.limits.max_rows == u64::MAX).then(|| parse_direct_scan(catalog, sql)).flatten()
    }

    fn describe_statement(
        &self,
        principal: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
    ) -> StatusFuture<'_, StatementDescription> {
        let request = StatementRequest { is_describe: true, sql, parameters, grants: self.grants_of(principal) };
        Box::pin(async move {
            let mut statement = StatementExecution::start(self.pool.clone(), &request).await?;
            let first = statement.next_batch().await?;
            let schema = statement.batches.schema().cloned();
            statement.release_process();
            let parameters = first.and_then(|(_, said)| schema_from_bytes(&said));
            let (Some(schema), Some(parameters)) = (schema, parameters) else {
                return Err(Status::internal("a bug in godwit: a statement was not described"));
            };
            Ok(StatementDescription { schema, parameters })
        })
    }

    fn execute(
        &self,
        principal: &Principal,
        sql: String,
        parameters: Option<RecordBatch>,
        progress: StatementProgress,
    ) -> StatusFuture<'_, StatementResult> {
        let request = StatementRequest { is_describe: false, sql, parameters, grants: self.grants_of(principal) };
        Box::pin(async move {
            let mut statement = StatementExecution::start(self.pool.clone(), &request).await?;
            let done = statement.done.clone();
            progress.provide(move || f32::from_bits(done.load(Ordering::Relaxed)));
            // The statement process first sends a batch without rows, whose metadata lists the datasets that the
            // statement reads.
            let head = statement.next_batch().await?;
            let touched = head.and_then(|(_, said)| serde_json::from_slice(&said).ok());
            let datasets = touched.ok_or_else(|| Status::internal("a bug in godwit: a statement without a head"))?;
            let first = statement.next_rows().await?;
            let schema = statement.batches.schema().cloned();
            let schema = schema.ok_or_else(|| Status::internal("a bug in godwit: rows without columns"))?;
            let (sender, receiver) = mpsc::channel(MAX_QUEUED_BATCHES);
            tokio::spawn(forward_rows(statement, first, sender));
            let batches =
                stream::unfold(
                    receiver,
                    |mut receiver| async move { receiver.recv().await.map(|item| (item, receiver)) },
                );
            Ok(StatementResult { download: Download { schema, batches: Box::pin(batches) }, datasets })
        })
    }
}

/// Forwards rows from a statement process to the client, until the rows end, the client stops, or the deadline passes.
/// Because of the deadline, a client that does not read its rows cannot occupy a process forever.
async fn forward_rows(
    mut statement: StatementExecution,
    first: Option<BatchWithMetadata>,
    rows: mpsc::Sender<Result<BatchWithMetadata, Status>>,
) {
    let (deadline, too_long) = (statement.deadline, statement.pool.timeout_status());
    let mut next = Ok(first);
    let failure = loop {
        let item = match next {
            Ok(Some(item)) => item,
            Ok(None) => return statement.release_process(),
            Err(status) => break status,
        };
        match tokio::time::timeout_at(deadline, rows.send(Ok(item))).await {
            Ok(Ok(())) => {
                next = tokio::select! {
                    next = statement.next_rows() => next,
                    // The client has disconnected. Do not compute until the next batch to notice it.
                    () = rows.closed() => return,
                }
            }
            Ok(Err(_)) => return,
            Err(_) => break too_long,
        }
    };
    drop(statement);
    // Ignore the result: sending fails only if the client has disconnected.
    let _ = rows.send(Err(failure)).await;
}

/// A running statement. Dropping this value kills the process that runs it.
struct StatementExecution {
    process: StatementProcess,
    batches: Batches,
    pool: Arc<StatementProcessPool>,
    deadline: Instant,
    row_count: u64,
    /// The bits of the fraction of the statement that is done.
    done: Arc<AtomicU32>,
    _permit: OwnedSemaphorePermit,
}

impl StatementExecution {
    async fn start(pool: Arc<StatementProcessPool>, request: &StatementRequest) -> Result<Self, Status> {
        let ticket = request.encode()?;
        let deadline = Instant::now() + pool.limits.timeout;
        let place = tokio::time::timeout_at(deadline, pool.permits.clone().acquire_owned());
        let place =
            place.await.map_err(|_| Status::resource_exhausted("too many statements are running; try again later"))?;
        let place = place.map_err(|_| Status::unavailable("the server is shutting down"))?;
        // The time limit includes the start of the process, which may be slow or hang, for example on a file system that
        // does not respond.
        let acquired = tokio::time::timeout_at(deadline, pool.clone().acquire_process(&request.grants)).await;
        let mut process = acquired.map_err(|_| pool.timeout_status())??;
        let started = tokio::time::timeout_at(deadline, process.client.download(ticket)).await;
        match started {
            Ok(Ok(batches)) => {
                Ok(Self { process, batches, pool, deadline, row_count: 0, done: Arc::default(), _permit: place })
            }
            Ok(Err(error)) => Err(pool.failure_status(&mut process, error).await),
            Err(_) => Err(pool.timeout_status()),
        }
    }

    async fn next_batch(&mut self) -> Result<Option<BatchWithMetadata>, Status> {
        // Check the deadline here too: if a batch is always ready, the timeout below never fires.
        if Instant::now() > self.deadline {
            return Err(self.pool.timeout_status());
        }
        match tokio::time::timeout_at(self.deadline, self.batches.next()).await {
            Ok(Ok(item)) => {
                self.row_count += item.as_ref().map_or(0, |(batch, _)| batch.num_rows() as u64);
                if self.row_count > self.pool.limits.max_rows {
                    let problem =
                        format!("the statement returns more than {} rows; add LIMIT", self.pool.limits.max_rows);
                    return Err(Status::resource_exhausted(problem));
                }
                Ok(item)
            }
            Ok(Err(error)) => Err(self.pool.failure_status(&mut self.process, error).await),
            Err(_) => Err(self.pool.timeout_status()),
        }
    }

    /// Returns the next batch with rows, without its metadata, which contains the progress. A batch without rows only
    /// reports progress.
    async fn next_rows(&mut self) -> Result<Option<BatchWithMetadata>, Status> {
        while let Some((batch, metadata)) = self.next_batch().await? {
            if let Some(fraction) = fraction_from_bytes(&metadata) {
                self.done.store(fraction.to_bits(), Ordering::Relaxed);
            }
            if batch.num_rows() > 0 {
                return Ok(Some((batch, Bytes::new())));
            }
        }
        Ok(None)
    }

    /// Ends the statement successfully, and makes its process available for other statements.
    fn release_process(self) {
        let mut idle = self.pool.idle.lock();
        idle.push(self.process);
    }
}

impl StatementProcessPool {
    /// Returns an idle process with these grants; starts a new process if there is none.
    async fn acquire_process(self: Arc<Self>, view: &[u8]) -> Result<StatementProcess, Status> {
        let waiting = self.take_idle_process(view);
        if let Some(mut worker) = waiting
            && matches!(worker.child.0.try_wait(), Ok(None))
        {
            return Ok(worker);
        }
        let failed = |error: io::Error| {
            let message = format!("a process for the statement cannot be started: {error}");
            match error.kind() {
                io::ErrorKind::Unsupported => ErrorReason::SqlUnavailable.status(Code::Unavailable, message),
                _ => Status::unavailable(message),
            }
        };
        let pool = self.clone();
        let started = tokio::task::spawn_blocking(move || pool.spawn_process()).await;
        let mut process = started.map_err(|error| failed(error.into()))?.map_err(failed)?;
        process.child.wait_until_ready().await.map_err(failed)?;
        let address = Address::Unix(process.socket.clone());
        let client = Client::connect(&address, ConnectionSecurity::default(), statement_transport_options()).await;
        let client = client.map_err(|error| failed(io::Error::other(error)))?;
        let StartingProcess { child, directory, .. } = process;
        Ok(StatementProcess { child, grants: view.to_vec(), client, _directory: directory })
    }

    /// Returns an idle process with these grants. If there is none, stops idle processes with other grants, so that the
    /// number of processes never exceeds `max_concurrent`.
    fn take_idle_process(&self, view: &[u8]) -> Option<StatementProcess> {
        let mut idle = self.idle.lock();
        if let Some(at) = idle.iter().rposition(|worker| worker.grants == view) {
            return Some(idle.remove(at));
        }
        let room = self.permits.available_permits();
        let too_many = idle.len().saturating_sub(room);
        idle.drain(..too_many);
        None
    }

    /// Returns the directory for the directories of processes; creates it if it does not exist.
    fn processes_directory(&self) -> io::Result<PathBuf> {
        let mut created = self.processes_directory.lock();
        // A program that removes old files may have removed the directory of a server that runs for months.
        if let Some(directory) = created.as_ref().filter(|directory| directory.path().is_dir()) {
            return Ok(directory.path().to_owned());
        }
        let directory = created.insert(LockedDirectory::create(&self.scratch_directory, PROCESSES_DIRECTORY_PREFIX)?);
        Ok(directory.path().to_owned())
    }

    fn spawn_process(&self) -> io::Result<StartingProcess> {
        let parent = self.processes_directory()?;
        let directory = TemporaryItem::create(|| tempfile::Builder::new().prefix("").tempdir_in(parent))?;
        let mut socket = directory.path().join("s");
        let mut open_directory = None;
        if socket.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            let opened = File::open(directory.path())?;
            socket = PathBuf::from(format!("/proc/{}/fd/{}/s", std::process::id(), opened.as_raw_fd()));
            open_directory = Some(opened);
        }
        let mut command = (self.process_command)(&socket)?;
        // The child exits when its stdin closes, which also happens if this process dies. It does not receive the signals
        // of the terminal, because this process decides when a statement ends.
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn()?;
        Ok(StartingProcess { child: ProcessGuard(child), directory, socket, _open_directory: open_directory })
    }

    fn timeout_status(&self) -> Status {
        Status::deadline_exceeded(format!(
            "the statement exceeded its time limit of {} s",
            self.limits.timeout.as_secs()
        ))
    }

    /// Returns the error of a failed statement: the status that its process sent, or the reason why the process ended.
    async fn failure_status(&self, worker: &mut StatementProcess, error: FlightError) -> Status {
        // An error other than a status means that the process has ended.
        if let FlightError::Status { status, .. } = error {
            return *status;
        }
        let ended = wait_for_exit(&mut worker.child.0).await;
        let memory_mib = self.limits.memory_bytes >> 20;
        match ended.and_then(|status| status.signal()) {
            Some(libc::SIGABRT | libc::SIGKILL | libc::SIGSEGV | libc::SIGBUS) => Status::resource_exhausted(format!(
                "the statement exceeded its memory limit of {memory_mib} MiB; select fewer rows or columns"
            )),
            _ => Status::internal(format!("the process of the statement exited unexpectedly: {error}")),
        }
    }
}

/// Waits up to [`EXIT_TIMEOUT`] for the exit of a child process.
async fn wait_for_exit(child: &mut Child) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + EXIT_TIMEOUT;
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
    fn a_statement_that_is_cancelled_while_its_process_starts_leaves_no_process() {
        let scratch = tempfile::tempdir().unwrap();
        let named = scratch.path().join("process");
        let written = named.clone();
        let command = move |_: &Path| {
            let mut shell = Command::new("sh");
            // The shell does not print its ready line, and does not exit by itself.
            shell.args(["-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000"]);
            shell.arg(&written);
            Ok(shell)
        };
        let (memory_bytes, max_rows, timeout) = (1 << 30, u64::MAX, Duration::from_secs(600));
        let limits = StatementLimits { memory_bytes, timeout, max_rows, max_concurrent: 1 };
        let isolated = ProcessSqlEngine::new(command, limits, scratch.path().to_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let running =
                isolated.execute(&Principal::default(), "SELECT 1".to_owned(), None, StatementProgress::default());
            tokio::select! {
                _ = running => panic!("its worker has not started"),
                () = async { while !named.exists() { tokio::time::sleep(Duration::from_millis(5)).await } } => {}
            }
        });
        // Dropping the runtime waits until started blocking tasks have ended.
        drop(runtime);
        let process = std::fs::read_to_string(&named).unwrap().trim().to_owned();
        assert!(!Path::new("/proc").join(&process).exists(), "process {process} is left");
    }

    #[tokio::test]
    async fn a_process_that_hangs_while_it_starts_is_stopped_at_the_time_limit_of_the_statement() {
        let scratch = tempfile::tempdir().unwrap();
        let (directory, named) = (scratch.path().join("processes"), scratch.path().join("process"));
        std::fs::create_dir(&directory).unwrap();
        let written = named.clone();
        let command = move |_: &Path| {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo $$ > \"$0\"; exec sleep 1000"]).arg(&written);
            Ok(shell)
        };
        let timeout = Duration::from_secs(2);
        let limits = StatementLimits { memory_bytes: 1 << 30, timeout, max_rows: u64::MAX, max_concurrent: 1 };
        let engine = ProcessSqlEngine::new(command, limits, directory.clone());
        let outcome = engine.execute(&Principal::default(), "SELECT 1".to_owned(), None, StatementProgress::default());
        let outcome = tokio::time::timeout(Duration::from_secs(60), outcome).await.expect("the time limit applies");
        let status = outcome.err().expect("the process never becomes ready");
        assert_eq!(status.code(), godwit_flight::Code::DeadlineExceeded, "{status}");
        let process = std::fs::read_to_string(&named).unwrap().trim().to_owned();
        assert!(!Path::new("/proc").join(&process).exists(), "process {process} is left");
        let parents: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(parents.iter().map(|parent| std::fs::read_dir(parent).unwrap().count()).collect::<Vec<_>>(), [0]);
        assert_eq!(engine.statement_workers().map(|workers| workers.busy), Some(0));
        drop(engine);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }
}
