//! The workers of a job, as the head manages them: joins, events, uploads and losses. Other modules decide the work of
//! each worker.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_buffer::MutableBuffer;
use godwit_exchange::{
    ClusterCredentials, Command, CommandSender, DownloadSource, HeadEndpoint, HeadEvent, WorkerEvent, WorkerId,
    WorkerUpload,
};
use godwit_fleet::Rendezvous;
use serde::Serialize;
use serde_json::Value;

use super::{ClusterOptions, WorkerTask};
use crate::error::{ErrorKind, PipelineError};
use crate::observer::{Event, Observer};

/// Maximum time for which the head waits for an event before it checks its timers.
const EVENT_TIMEOUT: Duration = Duration::from_millis(10);
/// Time without any connected worker after which a job fails.
const NO_WORKER_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which the head checks whether started workers have ended before they joined.
const LAUNCH_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time to wait until all workers have received the last command and disconnected.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the head checks for a later attempt of its job.
const ATTEMPT_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// An event of a worker that the pool passes to the job.
pub(crate) enum WorkerPoolEvent {
    /// A worker is lost.
    Lost(WorkerId),
    /// A worker sent an event.
    Event(WorkerId, WorkerEvent),
    /// A worker uploaded data.
    Upload(WorkerId, WorkerUpload, Vec<MutableBuffer>),
}

/// A connected worker.
struct ConnectedWorker {
    name: String,
    commands: CommandSender,
}

/// The workers of a job. Dropping the pool closes the endpoint of the head, so that all workers lose their connection.
pub(crate) struct WorkerPool<'r> {
    head: Option<HeadEndpoint>,
    /// Directory of the rendezvous file, by which workers find the head; the field `rendezvous` is the content of the
    /// file.
    rendezvous_directory: PathBuf,
    rendezvous: Rendezvous,
    cluster: &'r ClusterOptions<'r>,
    /// The task that each worker receives when it joins.
    task_json: Value,
    workers: BTreeMap<WorkerId, ConnectedWorker>,
    observer: &'r dyn Observer,
    cancelled: &'r AtomicBool,
    /// Last time at which a worker was connected, initially the time at which the pool was opened.
    no_workers_since: Instant,
    reported_error: Option<String>,
    /// Time of the last check for workers that ended before they joined.
    launch_checked_at: Instant,
    /// Time of the last check for a later attempt of the job.
    attempt_checked_at: Instant,
    worker_names: Vec<String>,
    lost_workers: usize,
}

