//! The workers of a job, as the head manages them: joins, events, uploads and losses. Other modules decide the work of
//! each worker.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow_buffer::MutableBuffer;
use godwit_fleet::{Rendezvous, WorkerId};
use serde::Serialize;

use crate::credentials::ClusterCredentials;
use crate::download_source::DownloadSource;
use crate::error::ClusterError;
use crate::head_endpoint::{CommandSender, HeadEndpoint, HeadEvent};
use crate::messages::JobMessages;
use crate::worker_processes::WorkerProcesses;

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

/// Options of a cluster run.
#[derive(Clone)]
pub struct ClusterOptions<'l> {
    /// Number of workers that are started; more may join, and some may be lost.
    pub workers: u32,
    /// Addresses of this host to which workers connect, best first. If there is only one, the head listens only at this
    /// address.
    pub addresses: Vec<IpAddr>,
    /// True if all workers run on one host.
    pub single_host: bool,
    /// The processes of the workers.
    pub processes: &'l WorkerProcesses,
}

impl ClusterOptions<'_> {
    /// Fails if there is a later attempt of this job: two heads would write the same files.
    ///
    /// # Errors
    /// [`godwit_fleet::FleetError::Superseded`] if there is a later attempt.
    pub fn check_current(&self) -> Result<(), ClusterError> {
        Ok(self.processes.check_current()?)
    }
}

/// An event of a worker that concerns the work of a job.
pub enum WorkerPoolEvent<J: JobMessages> {
    /// A worker is lost.
    Lost(WorkerId),
    /// A worker sent an event.
    Event(WorkerId, J::Event),
    /// A worker uploaded data.
    Upload(WorkerId, J::Upload, Vec<MutableBuffer>),
}

/// A connected worker.
struct ConnectedWorker<J> {
    name: String,
    commands: CommandSender<J>,
}

/// The workers of a job. Dropping the pool closes the endpoint of the head, so that all workers lose their connection.
pub struct WorkerPool<'r, J: JobMessages> {
    head: Option<HeadEndpoint<J>>,
    /// Directory of the rendezvous file, by which workers find the head; the field `rendezvous` is the content of the
    /// file.
    rendezvous_directory: PathBuf,
    rendezvous: Rendezvous,
    cluster: &'r ClusterOptions<'r>,
    /// The task that each worker receives when it joins.
    task: J::Task,
    workers: BTreeMap<WorkerId, ConnectedWorker<J>>,
    /// Reports a warning to the user.
    warning_sink: Box<dyn Fn(String) + 'r>,
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

