//! Fetches the keys of an issuer from its URL (OpenID Connect Discovery 1.0 §3, `jwks_uri`).

use std::path::Path;
use std::time::Duration;

use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;

/// Timeout of the request for the keys.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a key set, in bytes; the key sets of large issuers have some ten thousand bytes.
const MAX_KEY_SET_BYTES: usize = 1 << 20;
/// Fetches the keys at a URL. The certificate of the web server must be trusted by the system, or signed by a CA of the
/// file `authority`.
///
/// # Errors
/// [`ErrorKind::Machine`] if the request fails or the response is too large.
pub(super) async fn fetch_keys(url: &str, authority: Option<&Path>) -> Result<String, Failure> {
    let failed = |problem: String| Failure::new(ErrorKind::Machine, format!("cannot fetch keys from {url}: {problem}"));
    let of_reqwest = |error: reqwest::Error| failed(godwit_model::message_with_causes(&error.without_url()));
    let builder = reqwest::Client::builder().https_only(true).timeout(FETCH_TIMEOUT);
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
        if bytes.len() > MAX_KEY_SET_BYTES {
            return Err(failed("the response is larger than 1 MiB".to_owned()));
        }
    }
    String::from_utf8(bytes).map_err(|_| failed("the response is not text".to_owned()))
}
