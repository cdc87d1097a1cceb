//! A sequence search as a cluster run: each cluster worker runs search workers as child processes. The head and the
//! search workers exchange message frames over the network.
//!
//! As on one host, `godwit-search` assigns work to search workers and handles their loss. If a cluster worker is lost,
//! its search workers are restarted on other cluster workers, and their work is repeated. Search workers write their
//! reports to the output file themselves. Hits go to the head, which sends the hits of a query to the search worker
//! that owns this query.

pub(crate) mod cluster_worker;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use bytes::Bytes;
use godwit_exchange::{
    Command, DownloadBatches, DownloadSource, DownloadTicket, WorkerEvent, WorkerId, WorkerUpload, bytes_batch,
};
use godwit_search::{
    Search, SearchError, SearchOptions, SearchProgress, SearchSummary, WorkerBackend, WorkerExit, WorkerFrame,
    WorkerSpec,
};
use serde::{Deserialize, Serialize};

use crate::cluster::{ClusterOptions, WorkKind, WorkerPool, WorkerPoolEvent, WorkerTask};
use crate::error::PipelineError;
use crate::observer::Observer;
use crate::scratch::{ScratchDirectory, unique_name};

/// Maximum time to wait for further cluster workers after the first one is ready. Workers that join later can replace
/// lost ones.
const WORKER_JOIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The task of cluster workers that search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SearchTask {
    engine: WorkerSpec,
    /// Number of search workers on each cluster worker; `None` for one per thread.
    #[serde(rename = "workers")]
    search_workers: Option<usize>,
}

/// Searches on cluster workers and writes the output. `query` is a file that all cluster workers can read.
/// `search_workers` is the number of search workers on each cluster worker; `None` for its number of threads. `step`
/// receives the progress.
///
/// # Errors
/// [`SearchError`] if the search fails; [`SearchError::WorkersUnavailable`] with a [`PipelineError`] if cluster workers
/// fail.
pub fn search_on_workers(
    options: &SearchOptions,
    query: &Path,
    search_workers: Option<usize>,
    cluster: &ClusterOptions,
    (observer, cancelled): (&dyn Observer, &AtomicBool),
    step: &dyn Fn(SearchProgress),
) -> Result<SearchSummary, SearchError> {
    let rendezvous_directory =
        create_rendezvous_directory(options.command.output_path.as_deref()).map_err(place_error)?;
    let query = std::path::absolute(query).map_err(|source| SearchError::File {
        action: "find",
        path: query.to_owned(),
        source,
    })?;
    let hash = cluster_worker::query_checksum(&query).map_err(place_error)?;
    let task = SearchTask { engine: options.command.worker_spec(query.clone()), search_workers };
    let work = WorkerTask { work: WorkKind::Search, task };
    let frame_source = Arc::new(FrameSource::default());
    let worker_pool =
        WorkerPool::open(cluster, rendezvous_directory.path(), frame_source.clone(), &work, observer, cancelled)
            .map_err(place_error)?;
    let place = ClusterSearchWorkers::wait_for_workers(worker_pool, frame_source, hash).map_err(place_error)?;
    Search::open(options, &query, Box::new(place), cancelled)?.run(step)
}

fn place_error(error: PipelineError) -> SearchError {
    SearchError::WorkersUnavailable(Box::new(error))
}

/// Creates the directory of the rendezvous file beside the output. Workers find the head by this file.
fn create_rendezvous_directory(out: Option<&Path>) -> Result<ScratchDirectory, PipelineError> {
    let out = out.unwrap_or(Path::new("search"));
    let name = out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = out.with_file_name(format!(".{name}.{}-{}.godwit-nodes", std::process::id(), unique_name()));
    ScratchDirectory::create(&path).map_err(PipelineError::file("create the rendezvous directory", path))
}

/// Message frames for search workers, by number. Each is kept until a cluster worker has downloaded it.
#[derive(Default)]
struct FrameSource(Mutex<HashMap<u64, Vec<u8>>>);

impl FrameSource {
    fn lock_frames(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DownloadSource for FrameSource {
    fn open(&self, ticket: &DownloadTicket) -> io::Result<DownloadBatches> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "unknown frame");
        let DownloadTicket::SearchFrame { frame } = ticket else { return Err(missing()) };
        let bytes = self.lock_frames().remove(frame).ok_or_else(missing)?;
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
    worker_pool: WorkerPool<'r>,
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
        worker_pool: WorkerPool<'r>,
        frame_source: Arc<FrameSource>,
        query_checksum: String,
    ) -> Result<Self, PipelineError> {
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
    fn poll_events(&mut self) -> Result<(), PipelineError> {
        match self.worker_pool.next_event()? {
            None => {}
            Some(WorkerPoolEvent::Lost(node)) => self.remove_cluster_worker(node),
            Some(WorkerPoolEvent::Event(
                node,
                WorkerEvent::ReadyToSearch { search_workers, engine, queries_checksum },
            )) => {
                self.add_cluster_worker(node, search_workers, engine, &queries_checksum);
            }
            Some(WorkerPoolEvent::Event(
                _,
                WorkerEvent::SearchWorkerExited { search_worker, attempt, exit_status, stderr_tail },
            )) => {
                if let Some(state) = self.search_workers.get_mut(search_worker).filter(|state| state.attempt == attempt)
                {
                    state.ending = Some(WorkerExit { description: exit_status, stderr_tail });
                    self.pending_replies.push_back(WorkerFrame { worker: search_worker, attempt, frame: None });
                }
            }
            Some(WorkerPoolEvent::Upload(_, WorkerUpload::SearchFrame { search_worker: worker, attempt }, pieces)) => {
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
            Some(WorkerPoolEvent::Event(node, report)) => {
                return Err(self.worker_pool.protocol_error(node, format!("{report:?}")));
            }
            Some(WorkerPoolEvent::Upload(node, upload, _)) => {
                return Err(self.worker_pool.protocol_error(node, format!("{upload:?}")));
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
                let mut frames = self.frame_source.lock_frames();
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
        self.worker_pool.send_command(node, &Command::StartSearchWorker { search_worker, attempt });
        waiting.into_iter().for_each(|frame| self.send_frame(search_worker, node, frame));
    }

    fn send_frame(&mut self, search_worker: usize, node: WorkerId, bytes: Vec<u8>) {
        let frame = self.next_frame;
        self.next_frame += 1;
        self.frame_source.lock_frames().insert(frame, bytes);
        let state = &mut self.search_workers[search_worker];
        state.sent_frames.push(frame);
        self.worker_pool.send_command(node, &Command::SendSearchFrame { search_worker, attempt: state.attempt, frame });
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
            self.poll_events().map_err(place_error)?;
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
            self.worker_pool.send_command(node, &Command::StopSearchWorker { search_worker, attempt: state.attempt });
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
