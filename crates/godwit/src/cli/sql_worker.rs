//! Options of `godwit sql-worker`, the process that runs SQL statements for a server.

use std::path::PathBuf;

use clap::Args;

use super::KeyArgs;

#[derive(Args)]
pub struct SqlWorkerArgs {
    /// Query the datasets below this directory
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// The reference of CRAM files
    #[arg(long, value_name = "FASTA")]
    pub reference: Option<PathBuf>,
    /// Also query the temporary datasets in this directory
    #[arg(long, value_name = "DIR")]
    pub temporary: Option<PathBuf>,
    /// Serve on this Unix socket
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Memory limit of a statement process in bytes
    #[arg(long, value_name = "BYTES")]
    pub memory_bytes: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// Statements carry the grants of their principal
    #[arg(long)]
    pub ruled: bool,
    /// Directory for scratch files
    #[arg(long, value_name = "DIR")]
    pub temp: PathBuf,
    #[command(flatten)]
    pub keys: KeyArgs,
}
