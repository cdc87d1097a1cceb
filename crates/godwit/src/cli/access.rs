//! How a client shows a server who it is, and which servers it trusts.

use std::path::PathBuf;

use clap::Args;

#[derive(Args)]
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
}
