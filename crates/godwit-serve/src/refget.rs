//! refget 2.0 and 1.0 (GA4GH, <https://ga4gh.github.io/refget/sequences/>): sequences by digests of their letters.
//!
//! Flows in: requests over plain HTTP, with who asks. Flows out: letters, and what is known of a sequence. Sequences are those of the
//! references that a server was given, which are for whoever is let in, and of plain FASTA files below its root, which are for who may see
//! all of them. Which sequences are circles is not known.

mod error;
mod question;
mod reference_files;
mod sequences;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use godwit_flight::web::{SEQUENCES, WebBody, WebRequest};
use godwit_flight::{Accessed, Caller, Code, FileUse, FileVerdict, Rules, encode_base64_url};
use http::header::{ACCEPT_RANGES, ALLOW, CONTENT_RANGE, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::error::RefgetError;
use self::question::{Id, Letters, Medium};
use self::sequences::{Digested, KnownFiles, Sequence, letters};
use crate::htsget::percent_decoded;
use crate::pages::{accessed, blocking, described};
use crate::root::Root;
use crate::store::{SeenFile, Store};

/// What a path ends with that is about a sequence.
const METADATA: &str = "/metadata";

/// The sequences of a server, by refget.
#[derive(Debug)]
pub(crate) struct Refget {
    root: Arc<Root>,
    rules: Option<Arc<dyn Rules>>,
    references: Vec<PathBuf>,
    known: KnownFiles,
    /// Threads that look for sequences: those who wait for one keep none waiting that is for others.
    looking: Semaphore,
}

/// Threads that look for sequences at a time.
const LOOKING: usize = 4;

/// A sequence that was asked for, and all of the same letters in its file.
struct Found {
    file: SeenFile,
    known: Arc<Digested>,
    sequences: Vec<Sequence>,
}

impl Found {
    fn first(&self) -> &Sequence {
        &self.sequences[0]
    }
}

/// Where sequences may be.
struct Source {
    path: PathBuf,
    /// The dataset that it is; `None` for a reference.
    name: Option<String>,
}

type Answered = Result<Response<WebBody>, RefgetError>;

impl Refget {
    pub(crate) fn new(root: Arc<Root>, rules: Option<Arc<dyn Rules>>, references: Vec<PathBuf>) -> Self {
        Self { root, rules, references, known: KnownFiles::default(), looking: Semaphore::new(LOOKING) }
    }

    /// Letters, what is known of a sequence, or what the service is.
    pub(crate) async fn answer(self: &Arc<Self>, request: WebRequest) -> (Response<WebBody>, Option<Accessed>) {
        let caller = match whoever(&request) {
            Ok(caller) => caller,
            Err(response) => return (*response, None),
        };
        let answered = self.answer_to(caller.clone(), &request).await;
        Self::answered(&caller, "Refget", &request, answered)
    }

    /// Looks for something on a thread that may wait, in turn.
    async fn looked_up<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Self) -> Result<T, RefgetError> + Send + 'static,
    ) -> Result<T, RefgetError> {
        let _turn = self.looking.acquire().await;
        let this = self.clone();
        blocking(move || look(&this)).await?
    }

    /// An answer, and what is recorded of it.
    fn answered(
        caller: &Caller,
        call: &str,
        request: &WebRequest,
        answered: Answered,
    ) -> (Response<WebBody>, Option<Accessed>) {
        let outcome = answered.as_ref().err().map(|error| format!("{}: {error}", error.status().as_u16()));
        let response = answered.unwrap_or_else(|error| shown_error(&error));
        let access = accessed(caller, call, described(request), outcome, &response);
        (response, Some(access))
    }

    async fn answer_to(self: &Arc<Self>, caller: Caller, request: &WebRequest) -> Answered {
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return Err(RefgetError::Method);
        }
        let path = percent_decoded(&request.path).unwrap_or_default();
        let rest = path.strip_prefix(SEQUENCES).unwrap_or_default().trim_end_matches('/');
        if rest == "service-info" {
            return Ok(json_answer(Medium::Json.accepted(&request.headers)?, &service_info(&request.origin)));
        }
        let (digest, is_metadata) = match rest.strip_suffix(METADATA) {
            Some(digest) => (digest, true),
            None => (rest, false),
        };
        let id = Id::parse(digest).ok_or_else(|| RefgetError::NotFound { id: digest.to_owned() })?;
        let medium = if is_metadata { Medium::Json } else { Medium::Plain };
        let found = self.looked_up(move |this| this.find(&caller, id)).await?;
        let found = found.ok_or_else(|| RefgetError::NotFound { id: digest.to_owned() })?;
        let kind = medium.accepted(&request.headers)?;
        if is_metadata {
            return Ok(json_answer(kind, &metadata(&found)));
        }
        sequence_answer(&found, request, kind).await
    }

    /// A sequence that a caller may see: of a reference, else of the first file that has it.
    fn find(&self, caller: &Caller, id: Id) -> Result<Option<Found>, RefgetError> {
        let references = self.references.iter().map(|path| Source { path: path.clone(), name: None });
        if let Some(found) = self.find_in(caller, id, references.collect())? {
            return Ok(Some(found));
        }
        let datasets = self.root.fasta_files()?.into_iter();
        self.find_in(caller, id, datasets.map(|(name, path)| Source { path, name: Some(name) }).collect())
    }

    fn find_in(&self, caller: &Caller, id: Id, mut sources: Vec<Source>) -> Result<Option<Found>, RefgetError> {
        // Files that had it before come first, and those that have to be read through last.
        sources.sort_by_cached_key(|source| (!self.known.had(&source.path, id), self.known.is_new(&source.path)));
        for source in sources {
            let rule = match self.rule_for(caller, source.name.as_deref()) {
                Ok(rule) => rule,
                Err(_hidden) => continue,
            };
            let Some(seen) = Store::Here.find(&source.path, &[], false)? else { continue };
            let Some(file) = seen.files.into_iter().next() else { continue };
            let known = self.known.of(&file)?;
            let sequences: Vec<Sequence> = known.with(id).cloned().collect();
            if !sequences.is_empty() {
                if let Some((name, rule)) = source.name.zip(rule) {
                    caller.touches().add(&name, &rule);
                }
                return Ok(Some(Found { file, known, sequences }));
            }
        }
        Ok(None)
    }

    /// By which rule a caller may see all of a dataset; `None` where there are no rules, or it is a reference.
    fn rule_for(&self, caller: &Caller, name: Option<&str>) -> Result<Option<String>, FileVerdict> {
        let Some((rules, name)) = self.rules.as_ref().zip(name) else { return Ok(None) };
        match rules.file(caller, name, FileUse::Read) {
            FileVerdict::Allowed(rule) => Ok(Some(rule)),
            hidden => Err(hidden),
        }
    }
}

