//! How a client shows a server who it is, and which servers it trusts.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::parse_duration;

#[derive(Args, Clone, Debug)]
pub struct AccessArgs {
    /// File with the token that the server asks for
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust servers whose certificate is in this file, or signed by one in it, PEM [default: the system's list]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Own certificate, PEM, for servers that ask for one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// File that describes the pool of servers that godwit+pool://NAME names [default: all addresses that the network has for NAME, with encryption]
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// How long to wait while no node of a pool answers (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    pub wait: Duration,
}
