//! Options of `godwit bench query`.

use std::path::PathBuf;

use clap::Args;

use super::{AccessArgs, TableFormat};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("asked").required(true).args(["at", "data"]))]
pub struct BenchQueryArgs {
    /// SELECT statements to measure; each statement gives one result
    #[arg(value_name = "SQL", required = true)]
    pub statements: Vec<String>,
    /// Query this server: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL")]
    pub at: Option<String>,
    /// Query this directory through a server that is started for the measurement
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Numbers of concurrent clients, each with its own connection; each number gives one result
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: Vec<u32>,
    /// Executions of each statement by each client
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
    /// Format of the results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
}
