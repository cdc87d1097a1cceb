//! Options of cluster runs, and of their workers.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use godwit_fleet::address::AddressChoice;

use crate::config::THIS_RUN_HEADING;

/// Options of a cluster run.
#[derive(Args)]
pub struct ClusterArgs {
    /// Run on several workers [default: in this process]
    #[arg(long, value_enum, value_name = "local|ssh|slurm", hide_possible_values = true)]
    pub on: Option<LauncherName>,
    /// Number of workers; --threads applies to each
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1, help_heading = THIS_RUN_HEADING, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub nodes: u32,
    /// Hosts for --on ssh, one per line: HOST [slots=N]
    #[arg(long, value_name = "FILE", required_if_eq("on", "ssh"), help_heading = THIS_RUN_HEADING)]
    pub hosts: Option<PathBuf>,
    /// An option for ssh, such as -p2222; repeat for more
    #[arg(long, value_name = "OPTION", requires = "hosts", allow_hyphen_values = true)]
    pub ssh_option: Vec<String>,
    /// Address that workers connect to: an address, ADDRESS/BITS, route:HOST, or an interface [default: any]
    #[arg(long, value_name = "CHOICE", requires = "on")]
    pub interface: Option<AddressChoice>,
    #[command(flatten)]
    pub slurm: SlurmArgs,
}

/// Options of the SLURM job.
#[derive(Args)]
#[command(next_help_heading = "SLURM, with --on slurm")]
pub struct SlurmArgs {
    /// Account to charge
    #[arg(long, value_name = "NAME")]
    pub slurm_account: Option<String>,
    /// Partition of the cluster
    #[arg(long, value_name = "NAME")]
    pub slurm_partition: Option<String>,
    /// Quality of service
    #[arg(long, value_name = "NAME")]
    pub slurm_qos: Option<String>,
    /// Constraint on hosts
    #[arg(long, value_name = "LIST")]
    pub slurm_constraint: Option<String>,
    /// Time limit, such as 4:00:00 or 1-12
    #[arg(long, value_name = "TIME")]
    pub slurm_time: Option<String>,
    /// Memory of each worker, including its aligner or callers [default: the cluster's]
    #[arg(long, value_name = "SIZE", value_parser = super::parse_size)]
    pub slurm_memory: Option<u64>,
    /// Request the memory of --slurm-memory per processor, for sites that require it
    #[arg(long)]
    pub slurm_mem_per_cpu: bool,
    /// A further argument of sbatch, such as --slurm-argument=--reservation=x; repeat for more
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub slurm_argument: Vec<String>,
    /// A line of bash before the work starts, such as 'module load x'; repeat for more
    #[arg(long, value_name = "LINE")]
    pub slurm_setup: Vec<String>,
    /// Submit the job and do not wait for it
    #[arg(long, help_heading = THIS_RUN_HEADING)]
    pub no_wait: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LauncherName {
    /// Processes on this host
    Local,
    /// Hosts reached by ssh
    Ssh,
    /// A SLURM job
    Slurm,
    /// The hosts of a SLURM allocation; used by the job that --on slurm submits
    #[value(hide = true)]
    Allocation,
}

#[derive(Args)]
pub struct WorkerArgs {
    /// The rendezvous directory of the cluster run
    #[arg(long, value_name = "DIR")]
    pub meeting: PathBuf,
    /// The attempt of the job that this worker belongs to
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub attempt: u64,
    /// Threads of the aligner, or of all callers, and parts written concurrently [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Directory for scratch files [default: that of the job]
    #[arg(long, value_name = "DIR")]
    pub temp: Option<PathBuf>,
}
