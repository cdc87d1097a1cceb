//! Options of `godwit plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::value_parsers::{parse_rate, parse_scale, parse_share};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct PlanArgs {
    /// Samples of the cohort
    #[arg(long, value_name = "N", help_heading = THIS_RUN_HEADING, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub samples: u32,
    /// Compute hosts
    #[arg(long, value_name = "M", help_heading = THIS_RUN_HEADING, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    /// Storage servers
    #[arg(long, value_name = "K", help_heading = THIS_RUN_HEADING, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub storage_nodes: u32,
    /// Durations of the steps: run.json of `godwit run` or `godwit align` [default: the published BWA-GATK pipeline, 10x human genomes]
    #[arg(long, value_name = "run.json", help_heading = THIS_RUN_HEADING)]
    pub from: Option<PathBuf>,
    /// Bases of a planned sample per base of a measured one: hours and file sizes of --from are multiplied by it
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "from", value_parser = parse_scale)]
    pub scale: f64,
    /// Load balancing of streams over storage servers
    #[arg(long, value_enum, default_value_t = BalancePolicy::RoundRobin, value_name = "POLICY")]
    pub balance: BalancePolicy,
    /// Samples that a compute host processes concurrently
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub per_node: u32,
    /// Throughput of a storage server's disks, as a fraction of its network bandwidth
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = parse_share)]
    pub disk_share: f64,
    /// Network bandwidth of a storage server, bits per second (10G); used with --from only
    #[arg(long, value_name = "RATE", default_value = "10G", value_parser = parse_rate)]
    pub storage_rate: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Load balancing of storage servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BalancePolicy {
    /// All streams through one server
    None,
    /// Round robin
    RoundRobin,
    /// The server with the fewest streams
    Connections,
}
