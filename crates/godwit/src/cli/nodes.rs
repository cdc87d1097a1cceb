//! Where a job runs, and what its nodes are told.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_fleet::address::AddressChoice;

use crate::config::THIS_RUN;

/// Where a job runs.
#[derive(Args)]
pub struct PlaceArgs {
    /// Spread the work over nodes [default: one process does it all]
    #[arg(long, value_enum, value_name = "local|ssh|slurm", hide_possible_values = true)]
    pub on: Option<Place>,
    /// Nodes; --threads are those of each
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, help_heading = THIS_RUN, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: u32,
    /// Hosts for --on ssh, one to a line: HOST [slots=N]
    #[arg(long, value_name = "FILE", required_if_eq("on", "ssh"), help_heading = THIS_RUN)]
    pub hosts: Option<PathBuf>,
    /// An option for ssh, as -p2222; again for each
    #[arg(long, value_name = "OPTION", requires = "hosts", allow_hyphen_values = true)]
    pub ssh_option: Vec<String>,
    /// Where nodes come to: an address, ADDRESS/BITS, route:HOST, or an interface [default: any]
    #[arg(long, value_name = "CHOICE", requires = "on")]
    pub interface: Option<AddressChoice>,
    #[command(flatten)]
    pub slurm: SlurmArgs,
}

/// What SLURM is asked for.
#[derive(Args)]
#[command(next_help_heading = "SLURM, with --on slurm")]
pub struct SlurmArgs {
    /// Who pays
    #[arg(long, value_name = "NAME")]
    pub slurm_account: Option<String>,
    /// Partition of the cluster
    #[arg(long, value_name = "NAME")]
    pub slurm_partition: Option<String>,
    /// Quality of service
    #[arg(long, value_name = "NAME")]
    pub slurm_qos: Option<String>,
    /// Constraint on nodes
    #[arg(long, value_name = "LIST")]
    pub slurm_constraint: Option<String>,
    /// Time limit, as 4:00:00 or 1-12
    #[arg(long, value_name = "TIME")]
    pub slurm_time: Option<String>,
    /// Memory of each node, the aligner's or the callers' included [default: the cluster's]
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size)]
    pub slurm_memory: Option<u64>,
    /// Ask for that memory per processor, where the site wants it so
    #[arg(long)]
    pub slurm_mem_per_cpu: bool,
    /// A further argument of sbatch, as --slurm-argument=--reservation=x; again for each
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub slurm_argument: Vec<String>,
    /// A line of bash before the work starts, as 'module load x'; again for each
    #[arg(long, value_name = "LINE")]
    pub slurm_setup: Vec<String>,
    /// Submit the job and do not wait for it
    #[arg(long, help_heading = THIS_RUN)]
    pub no_wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Place {
    /// Processes of this machine
    Local,
    /// Machines reached by ssh
    Ssh,
    /// A job of SLURM
    Slurm,
    /// The nodes that a job was given; what --on slurm submits
    #[value(hide = true)]
    Allocation,
}

#[derive(Args)]
pub struct NodeArgs {
    /// The directory where the run tells how to reach it
    #[arg(long, value_name = "DIR")]
    pub meeting: PathBuf,
    /// The start of the job that this belongs to
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub attempt: u64,
    /// Threads of the aligner, or of all callers, and parts written at a time [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Directory for scratch files [default: that of the run]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
}
