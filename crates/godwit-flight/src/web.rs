//! HTTP requests that are not gRPC, on the same port: health checks, metrics, and a web service for the data.
//!
//! The server reads a request with its body completely and authenticates it. A [`WebService`] then answers the request
//! with a complete or a streamed response. [`FileTickets`] issues the tokens by which clients download parts of files.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use tonic::Status;

use crate::access_log::AccessRecord;
use crate::auth::Principal;
pub use crate::call_streams::WebStream;
use crate::encoding::{decode_base64, encode_base64_url};
use crate::ticket_key::TicketKey;
use crate::tickets::{FilePart, TicketClaims};

/// Path prefix of htsget requests for reads (htsget 1.3).
pub const READS_PREFIX: &str = "/reads/";
/// Path prefix of htsget requests for variants.
pub const VARIANTS_PREFIX: &str = "/variants/";
/// Path prefix of refget requests for sequences (refget 2.0).
pub const SEQUENCE_PREFIX: &str = "/sequence/";
/// Path prefix of the reference genomes of a server.
pub const REFERENCES_PREFIX: &str = "/references/";
/// Path prefix of the API that the web page of the server uses.
pub const API_PREFIX: &str = "/api/";
/// Path prefix of the static files of the web page, which need no authentication.
pub const SITE_PREFIX: &str = "/site/";
/// Path at which clients download bytes of files by an htsget ticket.
pub const FILE_DATA_PATH: &str = "/htsget/data";

/// Prefix of tokens that authorize the download of a part of a file.
const FILE_TOKEN_PREFIX: &[u8] = b"gwh1.";

/// An HTTP request that is not gRPC, with its complete body.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The authenticated principal; an error if authentication failed.
    pub principal: Result<Principal, Status>,
    /// True if authentication is disabled on the server.
    pub is_auth_disabled: bool,
    /// The origin by which the client reached the server, such as `https://HOST:PORT`.
    pub origin: String,
    /// The HTTP method.
    pub method: Method,
    /// The path as received, percent-encoded.
    pub path: String,
    /// The query after the question mark; `None` if there is no question mark.
    pub query: Option<String>,
    /// All headers of the request.
    pub headers: HeaderMap,
    /// The body of the request; `None` if it is longer than the server accepts.
    pub body: Option<Bytes>,
}

/// The body of an HTTP response.
pub enum WebBody {
    /// A body that is completely in memory.
    Full(Bytes),
    /// A body that is sent while it is produced.
    Stream {
        /// Total length of the body, bytes.
        content_length: u64,
        /// The bytes of the body, in chunks.
        stream: WebStream,
    },
}

/// An HTTP response and the data access that must be recorded for it.
pub struct WebResponse {
    /// The HTTP response.
    pub response: Response<WebBody>,
    /// The access to record; `None` if the response contains no data of datasets or files.
    pub access_record: Option<AccessRecord>,
}

/// The name of the principal that made the request, attached to the response as an extension.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePrincipal(pub(crate) String);

/// A boxed future of a response, which may be sent to another thread.
pub type WebResponseFuture<'a> = Pin<Box<dyn Future<Output = WebResponse> + Send + 'a>>;

/// A service that answers HTTP requests that are not gRPC.
///
/// # Examples
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
/// # use godwit_flight::{Address, Catalog, ConnectionSecurity, Dataset, DatasetError, DatasetService};
/// # use godwit_flight::{DatasetServiceOptions, Server, TransportOptions};
/// use godwit_flight::web::{FileTickets, WebBody, WebRequest, WebResponse, WebResponseFuture, WebService};
///
/// #[derive(Debug)]
/// struct PathEcho;
///
/// impl WebService for PathEcho {
///     fn respond(&self, request: WebRequest, _tickets: FileTickets) -> WebResponseFuture<'_> {
///         let response = http::Response::new(WebBody::Full(request.path.into()));
///         Box::pin(std::future::ready(WebResponse { response, access_record: None }))
///     }
/// }
///
/// # #[derive(Debug)]
/// # struct NoDatasets;
/// # impl Catalog for NoDatasets {
/// #     fn names(&self) -> Result<Vec<String>, DatasetError> {
/// #         Ok(Vec::new())
/// #     }
/// #     fn open(&self, name: &str) -> Result<Arc<dyn Dataset>, DatasetError> {
/// #         Err(DatasetError::NotFound { name: name.to_owned() })
/// #     }
/// # }
/// let options = DatasetServiceOptions { web_service: Some(Arc::new(PathEcho)), ..DatasetServiceOptions::default() };
/// # let service = DatasetService::new(Arc::new(NoDatasets), None, options);
/// # let (routes, security) = (service.routes(), ConnectionSecurity::default());
/// # let any_port = Address::Tcp("127.0.0.1:0".parse()?);
/// # let server = Server::bind(&any_port, service, routes, security, TransportOptions::default()).await?;
/// # let Address::Tcp(address) = *server.address() else { unreachable!() };
/// # tokio::spawn(server.serve());
/// let mut connection = tokio::net::TcpStream::connect(address).await?;
/// connection.write_all(b"GET /reads/a.bam HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
/// let mut response = String::new();
/// connection.read_to_string(&mut response).await?;
/// assert!(response.starts_with("HTTP/1.1 200 OK") && response.contains("/reads/a.bam"));
/// # Ok(())
/// # }
/// ```
pub trait WebService: fmt::Debug + Send + Sync + 'static {
    /// Answers a request. The server records the access of a streamed response when the response starts and when it
    /// ends.
    fn respond(&self, request: WebRequest, tickets: FileTickets) -> WebResponseFuture<'_>;
}

/// Returns a response with this status and a plain text body.
pub(crate) fn text_response(status: StatusCode, text: &str) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// The issuer and verifier of tokens for parts of files. A token is signed, and valid for one principal and a limited
/// time, like a Flight ticket.
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

    /// Sets the Flight location of the pool member to which this client is assigned.
    pub(crate) fn with_location(self, location: Option<&String>) -> Self {
        let web = |location: &String| {
            let (scheme, rest) = location.split_once("://")?;
            let scheme = if scheme == "grpc+tls" { "https" } else { "http" };
            Some(format!("{scheme}://{rest}"))
        };
        Self { origin: location.and_then(web), ..self }
    }

    /// Returns the origin of the pool member from which the client should download bytes; `None` without a pool.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Issues a token by which a client can download a part of a file.
    pub fn issue_token(&self, principal: &Principal, part: FilePart) -> String {
        let mut claim = TicketClaims {
            file: Some(part),
            visas: principal.visas().to_vec(),
            ..TicketClaims::new(principal, self.lifetime)
        };
        // The token expires at the latest when the first visa expires.
        claim.expires_unix_s = claim.visas.iter().map(|visa| visa.expires_unix_s).fold(claim.expires_unix_s, u64::min);
        let prefix = String::from_utf8_lossy(FILE_TOKEN_PREFIX);
        format!("{prefix}{}", encode_base64_url(&claim.sign(&self.key)))
    }

    /// Verifies the token in the headers of a request; returns its principal and file part. The request needs no other
    /// credential.
    ///
    /// # Errors
    /// [`Status::permission_denied`] with an error message for the client.
    pub fn verify_token(&self, headers: &HeaderMap) -> Result<(Principal, FilePart), Status> {
        let wrong =
            || Status::permission_denied("the ticket is missing, or was not issued by this server; request a new one");
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
        assert_eq!(shown_by.visas(), [visa], "a client that has the visa need not send the passport again");
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