/// Who asks.
///
/// # Errors
/// The answer to somebody who is not let in.
fn whoever(request: &WebRequest) -> Result<Caller, Box<Response<WebBody>>> {
    request.caller.clone().map_err(|status| {
        let problem = status.message().to_owned();
        Box::new(shown_error(&match status.code() {
            Code::PermissionDenied => RefgetError::Forbidden { problem },
            _ => RefgetError::Unknown { problem },
        }))
    })
}

/// Letters of a sequence, as they are asked for.
async fn sequence_answer(found: &Found, request: &WebRequest, kind: &'static str) -> Answered {
    let record = found.first().record.clone();
    let asked = Letters::of(request.query.as_deref().unwrap_or_default(), &request.headers)?;
    let wanted = asked.within(record.bases)?;
    let (file, known, range) = (found.file.clone(), found.known.clone(), wanted.clone());
    let stream = blocking(move || letters(&file, &known, &record, &range)).await??;
    let body = match wanted.is_empty() {
        true => WebBody::Whole(Bytes::new()),
        false => WebBody::Stream { bytes: wanted.end - wanted.start, stream },
    };
    let mut response = Response::new(body);
    let bases = found.first().record.bases;
    let is_range = matches!(asked, Letters::Range { .. } | Letters::Last { .. });
    if is_range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {}-{}/{bases}", wanted.start, wanted.end - 1);
        response.headers_mut().extend(HeaderValue::try_from(range).ok().map(|range| (CONTENT_RANGE, range)));
    }
    let by_parameters = matches!(asked, Letters::Between { .. });
    let ranges = HeaderValue::from_static(if by_parameters { "none" } else { "bytes" });
    response.headers_mut().insert(ACCEPT_RANGES, ranges);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // A string takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn metadata(found: &Found) -> Value {
    let Sequence { record, md5, sha512 } = found.first();
    let authority = found.file.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let names = found.sequences.iter().map(|sequence| &sequence.record.name);
    let aliases: Vec<Value> = names.map(|name| json!({ "alias": name, "naming_authority": authority })).collect();
    json!({ "metadata": {
        "md5": hexadecimal(md5),
        "ga4gh": format!("SQ.{}", encode_base64_url(sha512)),
        "trunc512": hexadecimal(sha512),
        "length": record.bases,
        "aliases": aliases,
    } })
}

/// GA4GH service-info 1.0, as refget 2.0 extends it; `service` is what version 1 had.
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

fn json_answer(kind: &'static str, value: &Value) -> Response<WebBody> {
    // The type says ASCII: letters beyond it are written as JSON escapes them.
    let text = value.to_string().chars().fold(String::new(), |mut text, letter| {
        match letter.is_ascii() {
            true => text.push(letter),
            false => letter.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}")),
        }
        text
    });
    let mut response = Response::new(WebBody::Whole(Bytes::from(text)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn shown_error(error: &RefgetError) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::from(format!("{error}\n"))));
    *response.status_mut() = error.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    match error {
        RefgetError::Unknown { .. } => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        RefgetError::Method => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        RefgetError::Range { bases } => {
            let range = HeaderValue::try_from(format!("bytes */{bases}"));
            headers.extend(range.ok().map(|range| (CONTENT_RANGE, range)));
        }
        _ => {}
    }
    response
}