impl<'r> WorkerPool<'r> {
    /// Starts to listen, publishes the rendezvous file, and starts the workers. The rendezvous file is in the directory
    /// `between`, unless the launcher uses another directory. Workers download their input from `download_source`.
    pub(crate) fn open(
        cluster: &'r ClusterOptions<'r>,
        between: &Path,
        download_source: Arc<impl DownloadSource>,
        work: &WorkerTask<impl Serialize>,
        observer: &'r dyn Observer,
        cancelled: &'r AtomicBool,
    ) -> Result<Self, PipelineError> {
        let rendezvous_directory = cluster.rendezvous_directory.clone().unwrap_or_else(|| between.to_owned());
        ClusterCredentials::create_certificate(&rendezvous_directory)?;
        let address = match cluster.addresses[..] {
            [only] => only,
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut rendezvous = Rendezvous::new(SocketAddr::new(address, 0), cluster.attempt)?;
        rendezvous.addresses.clone_from(&cluster.addresses);
        let keys = ClusterCredentials::load(rendezvous.token.reveal(), &rendezvous_directory)?;
        let head = HeadEndpoint::listen(SocketAddr::new(address, 0), keys.server_access, download_source)?;
        rendezvous.port = head.address().port();
        rendezvous.publish(&rendezvous_directory)?;
        let task_json = super::to_worker_json(work)?;
        cluster.launcher.start_workers(
            &std::path::absolute(&rendezvous_directory).map_err(PipelineError::file("find", &rendezvous_directory))?,
        )?;
        Ok(Self {
            head: Some(head),
            rendezvous_directory,
            rendezvous,
            cluster,
            task_json,
            workers: BTreeMap::new(),
            observer,
            cancelled,
            no_workers_since: Instant::now(),
            reported_error: None,
            launch_checked_at: Instant::now(),
            attempt_checked_at: Instant::now(),
            worker_names: Vec::new(),
            lost_workers: 0,
        })
    }

    /// Waits briefly for an event. Adds workers that join and removes workers that are lost; a loss is also returned as
    /// an event.
    ///
    /// # Errors
    /// [`PipelineError::Interrupted`] if the job is cancelled; [`PipelineError::NoWorkers`] if no worker is left;
    /// [`PipelineError::Worker`] for a failure that all workers would have; [`godwit_fleet::FleetError::Superseded`] if
    /// there is a later attempt of the job.
    pub(crate) fn next_event(&mut self) -> Result<Option<WorkerPoolEvent>, PipelineError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        if self.attempt_checked_at.elapsed() >= ATTEMPT_CHECK_INTERVAL {
            self.attempt_checked_at = Instant::now();
            self.check_current()?;
        }
        let incoming = self.head.as_mut().and_then(|head| head.next_event(EVENT_TIMEOUT));
        self.check_any_worker()?;
        Ok(match incoming {
            Some(HeadEvent::WorkerJoined { worker, version, name, commands }) => {
                self.add_worker(worker, version, name, commands);
                None
            }
            Some(HeadEvent::WorkerLost(node, why)) => self.remove_worker(node, &why),
            Some(HeadEvent::Reported(node, WorkerEvent::Failed { message, fatal_kind })) => {
                self.handle_failure(node, message, fatal_kind)?
            }
            // Ignore events of a rejected worker, which may not have received the rejection yet.
            Some(HeadEvent::Reported(node, report)) => {
                self.is_connected(node).then_some(WorkerPoolEvent::Event(node, report))
            }
            Some(HeadEvent::Uploaded(node, upload, pieces)) => {
                self.is_connected(node).then_some(WorkerPoolEvent::Upload(node, upload, pieces))
            }
            None => None,
        })
    }

    /// Fails if there is a later attempt of this job.
    ///
    /// # Errors
    /// [`godwit_fleet::FleetError::Superseded`] if there is a later attempt.
    pub(crate) fn check_current(&self) -> Result<(), PipelineError> {
        self.cluster.check_current()
    }

    fn check_any_worker(&mut self) -> Result<(), PipelineError> {
        // Check only workers that have not joined yet: there is an event for the loss of a worker that has joined.
        if self.worker_names.len() < self.cluster.workers as usize
            && self.launch_checked_at.elapsed() > LAUNCH_CHECK_INTERVAL
        {
            self.launch_checked_at = Instant::now();
            for last in self.cluster.launcher.exit_messages() {
                self.warn(format!("{last}; the job continues with the other workers"));
                self.record_error(last);
            }
        }
        if !self.workers.is_empty() {
            self.no_workers_since = Instant::now();
            return Ok(());
        }
        if !self.cluster.launcher.all_ended() && self.no_workers_since.elapsed() < NO_WORKER_TIMEOUT {
            return Ok(());
        }
        let gone = self.cluster.launcher.exit_messages();
        gone.into_iter().for_each(|last| self.record_error(last));
        Err(PipelineError::NoWorkers {
            last_error: self.reported_error.take().unwrap_or_else(|| "no worker joined".to_owned()),
        })
    }

    /// Records an error, unless an earlier one is recorded: the first error is probably the cause of all others.
    fn record_error(&mut self, last: String) {
        self.reported_error.get_or_insert(last);
    }

    fn add_worker(&mut self, worker: WorkerId, version: String, name: String, commands: CommandSender) {
        self.workers.insert(worker, ConnectedWorker { name: name.clone(), commands });
        let own = env!("CARGO_PKG_VERSION");
        if version != own {
            let why = format!(
                "its version of godwit is {version}, that of the head is {own}; install one version on all hosts"
            );
            return self.reject_worker(worker, why);
        }
        self.send_command(worker, &Command::AcceptWorker { worker, job: self.task_json.clone() });
        self.worker_names.push(name);
    }

    /// Rejects a worker. Its later events are ignored.
    pub(crate) fn reject_worker(&mut self, node: WorkerId, reason: String) {
        let Some(ConnectedWorker { name, commands }) = self.workers.remove(&node) else { return };
        self.warn(format!("the head rejected {name}: {reason}"));
        self.record_error(format!("{name}: {reason}"));
        commands.send(&Command::RejectWorker { reason });
    }

