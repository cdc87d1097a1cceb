//! HTTP requests that are not gRPC, and their responses: the interface between a server and the web service for its
//! data.
//!
//! The server reads a request with its body completely and authenticates it. A [`WebService`] then answers the request
//! with a complete or a streamed response. [`FileTickets`] issues the tokens by which clients download parts of files.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, Method, Response};
use prost::Message;

use crate::access_log::AccessRecord;
use crate::dataset::DatasetError;
use crate::principal::{AuthError, Principal};

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
/// Path at which clients run an SQL statement.
pub const SQL_PATH: &str = "/sql";
/// Path prefix of the static files of the web page, which need no authentication.
pub const SITE_PREFIX: &str = "/site/";
/// Path at which clients download bytes of files by an htsget ticket.
pub const FILE_DATA_PATH: &str = "/htsget/data";
/// Path of the health check of the files that the server serves over NFS, which needs no authentication.
pub const NFS_HEALTH_PATH: &str = "/healthz/nfs";

/// An HTTP request that is not gRPC, with its complete body.
#[derive(Clone, Debug)]
pub struct WebRequest {
    /// The authenticated principal; an error if authentication failed.
    pub principal: Result<Principal, AuthError>,
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

/// The chunks of a streamed response body.
pub type WebStream<E = DatasetError> = Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>;

/// The body of an HTTP response. `E` is the error that ends a streamed body early.
pub enum WebBody<E = DatasetError> {
    /// A body that is completely in memory.
    Full(Bytes),
    /// A body that is sent while it is produced.
    Stream {
        /// Total length of the body, bytes; `None` if it is not known in advance.
        content_length: Option<u64>,
        /// The bytes of the body, in chunks.
        stream: WebStream<E>,
    },
}

/// An HTTP response and the data access that must be recorded for it.
pub struct WebResponse {
    /// The HTTP response.
    pub response: Response<WebBody>,
    /// The access to record; `None` if the response contains no data of datasets or files.
    pub access_record: Option<AccessRecord>,
}

/// A part of the file of a dataset, for a download over HTTP.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FilePart {
    /// Name of the dataset that is stored in the file.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Version of the dataset for which the part was determined.
    #[prost(fixed64, tag = "2")]
    pub version: u64,
    /// Start of the part as a byte offset in the file; a BGZF virtual offset (SAMv1 §4.1.1) if `recompress_ends` is
    /// true.
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// End of the part (exclusive), as the same kind of offset as `start`.
    #[prost(uint64, tag = "4")]
    pub end: u64,
    /// True if the part starts or ends within a BGZF block. The server then compresses the included data of that block
    /// again.
    #[prost(bool, tag = "5")]
    pub recompress_ends: bool,
}

/// The issuer and verifier of tokens for parts of files. A token is signed, and valid for one principal and a limited
/// time, like a Flight ticket.
pub trait FileTickets: fmt::Debug + Send + Sync {
    /// Returns the origin of the pool member from which the client should download bytes; `None` without a pool.
    fn origin(&self) -> Option<&str>;

    /// Issues a token by which a client can download a part of a file.
    fn issue_token(&self, principal: &Principal, part: FilePart) -> String;

    /// Verifies the token in the headers of a request; returns its principal and file part. The request needs no other
    /// credential.
    ///
    /// # Errors
    /// [`AuthError::Forbidden`] with an error message for the client.
    fn verify_token(&self, headers: &HeaderMap) -> Result<(Principal, FilePart), AuthError>;
}

/// A boxed future of a response, which may be sent to another thread.
pub type WebResponseFuture<'a> = Pin<Box<dyn Future<Output = WebResponse> + Send + 'a>>;

/// A service that answers HTTP requests that are not gRPC.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use godwit_dataset::web::{FileTickets, WebBody, WebRequest, WebResponse, WebResponseFuture, WebService};
///
/// #[derive(Debug)]
/// struct PathEcho;
///
/// impl WebService for PathEcho {
///     fn respond(&self, request: WebRequest, _tickets: Arc<dyn FileTickets>) -> WebResponseFuture<'_> {
///         let response = http::Response::new(WebBody::Full(request.path.into()));
///         Box::pin(std::future::ready(WebResponse { response, access_record: None }))
///     }
/// }
/// ```
pub trait WebService: fmt::Debug + Send + Sync + 'static {
    /// Answers a request. The server records the access of a streamed response when the response starts and when it
    /// ends.
    fn respond(&self, request: WebRequest, tickets: Arc<dyn FileTickets>) -> WebResponseFuture<'_>;
}