impl<'r, J: JobMessages> WorkerPool<'r, J> {
    /// Starts to listen, publishes the rendezvous file, and starts the workers. The rendezvous file is in the directory
    /// `between`, unless the workers run in an allocation, whose directory they know. Workers download their input from
    /// `download_source`. `warning_sink` receives the warnings for the user.
    ///
    /// # Errors
    /// [`ClusterError::UnsendableMessage`] if a path in the task is not UTF-8, [`ClusterError::Connection`] if the head
    /// cannot listen, and [`ClusterError::Fleet`] if the workers cannot be started.
    pub fn open(
        cluster: &'r ClusterOptions<'r>,
        between: &Path,
        download_source: Arc<impl DownloadSource<Ticket = J::Ticket>>,
        task: J::Task,
        warning_sink: Box<dyn Fn(String) + 'r>,
        cancelled: &'r AtomicBool,
    ) -> Result<Self, ClusterError> {
        let processes = cluster.processes;
        let allocated = processes.allocation().map(|allocation| allocation.job_directory.clone());
        let rendezvous_directory = allocated.unwrap_or_else(|| between.to_owned());
        ClusterCredentials::create_certificate(&rendezvous_directory)?;
        let address = match cluster.addresses[..] {
            [only] => only,
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let mut rendezvous = Rendezvous::new(SocketAddr::new(address, 0), processes.attempt())?;
        rendezvous.addresses.clone_from(&cluster.addresses);
        let keys = ClusterCredentials::load(rendezvous.token.reveal(), &rendezvous_directory)?;
        let head = HeadEndpoint::listen(SocketAddr::new(address, 0), keys.server_access, download_source)?;
        rendezvous.port = head.address().port();
        rendezvous.publish(&rendezvous_directory)?;
        check_sendable(&task)?;
        let absolute = std::path::absolute(&rendezvous_directory);
        let missing = |source| ClusterError::File { action: "find", path: rendezvous_directory.clone(), source };
        processes.start(&absolute.map_err(missing)?)?;
        Ok(Self {
            head: Some(head),
            rendezvous_directory,
            rendezvous,
            cluster,
            task,
            workers: BTreeMap::new(),
            warning_sink,
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
    /// [`ClusterError::Interrupted`] if the job is cancelled; [`ClusterError::NoWorkers`] if no worker is left;
    /// [`ClusterError::WorkerFailed`] for a failure that all workers would have;
    /// [`godwit_fleet::FleetError::Superseded`] if there is a later attempt of the job.
    pub fn next_event(&mut self) -> Result<Option<WorkerPoolEvent<J>>, ClusterError> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(ClusterError::Interrupted);
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
            Some(HeadEvent::WorkerLost(worker, why)) => self.remove_worker(worker, &why),
            Some(HeadEvent::WorkerFailed { worker, message, fatal_exit_code }) => {
                self.handle_failure(worker, message, fatal_exit_code)?
            }
            // Ignore events of a rejected worker, which may not have received the rejection yet.
            Some(HeadEvent::Reported(worker, report)) => {
                self.is_connected(worker).then_some(WorkerPoolEvent::Event(worker, report))
            }
            Some(HeadEvent::Uploaded(worker, upload, pieces)) => {
                self.is_connected(worker).then_some(WorkerPoolEvent::Upload(worker, upload, pieces))
            }
            None => None,
        })
    }

    /// Fails if there is a later attempt of this job.
    ///
    /// # Errors
    /// [`godwit_fleet::FleetError::Superseded`] if there is a later attempt.
    pub fn check_current(&self) -> Result<(), ClusterError> {
        self.cluster.check_current()
    }

    fn check_any_worker(&mut self) -> Result<(), ClusterError> {
        // Check only workers that have not joined yet: there is an event for the loss of a worker that has joined.
        if self.worker_names.len() < self.cluster.workers as usize
            && self.launch_checked_at.elapsed() > LAUNCH_CHECK_INTERVAL
        {
            self.launch_checked_at = Instant::now();
            for last in self.cluster.processes.exit_messages() {
                self.warn(format!("{last}; the job continues with the other workers"));
                self.record_error(last);
            }
        }
        if !self.workers.is_empty() {
            self.no_workers_since = Instant::now();
            return Ok(());
        }
        if !self.cluster.processes.all_ended() && self.no_workers_since.elapsed() < NO_WORKER_TIMEOUT {
            return Ok(());
        }
        let gone = self.cluster.processes.exit_messages();
        gone.into_iter().for_each(|last| self.record_error(last));
        Err(ClusterError::NoWorkers {
            last_error: self.reported_error.take().unwrap_or_else(|| "no worker joined".to_owned()),
        })
    }

    /// Records an error, unless an earlier one is recorded: the first error is probably the cause of all others.
    fn record_error(&mut self, last: String) {
        self.reported_error.get_or_insert(last);
    }

    fn add_worker(&mut self, worker: WorkerId, version: String, name: String, commands: CommandSender<J>) {
        self.workers.insert(worker, ConnectedWorker { name: name.clone(), commands });
        let own = godwit_fleet::VERSION;
        if version != own {
            let why = format!(
                "its version of godwit is {version}, that of the head is {own}; install one version on all hosts"
            );
            return self.reject_worker(worker, why);
        }
        // If the worker no longer receives commands, an event will soon report that the worker is lost.
        let _ = self.workers.get(&worker).map(|member| member.commands.accept(worker, &self.task));
        self.worker_names.push(name);
    }

    /// Rejects a worker. Its later events are ignored.
    pub fn reject_worker(&mut self, worker: WorkerId, reason: String) {
        let Some(ConnectedWorker { name, commands }) = self.workers.remove(&worker) else { return };
        self.warn(format!("the head rejected {name}: {reason}"));
        self.record_error(format!("{name}: {reason}"));
        commands.reject(reason);
    }

    fn remove_worker(&mut self, worker: WorkerId, why: &str) -> Option<WorkerPoolEvent<J>> {
        let member = self.workers.remove(&worker)?;
        self.lost_workers += 1;
        self.warn(format!("the head lost worker {}: {why}; other workers take over its work", member.name));
        self.record_error(format!("{}: {why}", member.name));
        Some(WorkerPoolEvent::Lost(worker))
    }

    fn handle_failure(
        &mut self,
        worker: WorkerId,
        message: String,
        fatal_exit_code: Option<i32>,
    ) -> Result<Option<WorkerPoolEvent<J>>, ClusterError> {
        let Some(ConnectedWorker { name, .. }) = self.workers.get(&worker) else { return Ok(None) };
        if let Some(exit_code) = fatal_exit_code {
            return Err(ClusterError::WorkerFailed { worker: name.clone(), message, exit_code });
        }
        self.reported_error = Some(format!("{name}: {message}"));
        Ok(self.remove_worker(worker, &message))
    }

    /// Checks that a command can be sent to workers.
    ///
    /// # Errors
    /// [`ClusterError::UnsendableMessage`] if the command contains a path that is not UTF-8.
    pub fn check_command(&self, command: &J::Command) -> Result<(), ClusterError> {
        check_sendable(command)
    }

    /// Sends a command to a worker. A command with paths must have passed [`Self::check_command`].
    pub fn send_command(&self, worker: WorkerId, order: &J::Command) {
        // If the worker no longer receives commands, an event will soon report that the worker is lost.
        let _ = self.workers.get(&worker).map(|member| member.commands.send(order));
    }

    /// Sends a command to all workers.
    pub fn broadcast_command(&self, order: &J::Command) {
        self.workers.keys().for_each(|worker| self.send_command(*worker, order));
    }

    /// Reports a warning to the user.
    pub fn warn(&self, message: String) {
        (self.warning_sink)(message);
    }

    /// Returns the error for an invalid message of a worker.
    pub fn protocol_error(&self, worker: WorkerId, problem: String) -> ClusterError {
        ClusterError::UnexpectedMessage { worker: self.worker_name(worker).to_owned(), problem }
    }

    /// Returns the name of a worker: its host and its process.
    pub fn worker_name(&self, worker: WorkerId) -> &str {
        self.workers.get(&worker).map_or("a lost worker", |member| &member.name)
    }

    /// Returns whether a worker is connected.
    pub fn is_connected(&self, worker: WorkerId) -> bool {
        self.workers.contains_key(&worker)
    }

    /// Returns the identifiers of the connected workers.
    pub fn worker_ids(&self) -> impl ExactSizeIterator<Item = WorkerId> {
        self.workers.keys().copied()
    }

    /// Returns the number of workers that were started.
    pub fn expected_workers(&self) -> usize {
        self.cluster.workers as usize
    }

    /// Warns if there were fewer items of work, such as blocks, than workers.
    pub fn warn_if_idle(&self, count: usize, what: &str, verb: &str) {
        let expected_workers = self.expected_workers();
        if count < expected_workers {
            self.warn(format!(
                "{count} {what} for {expected_workers} workers: some workers had no work to {verb}; request fewer workers"
            ));
        }
    }

    /// Returns the names of all workers that joined.
    pub fn worker_names(&self) -> &[String] {
        &self.worker_names
    }

    /// Returns the number of workers that were lost.
    pub fn lost_workers(&self) -> usize {
        self.lost_workers
    }

    /// Notifies all workers that the run has finished, waits briefly until they disconnect, and stops those that still run.
    pub fn finish(&mut self) {
        self.workers.values().for_each(|member| member.commands.finish());
        let until = Instant::now() + FINISH_TIMEOUT;
        while !self.workers.is_empty() && Instant::now() < until {
            if let Some(HeadEvent::WorkerLost(worker, _)) =
                self.head.as_mut().and_then(|head| head.next_event(EVENT_TIMEOUT))
            {
                self.workers.remove(&worker);
            }
        }
        self.cluster.processes.stop();
    }
}

/// Checks that a message can be converted to JSON, which fails only for paths that are not UTF-8.
fn check_sendable(message: &impl Serialize) -> Result<(), ClusterError> {
    serde_json::to_vec(message).map(drop).map_err(|problem| ClusterError::UnsendableMessage { problem })
}

impl<J: JobMessages> Drop for WorkerPool<'_, J> {
    fn drop(&mut self) {
        // Workers end when the connection closes, because there is no rendezvous file by which they could reconnect.
        self.rendezvous.remove(&self.rendezvous_directory);
        if let Some(head) = self.head.take() {
            head.close(Duration::from_millis(100));
        }
        self.cluster.processes.stop();
    }
}
