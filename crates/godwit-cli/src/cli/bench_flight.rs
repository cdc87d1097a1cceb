//! Options of `godwit bench flight`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::TableFormat;
use super::value_parsers::parse_size;

#[derive(Args)]
pub struct BenchFlightArgs {
    /// Measure against this server (HOST:PORT or unix:PATH), started by `godwit bench flight --listen`
    #[arg(long, value_name = "ADDRESS", conflicts_with = "listen")]
    pub at: Option<String>,
    /// Run as the server, at HOST:PORT (port 0: any) or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Encrypt: measure with TLS 1.3 and a certificate made for it, for the server started here
    #[arg(long, conflicts_with_all = ["at", "listen"])]
    pub tls: bool,
    /// Serve with the certificate.pem and key.pem of this directory
    #[arg(long, hide = true, requires = "listen", value_name = "DIR")]
    pub identity: Option<PathBuf>,
    /// Exit when stdin is closed
    #[arg(long, hide = true, requires = "listen")]
    pub until_stdin_closes: bool,
    /// Flight call
    #[arg(long, value_enum, value_delimiter = ',', default_value = "get,put", value_name = "METHODS")]
    pub method: Vec<BenchMethod>,
    /// Numbers of concurrent connections; each number gives one result
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub streams: Vec<u32>,
    /// Schema of the rows
    #[arg(long, value_enum, default_value_t = BenchShape::Fixed, value_name = "SHAPE")]
    pub shape: BenchShape,
    /// Bytes per row of the fixed shape, a multiple of 8
    #[arg(long, value_name = "BYTES", default_value_t = 32, value_parser = clap::value_parser!(u32).range(8..=8192))]
    pub row_bytes: u32,
    /// Rows per batch; batches over 3 MB are split into messages of about 2 MB
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub rows: u32,
    /// Data per measurement, kept in memory
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub bytes: u64,
    /// Socket between the two processes
    #[arg(long, value_enum, default_value_t = BenchSocket::Tcp, value_name = "SOCKET", conflicts_with = "at")]
    pub socket: BenchSocket,
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

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchMethod {
    /// DoGet: the server sends
    Get,
    /// DoPut: the client sends
    Put,
    /// DoExchange: the server returns the data that the client sends, concurrently
    Exchange,
    /// The bytes of DoGet over a plain socket, without Flight, discarded: the upper limit for Flight
    Stream,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchShape {
    /// Integers of eight bytes
    Fixed,
    /// Aligned reads: numbers, names with nulls, packed records of about 350 bytes
    Alignments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BenchSocket {
    /// TCP on the loopback interface
    Tcp,
    /// A Unix socket
    Unix,
}
