//! The life of a worker: it finds the head, joins its run, works, and connects again after a loss.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_fleet::{Rendezvous, Token, WorkerId};
use godwit_flight::FlightError;
use serde::de::DeserializeOwned;

use crate::credentials::ClusterCredentials;
use crate::error::{ClusterError, ConnectionError};
use crate::messages::JobMessages;
use crate::worker_endpoint::{WorkerConnection, WorkerEndpoint};

/// Time for which a worker tries to reconnect to a lost head.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Time between two attempts to reconnect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a failed worker stays connected, so that the head receives its report.
const FAILURE_REPORT_TIME: Duration = Duration::from_millis(200);

/// Options of a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Directory of the rendezvous file, by which the worker finds the head.
    pub rendezvous_directory: PathBuf,
    /// The attempt of the job to which this process belongs; a worker of an earlier attempt ends.
    pub attempt: u64,
    /// Number of threads for the work of this worker.
    pub threads: usize,
    /// Directory for scratch files; `None` for a directory that the head names.
    pub temp: Option<PathBuf>,
    /// Maximum time to wait for the rendezvous file.
    pub join_timeout: Duration,
}

/// The membership of a worker in a run.
pub struct WorkerSession<T> {
    connection: WorkerConnection,
    /// Address of the head.
    pub head: SocketAddr,
    worker: WorkerId,
    /// The task, which also names the job.
    pub task: T,
}

impl<T> WorkerSession<T> {
    /// Returns the endpoint with the messages of a job.
    pub fn endpoint<J: JobMessages>(&self) -> WorkerEndpoint<'_, J> {
        self.connection.endpoint(self.worker)
    }
}

/// The report of a failed worker to the head.
pub struct FailureReport {
    /// Error message: the failure, where it occurred, and what to do.
    pub message: String,
    /// Exit code of godwit for the failure, if every other worker would fail in the same way; the run then ends. `None`
    /// if other workers can continue.
    pub fatal_exit_code: Option<i32>,
}

/// The error of the work of a worker.
pub trait WorkerError {
    /// Returns the error of a connection, after which the worker connects again; `None` for other errors.
    fn connection_error(&self) -> Option<&ConnectionError>;

    /// Returns the report of this error to the head.
    fn failure_report(&self) -> FailureReport;
}

/// Runs a worker until the job is finished. `work` executes the task of a session. If the connection to the head is
/// lost, the worker reconnects as a new worker. It does not connect to a later head, because a later head starts workers
/// of its own. The launcher of this worker may also be about to stop it.
///
/// # Errors
/// The error of `work` or of the connection, if this worker fails; the job continues without it.
pub fn run_worker<T: DeserializeOwned, E: WorkerError + From<ClusterError>>(
    options: &WorkerOptions,
    cancelled: &AtomicBool,
    work: impl Fn(&WorkerSession<T>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut head, mut lost_since) = (None, None::<Instant>);
    loop {
        let started = Instant::now();
        let Err(error) = run_session(options, &mut head, cancelled, &work) else { return Ok(()) };
        let Some(cause) = error.connection_error() else { return Err(error) };
        // A long session shows that the connection was established in between: the timeout starts anew.
        if started.elapsed() > RECONNECT_TIMEOUT {
            lost_since = None;
        }
        let is_over = !Rendezvous::file_path(&options.rendezvous_directory).exists() || is_head_gone(cause);
        if is_over || lost_since.get_or_insert(started).elapsed() > RECONNECT_TIMEOUT {
            return Err(error);
        }
        std::thread::sleep(RECONNECT_INTERVAL);
    }
}

/// Returns whether the head has ended, so that its host refuses connections, or has rejected the worker.
fn is_head_gone(error: &ConnectionError) -> bool {
    match error {
        ConnectionError::Flight(FlightError::Connect { source, .. }) => {
            source.kind() == std::io::ErrorKind::ConnectionRefused
        }
        ConnectionError::WorkerRejected { .. } => true,
        _ => false,
    }
}

/// Connects to the head and works until the connection or the job ends. `head` is the token of the first head to which
/// this process connected, once it is known.
fn run_session<T: DeserializeOwned, E: WorkerError + From<ClusterError>>(
    options: &WorkerOptions,
    head: &mut Option<Token>,
    cancelled: &AtomicBool,
    work: impl Fn(&WorkerSession<T>) -> Result<(), E>,
) -> Result<(), E> {
    let session = join_run(options, head, cancelled)?;
    let result = work(&session);
    if let Err(error) = &result
        && error.connection_error().is_none()
    {
        let FailureReport { message, fatal_exit_code } = error.failure_report();
        session.connection.report_failure(message, fatal_exit_code);
        std::thread::sleep(FAILURE_REPORT_TIME);
    }
    result
}

/// Finds the head by the rendezvous file, joins its run and receives the task.
fn join_run<T: DeserializeOwned>(
    options: &WorkerOptions,
    head: &mut Option<Token>,
    cancelled: &AtomicBool,
) -> Result<WorkerSession<T>, ClusterError> {
    let is_cancelled = || cancelled.load(Ordering::Relaxed);
    let found = Rendezvous::wait(&options.rendezvous_directory, options.attempt, options.join_timeout, is_cancelled)?;
    if *head.get_or_insert_with(|| found.token.clone()) != found.token {
        let reason = "another head with its own workers has taken over the job".to_owned();
        return Err(ConnectionError::WorkerRejected { reason }.into());
    }
    let keys = ClusterCredentials::load(found.token.reveal(), &options.rendezvous_directory)?;
    let name = format!("{}, process {}", host_name(), std::process::id());
    let (head, connection) = connect_to_head(&found, &keys, &name)?;
    let (worker, task) = connection.wait_for_task()?;
    Ok(WorkerSession { connection, head, worker, task })
}

/// Connects to the first address of the head that answers, and joins the job.
fn connect_to_head(
    found: &Rendezvous,
    keys: &ClusterCredentials,
    name: &str,
) -> Result<(SocketAddr, WorkerConnection), ConnectionError> {
    let mut last = ConnectionError::invalid_head_message("the head has no address");
    for address in &found.addresses {
        let head = SocketAddr::new(*address, found.port);
        match WorkerConnection::join(head, keys.clone(), godwit_fleet::VERSION, name) {
            Ok(connection) => return Ok((head, connection)),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the name of this host.
pub fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname");
    read.map_or_else(|_| "this machine".to_owned(), |name| name.trim().to_owned())
}
