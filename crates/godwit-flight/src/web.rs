//! Plain HTTP on the same port: health, metrics, and the web service of the data.
//!
//! Flows in: requests of HTTP/1.1 and HTTP/2, small enough to be held whole, with their principal. Flows out: responses,
//! complete or streamed. A [`WebService`] decides which paths exist; [`FileTickets`] authorize access to bytes of files.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, Response, StatusCode};
use tonic::Status;

use crate::access_log::AccessRecord;
use crate::auth::Principal;
use crate::encoding::{decode_base64, encode_base64_url};
use crate::tickets::{FilePart, TicketClaims, TicketKey};

/// Prefix of paths of reads (htsget 1.3).
pub const READS_PREFIX: &str = "/reads/";
/// Prefix of paths of variants.
pub const VARIANTS_PREFIX: &str = "/variants/";
/// Prefix of paths of sequences (refget 2.0).
pub const SEQUENCE_PREFIX: &str = "/sequence/";
/// Prefix of paths of a server's references.
pub const REFERENCES_PREFIX: &str = "/references/";
/// Prefix of paths of the API of the server's web page.
pub const API_PREFIX: &str = "/api/";
/// Prefix of paths of the files of that page, which are public.
pub const SITE_PREFIX: &str = "/site/";
/// Path of bytes of files, by ticket.
pub const FILE_DATA_PATH: &str = "/htsget/data";

/// Prefix of tokens for a part of a file.
const FILE_TOKEN_PREFIX: &[u8] = b"gwh1.";

/// A request.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The principal; an error where authentication failed.
    pub principal: Result<Principal, Status>,
    /// True if authentication is disabled.
    pub is_auth_disabled: bool,
    /// The origin of the server in the request, as `https://HOST:PORT`.
    pub origin: String,
    /// The method.
    pub method: Method,
    /// The path as received, percent-encoded.
    pub path: String,
    /// The query, behind the question mark.
    pub query: Option<String>,
    /// All its headers.
    pub headers: HeaderMap,
    /// Its body; `None`: longer than accepted.
    pub body: Option<Bytes>,
}

/// The bytes of a streamed body.
pub type WebStream = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// The body of a response.
pub enum WebBody {
    /// A complete body.
    Full(Bytes),
    /// A streamed body.
    Stream {
        /// Its length, bytes.
        content_length: u64,
        /// Its bytes.
        stream: WebStream,
    },
}

/// A response with its access record.
pub struct WebResponse {
    /// The response.
    pub response: Response<WebBody>,
    /// The access to record; `None` where the response has no data.
    pub access_record: Option<AccessRecord>,
}

/// The principal of a response, as an extension of it.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePrincipal(pub(crate) String);

/// A boxed future of a response, which may be sent to another thread.
pub type WebResponseFuture<'a> = Pin<Box<dyn Future<Output = WebResponse> + Send + 'a>>;

/// A service that responds to HTTP requests.
pub trait WebService: fmt::Debug + Send + Sync + 'static {
    /// Responds to a request. A streamed response is recorded when it starts and when it ends.
    fn respond(&self, request: WebRequest, tickets: FileTickets) -> WebResponseFuture<'_>;
}

/// Returns a response of plain text.
pub(crate) fn text_response(status: StatusCode, text: &str) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Issues and verifies tokens for parts of files: signed, for one principal, until a time, as tickets of Flight are.
#[derive(Clone, Debug)]
pub struct FileTickets {
    key: TicketKey,
    lifetime: Duration,
    origin: Option<String>,
}

impl FileTickets {
    pub(crate) fn new(key: TicketKey, lifetime: Duration) -> Self {
        Self { key, lifetime, origin: None }
    }

    /// Sets the Flight location to which a pool assigns this client.
    pub(crate) fn with_location(self, location: Option<&String>) -> Self {
        let web = |location: &String| {
            let (scheme, rest) = location.split_once("://")?;
            let scheme = if scheme == "grpc+tls" { "https" } else { "http" };
            Some(format!("{scheme}://{rest}"))
        };
        Self { origin: location.and_then(web), ..self }
    }

