//! Options of all verbs that connect to servers: credentials, trusted certificates, and pools.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::value_parsers::parse_duration;

#[derive(Args, Clone, Debug)]
pub struct AccessArgs {
    /// File with the token for the server
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust servers whose certificate is in this PEM file, or was signed by a certificate in it [default: the
    /// certificates of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM, for servers that require one
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "client_cert")]
    pub client_key: Option<PathBuf>,
    /// File that describes the pool of servers named by godwit+pool://NAME [default: all addresses of NAME in DNS, with encryption]
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// Longest wait while no pool member responds (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = parse_duration)]
    pub wait: Duration,
}
