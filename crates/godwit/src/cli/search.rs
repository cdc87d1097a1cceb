//! The command line of a search, and how to share its work.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{Common, PlaceArgs};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct SearchArgs {
    /// Cut the database into this many ranges of sequences [default: 8 for each worker, or none where the queries are enough to share]; diamond, mmseqs: the queries into this many pieces [default: 2 for each worker]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub fragments: Option<u32>,
    /// Search with this many processes, on each node where there are several [default: -num_threads, or --threads; diamond, mmseqs: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// With which programs of BLAST+ to search: those that godwit is built with, or installed ones, whose tables of ranges are merged
    #[arg(long, value_name = "ENGINE", value_enum, default_value_t = SearchEngine::Exact)]
    pub engine: SearchEngine,
    /// Go on with a search of the same command that was stopped; nothing that it finished is done twice
    #[arg(long, help_heading = THIS_RUN)]
    pub resume: bool,
    /// Write all hits to this file as columns too, .parquet or .arrow by its ending
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub hits: Option<PathBuf>,
    /// Write what was done and where the time went to this file, as JSON
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub summary: Option<PathBuf>,
    /// The program and its options, after --: blastp, blastn, blastx, tblastn, tblastx, diamond or mmseqs
    #[arg(last = true, required = true, value_name = "PROGRAM", help_heading = THIS_RUN)]
    pub program: Vec<String>,
    /// Print the job that --on slurm would submit, and write nothing
    #[arg(long, requires = "on", help_heading = THIS_RUN)]
    pub dry_run: bool,
    #[command(flatten)]
    pub place: PlaceArgs,
    #[command(flatten)]
    pub common: Common,
}

/// How a database is searched in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SearchEngine {
    /// The bytes of one pass, by NCBI's libraries
    Exact,
    /// Tables of an installed BLAST+ over alias files; most likely, but not certainly those of one pass
    Alias,
}

#[derive(Args)]
pub struct SearchWorkerArgs {
    /// What to search with, as JSON
    pub search: String,
    /// The file of the queries
    pub query: PathBuf,
}
