//! What is planned.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::values::{parse_rate, parse_share};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct PlanArgs {
    /// Samples of the cohort
    #[arg(long, value_name = "N", help_heading = THIS_RUN, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub samples: u32,
    /// Compute nodes
    #[arg(long, value_name = "M", help_heading = THIS_RUN, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    /// Storage nodes
    #[arg(long, value_name = "K", help_heading = THIS_RUN, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub storage_nodes: u32,
    /// What steps take: run.json of `godwit run` or `godwit align` [default: the published BWA-GATK pipeline, 10x human genomes]
    #[arg(long, value_name = "run.json", help_heading = THIS_RUN)]
    pub from: Option<PathBuf>,
    /// How streams are spread over storage nodes; none: all through one
    #[arg(long, value_enum, default_value_t = BalancePolicy::RoundRobin, value_name = "POLICY")]
    pub balance: BalancePolicy,
    /// Samples that a compute node works on at a time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub per_node: u32,
    /// What the disks of a storage node carry, as a share of what its network does
    #[arg(long, value_name = "SHARE", default_value_t = 0.5, value_parser = parse_share)]
    pub disk_share: f64,
    /// Network of a storage node, bits a second (10G); counts with --from only
    #[arg(long, value_name = "RATE", default_value = "10G", value_parser = parse_rate)]
    pub storage_rate: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How storage nodes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BalancePolicy {
    /// All streams through one node
    None,
    /// One after the other
    RoundRobin,
    /// The node with the fewest streams
    Connections,
}
