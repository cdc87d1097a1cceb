//! The messages that the head of a search and its cluster workers exchange.

use godwit_cluster::JobMessages;
use serde::{Deserialize, Serialize};

use crate::database_volumes::DatabaseExtent;
use crate::worker_process::{WorkerExit, WorkerSpec};

/// The messages of a search.
pub(crate) enum SearchMessages {}

impl JobMessages for SearchMessages {
    const NAME: &'static str = "search";
    type Task = SearchTask;
    type Command = SearchWorkerCommand;
    type Event = SearchEvent;
    type Upload = SearchProcess;
    type Ticket = FrameTicket;
}

/// The task of cluster workers that search.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchTask {
    pub(crate) engine: WorkerSpec,
    /// Number of search workers on each cluster worker; `None` for one per thread.
    pub(crate) search_workers: Option<usize>,
}

/// A process of a search worker. A restarted search worker has another attempt number. As an upload: a frame (message)
/// from the process to the head. Data: the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SearchProcess {
    /// 0-based index of the search worker.
    pub(crate) search_worker: usize,
    pub(crate) attempt: u64,
}

/// A command from the head to a cluster worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum SearchWorkerCommand {
    /// Start a search worker.
    Start { process: SearchProcess },
    /// Send a frame to a search worker. The cluster worker downloads the frame from the head.
    SendFrame {
        process: SearchProcess,
        /// Number of the frame, which identifies its download.
        frame: u64,
    },
    /// Stop a search worker.
    Stop { process: SearchProcess },
    /// Read extents of the database into the page cache of this host.
    ReadAhead { extents: Vec<DatabaseExtent> },
}

/// An event that a cluster worker reports to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum SearchEvent {
    /// The cluster worker has found its search engine and can start search workers.
    Ready {
        /// Maximum number of search workers that the cluster worker runs concurrently.
        search_workers: usize,
        /// Name and version of the search engine.
        engine: String,
        /// Checksum of the query sequences.
        queries_checksum: String,
    },
    /// A search worker has exited.
    Exited { process: SearchProcess, exit: WorkerExit },
}

/// The identification of a frame for a search worker; the head offers it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct FrameTicket {
    pub(crate) frame: u64,
}
