//! What a search did, by stage: the columns of pioBLAST's Table 1 (doi:10.1109/IPDPS.2005.190).

use serde::Serialize;

use crate::Plan;

/// What was searched, how, and where the time went.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The program.
    pub program: &'static str,
    /// The engine and its version.
    pub engine: String,
    /// Whether the output is certain to be that of the unpartitioned program.
    pub identical: bool,
    /// Why it is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not_identical: Option<&'static str>,
    /// What was split.
    pub plan: Plan,
    /// Ranges the database was cut into.
    pub fragments: u32,
    /// Processes that searched.
    pub workers: u32,
    /// Machines that these were on.
    pub nodes: u32,
    /// Machines that were lost on the way.
    pub lost_nodes: u32,
    /// Queries.
    pub queries: u64,
    /// Batches that the program cuts its queries into.
    pub batches: u32,
    /// Bytes of the output.
    pub bytes: u64,
    /// Bytes of hits that went to owners of queries.
    pub hits_bytes: u64,
    /// Subjects that were dropped where they were found: their queries' lists were full of better ones.
    pub dropped_subjects: u64,
    /// Batches that were found finished, by a search that was stopped.
    pub resumed_batches: u32,
    /// Rows of the table of hits; `None` where none was asked for.
    pub hits: Option<u64>,
    /// Workers that were started for others that ended.
    pub restarts: u32,
    /// Time on the clock.
    pub seconds: WallSeconds,
    /// Time of processors, of all workers and the coordinator.
    pub cpu_seconds: CpuSeconds,
    /// The search time of the busiest worker over the mean of all; 1 is perfect.
    pub imbalance: f64,
    /// CPU milliseconds from the end of a range to the first sequence of the next one that the worker was handed, in the mean;
    /// handing over what was found is a part of it. `None` where no worker had two ranges of a batch.
    pub range_start_milliseconds: Option<f64>,
    /// The largest resident memory of a worker, in bytes.
    pub worker_memory_bytes: u64,
}

/// Seconds on the clock.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WallSeconds {
    /// Until every worker had opened database and queries.
    pub start_up: f64,
    /// Preliminary search.
    pub search: f64,
    /// Traceback, format and output of owners.
    pub report: f64,
    /// From start to end.
    pub total: f64,
}

/// Seconds of processors.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuSeconds {
    /// Preliminary search.
    pub search: f64,
    /// Traceback.
    pub traceback: f64,
    /// Making the text of reports.
    pub format: f64,
    /// Opening, reading queries, sending and writing.
    pub other: f64,
    /// All of it.
    pub total: f64,
}
