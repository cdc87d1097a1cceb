//! refget 2.0 and 1.0 (GA4GH, <https://ga4gh.github.io/refget/sequences/>): sequences by digests of their bases.
//!
//! Flows in: HTTP requests with their principals. Flows out: bases and metadata of sequences. Sequences are those of the
//! server's references, which every authenticated principal may read, and of plain FASTA files below its root, for
//! principals that may read the whole file. Which sequences are circular is not known.

mod error;
mod reference_files;
mod request;
mod sequence_digests;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use godwit_flight::web::{SEQUENCE_PREFIX, WebBody, WebRequest};
use godwit_flight::{AccessRecord, Authorizer, Code, FileAccess, FileAuthorization, Principal, encode_base64_url};
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_RANGE, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::error::RefgetError;
use self::request::{MediaType, SequenceDigest, Subsequence};
use self::sequence_digests::{DigestCache, FileDigests, Sequence, stream_subsequence};
use crate::dataset_root::DatasetRoot;
use crate::file_store::{FileSnapshot, FileStore};
use crate::htsget::percent_decode;
use crate::http_service::{access_record, request_description, run_blocking};

/// Suffix of a metadata path.
const METADATA_SUFFIX: &str = "/metadata";

/// The refget service of a server.
#[derive(Debug)]
pub(crate) struct Refget {
    root: Arc<DatasetRoot>,
    rules: Option<Arc<dyn Authorizer>>,
    references: Vec<PathBuf>,
    digest_cache: DigestCache,
    /// Permits for lookups: requests that wait for one occupy no blocking threads.
    lookup_permits: Semaphore,
}

/// Lookups that run at a time, at most.
const MAX_CONCURRENT_LOOKUPS: usize = 4;

/// A requested sequence, and all sequences with the same bases in its file.
struct SequenceMatch {
    file: FileSnapshot,
    digests: Arc<FileDigests>,
    sequences: Vec<Sequence>,
}

impl SequenceMatch {
    fn first_sequence(&self) -> &Sequence {
        &self.sequences[0]
    }
}

/// A file that may hold a requested sequence.
struct SequenceSource {
    path: PathBuf,
    /// Dataset name; `None` for a reference.
    name: Option<String>,
}

type RefgetResult = Result<Response<WebBody>, RefgetError>;

impl Refget {
    pub(crate) fn new(root: Arc<DatasetRoot>, rules: Option<Arc<dyn Authorizer>>, references: Vec<PathBuf>) -> Self {
        Self {
            root,
            rules,
            references,
            digest_cache: DigestCache::default(),
            lookup_permits: Semaphore::new(MAX_CONCURRENT_LOOKUPS),
        }
    }

    /// Handles a request for bases, metadata or service info.
    pub(crate) async fn handle_request(
        self: &Arc<Self>,
        request: WebRequest,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let principal = match authenticate(&request) {
            Ok(caller) => caller,
            Err(response) => return (*response, None),
        };
        let answered = self.response(principal.clone(), &request).await;
        Self::response_and_record(&principal, "Refget", &request, answered)
    }

