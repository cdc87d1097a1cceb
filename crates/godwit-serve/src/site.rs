//! The web page of a data server. Its files are part of the program and contain no data. Its script requests data with
//! the token of the user, at paths that begin with [`API_PREFIX`](godwit_dataset::web::API_PREFIX).

use bytes::Bytes;
use godwit_dataset::web::WebBody;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Response, StatusCode};

/// Content security policy of the page. The page may run its own scripts and send requests to its own server, and other
/// pages must not embed it. igv.js sets inline styles, and passes images and files to itself in `data:` and `blob:`
/// URLs.
const PAGE_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; \
    font-src data:; connect-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the web page.
struct SiteFile {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
}

const SITE_FILES: [SiteFile; 5] = [
    SiteFile { path: "/", content_type: "text/html; charset=utf-8", bytes: include_bytes!("../site/index.html") },
    SiteFile {
        path: "/site/page.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("../site/page.css"),
    },
    SiteFile {
        path: "/site/page.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("../site/page.js"),
    },
    SiteFile { path: "/site/icon.svg", content_type: "image/svg+xml", bytes: include_bytes!("../site/icon.svg") },
    // The content is empty if the program was built without igv.js.
    SiteFile {
        path: "/site/igv.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/igv.js")),
    },
];

/// Returns the response with the page's file at a URL path; `None` if there is no such file.
pub(crate) fn file_response(path: &str, method: &Method) -> Option<Response<WebBody>> {
    let found = SITE_FILES.iter().find(|file| file.path == path && !file.bytes.is_empty())?;
    let mut response = Response::new(WebBody::Full(Bytes::from_static(found.bytes)));
    if !matches!(*method, Method::GET | Method::HEAD) {
        response = Response::new(WebBody::Full(Bytes::new()));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, found.content_type),
        (CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Make the browser check for a new version on each use, because another version of the program has other files.
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// Returns the response for a missing file of the page, such as igv.js if the program was built without it.
pub(crate) fn not_found_response() -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from_static(b"not found on this server\n")));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there_and_may_be_had() {
        let page = std::str::from_utf8(SITE_FILES[0].bytes).unwrap();
        let named: Vec<&str> = page.split(['"', '\'']).filter(|word| word.starts_with("/site/")).collect();
        assert!(named.len() >= 3, "{named:?}");
        for path in named {
            let response = file_response(path, &Method::GET).unwrap_or_else(|| panic!("there is no {path}"));
            assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], PAGE_SECURITY_POLICY);
        }
        assert_eq!(file_response("/", &Method::POST).unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(
            file_response("/site/", &Method::GET).is_none()
                && file_response("/site/../Cargo.toml", &Method::GET).is_none()
        );
        assert!(!page.contains("<script>") && !page.contains("onclick"), "scripts in the page would not be run");
    }
}
