//! Responses to HTTP requests that are not gRPC, as the server sends them: the errors of streamed bodies are statuses.

use bytes::Bytes;
use http::{Response, StatusCode};
use tonic::Status;

/// The body of an HTTP response of the server.
pub type WebBody = godwit_dataset::web::WebBody<Status>;

/// The chunks of a streamed response body of the server.
pub(crate) type WebStream = godwit_dataset::web::WebStream<Status>;

/// The name of the principal that made the request, attached to the response as an extension.
#[derive(Clone, Debug)]
pub(crate) struct ResponsePrincipal(pub(crate) String);

/// Returns a response with this status and a plain text body.
pub(crate) fn text_response(status: StatusCode, text: &str) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from(format!("{text}\n"))));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
