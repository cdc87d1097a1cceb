//! What is asked over plain HTTP: whether the server is well, what it counts, and pages of whoever serves data.

use std::net::IpAddr;
use std::pin::Pin;

use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use tonic::Status;

use super::reply::{Reply, page, seated};
use super::{DataPlane, GRANTED_ONLY, Plane};
use crate::gate::Gate;
use crate::metrics::{RefusedFor, Verb};
use crate::transport::Address;
use crate::web::{API, AnsweredTo, WebBody, WebRequest, plain};
use crate::wire::Wire;

/// Most bytes that come with a request: a list of thousands of regions.
const BODY_LIMIT_BYTES: usize = 1 << 20;

impl<D: DataPlane> Plane<D> {
    /// Answers a request that is no gRPC.
    pub(super) async fn page(&self, request: Request<Incoming>, wire: Wire, verb: Verb) -> Response<Reply> {
        let method = request.method().clone();
        let is_misdirected = verb != Verb::Health && self.is_misdirected(&request);
        if !is_misdirected && !matches!(verb, Verb::Health | Verb::Metrics) {
            return page(self.served(request, wire, verb).await, &method);
        }
        let (head, body) = request.into_parts();
        // What is wrong with a request may come at its end, and whoever answers before has not seen it (RFC 9113 §8.1.1).
        let answer = match self.read(body, |_| ()).await {
            Err(refused) => refused,
            Ok(_) if is_misdirected => {
                self.refuse(RefusedFor::Host);
                let text = "this server answers to the names of its own machine only, for nobody is asked who they are; ask localhost";
                plain(StatusCode::MISDIRECTED_REQUEST, text)
            }
            Ok(_) if verb == Verb::Health => with_methods(&method, || plain(StatusCode::OK, "SERVING")),
            Ok(_) => self.counted(&head, wire),
        };
        page(answer, &method)
    }

    /// Gives what comes with a request to `each`, piece by piece, to its end or to the first piece above what is taken: whether all of
    /// it was given, or what to answer where it does not come.
    async fn read(&self, body: Incoming, each: impl FnMut(&[u8])) -> Result<bool, Response<WebBody>> {
        match tokio::time::timeout(self.tuning.connect_timeout, read_to_end(body, each)).await {
            Ok(read) => read.map_err(|_| plain(StatusCode::BAD_REQUEST, "the request broke off")),
            Err(_) => Err(plain(StatusCode::REQUEST_TIMEOUT, "the request did not come in time")),
        }
    }

    /// Where only this machine reaches a server, and nobody is asked who they are, a page of the web must not either: a name that
    /// leads here and is called by a browser (DNS rebinding) is not one of this machine.
    fn is_misdirected(&self, request: &Request<Incoming>) -> bool {
        let is_local = matches!(self.address, Address::Tcp(address) if address.ip().is_loopback());
        is_local && matches!(self.gate, Gate::Open) && authority(request).is_some_and(|host| !is_loopback(host.host()))
    }

    fn counted(&self, head: &Parts, wire: Wire) -> Response<WebBody> {
        let caller = match self.admit(&head.headers, wire) {
            Ok(caller) => caller,
            Err(status) => return unauthenticated(&status),
        };
        if caller.purpose().is_some() {
            self.refuse(RefusedFor::Grant);
            return plain(StatusCode::FORBIDDEN, GRANTED_ONLY);
        }
        let Some(metrics) = self.data.metrics() else {
            return plain(StatusCode::NOT_FOUND, "nothing is counted here");
        };
        with_methods(&head.method, || {
            let (kind, text) = metrics.told(&head.headers);
            let mut answer = Response::new(WebBody::Whole(text.into()));
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            answer
        })
    }

