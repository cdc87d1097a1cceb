//! Options of `godwit search`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ClusterArgs, CommonArgs, parse_size};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct SearchArgs {
    /// Split the database into this many ranges of sequences [default: up to 20 per worker, by the work of a range, more if a range would not fit into memory, or none if there are enough queries to distribute]; diamond, mmseqs: split the queries into this many pieces [default: 2 per worker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub fragments: Option<u32>,
    /// Number of search processes, on each host of a cluster run [default: -num_threads, or --threads; diamond, mmseqs: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Memory of each host for pages of the database (512M, 8G); a larger database is read once for many queries [default: three quarters of the free memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache_memory: Option<u64>,
    /// BLAST+ programs to use: those built into godwit, or installed ones, whose tables of ranges are merged
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = SearchEngine::Exact)]
    pub engine: SearchEngine,
    /// Resume a stopped search of the same command; finished work is not repeated
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub resume: bool,
    /// Also write all hits to this file as columns; .parquet or .arrow selects the format
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub hits: Option<PathBuf>,
    /// Write a summary of the work and its timings to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub summary: Option<PathBuf>,
    /// The program and its options, after --: blastp, blastn, blastx, tblastn, tblastx, diamond or mmseqs
    #[arg(last = true, required = true, value_name = "PROGRAM", help_heading = THIS_RUN_HEADING)]
    pub program: Vec<String>,
    /// Print the plan of the search and its predicted duration, or the job that --on slurm would submit; write nothing
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub dry_run: bool,
    #[command(flatten)]
    pub cluster: ClusterArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Search of a database in ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SearchEngine {
    /// NCBI's libraries; the output is identical to that of a single run
    Exact,
    /// Tables of an installed BLAST+ over alias files; usually, but not always, identical to one pass
    Alias,
}

#[derive(Args)]
pub struct SearchWorkerArgs {
    /// The search, as JSON
    pub search: String,
    /// File of the queries
    pub query: PathBuf,
}
