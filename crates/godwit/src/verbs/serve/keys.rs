//! The keys of an issuer, from where it publishes them (OpenID Connect Discovery 1.0 §3, `jwks_uri`).

use std::path::Path;
use std::time::Duration;

use crate::failure::{Exit, Failure};

/// How long fetching may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a set of keys; those of large issuers have some ten thousand.
const MOST_BYTES: usize = 1 << 20;
/// Fetches keys; whoever answers has to be known to the system, or to these authorities.
///
/// # Errors
/// What keeps them from being fetched.
pub(super) async fn fetch(url: &str, authority: Option<&Path>) -> Result<String, Failure> {
    let failed = |problem: String| Failure::new(Exit::Machine, format!("cannot fetch keys from {url}: {problem}"));
    let of_reqwest = |error: reqwest::Error| failed(godwit_formats::with_causes(&error.without_url()));
    let builder = reqwest::Client::builder().https_only(true).timeout(PATIENCE);
    let builder = match authority {
        None => builder,
        Some(path) => {
            let pem =
                std::fs::read(path).map_err(|error| failed(format!("cannot read {}: {error}", path.display())))?;
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(of_reqwest)?;
            certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate)
        }
    };
    let client = builder.build().map_err(of_reqwest)?;
    let mut answer = client.get(url).send().await.and_then(reqwest::Response::error_for_status).map_err(of_reqwest)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(of_reqwest)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MOST_BYTES {
            return Err(failed("it is over 1 MiB".to_owned()));
        }
    }
    String::from_utf8(bytes).map_err(|_| failed("it is no text".to_owned()))
}
