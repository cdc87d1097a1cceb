//! References as files, for genome browsers that read ranges of indexed FASTA files. `/references/N.fa` is the FASTA
//! file and `/references/N.fa.fai` its index. N is the 0-based position among the server's `--reference` options.
//! `/references/` lists all references.

use std::sync::Arc;

use bytes::Bytes;
use godwit_dataset::AccessRecord;
use godwit_dataset::web::{REFERENCES_PREFIX, WebBody, WebRequest};
use godwit_formats::fasta::write_fai;
use godwit_io::bgzf::ChunkBlocks;
use http::header::{ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_NONE_MATCH, IF_RANGE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::error::RefgetError;
use super::request::Subsequence;
use super::sequence_digests::FileDigests;
use super::{Refget, RefgetResult, authenticate, json_response};
use crate::file_snapshot::FileSnapshot;
use crate::file_store::FileStore;
use crate::htsget::stream_bytes;
use crate::http_request::run_blocking;

impl Refget {
    /// Responds to a request for the list of references, a reference, a byte range of it, or its index.
    pub(crate) async fn handle_reference_request(
        self: &Arc<Self>,
        request: WebRequest,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let principal = match authenticate(&request) {
            Ok(caller) => caller,
            Err(response) => return (*response, None),
        };
        let outcome = self.reference_response(&request).await;
        Self::response_and_record(&principal, "Reference", &request, outcome)
    }

    async fn reference_response(self: &Arc<Self>, request: &WebRequest) -> RefgetResult {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(RefgetError::MethodNotAllowed);
        }
        let name = request.path.strip_prefix(REFERENCES_PREFIX).unwrap_or_default();
        let (number, is_index) = match name.strip_suffix(".fai") {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name.is_empty() {
            let count = self.references.len();
            let there = self
                .run_lookup(move |this| (0..count).map(|number| Ok(this.reference_file(number)?.is_some())).collect());
            let there: Vec<bool> = there.await?;
            let numbers: Vec<usize> = (0..count).filter(|number| there[*number]).collect();
            return Ok(json_response("application/json", &json!({ "references": numbers })));
        }
        let none = || RefgetError::NotFound { id: name.to_owned() };
        let number: usize = number.strip_suffix(".fa").and_then(|number| number.parse().ok()).ok_or_else(none)?;
        let (file, known) = self.run_lookup(move |this| this.reference_file(number)).await?.ok_or_else(none)?;
        let tag = etag_of(&file);
        if matches_etag(&request.headers, &tag) {
            let mut unchanged = Response::new(WebBody::Full(Bytes::new()));
            *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(with_etag(unchanged, tag));
        }
        if is_index {
            let mut text = Vec::new();
            // Writing to a vector in memory cannot fail.
            let _ = write_fai(&known.records(), &mut text);
            return Ok(with_etag(
                with_content_type(Response::new(WebBody::Full(Bytes::from(text))), "text/plain; charset=utf-8"),
                tag,
            ));
        }
        // `If-Range` contains another ETag, so the file has changed and the client has ranges of the old one. Send the
        // whole file instead of a range (RFC 9110 §13.1.5).
        let is_another = request.headers.get(IF_RANGE).is_some_and(|named| *named != tag);
        let subsequence = if is_another { Subsequence::All } else { Subsequence::from_request("", &request.headers)? };
        let source = known.text_source(run_blocking(move || FileStore::Local.open(&file)).await??);
        let all = source.byte_len();
        let block_range = subsequence.resolve(all)?;
        let range = format!("bytes {}-{}/{all}", block_range.start, block_range.end.saturating_sub(1));
        let content_length = Some(block_range.end - block_range.start);
        let stream = stream_bytes(source, ChunkBlocks { block_range, ..ChunkBlocks::default() });
        let mut response = with_content_type(Response::new(WebBody::Stream { content_length, stream }), "text/x-fasta");
        response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if subsequence != Subsequence::All {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            response.headers_mut().extend(HeaderValue::try_from(range).ok().map(|range| (CONTENT_RANGE, range)));
        }
        Ok(with_etag(response, tag))
    }

    /// Returns a reference and its digests; `None` if there is no reference with this number, or its file does not
    /// permit random access.
    fn reference_file(&self, number: usize) -> Result<Option<(FileSnapshot, Arc<FileDigests>)>, RefgetError> {
        let Some(path) = self.references.get(number) else { return Ok(None) };
        let seen = FileStore::Local.snapshot(path, &[], false)?;
        let Some(file) = seen.and_then(|seen| seen.files.into_iter().next()) else { return Ok(None) };
        let known = self.digest_cache.get_or_compute(&file)?;
        Ok(Some((file, known)).filter(|(_, known)| known.has_sequences()))
    }
}

/// Returns the ETag for a state of a reference, which also identifies the index that is computed from it (RFC 9110
/// §8.8.3).
fn etag_of(file: &FileSnapshot) -> HeaderValue {
    let number = xxh3_64_with_seed(&file.fingerprint, file.bytes);
    HeaderValue::try_from(format!("\"{number:016x}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Returns whether the header `If-None-Match` contains this ETag (RFC 9110 §13.1.2).
fn matches_etag(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let all = headers.get_all(IF_NONE_MATCH);
    let mut tags = all.iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    tags.any(|named| named == b"*" || named.strip_prefix(b"W/").unwrap_or(named) == tag.as_bytes())
}

fn with_etag(mut response: Response<WebBody>, tag: HeaderValue) -> Response<WebBody> {
    response.headers_mut().insert(ETAG, tag);
    response
}

fn with_content_type(mut response: Response<WebBody>, kind: &'static str) -> Response<WebBody> {
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
