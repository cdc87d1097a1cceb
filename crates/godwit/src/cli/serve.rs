//! What is served, where, and to whom.

use std::fmt;
use std::path::PathBuf;

use clap::Args;

use super::values::{parse_duration, parse_rate, parse_server, parse_size, parse_web_url};
use super::{Common, KeyArgs};
use crate::config::THIS_RUN;

#[derive(Args)]
pub struct ServeArgs {
    /// Serve the datasets below this directory, or below s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN)]
    pub root: PathBuf,
    /// Address and port; port 0 takes any
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8815", help_heading = THIS_RUN)]
    pub listen: String,
    /// Certificate and its chain, PEM; with it the server speaks TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in only clients with a certificate signed by this authority, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Let in only who shows a token of this file, made by `godwit token`
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Let in who shows a JSON Web Token that one of these keys signed, a JSON Web Key Set (RS256, ES256, EdDSA); from an https:// address
    /// they are fetched, and every five minutes again
    #[arg(long, value_name = "FILE|URL", value_parser = KeysAt::parse, requires_all = ["jwt_issuer", "jwt_audience"])]
    pub jwks: Option<KeysAt>,
    /// Who has to have made the token, its claim `iss`
    #[arg(long, value_name = "NAME", requires = "jwks")]
    pub jwt_issuer: Option<String>,
    /// For whom it has to be made, its claim `aud`
    #[arg(long, value_name = "NAME", requires = "jwks")]
    pub jwt_audience: Option<String>,
    /// Take passports of the GA4GH as such tokens, with visas of the issuers in this file (TOML: `[[issuer]]` with `name`, `keys` and `jku`)
    #[arg(long, value_name = "FILE", requires = "jwks")]
    pub visas: Option<PathBuf>,
    /// The claim that says who it is
    #[arg(long, value_name = "CLAIM", default_value = godwit_flight::SUBJECT)]
    pub jwt_name: String,
    /// Show callers what this file of rules lets them see, and nothing else; it is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Record who accessed what in this file, which `godwit audit verify` checks; what cannot be recorded is not served
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Send spans of what the server does to this collector of OpenTelemetry, OTLP over HTTP (http://127.0.0.1:4318) [default: the variable
    /// OTEL_EXPORTER_OTLP_ENDPOINT; none]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Serve other machines without encryption, or without asking who they are
    #[arg(long)]
    pub insecure: bool,
    /// Let clients write below the root: datasets that they put and remove, files of `godwit copy`
    #[arg(long)]
    pub writable: bool,
    /// Send on files from and to other servers for clients that copy through this one; they name those servers, and what these granted them
    #[arg(long)]
    pub relay: bool,
    /// Keep verified blocks of what is sent on from other servers in this directory, for the next client that those let have it
    #[arg(long, value_name = "DIR", requires = "relay")]
    pub relay_cache: Option<PathBuf>,
    /// What is kept at most, on disk; what nobody asked for the longest goes first
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = parse_size, requires = "relay_cache")]
    pub relay_cache_size: u64,
    /// Another server that serves the same files, told to clients that ask where a file is; may be given again
    #[arg(long, value_name = "URL", value_parser = parse_server)]
    pub also_at: Vec<String>,
    /// File that describes the pool that this server is a node of: all of its nodes serve the same files
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// File with a secret of 32 characters or more that all nodes of the pool have, and nobody else: they know each other by it, and tickets of one are good at all
    #[arg(long, value_name = "FILE", requires = "pool")]
    pub pool_secret: Option<PathBuf>,
    /// Answer questions of DNS for the pool's name at this address, over UDP: the addresses of its nodes that are there, by its policy
    #[arg(long, value_name = "HOST:PORT", requires = "pool")]
    pub dns: Option<String>,
    /// Where clients of htsget find this server, where that is not where they asked, as behind a proxy that encrypts
    #[arg(long, value_name = "URL", value_parser = parse_web_url)]
    pub public_url: Option<String>,
    /// Memory for temporary datasets of clients, all told; what is more goes to the directory for scratch files
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size, requires = "writable")]
    pub put_memory: u64,
    /// Connections at a time; others are closed at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Calls that a caller with a name may have open at a time; others are refused [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls_per_caller: Option<u32>,
    /// What all calls of a caller with a name may be sent together, in bits a second (500M) [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate_per_caller: Option<u64>,
    /// Largest message that is taken, a batch of rows and what is said beside it
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub message_limit: u64,
    /// Trust servers whose certificate is in this file, or signed by one in it, when files are fetched from them, and besides those that the
    /// system trusts when keys are, PEM [default: the system's list]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Memory that each statement may have
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub statement_memory: u64,
    /// How long each statement may take (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub statement_time: std::time::Duration,
    /// Rows that each statement may give [default: no limit]
    #[arg(long, value_name = "N")]
    pub statement_rows: Option<u64>,
    /// Statements that run at a time; others wait
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub statements: u32,
    /// How long open calls may continue after SIGTERM or Ctrl-C (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub drain: std::time::Duration,
    /// End when stdin is closed
    #[arg(long, hide = true, help_heading = THIS_RUN)]
    pub until_stdin_closes: bool,
    /// A reference, FASTA, for `godwit copy --compress delta`; may be given again. The first is the one that CRAM files were made with
    #[arg(long, value_name = "REF.fa")]
    pub reference: Vec<PathBuf>,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: Common,
}

#[derive(Args)]
pub struct TokenArgs {
    /// Who the token is for; appears in logs
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Append the hash of the token to this file, which `godwit serve --tokens` reads
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN)]
    pub tokens: PathBuf,
}

/// What an address begins with.
const SCHEME: &str = "https://";

/// Where keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeysAt {
    /// In a file.
    File(PathBuf),
    /// At an address that begins with `https://`.
    Url(String),
}

impl KeysAt {
    /// A path, or an address.
    ///
    /// # Errors
    /// Where an address is one that anybody on the way could answer for.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") {
            return Err(format!("keys are fetched over {SCHEME} only: whoever changes them lets himself in"));
        }
        Ok(if text.starts_with(SCHEME) { Self::Url(text.to_owned()) } else { Self::File(text.into()) })
    }
}

impl fmt::Display for KeysAt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(formatter),
            Self::Url(url) => formatter.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_a_file_or_at_an_address_that_is_encrypted() {
        assert_eq!(KeysAt::parse("keys.json"), Ok(KeysAt::File("keys.json".into())));
        let url = "https://issuer.example.org/keys";
        assert_eq!(KeysAt::parse(url), Ok(KeysAt::Url(url.to_owned())));
        assert!(KeysAt::parse("http://issuer.example.org/keys").is_err());
    }
}
