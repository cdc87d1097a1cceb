//! Serves HTTP requests that are not gRPC: health checks, metrics, and the web service.

use std::net::IpAddr;
use std::pin::Pin;

use godwit_dataset::AuthError;
use godwit_dataset::web::{API_PREFIX, NFS_HEALTH_PATH, WebRequest};
use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tonic::Status;

use super::response_body::{ResponseBody, attach_permit, http_response};
use super::{DataPlane, OUT_OF_SCOPE, ServerState};
use crate::call_type::CallType;
use crate::metrics::RejectionReason;
use crate::socket_handle::SocketHandle;
use crate::transport::Address;
use crate::web::{ResponsePrincipal, WebBody, text_response};
use godwit_auth::Authenticator;

/// Maximum size of the body of an HTTP request, bytes; sufficient for a list of thousands of regions.
const MAX_BODY_BYTES: usize = 1 << 20;

impl<D: DataPlane> ServerState<D> {
    /// Answers a request that is not gRPC.
    pub(super) async fn serve_http(
        &self,
        request: Request<Incoming>,
        socket_handle: SocketHandle,
        call_type: CallType,
    ) -> Response<ResponseBody> {
        let method = request.method().clone();
        let is_misdirected = call_type != CallType::Health && self.is_misdirected(&request);
        let is_for_nfs = request.uri().path() == NFS_HEALTH_PATH;
        if !is_misdirected && (is_for_nfs || !matches!(call_type, CallType::Health | CallType::Metrics)) {
            return http_response(self.serve_page(request, socket_handle, call_type).await, &method);
        }
        let (head, body) = request.into_parts();
        // Read the whole body before answering: a request may turn out to be malformed only at its end (RFC 9113
        // §8.1.1).
        let answer = match self.read_body(body, |_| ()).await {
            Err(refused) => refused,
            Ok(_) if is_misdirected => {
                self.count_rejection(RejectionReason::Host);
                let text = "this server has no authentication, so it accepts only requests with the name of its own \
                            host; use localhost";
                text_response(StatusCode::MISDIRECTED_REQUEST, text)
            }
            Ok(_) if call_type == CallType::Health => {
                allow_get_only(&method, || text_response(StatusCode::OK, "SERVING"))
            }
            Ok(_) => self.metrics_response(&head, socket_handle),
        };
        http_response(answer, &method)
    }

    /// Reads the body of a request, and passes up to [`MAX_BODY_BYTES`] to `each`, piece by piece. Returns false if the
    /// body is longer. If reading fails, the error is the response to send.
    async fn read_body(&self, body: Incoming, each: impl FnMut(&[u8])) -> Result<bool, Response<WebBody>> {
        match tokio::time::timeout(self.options.connect_timeout, read_limited(body, each)).await {
            Ok(read) => read.map_err(|_| text_response(StatusCode::BAD_REQUEST, "the request was interrupted")),
            Err(_) => Err(text_response(StatusCode::REQUEST_TIMEOUT, "the request timed out")),
        }
    }

    /// Returns whether a request must be rejected because it may come from a foreign web page (DNS rebinding): the
    /// server listens on a loopback address without authentication, but the request names another host.
    fn is_misdirected(&self, request: &Request<Incoming>) -> bool {
        let is_local = matches!(self.address, Address::Tcp(address) if address.ip().is_loopback());
        is_local
            && matches!(self.authenticator, Authenticator::Disabled)
            && request_authority(request).is_some_and(|host| !is_loopback_host(host.host()))
    }

    fn metrics_response(&self, head: &Parts, socket_handle: SocketHandle) -> Response<WebBody> {
        let principal = match self.authenticate(&head.headers, socket_handle) {
            Ok(principal) => principal,
            Err(error) => return unauthorized_response(&error),
        };
        if principal.scope().is_some() {
            self.count_rejection(RejectionReason::Scope);
            return text_response(StatusCode::FORBIDDEN, OUT_OF_SCOPE);
        }
        let Some(metrics) = self.data_plane.metrics() else {
            return text_response(StatusCode::NOT_FOUND, "this server does not offer metrics");
        };
        allow_get_only(&head.method, || {
            let (kind, text) = metrics.encode_text(&head.headers);
            let mut answer = Response::new(WebBody::Full(text.into()));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            answer
        })
    }

