//! What a server of files answers over plain HTTP: htsget, refget and a page, and to browsers which sites may read the answers.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use godwit_flight::web::{
    FileTickets, REFERENCES, Replying, SEQUENCES, SITE, WebBody, WebReply, WebRequest, WebService,
};
use godwit_flight::{Accessed, Caller, Rules};
use http::header::{HeaderName, ORIGIN, VARY};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri};

use crate::htsget::Htsget;
use crate::refget::Refget;
use crate::root::Root;
use crate::site;

/// Bytes of a request that are recorded.
const RECORDED_BYTES: usize = 4096;
/// How long a browser may remember what it was let ask, seconds (htsget 1.3, "CORS").
const REMEMBERED_S: &str = "2592000";

/// What of a server its pages depend on.
#[derive(Clone, Debug, Default)]
pub struct PagesOptions {
    /// Who may see what; `None`: whoever is let in sees everything.
    pub rules: Option<Arc<dyn Rules>>,
    /// Where clients find this server, as `https://HOST[:PORT][/PATH]`; `None`: where they found it.
    pub public_url: Option<String>,
    /// FASTA files whose sequences are for whoever is let in.
    pub references: Vec<PathBuf>,
}

/// The pages of a root.
#[derive(Debug)]
pub struct Pages {
    htsget: Htsget,
    refget: Arc<Refget>,
}

impl Pages {
    /// Of the files of a root.
    pub fn new(root: Arc<Root>, options: PagesOptions) -> Self {
        let PagesOptions { rules, public_url, references } = options;
        let refget = Arc::new(Refget::new(root.clone(), rules.clone(), references));
        Self { htsget: Htsget::new(root, rules, public_url), refget }
    }

    async fn reply(&self, request: WebRequest, tickets: FileTickets) -> WebReply {
        if let Some(response) = site::file(&request.path, &request.method) {
            return WebReply { response, access: None };
        }
        if request.path.starts_with(SITE) {
            return WebReply { response: site::none(), access: None };
        }
        let origin = allowed_origin(&request);
        let (mut response, access) = match request.method {
            Method::OPTIONS => (preflight(&request.headers), None),
            _ if request.path.starts_with(SEQUENCES) => self.refget.answer(request).await,
            _ if request.path.starts_with(REFERENCES) => self.refget.reference(request).await,
            _ => self.htsget.answer(request, tickets).await,
        };
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            headers.insert(http::header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        WebReply { response, access }
    }
}

impl WebService for Pages {
    fn answer(&self, request: WebRequest, tickets: FileTickets) -> Replying<'_> {
        Box::pin(self.reply(request, tickets))
    }
}

/// Work that panicked.
#[derive(Debug, thiserror::Error)]
#[error("a bug in godwit: {0}")]
pub(crate) struct BrokenWork(#[from] tokio::task::JoinError);

/// Work that waits for files.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, BrokenWork> {
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// What was asked, for the record.
pub(crate) fn described(request: &WebRequest) -> String {
    let query = request.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let body = request.body.as_deref().unwrap_or_default();
    let mut text = format!("{} {}{query} {}", request.method, request.path, String::from_utf8_lossy(body));
    text.truncate(text.trim_end().len());
    if text.len() > RECORDED_BYTES {
        let end = text.floor_char_boundary(RECORDED_BYTES);
        text = format!("{}… ({} bytes)", &text[..end], text.len());
    }
    text
}

/// What is recorded of an answer; `problem` is what went wrong. Bytes of one that is streamed are counted as they leave.
pub(crate) fn accessed(
    caller: &Caller,
    call: &str,
    what: String,
    problem: Option<String>,
    response: &Response<WebBody>,
) -> Accessed {
    let bytes = match response.body() {
        WebBody::Whole(bytes) if problem.is_none() => bytes.len() as u64,
        WebBody::Whole(_) | WebBody::Stream { .. } => 0,
    };
    Accessed {
        who: caller.name().to_owned(),
        call: call.to_owned(),
        what,
        touched: caller.touches().all(),
        bytes,
        outcome: problem.unwrap_or_else(|| "done".to_owned()),
        ..Accessed::default()
    }
}

/// The site whose pages may read an answer. Where callers show who they are, any: a page has to have a token. Where nobody is
/// asked, only sites of this machine: else whatever page somebody looks at could read what the machine serves to itself.
fn allowed_origin(request: &WebRequest) -> Option<HeaderValue> {
    let origin = request.headers.get(ORIGIN)?;
    let is_local = || {
        let host = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok())?;
        let host = host.host()?.trim_matches(['[', ']']).to_ascii_lowercase();
        let address = host.parse::<std::net::IpAddr>();
        Some(host == "localhost" || address.is_ok_and(|address| address.is_loopback()))
    };
    (!request.is_open || is_local() == Some(true)).then(|| origin.clone())
}

/// What a browser is told that asks whether it may ask.
fn preflight(asked: &HeaderMap) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let mut tell = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    tell(http::header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS");
    tell(http::header::ACCESS_CONTROL_MAX_AGE, REMEMBERED_S);
    let wanted = asked.get(http::header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let wanted = wanted.unwrap_or_else(|| HeaderValue::from_static("Authorization, Content-Type"));
    headers.insert(http::header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(origin: &str, is_open: bool) -> WebRequest {
        WebRequest {
            caller: Ok(Caller::default()),
            is_open,
            origin: "http://localhost:1".to_owned(),
            method: Method::POST,
            path: "/reads/x".to_owned(),
            query: Some("a=b".to_owned()),
            headers: HeaderMap::from_iter([(ORIGIN, origin.parse().unwrap())]),
            body: Some(Bytes::from_static(b"{}")),
        }
    }

    #[test]
    fn pages_of_other_sites_read_nothing_where_nobody_is_asked_who_they_are() {
        let allowed = |origin: &str, is_open| allowed_origin(&request(origin, is_open)).is_some();
        for origin in ["http://localhost:8000", "https://127.0.0.1", "http://[::1]:3"] {
            assert!(allowed(origin, true) && allowed(origin, false), "{origin}");
        }
        for origin in ["https://example.org", "null", "http://localhost.example.org", "http://10.0.0.1"] {
            assert!(!allowed(origin, true) && allowed(origin, false), "{origin}");
        }
    }

    #[test]
    fn what_is_recorded_of_a_request_is_bounded() {
        assert_eq!(described(&request("null", true)), "POST /reads/x?a=b {}");
        let long = WebRequest { body: Some(Bytes::from("é".repeat(9000))), ..request("null", true) };
        let text = described(&long);
        assert!(text.len() < RECORDED_BYTES + 40 && text.ends_with("… (18018 bytes)"), "{}", &text[4000..]);
    }
}
