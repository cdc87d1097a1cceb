//! How statements are measured.

use std::path::PathBuf;

use clap::Args;

use super::{AccessArgs, TableFormat};

#[derive(Args)]
#[command(group = clap::ArgGroup::new("asked").required(true).args(["at", "data"]))]
pub struct BenchQueryArgs {
    /// The statements: SELECT, one result each
    #[arg(value_name = "SQL", required = true)]
    pub statements: Vec<String>,
    /// Ask this server: grpc+tls://HOST:PORT (grpc+tcp:// without encryption)
    #[arg(long, value_name = "URL")]
    pub at: Option<String>,
    /// Serve this directory for it, by a `godwit serve` of its own
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    #[command(flatten)]
    pub access: AccessArgs,
    /// Clients at once, each with a connection of its own, one result each
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: Vec<u32>,
    /// How often each client asks each statement
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
    /// How to print results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
}
