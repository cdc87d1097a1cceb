//! The HTTP service of a data server: htsget, refget and the web page, with CORS headers for browsers.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use godwit_dataset::Authorizer;
use godwit_dataset::web::{
    FileTickets, NFS_HEALTH_PATH, REFERENCES_PREFIX, SEQUENCE_PREFIX, SITE_PREFIX, WebBody, WebRequest, WebResponse,
    WebResponseFuture, WebService,
};
use http::header::{HeaderName, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};

use crate::dataset_root::DatasetRoot;
use crate::health_check::{HealthCheck, nfs_health_response};
use crate::htsget::Htsget;
use crate::refget::Refget;
use crate::site;

/// Number of seconds for which a browser may cache the response to a preflight request (htsget 1.3, "CORS").
const PREFLIGHT_MAX_AGE_S: &str = "2592000";

/// The options of the HTTP service.
#[derive(Clone, Debug, Default)]
pub struct HttpServiceOptions {
    /// The access policy; `None` if every authenticated principal may read all datasets.
    pub rules: Option<Arc<dyn Authorizer>>,
    /// URL under which clients reach this server, in the form `https://HOST[:PORT][/PATH]`; `None` to use the origin of
    /// each request.
    pub public_url: Option<String>,
    /// Paths of FASTA files whose sequences every authenticated principal may read.
    pub references: Vec<PathBuf>,
    /// The health check of the files over NFS; `None` if the server does not serve them.
    pub nfs_health: Option<HealthCheck>,
}

/// The HTTP service for the datasets of a root.
#[derive(Debug)]
pub struct HttpService {
    htsget: Htsget,
    refget: Arc<Refget>,
    nfs_health: Option<HealthCheck>,
}

impl HttpService {
    /// Creates the HTTP service for the datasets of a root.
    pub fn new(root: Arc<DatasetRoot>, options: HttpServiceOptions) -> Self {
        let HttpServiceOptions { rules, public_url, references, nfs_health } = options;
        let refget = Arc::new(Refget::new(root.clone(), rules.clone(), references));
        Self { htsget: Htsget::new(root, rules, public_url), refget, nfs_health }
    }

    async fn route(&self, request: WebRequest, tickets: Arc<dyn FileTickets>) -> WebResponse {
        if let Some(response) = site::file_response(&request.path, &request.method) {
            return WebResponse { response, access_record: None };
        }
        if request.path.starts_with(SITE_PREFIX) {
            return WebResponse { response: site::not_found_response(), access_record: None };
        }
        if request.path == NFS_HEALTH_PATH {
            let response = nfs_health_response(self.nfs_health.as_ref(), &request.method).await;
            return WebResponse { response, access_record: None };
        }
        let origin = allowed_origin(&request);
        let (mut response, access_record) = match request.method {
            Method::OPTIONS => (preflight_response(&request.headers), None),
            _ if request.path.starts_with(SEQUENCE_PREFIX) => self.refget.handle_request(request).await,
            _ if request.path.starts_with(REFERENCES_PREFIX) => self.refget.handle_reference_request(request).await,
            _ => self.htsget.handle_request(request, tickets).await,
        };
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            headers.insert(http::header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        WebResponse { response, access_record }
    }
}

impl WebService for HttpService {
    fn respond(&self, request: WebRequest, tickets: Arc<dyn FileTickets>) -> WebResponseFuture<'_> {
        Box::pin(self.route(request, tickets))
    }
}

/// Returns the value of `Access-Control-Allow-Origin` for a response. If the server requires authentication, every
/// origin is allowed, because a page needs a token. Otherwise only local origins are allowed, so that a foreign page in
/// the browser cannot read data that a server on the same machine serves without authentication.
fn allowed_origin(request: &WebRequest) -> Option<HeaderValue> {
    let origin = request.headers.get(ORIGIN)?;
    let is_local = || {
        let host = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok())?;
        let host = host.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let address = host.parse::<std::net::IpAddr>();
        Some(host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
    };
    (!request.is_auth_disabled || is_local() == Some(true)).then(|| origin.clone())
}

/// Returns the response to a CORS preflight request.
fn preflight_response(request_headers: &HeaderMap) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let mut insert_header =
        |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    insert_header(http::header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS");
    insert_header(http::header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_S);
    let wanted = request_headers.get(http::header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let wanted = wanted.unwrap_or_else(|| HeaderValue::from_static("Authorization, Content-Type"));
    headers.insert(http::header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    response
}

#[cfg(test)]
mod tests {
    use godwit_dataset::Principal;

    use super::*;

    fn request(origin: &str, is_auth_disabled: bool) -> WebRequest {
        WebRequest {
            principal: Ok(Principal::default()),
            is_auth_disabled,
            origin: "http://localhost:1".to_owned(),
            method: Method::POST,
            path: "/reads/x".to_owned(),
            query: Some("a=b".to_owned()),
            headers: HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]),
            body: Some(Bytes::from_static(b"{}")),
        }
    }

    #[test]
    fn pages_of_other_sites_read_nothing_where_no_authentication_is_required() {
        let allowed = |origin: &str, is_open| allowed_origin(&request(origin, is_open)).is_some();
        for origin in ["http://localhost:8000", "https://127.0.0.1", "http://[::1]:3"] {
            assert!(allowed(origin, true) && allowed(origin, false), "{origin}");
        }
        for origin in ["https://example.org", "null", "http://localhost.example.org", "http://10.0.0.1"] {
            assert!(!allowed(origin, true) && allowed(origin, false), "{origin}");
        }
    }
}
