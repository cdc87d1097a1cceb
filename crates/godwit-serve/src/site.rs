//! The page of a server, for browsers. It is part of the program and has nothing of what is served: what it shows, it asks for as its reader
//! (`godwit_flight`, what paths begin with [`API`](godwit_flight::web::API)).

use bytes::Bytes;
use godwit_flight::web::WebBody;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, Response, StatusCode};

/// What a page may do: run our scripts, ask this server, and be framed by nobody. igv.js styles what it draws, and hands pictures and
/// files to itself by `data:` and `blob:`.
const MAY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; \
    font-src data:; connect-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
struct File {
    path: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const FILES: [File; 5] = [
    File { path: "/", kind: "text/html; charset=utf-8", bytes: include_bytes!("../site/index.html") },
    File { path: "/site/page.css", kind: "text/css; charset=utf-8", bytes: include_bytes!("../site/page.css") },
    File { path: "/site/page.js", kind: "text/javascript; charset=utf-8", bytes: include_bytes!("../site/page.js") },
    File { path: "/site/icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../site/icon.svg") },
    // Empty where the program was built without it.
    File {
        path: "/site/igv.js",
        kind: "text/javascript; charset=utf-8",
        bytes: include_bytes!(concat!(env!("OUT_DIR"), "/igv.js")),
    },
];

/// The file at a path; `None` where there is none.
pub(crate) fn file(path: &str, method: &Method) -> Option<Response<WebBody>> {
    let found = FILES.iter().find(|file| file.path == path && !file.bytes.is_empty())?;
    let mut response = Response::new(WebBody::Whole(Bytes::from_static(found.bytes)));
    if !matches!(*method, Method::GET | Method::HEAD) {
        response = Response::new(WebBody::Whole(Bytes::new()));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Some(response);
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, found.kind),
        (CONTENT_SECURITY_POLICY, MAY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the program has other files.
        (CACHE_CONTROL, "no-cache"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// There is none of that name: igv.js, where the program was built without it.
pub(crate) fn none() -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::from_static(b"this server has no such file\n")));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there_and_may_be_had() {
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        let named: Vec<&str> = page.split(['"', '\'']).filter(|word| word.starts_with("/site/")).collect();
        assert!(named.len() >= 3, "{named:?}");
        for path in named {
            let response = file(path, &Method::GET).unwrap_or_else(|| panic!("there is no {path}"));
            assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], MAY);
        }
        assert_eq!(file("/", &Method::POST).unwrap().status(), StatusCode::METHOD_NOT_ALLOWED);
        assert!(file("/site/", &Method::GET).is_none() && file("/site/../Cargo.toml", &Method::GET).is_none());
        assert!(!page.contains("<script>") && !page.contains("onclick"), "scripts in the page would not be run");
    }
}
