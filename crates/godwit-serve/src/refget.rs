//! refget 2.0 and 1.0 (GA4GH, <https://ga4gh.github.io/refget/sequences/>), which serves sequences by the digests of
//! their bases.
//!
//! The service responds to authenticated requests with the bases or the metadata of a sequence. It serves the sequences
//! of the server's references, which every authenticated principal may read. It also serves the sequences of FASTA
//! files below the root, but only to principals that may read the whole file. The service does not know which sequences
//! are circular.

mod error;
mod reference_files;
mod request;
mod sequence_digests;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use godwit_dataset::web::{SEQUENCE_PREFIX, WebBody, WebRequest};
use godwit_dataset::{
    AccessRecord, AuthError, Authorizer, FileAccess, FileAuthorization, Principal, encode_base64_url, percent_decode,
};
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_RANGE, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::error::RefgetError;
use self::request::{MediaType, SequenceDigest, Subsequence};
use self::sequence_digests::{DigestCache, FileDigests, Sequence, stream_subsequence};
use crate::dataset_root::DatasetRoot;
use crate::file_snapshot::FileSnapshot;
use crate::file_store::FileStore;
use crate::http_request::{access_record, request_description, run_blocking};

/// Suffix of the URL path that requests the metadata of a sequence.
const METADATA_SUFFIX: &str = "/metadata";

/// The refget service of a data server.
#[derive(Debug)]
pub(crate) struct Refget {
    root: Arc<DatasetRoot>,
    rules: Option<Arc<dyn Authorizer>>,
    references: Vec<PathBuf>,
    digest_cache: DigestCache,
    /// Permits for concurrent lookups. A request that waits for a permit does not occupy a blocking thread.
    lookup_permits: Semaphore,
}

/// Maximum number of concurrent lookups.
const MAX_CONCURRENT_LOOKUPS: usize = 4;

/// The sequence that a request found: its file, and all sequences in this file with the requested digest.
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

/// A FASTA file that may contain a requested sequence.
struct SequenceSource {
    path: PathBuf,
    /// Name of the dataset; `None` if the file is one of the server's references.
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

    /// Responds to a request for bases, metadata or service info.
    pub(crate) async fn handle_request(
        self: &Arc<Self>,
        request: WebRequest,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let principal = match authenticate(&request) {
            Ok(caller) => caller,
            Err(response) => return (*response, None),
        };
        let outcome = self.response(principal.clone(), &request).await;
        Self::response_and_record(&principal, "Refget", &request, outcome)
    }

    /// Waits for a permit and then runs a lookup on a blocking thread.
    async fn run_lookup<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Self) -> Result<T, RefgetError> + Send + 'static,
    ) -> Result<T, RefgetError> {
        let _turn = self.lookup_permits.acquire().await;
        let this = self.clone();
        run_blocking(move || look(&this)).await?
    }

    /// Returns the HTTP response for a result, and the access record for the audit log.
    fn response_and_record(
        principal: &Principal,
        call: &str,
        request: &WebRequest,
        outcome: RefgetResult,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let problem = outcome.as_ref().err().map(|error| format!("{}: {error}", error.status().as_u16()));
        let response = outcome.unwrap_or_else(|error| error_response(&error));
        let access = access_record(principal, call, request_description(request), problem, &response);
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

    /// Finds a sequence in the references or, if none has it, in the datasets that the principal may read.
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
        // Search first in files that are known to contain the digest, and last in files whose digests are not known
        // yet.
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

    /// Returns the policy rule by which a principal may read the whole dataset; `None` if there is no policy, or for a
    /// reference.
    fn rule_for(&self, principal: &Principal, name: Option<&str>) -> Result<Option<String>, FileAuthorization> {
        let Some((rules, name)) = self.rules.as_ref().zip(name) else { return Ok(None) };
        match rules.authorize_file(principal, name, FileAccess::Read) {
            FileAuthorization::Allowed(rule) => Ok(Some(rule)),
            hidden => Err(hidden),
        }
    }
}

/// Returns the principal that sent a request.
///
/// # Errors
/// The HTTP response that rejects an unauthenticated or unauthorized request.
fn authenticate(request: &WebRequest) -> Result<Principal, Box<Response<WebBody>>> {
    request.principal.clone().map_err(|error| {
        Box::new(error_response(&match error {
            AuthError::Forbidden { problem } => RefgetError::Forbidden { problem },
            AuthError::Unauthenticated { problem } => RefgetError::Unauthenticated { problem },
        }))
    })
}

/// Returns a response with the requested bases of a sequence.
async fn sequence_response(found: &SequenceMatch, request: &WebRequest, kind: &'static str) -> RefgetResult {
    let record = found.first_sequence().record.clone();
    let subsequence = Subsequence::from_request(request.query.as_deref().unwrap_or_default(), &request.headers)?;
    let wanted = subsequence.resolve(record.bases)?;
    let (file, known, range) = (found.file.clone(), found.digests.clone(), wanted.clone());
    let stream = run_blocking(move || stream_subsequence(&file, &known, &record, &range)).await??;
    let body = match wanted.is_empty() {
        true => WebBody::Full(Bytes::new()),
        false => WebBody::Stream { content_length: Some(wanted.end - wanted.start), stream },
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

fn metadata_json(found: &SequenceMatch) -> Value {
    let Sequence { record, md5, sha512 } = found.first_sequence();
    let authority = found.file.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let names = found.sequences.iter().map(|sequence| &sequence.record.name);
    let aliases: Vec<Value> = names.map(|name| json!({ "alias": name, "naming_authority": authority })).collect();
    json!({ "metadata": {
        "md5": hex::encode(md5),
        "ga4gh": format!("SQ.{}", encode_base64_url(sha512)),
        "trunc512": hex::encode(sha512),
        "length": record.bases,
        "aliases": aliases,
    } })
}

/// Returns the service info: GA4GH service-info 1.0 with the extensions of refget 2.0. The field `service` contains the
/// service info of refget 1.0.
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
    // The content type declares the charset ASCII, so write all other characters as JSON escapes.
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
