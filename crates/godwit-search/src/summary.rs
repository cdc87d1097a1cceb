//! The progress of a search, and its summary with the time of each stage. The stages are the columns of Table 1 of the article on
//! pioBLAST (doi:10.1109/IPDPS.2005.190).

use serde::Serialize;

use crate::SearchPlan;

/// The progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress {
    /// Number of queries whose reports are complete.
    pub reported_queries: u64,
    /// Total number of queries.
    pub total_queries: u64,
    /// Completed fraction of the search, 0 to 1. A query whose report is complete counts fully; other queries count by
    /// their searched ranges, and by the share of the time that reports take.
    pub fraction: f64,
}

impl SearchProgress {
    /// Creates the progress of a search of about `of` queries. `done` is the number of queries that are done; a fraction
    /// for queries in progress.
    pub(crate) fn new(reported_queries: u64, of: u64, done: f64) -> Self {
        let fraction = (done / of.max(1) as f64).min(1.0);
        Self { reported_queries, total_queries: of.max(reported_queries), fraction }
    }
}

/// The predicted work and duration of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchForecast {
    /// Size of the letters of the database on disk, bytes.
    pub database_bytes: u64,
    /// Part of it that was in the page cache of this host before the search, bytes.
    pub cached_bytes: u64,
    /// Memory for pages of the database, bytes; `None` if it is not known.
    pub cache_memory_bytes: Option<u64>,
    /// Number of ranges of the database.
    #[serde(rename = "fragments")]
    pub range_count: u32,
    /// Number of queries.
    pub queries: u64,
    /// Number of times that the database is read or searched from start to end.
    pub passes: u64,
    /// Number of bytes to read from disk.
    pub read_bytes: u64,
    /// Measured rate of reading, bytes/s; `None` if it could not be measured.
    pub read_bytes_per_s: Option<f64>,
    /// Time for reading, seconds. Workers search the previous range in this time.
    pub read_s: f64,
    /// Time of the preliminary search without waiting for the disk, seconds.
    pub search_s: f64,
    /// Time of tracebacks and reports, seconds.
    pub report_s: f64,
    /// Time of the traceback and the report of a subject, seconds, measured on a sample and divided by the number of
    /// workers; `None` if the sample has too few hits.
    pub report_s_per_subject: Option<f64>,
    /// Duration of the search, seconds.
    pub total_s: f64,
}

impl SearchForecast {
    /// Returns the share of the duration that tracebacks and reports take, 0 to 1.
    pub(crate) fn report_share(&self) -> f64 {
        self.report_s / self.total_s.max(1e-9)
    }
}

/// Functions that a search calls while it runs.
pub struct SearchObserver<'a> {
    /// Receives the forecast of a search whose database exceeds the memory, before the search.
    pub plan: &'a dyn Fn(&SearchForecast),
    /// Receives the progress after each finished piece of work.
    pub progress: &'a dyn Fn(SearchProgress),
}

/// The summary of a completed search: its inputs, its plan, and its times.
#[derive(Clone, Debug, Serialize)]
pub struct SearchSummary {
    /// Name of the search program, such as `blastp`.
    pub program: &'static str,
    /// Name and version of the search engine.
    pub engine: String,
    /// True if the output certainly equals that of the unpartitioned program.
    #[serde(rename = "identical")]
    pub is_identical: bool,
    /// The reason why the output may differ from that of the unpartitioned program; `None` if the outputs are equal.
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
    /// Number of hosts on which workers ran.
    #[serde(rename = "nodes")]
    pub hosts: u32,
    /// Number of hosts that failed during the search.
    #[serde(rename = "lost_nodes")]
    pub lost_hosts: u32,
    /// Number of queries.
    pub queries: u64,
    /// Number of batches into which the queries were divided.
    pub batches: u32,
    /// Number of times that the database was searched from start to end, by all workers together. Workers that search
    /// different queries pass over it once for each batch.
    pub passes: u32,
    /// Size of the output, bytes.
    pub bytes: u64,
    /// Size of the hits that were sent to the owners of queries for the traceback, bytes.
    pub hits_bytes: u64,
    /// Number of subjects that workers dropped because the list of the query was full of better subjects.
    pub dropped_subjects: u64,
    /// Number of batches that this search took from the checkpoint of a stopped search.
    pub resumed_batches: u32,
    /// Number of rows of the table of hits; `None` if there is no table.
    #[serde(rename = "hits")]
    pub hit_rows: Option<u64>,
    /// Number of workers that were restarted after an exit.
    #[serde(rename = "restarts")]
    pub worker_restarts: u32,
    /// Wall-clock times of the stages, seconds.
    pub seconds: WallSeconds,
    /// CPU times of the stages, seconds, summed over all workers and this process.
    pub cpu_seconds: CpuSeconds,
    /// CPU time of the busiest worker in the preliminary search, divided by the mean of all workers. 1 is perfect
    /// balance.
    pub imbalance: f64,
    /// The forecast of the search; `None` if the database fits into memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forecast: Option<SearchForecast>,
    /// Mean CPU time, in milliseconds, between the end of a range and the first sequence of the same worker's next
    /// range. It includes sending the hits. `None` if no worker searched two ranges of a batch.
    pub range_start_milliseconds: Option<f64>,
    /// Largest resident memory of a worker, bytes.
    pub worker_memory_bytes: u64,
}

/// Wall-clock seconds by stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct WallSeconds {
    /// From the start until every worker has opened the database and the queries.
    pub start_up: f64,
    /// Preliminary search of all ranges; with [`SearchPlan::Queries`], the whole search of all batches.
    pub search: f64,
    /// Traceback, formatting and writing of the reports by the owners of the queries.
    pub report: f64,
    /// From the start to the end of the search.
    pub total: f64,
}

/// CPU seconds by stage.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CpuSeconds {
    /// Preliminary search; for DIAMOND and MMseqs2, the whole run of the tool.
    pub search: f64,
    /// Traceback of the alignments.
    pub traceback: f64,
    /// Formatting of reports.
    pub format: f64,
    /// Everything else: opening the database, reading the queries, sending hits and writing the output.
    pub other: f64,
    /// Total of all stages.
    pub total: f64,
}
