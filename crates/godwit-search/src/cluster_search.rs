//! A sequence search as a cluster run: each cluster worker runs search workers as child processes. The head and the
//! search workers exchange message frames over the network.
//!
//! As on one host, `godwit-search` assigns work to search workers and handles their loss. If a cluster worker is lost,
//! its search workers are restarted on other cluster workers, and their work is repeated. Search workers write their
//! reports to the output file themselves. Hits go to the head, which sends the hits of a query to the search worker
//! that owns this query.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_cluster::{
    ClusterError, ClusterOptions, DownloadBatches, DownloadSource, WorkerPool, WorkerPoolEvent, bytes_batch,
};
use godwit_fleet::WorkerId;
use godwit_process::TemporaryItem;
use parking_lot::Mutex;
use tempfile::TempDir;

use crate::cluster_messages::{
    FrameTicket, SearchEvent, SearchMessages, SearchProcess, SearchTask, SearchWorkerCommand,
};
use crate::cluster_worker::query_checksum;
use crate::database_volumes::DatabaseExtent;
use crate::error::{SearchError, file_error};
use crate::search_options::SearchOptions;
use crate::sequence_search::Search;
use crate::summary::{SearchObserver, SearchSummary};
use crate::worker_backend::{WorkerBackend, WorkerFrame};
use crate::worker_process::WorkerExit;

/// Maximum time to wait for further cluster workers after the first one is ready. Workers that join later can replace
/// lost ones.
const WORKER_JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// Searches on cluster workers and writes the output. `query` is a file that all cluster workers can read.
/// `search_workers` is the number of search workers on each cluster worker; `None` for its number of threads. `warn`
/// receives warnings for the user, and `observer` the plan and the progress.
///
/// # Errors
/// [`SearchError`] if the search fails; [`SearchError::WorkersUnavailable`] if cluster workers fail.
pub fn search_on_workers(
    options: &SearchOptions,
    query: &Path,
    search_workers: Option<usize>,
    cluster: &ClusterOptions,
    (warn, cancelled): (&dyn Fn(String), &AtomicBool),
    observer: &SearchObserver<'_>,
) -> Result<SearchSummary, SearchError> {
    let rendezvous_directory = create_rendezvous_directory(options.command.output_path.as_deref())?;
    let query = std::path::absolute(query).map_err(file_error("find", query))?;
    let checksum = query_checksum(&query)?;
    let task = SearchTask { engine: options.command.worker_spec(query.clone()), search_workers };
    let frame_source = Arc::new(FrameSource::default());
    let warnings = Box::new(warn);
    let between = rendezvous_directory.path();
    let worker_pool = WorkerPool::open(cluster, between, frame_source.clone(), task, warnings, cancelled)?;
    let place = ClusterSearchWorkers::wait_for_workers(worker_pool, frame_source, checksum)?;
    Search::open(options, &query, Box::new(place), cancelled)?.run(observer)
}

/// Creates the directory of the rendezvous file beside the output, and the directory of the output. Workers find the
/// head by this file.
fn create_rendezvous_directory(out: Option<&Path>) -> Result<TemporaryItem<TempDir>, SearchError> {
    let out = out.unwrap_or(Path::new("search"));
    let out = std::path::absolute(out).map_err(file_error("find", out))?;
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parent = out.parent().unwrap_or(Path::new("/"));
    let created = TemporaryItem::create(|| {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        let (prefix, private) = (format!(".{name}."), Permissions::from_mode(0o700));
        let mut directory = tempfile::Builder::new();
        directory.prefix(&prefix).suffix(".godwit-nodes").permissions(private).tempdir_in(parent)
    });
    created.map_err(file_error("create the rendezvous directory in", parent))
}

/// Message frames for search workers, by number. Each is kept until a cluster worker has downloaded it.
#[derive(Default)]
struct FrameSource(Mutex<HashMap<u64, Vec<u8>>>);

impl DownloadSource for FrameSource {
    type Ticket = FrameTicket;

    fn open(&self, ticket: &FrameTicket) -> io::Result<DownloadBatches> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "unknown frame");
        let bytes = self.0.lock().remove(&ticket.frame).ok_or_else(missing)?;
        let batches =
            bytes_batch::split_into_batches(vec![Buffer::from_vec(bytes)]).map(|batch| Ok((batch, Bytes::new())));
        Ok(DownloadBatches { schema: bytes_batch::schema(), batches: Box::new(batches) })
    }
}

/// The state of a search worker.
#[derive(Default)]
struct SearchWorkerState {
    /// Cluster worker on which the search worker runs; `None` if no cluster worker is available.
    cluster_worker: Option<WorkerId>,
    attempt: u64,
    /// Frames to send as soon as the search worker runs.
    waiting_frames: Vec<Vec<u8>>,
    /// Numbers of frames that are offered for download but may not be downloaded yet.
    sent_frames: Vec<u64>,
    ending: Option<WorkerExit>,
}

