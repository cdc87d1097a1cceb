//! The summary of a search by stages: the columns of pioBLAST's Table 1 (doi:10.1109/IPDPS.2005.190).

use serde::Serialize;

use crate::SearchPlan;

/// The inputs, the plan and the times of a search.
#[derive(Clone, Debug, Serialize)]
pub struct SearchSummary {
    /// Name of the program.
    pub program: &'static str,
    /// The engine and its version.
    pub engine: String,
    /// True if the output is certain to equal that of the unpartitioned program.
    #[serde(rename = "identical")]
    pub is_identical: bool,
    /// The reason if it is not certain.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "why_not_identical")]
    pub not_identical_reason: Option<&'static str>,
    /// The plan of the search.
    pub plan: SearchPlan,
    /// Number of ranges of the database.
    #[serde(rename = "fragments")]
    pub range_count: u32,
    /// Number of workers.
    pub workers: u32,
    /// Number of hosts of the workers.
    #[serde(rename = "nodes")]
    pub hosts: u32,
    /// Number of hosts that were lost.
    #[serde(rename = "lost_nodes")]
    pub lost_hosts: u32,
    /// Number of queries.
    pub queries: u64,
    /// Number of batches into which the program divides its queries.
    pub batches: u32,
    /// Size of the output, bytes.
    pub bytes: u64,
    /// Hits that were sent to owners of queries, bytes.
    pub hits_bytes: u64,
    /// Number of subjects that workers dropped, because the lists of their queries were full of better ones.
    pub dropped_subjects: u64,
    /// Number of batches that a stopped search had finished.
    pub resumed_batches: u32,
    /// Number of rows of the table of hits; `None` if there is no table.
    #[serde(rename = "hits")]
    pub hit_rows: Option<u64>,
    /// Number of workers that were restarted after an exit.
    #[serde(rename = "restarts")]
    pub worker_restarts: u32,
    /// Wall-clock time.
    pub seconds: WallSeconds,
    /// CPU time of all workers and the head.
    pub cpu_seconds: CpuSeconds,
    /// Search time of the busiest worker divided by the mean of all; 1 is perfect.
    pub imbalance: f64,
    /// Mean CPU milliseconds from the end of a range to the first sequence of the worker's next range; it includes sending
    /// the hits. `None` if no worker had two ranges of a batch.
    pub range_start_milliseconds: Option<f64>,
    /// Largest resident memory of a worker, bytes.
    pub worker_memory_bytes: u64,
}

/// Wall-clock seconds by stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WallSeconds {
    /// Until every worker had opened database and queries.
    pub start_up: f64,
    /// Preliminary search.
    pub search: f64,
    /// Traceback, format and output by owners.
    pub report: f64,
    /// From start to end.
    pub total: f64,
}

/// CPU seconds by stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuSeconds {
    /// Preliminary search.
    pub search: f64,
    /// Traceback.
    pub traceback: f64,
    /// Formatting of reports.
    pub format: f64,
    /// Opening, reading queries, sending and writing.
    pub other: f64,
    /// Total of all stages.
    pub total: f64,
}