    /// Returns the origin of the URL of the bytes, where a pool assigned one.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Issues a token for a part of a file.
    pub fn issue_token(&self, principal: &Principal, part: FilePart) -> String {
        let mut claim = TicketClaims {
            file: Some(part),
            visas: principal.visas().to_vec(),
            ..TicketClaims::new(principal, self.lifetime)
        };
        // Access by a visa ends when the visa expires.
        claim.expires_unix_s = claim.visas.iter().map(|visa| visa.expires_unix_s).fold(claim.expires_unix_s, u64::min);
        let prefix = String::from_utf8_lossy(FILE_TOKEN_PREFIX);
        format!("{prefix}{}", encode_base64_url(&claim.sign(&self.key)))
    }

    /// Verifies a token; returns its principal and file part. The token is the only credential that is needed.
    ///
    /// # Errors
    /// [`Status::permission_denied`], with a message for clients.
    pub fn verify_token(&self, headers: &HeaderMap) -> Result<(Principal, FilePart), Status> {
        let wrong = || Status::permission_denied("the ticket is missing, or not of this server; ask for a new one");
        let token = crate::auth::request_token(headers).ok_or_else(wrong)?;
        let ticket = token.strip_prefix(FILE_TOKEN_PREFIX).and_then(decode_base64).ok_or_else(wrong)?;
        let claim = TicketClaims::read_signed(&ticket, &self.key).ok_or_else(wrong)?;
        let principal =
            if claim.principal.is_empty() { Principal::default() } else { Principal::named(&claim.principal) };
        let claim = TicketClaims::verify(&ticket, &self.key, &principal).map_err(|error| *error)?;
        let principal = principal.with_visas(claim.visas);
        Ok((principal, claim.file.ok_or_else(wrong)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Visa;

    #[test]
    fn a_flight_location_becomes_an_http_origin() {
        let tickets = FileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let at = |location: &str| tickets.clone().with_location(Some(&location.to_owned())).origin().map(str::to_owned);
        assert_eq!(at("grpc+tls://a.example:7").as_deref(), Some("https://a.example:7"));
        assert_eq!(at("grpc+tcp://127.0.0.1:7").as_deref(), Some("http://127.0.0.1:7"));
        assert_eq!(tickets.clone().with_location(None).origin(), None);
    }

    #[test]
    fn a_file_token_is_valid_for_its_part_and_principal_only() {
        let tickets = FileTickets::new(TicketKey::new(b"a secret of thirty-two characters"), Duration::from_secs(60));
        let shown = |token: &str| {
            let header = format!("Bearer {token}").parse().unwrap();
            tickets.verify_token(&HeaderMap::from_iter([(http::header::AUTHORIZATION, header)]))
        };
        let part = FilePart { name: "x/y.bam".to_owned(), version: 7, start: 1, end: 9 << 16, recompress_ends: true };
        for principal in [Principal::default(), Principal::named("alice")] {
            let token = tickets.issue_token(&principal, part.clone());
            assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)), "{token}");
            assert_eq!(shown(&token).unwrap(), (principal, part.clone()));
            assert!(shown(&token[..token.len() - 2]).is_err() && shown(&token[1..]).is_err());
        }
        let granted = |expires_unix_s| {
            let visa = Visa { value: "a dataset".to_owned(), expires_unix_s, ..Visa::default() };
            (Principal::named("alice").with_visas(vec![visa.clone()]), visa)
        };
        let (principal, visa) = granted(u64::MAX);
        let (shown_by, _) = shown(&tickets.issue_token(&principal, part.clone())).unwrap();
        assert_eq!(shown_by.visas(), [visa], "whoever shows it need not show the passport again");
        assert!(shown(&tickets.issue_token(&granted(1).0, part.clone())).is_err(), "it ends with the visa");
        let key = TicketKey::new(b"a secret of thirty-two characters");
        let of_a_part = TicketClaims::new(&Principal::default(), Duration::from_secs(60)).sign(&key);
        assert!(shown(&format!("gwh1.{}", encode_base64_url(&of_a_part))).is_err(), "one of Flight");
        assert!(tickets.verify_token(&HeaderMap::new()).is_err());
        let late = TicketClaims { expires_unix_s: 1, file: Some(part), ..TicketClaims::default() }.sign(&key);
        let late = shown(&format!("gwh1.{}", encode_base64_url(&late))).unwrap_err();
        assert!(late.message().contains("expired"), "{late}");
    }
}