/// The search workers of all cluster workers.
struct ClusterSearchWorkers<'r> {
    worker_pool: WorkerPool<'r, SearchMessages>,
    frame_source: Arc<FrameSource>,
    /// Number of the next frame.
    next_frame: u64,
    /// Cluster workers that are ready, with the intended number of search workers on each.
    cluster_workers: BTreeMap<WorkerId, usize>,
    search_workers: Vec<SearchWorkerState>,
    engine: Option<String>,
    /// BLAKE3 of the query file.
    query_checksum: String,
    /// Frames of search workers that `receive_frame` returns next.
    pending_replies: VecDeque<WorkerFrame>,
}

impl<'r> ClusterSearchWorkers<'r> {
    /// Waits until all cluster workers are ready, or until the timeout has passed after the first one.
    fn wait_for_workers(
        worker_pool: WorkerPool<'r, SearchMessages>,
        frame_source: Arc<FrameSource>,
        query_checksum: String,
    ) -> Result<Self, ClusterError> {
        let (cluster_workers, search_workers, pending_replies) = Default::default();
        let mut place = Self {
            worker_pool,
            frame_source,
            next_frame: 0,
            cluster_workers,
            search_workers,
            engine: None,
            query_checksum,
            pending_replies,
        };
        let mut first = None;
        while place.cluster_workers.len() < place.worker_pool.expected_workers() {
            if !place.cluster_workers.is_empty()
                && first.get_or_insert_with(Instant::now).elapsed() > WORKER_JOIN_TIMEOUT
            {
                place.worker_pool.warn(format!(
                    "searching with {} of {} workers; workers that join later replace lost ones",
                    place.cluster_workers.len(),
                    place.worker_pool.expected_workers()
                ));
                break;
            }
            place.poll_events()?;
        }
        let count = place.cluster_workers.values().sum();
        place.search_workers = (0..count).map(|_| SearchWorkerState::default()).collect();
        Ok(place)
    }