    async fn served(&self, request: Request<Incoming>, wire: Wire, verb: Verb) -> Response<WebBody> {
        let caller = match verb {
            // It shows a ticket, which whoever made it knows again.
            Verb::HtsgetData => Err(Status::unauthenticated("a ticket is asked for")),
            // Whoever may see nothing may see where to show a token.
            Verb::Page if !request.uri().path().starts_with(API) => Err(Status::unauthenticated("nobody is asked")),
            // A page of another site asks beforehand whether it may ask, and shows nothing (Fetch, "CORS-preflight fetch").
            _ if request.method() == Method::OPTIONS => Err(Status::unauthenticated("nobody is asked")),
            _ => self.admit(request.headers(), wire),
        };
        let caller = caller.and_then(|caller| match caller.purpose() {
            None => Ok(caller),
            Some(_) => {
                self.refuse(RefusedFor::Grant);
                Err(Status::permission_denied(GRANTED_ONLY))
            }
        });
        let seat = match caller.as_ref().map_or(Ok(None), |caller| self.enter(caller)) {
            Ok(seat) => seat,
            Err(status) => return crowded(&status),
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let found_at = authority(&request).map_or_else(|| self.address.to_string(), |found| found.to_string());
        let is_open = matches!(self.gate, Gate::Open);
        let (head, body) = request.into_parts();
        let mut bytes = Vec::new();
        let body = match self.read(body, |piece| bytes.extend_from_slice(piece)).await {
            Ok(is_all) => is_all.then(|| bytes.into()),
            Err(refused) => return refused,
        };
        let asked = WebRequest {
            caller,
            is_open,
            origin: format!("{scheme}://{found_at}"),
            method: head.method,
            path: head.uri.path().to_owned(),
            query: head.uri.query().map(str::to_owned),
            headers: head.headers,
            body,
        };
        let answer = self.data.page(asked).await;
        // Who shows a ticket is known only by whoever reads it.
        let named = answer.extensions().get::<AnsweredTo>().map(|named| named.0.clone());
        let seat = match named.filter(|_| seat.is_none()).map(|name| self.enter_as(&name)).transpose() {
            Ok(found) => seat.or(found.flatten()),
            Err(status) => return crowded(&status),
        };
        seated(answer, seat)
    }
}

/// Gives all pieces of a body of at most [`BODY_LIMIT_BYTES`]; of a longer one those that fit, and `false`.
async fn read_to_end(mut body: Incoming, mut each: impl FnMut(&[u8])) -> Result<bool, hyper::Error> {
    let mut left = BODY_LIMIT_BYTES;
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let piece = frame?.into_data().unwrap_or_default();
        let Some(rest) = left.checked_sub(piece.len()) else { return Ok(false) };
        left = rest;
        each(&piece);
    }
    Ok(true)
}

/// What is read, and not written.
fn with_methods(method: &Method, answer: impl FnOnce() -> Response<WebBody>) -> Response<WebBody> {
    if matches!(*method, Method::GET | Method::HEAD) {
        return answer();
    }
    let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "this is read with GET");
    refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    refused
}

/// RFC 9110 §11.6.1.
fn unauthenticated(status: &Status) -> Response<WebBody> {
    let mut refused = plain(StatusCode::UNAUTHORIZED, status.message());
    refused.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    refused
}

/// Whoever has as many calls open as it may (RFC 6585 §4).
fn crowded(status: &Status) -> Response<WebBody> {
    let mut refused = plain(StatusCode::TOO_MANY_REQUESTS, status.message());
    refused.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
    refused
}

/// The name and port that a server was called by: the pseudo-header of HTTP/2, or the header of HTTP/1.1.
fn authority(request: &Request<Incoming>) -> Option<Authority> {
    let of_header = || Authority::try_from(request.headers().get(HOST)?.as_bytes()).ok();
    request.uri().authority().cloned().or_else(of_header)
}

/// Whether a name or address is one that no other machine has.
fn is_loopback(host: &str) -> bool {
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
    fn names_of_this_machine_are_told_from_others() {
        for host in ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.org", "localhost.example.org", "10.0.0.1", "127.0.0.1.nip.io", "[2001:db8::1]", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