    /// Runs a lookup on a blocking thread when a permit is free.
    async fn run_lookup<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Self) -> Result<T, RefgetError> + Send + 'static,
    ) -> Result<T, RefgetError> {
        let _turn = self.lookup_permits.acquire().await;
        let this = self.clone();
        run_blocking(move || look(&this)).await?
    }

    /// Returns a response and its access record.
    fn response_and_record(
        principal: &Principal,
        call: &str,
        request: &WebRequest,
        answered: RefgetResult,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let outcome = answered.as_ref().err().map(|error| format!("{}: {error}", error.status().as_u16()));
        let response = answered.unwrap_or_else(|error| error_response(&error));
        let access = access_record(principal, call, request_description(request), outcome, &response);
        (response, Some(access))
    }

    async fn response(self: &Arc<Self>, principal: Principal, request: &WebRequest) -> RefgetResult {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(RefgetError::MethodNotAllowed);
        }
        let path = percent_decode(&request.path).unwrap_or_default();
        let rest = path.strip_prefix(SEQUENCE_PREFIX).unwrap_or_default().trim_end_matches('/');
        if rest == "service-info" {
            return Ok(json_response(MediaType::Json.negotiate(&request.headers)?, &service_info(&request.origin)));
        }
        let (digest, is_metadata) = match rest.strip_suffix(METADATA_SUFFIX) {
            Some(digest) => (digest, true),
            None => (rest, false),
        };
        let id = SequenceDigest::parse(digest).ok_or_else(|| RefgetError::NotFound { id: digest.to_owned() })?;
        let medium = if is_metadata { MediaType::Json } else { MediaType::Plain };
        let found = self.run_lookup(move |this| this.find_sequence(&principal, id)).await?;
        let found = found.ok_or_else(|| RefgetError::NotFound { id: digest.to_owned() })?;
        let kind = medium.negotiate(&request.headers)?;
        if is_metadata {
            return Ok(json_response(kind, &metadata_json(&found)));
        }
        sequence_response(&found, request, kind).await
    }

    /// Finds a sequence that a principal may see: in a reference, else in the first dataset that has it.
    fn find_sequence(&self, principal: &Principal, id: SequenceDigest) -> Result<Option<SequenceMatch>, RefgetError> {
        let references = self.references.iter().map(|path| SequenceSource { path: path.clone(), name: None });
        if let Some(found) = self.find_sequence_in(principal, id, references.collect())? {
            return Ok(Some(found));
        }
        let datasets = self.root.fasta_files()?.into_iter();
        self.find_sequence_in(
            principal,
            id,
            datasets.map(|(name, path)| SequenceSource { path, name: Some(name) }).collect(),
        )
    }

    fn find_sequence_in(
        &self,
        principal: &Principal,
        id: SequenceDigest,
        mut sources: Vec<SequenceSource>,
    ) -> Result<Option<SequenceMatch>, RefgetError> {
        // Files known to hold the digest are first, files that must be digested are last.
        sources.sort_by_cached_key(|source| {
            (!self.digest_cache.contains_digest(&source.path, id), self.digest_cache.is_uncached(&source.path))
        });
        for source in sources {
            let rule = match self.rule_for(principal, source.name.as_deref()) {
                Ok(rule) => rule,
                Err(_hidden) => continue,
            };
            let Some(seen) = FileStore::Local.snapshot(&source.path, &[], false)? else { continue };
            let Some(file) = seen.files.into_iter().next() else { continue };
            let digests = self.digest_cache.get_or_compute(&file)?;
            let sequences: Vec<Sequence> = digests.matching(id).cloned().collect();
            if !sequences.is_empty() {
                if let Some((name, rule)) = source.name.zip(rule) {
                    principal.accesses().add(&name, &rule);
                }
                return Ok(Some(SequenceMatch { file, digests, sequences }));
            }
        }
        Ok(None)
    }

    /// Returns the rule by which a principal may read all of a dataset; `None` without a policy, or for a reference.
    fn rule_for(&self, principal: &Principal, name: Option<&str>) -> Result<Option<String>, FileAuthorization> {
        let Some((rules, name)) = self.rules.as_ref().zip(name) else { return Ok(None) };
        match rules.authorize_file(principal, name, FileAccess::Read) {
            FileAuthorization::Allowed(rule) => Ok(Some(rule)),
            hidden => Err(hidden),
        }
    }
}

/// Returns the principal of a request.
///
/// # Errors
/// The response to an unauthenticated or unauthorized request.
fn authenticate(request: &WebRequest) -> Result<Principal, Box<Response<WebBody>>> {
    request.principal.clone().map_err(|status| {
        let problem = status.message().to_owned();
        Box::new(error_response(&match status.code() {
            Code::PermissionDenied => RefgetError::Forbidden { problem },
            _ => RefgetError::Unauthenticated { problem },
        }))
    })
}