    /// Waits a short time for an event and handles it.
    fn poll_events(&mut self) -> Result<(), ClusterError> {
        match self.worker_pool.next_event()? {
            None => {}
            Some(WorkerPoolEvent::Lost(node)) => self.remove_cluster_worker(node),
            Some(WorkerPoolEvent::Event(node, SearchEvent::Ready { search_workers, engine, queries_checksum })) => {
                self.add_cluster_worker(node, search_workers, engine, &queries_checksum);
            }
            Some(WorkerPoolEvent::Event(_, SearchEvent::Exited { process, exit })) => {
                let SearchProcess { search_worker: worker, attempt } = process;
                if let Some(state) = self.search_workers.get_mut(worker).filter(|state| state.attempt == attempt) {
                    state.ending = Some(exit);
                    self.pending_replies.push_back(WorkerFrame { worker, attempt, frame: None });
                }
            }
            Some(WorkerPoolEvent::Upload(_, SearchProcess { search_worker: worker, attempt }, pieces)) => {
                if let Some(state) = self.search_workers.get_mut(worker).filter(|state| state.attempt == attempt) {
                    // A reply shows that the search worker has received all earlier frames.
                    state.sent_frames.clear();
                    let frame = pieces.first().map(|piece| piece.to_vec());
                    self.pending_replies.push_back(WorkerFrame {
                        worker,
                        attempt,
                        frame: Some(frame.unwrap_or_default()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Accepts a cluster worker if its engine and its query file are those of the other workers, and starts waiting
    /// search workers on it. Otherwise rejects the cluster worker.
    fn add_cluster_worker(&mut self, node: WorkerId, workers: usize, engine: String, queries: &str) {
        let own = self.engine.get_or_insert_with(|| engine.clone());
        if *own != engine {
            let why = format!(
                "its engine is {engine}, but that of the other workers is {own}; install one version on all hosts"
            );
            return self.worker_pool.reject_worker(node, why);
        }
        if queries != self.query_checksum {
            let why =
                "its file of queries differs from that of the head; all hosts must have the same files".to_owned();
            return self.worker_pool.reject_worker(node, why);
        }
        self.cluster_workers.insert(node, workers);
        let homeless: Vec<usize> = (0..self.search_workers.len())
            .filter(|index| self.search_workers[*index].cluster_worker.is_none())
            .collect();
        for worker in homeless {
            // A search worker with an exit status was lost; `start_worker` starts it again.
            if self.search_workers[worker].ending.is_none() {
                self.assign_search_worker(worker);
            }
        }
    }

    fn remove_cluster_worker(&mut self, node: WorkerId) {
        self.cluster_workers.remove(&node);
        for (worker, state) in self.search_workers.iter_mut().enumerate() {
            if state.cluster_worker == Some(node) {
                state.cluster_worker = None;
                let mut frames = self.frame_source.0.lock();
                state.sent_frames.drain(..).for_each(|frame| drop(frames.remove(&frame)));
                let description = "was lost, because the cluster run lost its worker".to_owned();
                state.ending = Some(WorkerExit { description, stderr_tail: "none".to_owned() });
                self.pending_replies.push_back(WorkerFrame { worker, attempt: state.attempt, frame: None });
            }
        }
    }

    /// Starts a search worker on the cluster worker with the lowest load, if there is one.
    fn assign_search_worker(&mut self, search_worker: usize) {
        let taken =
            |node: WorkerId| self.search_workers.iter().filter(|state| state.cluster_worker == Some(node)).count();
        let load = |node: WorkerId, room: usize| taken(node) as f64 / room.max(1) as f64;
        let nodes = self.cluster_workers.iter().map(|(node, room)| (*node, load(*node, *room)));
        let Some((node, _)) = nodes.min_by(|left, right| left.1.total_cmp(&right.1)) else { return };
        let state = &mut self.search_workers[search_worker];
        state.cluster_worker = Some(node);
        let (attempt, waiting) = (state.attempt, std::mem::take(&mut state.waiting_frames));
        self.worker_pool
            .send_command(node, &SearchWorkerCommand::Start { process: SearchProcess { search_worker, attempt } });
        waiting.into_iter().for_each(|frame| self.send_frame(search_worker, node, frame));
    }

    fn send_frame(&mut self, search_worker: usize, node: WorkerId, bytes: Vec<u8>) {
        let frame = self.next_frame;
        self.next_frame += 1;
        self.frame_source.0.lock().insert(frame, bytes);
        let state = &mut self.search_workers[search_worker];
        state.sent_frames.push(frame);
        let process = SearchProcess { search_worker, attempt: state.attempt };
        self.worker_pool.send_command(node, &SearchWorkerCommand::SendFrame { process, frame });
    }
}

impl WorkerBackend for ClusterSearchWorkers<'_> {
    fn worker_count(&self) -> usize {
        self.search_workers.len()
    }

    fn engine_name(&self) -> String {
        self.engine.clone().unwrap_or_default()
    }

    fn is_multi_host(&self) -> bool {
        true
    }

    fn start_worker(&mut self, worker: usize, attempt: u64) -> Result<(), SearchError> {
        self.search_workers[worker] = SearchWorkerState { attempt, ..SearchWorkerState::default() };
        self.assign_search_worker(worker);
        Ok(())
    }

    fn send_frame(&mut self, worker: usize, frame: Vec<u8>) {
        match self.search_workers[worker].cluster_worker {
            Some(node) => self.send_frame(worker, node, frame),
            None => self.search_workers[worker].waiting_frames.push(frame),
        }
    }

    fn receive_frame(&mut self) -> Result<Option<WorkerFrame>, SearchError> {
        if self.pending_replies.is_empty() {
            self.poll_events()?;
        }
        Ok(self.pending_replies.pop_front())
    }

    fn take_exit(&mut self, worker: usize) -> WorkerExit {
        let lost = || WorkerExit { description: "is lost".into(), stderr_tail: "none".into() };
        self.search_workers[worker].ending.take().unwrap_or_else(lost)
    }

    fn kill_worker(&mut self, search_worker: usize) {
        // Offered frames stay available, because the cluster worker is about to download them.
        let state = &mut self.search_workers[search_worker];
        state.waiting_frames.clear();
        if let Some(node) = state.cluster_worker.take() {
            let process = SearchProcess { search_worker, attempt: state.attempt };
            self.worker_pool.send_command(node, &SearchWorkerCommand::Stop { process });
        }
    }

    fn host_number(&self, worker: usize) -> usize {
        self.search_workers[worker].cluster_worker.map_or(usize::MAX, |node| node.0 as usize)
    }

    fn read_ahead(&mut self, worker: usize, extents: Vec<DatabaseExtent>) {
        if let Some(node) = self.search_workers[worker].cluster_worker {
            self.worker_pool.send_command(node, &SearchWorkerCommand::ReadAhead { extents });
        }
    }

    fn host_counts(&self) -> (u32, u32) {
        (self.worker_pool.worker_names().len() as u32, self.worker_pool.lost_workers() as u32)
    }
}

impl Drop for ClusterSearchWorkers<'_> {
    fn drop(&mut self) {
        // End the cluster workers also after a failure: they hold nothing from which a later search could resume.
        self.worker_pool.finish();
    }
}