    fn remove_worker(&mut self, node: WorkerId, why: &str) -> Option<WorkerPoolEvent> {
        let member = self.workers.remove(&node)?;
        self.lost_workers += 1;
        self.warn(format!("the head lost worker {}: {why}; other workers take over its work", member.name));
        self.record_error(format!("{}: {why}", member.name));
        Some(WorkerPoolEvent::Lost(node))
    }

    fn handle_failure(
        &mut self,
        node: WorkerId,
        message: String,
        everywhere: Option<Value>,
    ) -> Result<Option<WorkerPoolEvent>, PipelineError> {
        let Some(ConnectedWorker { name, .. }) = self.workers.get(&node) else { return Ok(None) };
        if let Some(blame) = everywhere {
            let kind = serde_json::from_value(blame).unwrap_or(ErrorKind::Engine);
            return Err(PipelineError::Worker { worker: name.clone(), message, kind });
        }
        self.reported_error = Some(format!("{name}: {message}"));
        Ok(self.remove_worker(node, &message))
    }

    /// Sends a command to a worker.
    pub(crate) fn send_command(&self, node: WorkerId, order: &Command) {
        // If the worker no longer receives commands, an event will soon report that the worker is lost.
        let _ = self.workers.get(&node).map(|member| member.commands.send(order));
    }

    /// Sends a command to all workers.
    pub(crate) fn broadcast_command(&self, order: &Command) {
        self.workers.keys().for_each(|node| self.send_command(*node, order));
    }

    /// Reports a warning to the user.
    pub(crate) fn warn(&self, message: String) {
        self.observer.event(&Event::Warning { message });
    }

    /// Returns the error for an invalid message of a worker.
    pub(crate) fn protocol_error(&self, node: WorkerId, message: String) -> PipelineError {
        PipelineError::Worker { worker: self.worker_name(node).to_owned(), message, kind: ErrorKind::Engine }
    }

    /// Returns the name of a worker: its host and its process.
    pub(crate) fn worker_name(&self, node: WorkerId) -> &str {
        self.workers.get(&node).map_or("a lost worker", |member| &member.name)
    }

    /// Returns whether a worker is connected.
    pub(crate) fn is_connected(&self, node: WorkerId) -> bool {
        self.workers.contains_key(&node)
    }

    /// Returns the identifiers of the connected workers.
    pub(crate) fn worker_ids(&self) -> impl ExactSizeIterator<Item = WorkerId> {
        self.workers.keys().copied()
    }

    /// Returns the number of workers that were started.
    pub(crate) fn expected_workers(&self) -> usize {
        self.cluster.workers as usize
    }

    /// Warns if the job had fewer work items, such as blocks, than workers.
    pub(crate) fn warn_if_idle(&self, count: usize, what: &str, verb: &str) {
        let nodes = self.expected_workers();
        if count < nodes {
            self.warn(format!(
                "{count} {what} for {nodes} workers: some workers had no work to {verb}; request fewer workers"
            ));
        }
    }

    /// Returns the names of all workers that joined.
    pub(crate) fn worker_names(&self) -> &[String] {
        &self.worker_names
    }

    /// Returns the number of workers that were lost.
    pub(crate) fn lost_workers(&self) -> usize {
        self.lost_workers
    }

    /// Sends [`Command::Finish`] to all workers, waits briefly until they disconnect, and stops those that still run.
    pub(crate) fn finish(&mut self) {
        self.broadcast_command(&Command::Finish);
        let until = Instant::now() + FINISH_TIMEOUT;
        while !self.workers.is_empty() && Instant::now() < until {
            if let Some(HeadEvent::WorkerLost(node, _)) =
                self.head.as_mut().and_then(|head| head.next_event(EVENT_TIMEOUT))
            {
                self.workers.remove(&node);
            }
        }
        self.cluster.launcher.stop_workers();
    }
}

impl Drop for WorkerPool<'_> {
    fn drop(&mut self) {
        // Workers end when the connection closes, because there is no rendezvous file by which they could reconnect.
        self.rendezvous.remove(&self.rendezvous_directory);
        if let Some(head) = self.head.take() {
            head.close(Duration::from_millis(100));
        }
        self.cluster.launcher.stop_workers();
    }
}
