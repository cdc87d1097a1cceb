//! Sequence search over virtual partitions of a database. The output has the same bytes as that of the unpartitioned
//! program.
//!
//! Input: the command line of a BLAST+ program. Output: the file that this program would write, made by several
//! workers. A [`Search`] cuts the database into ranges of sequences without copying them and leases the ranges to
//! workers. A worker is a process with the NCBI engine (`worker/`). Each query has one worker as its owner. The search
//! sends the hits of the preliminary search to the owners. The owners compute the tracebacks, write the reports at
//! their offsets in one file, and return the rows of the optional table of hits.
//! `docs/decisions/0016-partition-blast-before-the-traceback.md` explains why the result is the same.
//!
//! For DIAMOND and MMseqs2, workers search pieces of the queries instead (`tool_search`).
//!
//! This crate does *not* align sequences itself, and does not parse databases or BLAST+ reports.

mod cluster_messages;
mod cluster_search;
mod cluster_worker;
mod command_line;
mod database_files;
mod database_ranges;
mod database_volumes;
mod error;
mod hit_store;
mod hits;
mod output_file;
mod output_offsets;
mod page_cache;
mod read_ahead;
mod search_checkpoint;
mod search_forecast;
mod search_options;
mod search_plan;
mod search_worker_pool;
mod sequence_search;
mod summary;
mod thresholds;
mod tool_search;
mod work_items;
mod worker_backend;
mod worker_process;
mod worker_protocol;

pub use cluster_messages::SearchTask;
pub use cluster_search::search_on_workers;
pub use cluster_worker::run_cluster_worker;
pub use command_line::{SearchCommand, SearchProgram};
pub use database_volumes::DatabaseExtent;
pub use error::SearchError;
pub use search_options::SearchOptions;
pub use search_plan::SearchPlan;
pub use sequence_search::Search;
pub use summary::{CpuSeconds, SearchForecast, SearchObserver, SearchProgress, SearchSummary, WallSeconds};
pub use tool_search::{SearchScratch, SearchTool, ToolSearch, serve_tool_worker};
pub use worker_backend::{LocalBackend, WorkerBackend, WorkerFrame};
pub use worker_process::{WorkerExit, WorkerSpec};
