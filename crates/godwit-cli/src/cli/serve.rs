//! Options of `godwit serve` and `godwit token`.

use std::fmt;
use std::path::PathBuf;

use clap::Args;

use super::value_parsers::{parse_duration, parse_rate, parse_server_url, parse_size, parse_web_url};
use super::{CommonArgs, KeyArgs};
use crate::config::THIS_RUN_HEADING;

#[derive(Args)]
pub struct ServeArgs {
    /// Serve the datasets below this directory, or below s3://BUCKET/PREFIX
    #[arg(long, value_name = "DIR", help_heading = THIS_RUN_HEADING)]
    pub root: PathBuf,
    /// Address and port; port 0 selects any
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8815", help_heading = THIS_RUN_HEADING)]
    pub listen: String,
    /// Certificate and its chain, PEM; enables TLS
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Accept only clients with a certificate signed by this authority, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Accept only clients with a token of this file, made by `godwit token`
    #[arg(long, value_name = "FILE")]
    pub tokens: Option<PathBuf>,
    /// Accept JSON Web Tokens signed by a key of this JSON Web Key Set (RS256, ES256, EdDSA); keys at an https:// URL are fetched, and refreshed every five minutes
    #[arg(long, value_name = "FILE|URL", value_parser = KeySource::parse, requires_all = ["jwt_issuer", "jwt_audience"])]
    pub jwks: Option<KeySource>,
    /// Required issuer of tokens, the claim `iss`
    #[arg(long, value_name = "NAME", requires = "jwks")]
    pub jwt_issuer: Option<String>,
    /// Required audience of tokens, the claim `aud`
    #[arg(long, value_name = "NAME", requires = "jwks")]
    pub jwt_audience: Option<String>,
    /// Accept GA4GH passports as bearer tokens, with visas of the issuers in this file (TOML: `[[issuer]]` with `name`,
    /// `keys` and `jku`)
    #[arg(long, value_name = "FILE", requires = "jwks")]
    pub visas: Option<PathBuf>,
    /// The claim with the name of the principal
    #[arg(long, value_name = "CLAIM", default_value = godwit_auth::SUBJECT_CLAIM)]
    pub jwt_name: String,
    /// Restrict principals to the data that this policy file permits; the file is reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Write an audit log of all accesses to this file, which `godwit audit verify` checks; accesses that cannot be recorded are rejected
    #[arg(long, value_name = "FILE")]
    pub audit: Option<PathBuf>,
    /// Export trace spans to this OpenTelemetry collector, OTLP over HTTP (http://127.0.0.1:4318) [default: the variable OTEL_EXPORTER_OTLP_ENDPOINT; none]
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Serve other hosts without encryption or without authentication
    #[arg(long)]
    pub insecure: bool,
    /// Permit clients to write below the root: to put and remove datasets, and to upload files with `godwit copy`
    #[arg(long)]
    pub writable: bool,
    /// Relay files from and to other servers for clients that copy through this one; clients name those servers and pass their delegation tokens
    #[arg(long)]
    pub relay: bool,
    /// Cache verified blocks of relayed files in this directory, for later clients that the other servers authorize
    #[arg(long, value_name = "DIR", requires = "relay")]
    pub relay_cache: Option<PathBuf>,
    /// Size of the cache on disk, at most; the least recently used blocks are evicted first
    #[arg(long, value_name = "SIZE", default_value = "100G", value_parser = parse_size, requires = "relay_cache")]
    pub relay_cache_size: u64,
    /// Another server with the same files, reported to clients that request the locations of a file; repeat for more
    #[arg(long, value_name = "URL", value_parser = parse_server_url)]
    pub also_at: Vec<String>,
    /// File that describes the pool that this server is a member of: all members serve the same files
    #[arg(long, value_name = "FILE")]
    pub pool: Option<PathBuf>,
    /// File with a secret of at least 32 characters, shared by the members of the pool only: it authenticates them to each other and makes tickets valid at all members
    #[arg(long, value_name = "FILE", requires = "pool")]
    pub pool_secret: Option<PathBuf>,
    /// Answer DNS queries for the pool's name at this UDP address with the addresses of healthy members, in the order
    /// of the balancing policy
    #[arg(long, value_name = "HOST:PORT", requires = "pool")]
    pub dns: Option<String>,
    /// Serve the files below the root over NFSv3 at this address too, without encryption; --policy lists the addresses of clients ([addresses]) and their rights
    #[arg(long, value_name = "HOST:PORT")]
    pub nfs: Option<String>,
    /// URL of this server for htsget clients, if it differs from the URL of their requests, such as behind a TLS proxy
    #[arg(long, value_name = "URL", value_parser = parse_web_url)]
    pub public_url: Option<String>,
    /// Memory for all temporary datasets of clients; larger ones are written to the directory for scratch files
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size, requires = "writable")]
    pub put_memory: u64,
    /// Maximum number of concurrent connections; further connections are closed immediately
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    pub connections: u32,
    /// Maximum number of concurrent calls of a named principal; further calls are rejected [default: no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub calls_per_caller: Option<u32>,
    /// Sending rate to a named principal over all its calls, in bits per second (500M) [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub rate_per_caller: Option<u64>,
    /// Largest accepted message: a batch of rows and its metadata
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub message_limit: u64,
    /// Trust servers whose certificate is in this file, or signed by one in it, PEM: other pool members, and servers from which files are fetched; servers of keys and the collector of --otlp also if the system trusts them [default: the certificates of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Memory limit of each statement
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_size)]
    pub statement_memory: u64,
    /// Time limit of each statement (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub statement_time: std::time::Duration,
    /// Rows that each statement may return [default: no limit]
    #[arg(long, value_name = "N")]
    pub statement_rows: Option<u64>,
    /// Maximum number of concurrent statements; further statements wait
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub statements: u32,
    /// Time for open calls to finish after SIGTERM or Ctrl-C (30s, 5m)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub drain: std::time::Duration,
    /// Exit when stdin is closed
    #[arg(long, hide = true, help_heading = THIS_RUN_HEADING)]
    pub until_stdin_closes: bool,
    /// A reference, FASTA, for `godwit copy --compress delta`; repeat for more. The first is the reference of CRAM files
    #[arg(long, value_name = "REF.fa")]
    pub reference: Vec<PathBuf>,
    #[command(flatten)]
    pub keys: KeyArgs,
    #[command(flatten)]
    pub common: CommonArgs,
}

