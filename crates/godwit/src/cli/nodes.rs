//! Where a job runs, and what its nodes are told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::THIS_RUN;

/// Where a job runs.
#[derive(Args)]
pub struct PlaceArgs {
    /// Spread the work over processes of this machine [default: one process does it all]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub on: Option<Place>,
    /// Nodes to start; --threads are those of each
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, help_heading = THIS_RUN, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Processes of this machine
    Local,
}

#[derive(Args)]
pub struct NodeArgs {
    /// The file that tells how to reach the run
    #[arg(long, value_name = "FILE")]
    pub rendezvous: PathBuf,
    /// Threads of the aligner, and parts written at a time [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Directory for scratch files [default: that of the run]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
    /// Seconds to wait for the run to be there
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub wait: u64,
}
