//! The health check of a part of the server that another crate implements, such as the files over NFS.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use godwit_dataset::web::WebBody;
use http::header::ALLOW;
use http::{HeaderValue, Method, Response, StatusCode};

/// The result of a [`HealthCheck`].
type HealthFuture = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A function that checks whether a part of the server works.
#[derive(Clone)]
pub struct HealthCheck(Arc<dyn Fn() -> HealthFuture + Send + Sync>);

impl HealthCheck {
    /// Creates a check from a function that returns true if the part works.
    pub fn new<F>(check: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(check())))
    }
}

impl fmt::Debug for HealthCheck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HealthCheck").finish_non_exhaustive()
    }
}

/// Returns the response to a request for the health of the files over NFS; `None` is a server without them.
pub(crate) async fn nfs_health_response(check: Option<&HealthCheck>, method: &Method) -> Response<WebBody> {
    let (code, text) = match check {
        _ if !matches!(*method, Method::GET | Method::HEAD) => {
            (StatusCode::METHOD_NOT_ALLOWED, "this path accepts only the methods GET and HEAD\n")
        }
        None => (StatusCode::NOT_FOUND, "this server does not serve files over NFS\n"),
        Some(HealthCheck(check)) => match check().await {
            true => (StatusCode::OK, "SERVING\n"),
            false => (StatusCode::SERVICE_UNAVAILABLE, "NOT_SERVING\n"),
        },
    };
    let mut response = Response::new(WebBody::Full(text.into()));
    *response.status_mut() = code;
    if code == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_health_of_nfs_is_the_result_of_its_check() {
        let check = |is_healthy: bool| HealthCheck::new(move || std::future::ready(is_healthy));
        for (check, method, expected) in [
            (Some(check(true)), Method::GET, 200),
            (Some(check(false)), Method::GET, 503),
            (Some(check(true)), Method::POST, 405),
            (None, Method::HEAD, 404),
        ] {
            assert_eq!(nfs_health_response(check.as_ref(), &method).await.status(), expected);
        }
    }
}
