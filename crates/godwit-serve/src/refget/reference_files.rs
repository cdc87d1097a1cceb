//! References as files, for genome browsers that read stretches of FASTA by an index: `/references/N.fa` and `/references/N.fa.fai`, N
//! counted from 0 in the order in which a server was given them. `/references/` lists those that there are.

use std::sync::Arc;

use bytes::Bytes;
use godwit_flight::Accessed;
use godwit_flight::web::{REFERENCES, WebBody, WebRequest};
use godwit_formats::bgzf::Cut;
use godwit_formats::fasta::write_fai;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::RefgetError;
use super::question::Letters;
use super::sequences::Digested;
use super::{Answered, Refget, json_answer, whoever};
use crate::htsget::streamed;
use crate::pages::blocking;
use crate::store::{SeenFile, Store};

impl Refget {
    /// A reference, or a stretch of it, or its index.
    pub(crate) async fn reference(self: &Arc<Self>, request: WebRequest) -> (Response<WebBody>, Option<Accessed>) {
        let caller = match whoever(&request) {
            Ok(caller) => caller,
            Err(response) => return (*response, None),
        };
        let answered = self.reference_to(&request).await;
        Self::answered(&caller, "Reference", &request, answered)
    }

    async fn reference_to(self: &Arc<Self>, request: &WebRequest) -> Answered {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(RefgetError::Method);
        }
        let name = request.path.strip_prefix(REFERENCES).unwrap_or_default();
        let (number, is_index) = match name.strip_suffix(".fai") {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name.is_empty() {
            let count = self.references.len();
            let there = self
                .looked_up(move |this| (0..count).map(|number| Ok(this.reference_file(number)?.is_some())).collect());
            let there: Vec<bool> = there.await?;
            let numbers: Vec<usize> = (0..count).filter(|number| there[*number]).collect();
            return Ok(json_answer("application/json", &json!({ "references": numbers })));
        }
        let none = || RefgetError::NotFound { id: name.to_owned() };
        let number: usize = number.strip_suffix(".fa").and_then(|number| number.parse().ok()).ok_or_else(none)?;
        let (file, known) = self.looked_up(move |this| this.reference_file(number)).await?.ok_or_else(none)?;
        let tag = tag_of(&file);
        if is_known(&request.headers, &tag) {
            let mut unchanged = Response::new(WebBody::Whole(Bytes::new()));
            *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(with_tag(unchanged, tag));
        }
        if is_index {
            let mut text = Vec::new();
            // A vector takes whatever is written to it.
            let _ = write_fai(&known.records(), &mut text);
            return Ok(with_tag(
                with_kind(Response::new(WebBody::Whole(Bytes::from(text))), "text/plain; charset=utf-8"),
                tag,
            ));
        }
        // A stretch of a file that is another by now is of no use to whoever has the rest of the former (RFC 9110 §13.1.5).
        let is_another = request.headers.get(IF_RANGE).is_some_and(|named| *named != tag);
        let asked = if is_another { Letters::All } else { Letters::of("", &request.headers)? };
        let source = known.text(blocking(move || Store::Here.open(&file)).await??);
        let all = source.bytes();
        let whole = asked.within(all)?;
        let range = format!("bytes {}-{}/{all}", whole.start, whole.end.saturating_sub(1));
        let bytes = whole.end - whole.start;
        let stream = streamed(source, Cut { whole, ..Cut::default() });
        let mut response = with_kind(Response::new(WebBody::Stream { bytes, stream }), "text/x-fasta");
        response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if asked != Letters::All {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().extend(HeaderValue::try_from(range).ok().map(|range| (CONTENT_RANGE, range)));
        }
        Ok(with_tag(response, tag))
    }

    /// A reference and its index; `None` where there is none of that number, or it cannot be read at any place.
    fn reference_file(&self, number: usize) -> Result<Option<(SeenFile, Arc<Digested>)>, RefgetError> {
        let Some(path) = self.references.get(number) else { return Ok(None) };
        let seen = Store::Here.find(path, &[], false)?;
        let Some(file) = seen.and_then(|seen| seen.files.into_iter().next()) else { return Ok(None) };
        let known = self.known.of(&file)?;
        Ok(Some((file, known)).filter(|(_, known)| known.has_any()))
    }
}

/// What names this state of a file, and of what is made from it (RFC 9110 §8.8.3).
fn tag_of(file: &SeenFile) -> HeaderValue {
    let number = xxh3_64_with_seed(&file.state, file.bytes);
    HeaderValue::try_from(format!("\"{number:016x}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether the one who asks has what a tag names (RFC 9110 §13.1.2).
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let all = headers.get_all(IF_NONE_MATCH);
    let mut tags = all.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    tags.any(|named| named == b"*" || named.strip_prefix(b"W/").unwrap_or(named) == tag.as_bytes())
}

fn with_tag(mut response: Response<WebBody>, tag: HeaderValue) -> Response<WebBody> {
    response.headers_mut().insert(ETAG, tag);
    response
}

fn with_kind(mut response: Response<WebBody>, kind: &'static str) -> Response<WebBody> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