    async fn serve_page(
        &self,
        request: Request<Incoming>,
        socket_handle: SocketHandle,
        call_type: CallType,
    ) -> Response<WebBody> {
        let principal = match call_type {
            // The request contains an htsget ticket, which the web service verifies.
            CallType::HtsgetData => Err(AuthError::unauthenticated("a ticket is required")),
            // The web page itself needs no authentication, so that users can enter their token in it.
            CallType::Page if !request.uri().path().starts_with(API_PREFIX) => {
                Err(AuthError::unauthenticated("no authentication is required"))
            }
            // Neither health checks nor CORS preflight requests (Fetch standard, "CORS-preflight fetch") have credentials.
            _ if request.method() == Method::OPTIONS || call_type == CallType::Health => {
                Err(AuthError::unauthenticated("no authentication is required"))
            }
            _ => self.authenticate(request.headers(), socket_handle),
        };
        let principal = principal.and_then(|caller| match caller.scope() {
            None => Ok(caller),
            Some(_) => {
                self.count_rejection(RejectionReason::Scope);
                Err(AuthError::forbidden(OUT_OF_SCOPE))
            }
        });
        let permit = match principal.as_ref().map_or(Ok(None), |principal| self.acquire_permit(principal)) {
            Ok(permit) => permit,
            Err(status) => return too_many_requests_response(&status),
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let found_at = request_authority(&request).map_or_else(|| self.address.to_string(), |found| found.to_string());
        let is_auth_disabled = matches!(self.authenticator, Authenticator::Disabled);
        let (head, body) = request.into_parts();
        let mut bytes = Vec::new();
        let body = match self.read_body(body, |piece| bytes.extend_from_slice(piece)).await {
            Ok(is_all) => is_all.then(|| bytes.into()),
            Err(refused) => return refused,
        };
        let web_request = WebRequest {
            principal,
            is_auth_disabled,
            origin: format!("{scheme}://{found_at}"),
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: head.headers,
            body,
        };
        let answer = self.data_plane.respond_http(web_request).await;
        // If the request contains a ticket, its principal is known only after the web service has verified the ticket.
        let named = answer.extensions().get::<ResponsePrincipal>().map(|named| named.0.clone());
        let permit = match named.filter(|_| permit.is_none()).map(|name| self.acquire_permit_for(&name)).transpose() {
            Ok(found) => permit.or(found.flatten()),
            Err(status) => return too_many_requests_response(&status),
        };
        attach_permit(answer, permit)
    }
}

/// Passes the pieces of a request body to `each`. If the body is longer than [`MAX_BODY_BYTES`], omits further pieces
/// and returns `false`.
async fn read_limited(mut body: Incoming, mut each: impl FnMut(&[u8])) -> Result<bool, hyper::Error> {
    let mut left = MAX_BODY_BYTES;
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let piece = frame?.into_data().unwrap_or_default();
        let Some(rest) = left.checked_sub(piece.len()) else { return Ok(false) };
        left = rest;
        each(&piece);
    }
    Ok(true)
}

/// Returns `answer` for GET and HEAD requests, and an error response for other methods.
fn allow_get_only(method: &Method, answer: impl FnOnce() -> Response<WebBody>) -> Response<WebBody> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return answer();
    }
    let mut refused = text_response(StatusCode::METHOD_NOT_ALLOWED, "this path accepts only the methods GET and HEAD");
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

/// Returns the HTTP response to a request without valid credentials (RFC 9110 §11.6.1).
fn unauthorized_response(error: &AuthError) -> Response<WebBody> {
    let mut refused = text_response(StatusCode::UNAUTHORIZED, &error.to_string());
    refused.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

/// Returns the HTTP response to a principal with too many open calls (RFC 6585 §4).
fn too_many_requests_response(status: &Status) -> Response<WebBody> {
    let mut refused = text_response(StatusCode::TOO_MANY_REQUESTS, status.message());
    refused.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    refused
}

/// Returns the host name and port in a request: the pseudo-header `:authority` of HTTP/2, or the header `Host` of
/// HTTP/1.1.
fn request_authority(request: &Request<Incoming>) -> Option<Authority> {
    let of_header = || Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok();
    request.uri().authority().cloned().or_else(of_header)
}

/// Returns whether a host name or address is a loopback address, which only processes of this host can reach.
fn is_loopback_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = bare.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || bare.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_names_are_distinguished_from_others() {
        for host in ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in ["example.org", "localhost.example.org", "10.0.0.1", "127.0.0.1.nip.io", "[2001:db8::1]", ""] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
