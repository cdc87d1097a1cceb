//! The options of a search.

use std::path::PathBuf;

use crate::SearchCommand;

/// Options of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// The parsed command line of the search program.
    pub command: SearchCommand,
    /// Number of ranges into which the database is cut; if `None`, [`crate::SearchPlan`] decides.
    pub range_count: Option<u32>,
    /// Number of workers on each machine, at least 1.
    pub workers: usize,
    /// Memory for the reports of all workers of a machine, bytes. Larger reports go to a scratch file.
    pub memory_bytes: u64,
    /// Memory of a host for pages of the database, bytes. A larger database is read once for as many queries as
    /// `memory_bytes` allows, and the next range is read ahead. `None` if it is not known; the database is then assumed
    /// to fit.
    pub cache_bytes: Option<u64>,
    /// Directory for scratch files.
    pub scratch_directory: PathBuf,
    /// True to print the engine's warnings to stderr.
    pub prints_warnings: bool,
    /// Path of a table of all hits, `.parquet` or `.arrow`.
    pub hits_path: Option<PathBuf>,
    /// True to resume a stopped search with the same output.
    pub resume: bool,
}