#[derive(Args)]
pub struct TokenArgs {
    /// Name of the principal; appears in logs
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Append the hash of the token to this file, which `godwit serve --tokens` reads
    #[arg(long, value_name = "FILE", help_heading = THIS_RUN_HEADING)]
    pub tokens: PathBuf,
}

/// Scheme that the URLs of keys must have.
const HTTPS_SCHEME: &str = "https://";

/// Source of the keys with which the server verifies tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The keys are in the file with this path.
    File(PathBuf),
    /// The keys are fetched from this URL, which starts with `https://`.
    Url(String),
}

impl KeySource {
    /// Parses the path of a file or a URL.
    ///
    /// # Errors
    /// The message for the user if the URL starts with `http://`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with("http://") {
            return Err(format!(
                "keys are fetched over {HTTPS_SCHEME} only: an attacker could replace them in transit"
            ));
        }
        Ok(if text.starts_with(HTTPS_SCHEME) { Self::Url(text.to_owned()) } else { Self::File(text.into()) })
    }
}

impl fmt::Display for KeySource {
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
        assert_eq!(KeySource::parse("keys.json"), Ok(KeySource::File("keys.json".into())));
        let url = "https://issuer.example.org/keys";
        assert_eq!(KeySource::parse(url), Ok(KeySource::Url(url.to_owned())));
        assert!(KeySource::parse("http://issuer.example.org/keys").is_err());
    }
}
