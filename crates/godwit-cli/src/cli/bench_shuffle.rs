//! Options of `godwit bench shuffle`.

use clap::Args;

use super::TableFormat;
use super::value_parsers::parse_size;

#[derive(Args)]
pub struct BenchShuffleArgs {
    /// Numbers of local worker processes that exchange data; each number gives one result
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub nodes: Vec<u32>,
    /// Data of each worker, divided into a slice for every worker; each size gives one result
    #[arg(long, value_delimiter = ',', default_value = "256M", value_name = "SIZE,..", value_parser = parse_size)]
    pub bytes: Vec<u64>,
    /// Size of a message in bytes
    #[arg(long, value_name = "SIZE", default_value = "2M", value_parser = parse_size)]
    pub message: u64,
    /// Fetch from these peers, each started by `godwit bench shuffle --listen`, concurrently
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT,..", conflicts_with_all = ["nodes", "listen"])]
    pub peers: Vec<String>,
    /// Run as a peer, at HOST:PORT (port 0: any), until stopped
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Exit when stdin is closed
    #[arg(long, hide = true, requires = "listen")]
    pub until_stdin_closes: bool,
    /// Run as this worker of a measurement: commands on stdin, results on stdout
    #[arg(long, hide = true, value_name = "INDEX", conflicts_with_all = ["listen", "peers"])]
    pub node: Option<u32>,
    /// Measurements of each kind; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Format of the results
    #[arg(long, value_enum, default_value_t = TableFormat::Table, value_name = "FORMAT")]
    pub format: TableFormat,
    /// Print events as JSON lines on stderr
    #[arg(long)]
    pub json: bool,
}