/// Responds with the requested bases of a sequence.
async fn sequence_response(found: &SequenceMatch, request: &WebRequest, kind: &'static str) -> RefgetResult {
    let record = found.first_sequence().record.clone();
    let subsequence = Subsequence::from_request(request.query.as_deref().unwrap_or_default(), &request.headers)?;
    let wanted = subsequence.resolve(record.bases)?;
    let (file, known, range) = (found.file.clone(), found.digests.clone(), wanted.clone());
    let stream = run_blocking(move || stream_subsequence(&file, &known, &record, &range)).await??;
    let body = match wanted.is_empty() {
        true => WebBody::Full(Bytes::new()),
        false => WebBody::Stream { content_length: wanted.end - wanted.start, stream },
    };
    let mut response = Response::new(body);
    let bases = found.first_sequence().record.bases;
    let is_range = matches!(subsequence, Subsequence::Range { .. } | Subsequence::Suffix { .. });
    if is_range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {}-{}/{bases}", wanted.start, wanted.end - 1);
        response.headers_mut().extend(HeaderValue::try_from(range).ok().map(|range| (CONTENT_RANGE, range)));
    }
    let by_parameters = matches!(subsequence, Subsequence::StartEnd { .. });
    let ranges = HeaderValue::from_static(if by_parameters { "none" } else { "bytes" });
    response.headers_mut().insert(ACCEPT_RANGES, ranges);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn metadata_json(found: &SequenceMatch) -> Value {
    let Sequence { record, md5, sha512 } = found.first_sequence();
    let authority = found.file.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let names = found.sequences.iter().map(|sequence| &sequence.record.name);
    let aliases: Vec<Value> = names.map(|name| json!({ "alias": name, "naming_authority": authority })).collect();
    json!({ "metadata": {
        "md5": to_hex(md5),
        "ga4gh": format!("SQ.{}", encode_base64_url(sha512)),
        "trunc512": to_hex(sha512),
        "length": record.bases,
        "aliases": aliases,
    } })
}

/// Service info: GA4GH service-info 1.0 with the fields of refget 2.0; `service` holds the fields of version 1.
fn service_info(origin: &str) -> Value {
    let algorithms = json!(["md5", "ga4gh", "trunc512"]);
    json!({
        "id": "godwit.refget",
        "name": "godwit: sequences",
        "type": { "group": "org.ga4gh", "artifact": "refget-sequence", "version": "2.0.0" },
        "organization": { "name": "godwit", "url": origin },
        "version": env!("CARGO_PKG_VERSION"),
        "refget": {
            "circular_supported": false,
            "subsequence_limit": null,
            "algorithms": algorithms,
            "identifier_types": [],
        },
        "service": {
            "circular_supported": false,
            "subsequence_limit": null,
            "algorithms": algorithms,
            "supported_api_versions": ["1.0.0", "2.0.0"],
        },
    })
}

fn json_response(kind: &'static str, value: &Value) -> Response<WebBody> {
    // The content type declares ASCII: other characters are written as JSON escapes.
    let text = value.to_string().chars().fold(String::new(), |mut text, letter| {
        match letter.is_ascii() {
            true => text.push(letter),
            false => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}")),
        }
        text
    });
    let mut response = Response::new(WebBody::Full(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn error_response(error: &RefgetError) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from(format!("{error}\n"))));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match error {
        RefgetError::Unauthenticated { .. } => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        RefgetError::MethodNotAllowed => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        RefgetError::RangeNotSatisfiable { bases } => {
            let range = HeaderValue::try_from(format!("bytes */{bases}"));
            headers.extend(range.ok().map(|range| (CONTENT_RANGE, range)));
        }
        _ => {}
    }
    response
}
