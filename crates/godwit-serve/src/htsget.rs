//! htsget 1.3 (GA4GH, <https://samtools.github.io/hts-specs/htsget.html>), which serves regions of BAM, CRAM, VCF and
//! BCF files.
//!
//! The service answers an authenticated request with a ticket, which contains the URLs of data blocks, and then serves
//! the bytes of these blocks. A signed token gives access to a block. The token is valid for one principal, one state
//! of the file and a limited time. Rows and columns cannot be masked in file bytes, so principals with restricted
//! access get no tickets. The parameters `fields`, `tags` and `notags` are validated, but the responses contain all
//! fields and tags.

mod byte_stream;
mod error;
mod file_layout;
mod request;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use godwit_dataset::web::{FILE_DATA_PATH, FilePart, FileTickets, READS_PREFIX, VARIANTS_PREFIX, WebBody, WebRequest};
use godwit_dataset::{
    AccessRecord, AuthError, Authorizer, Catalog as _, DatasetError, FileAccess, FileAuthorization, Principal,
    encode_base64, percent_decode,
};
use godwit_io::bgzf::{ChunkBlocks, extract_chunk};
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::byte_stream::stream_bytes;
use self::error::HtsgetError;
use self::file_layout::{DataBlock, FileLayout, TicketPlan};
use self::request::HtsgetRequest;
use crate::dataset_root::{DatasetRoot, HtsgetFile, HtsgetFormat};
use crate::http_request::{access_record, request_description, run_blocking};
use crate::read_error::dataset_error;

/// Content type of JSON responses, including the protocol version.
const JSON_CONTENT_TYPE: &str = "application/vnd.ga4gh.htsget.v1.3.0+json; charset=utf-8";
/// Maximum number of file layouts in the cache.
const MAX_CACHED_LAYOUTS: usize = 64;
/// The htsget service for the aligned reads and variants below a root. Clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Htsget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Arc<DatasetRoot>,
    /// The access policy; `None` if every authenticated principal may read all datasets.
    rules: Option<Arc<dyn Authorizer>>,
    /// URL under which clients reach this server; `None` to use the origin of each request.
    public_url: Option<String>,
    layouts: Mutex<HashMap<String, Arc<FileLayout>>>,
}

/// Type of data that an htsget endpoint serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datatype {
    Reads,
    Variants,
}

impl Datatype {
    fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Variants => "variants",
        }
    }

    /// Returns the names of the formats for this type of data. The first one is the default.
    fn formats(self) -> [&'static str; 2] {
        match self {
            Self::Reads => ["BAM", "CRAM"],
            Self::Variants => ["VCF", "BCF"],
        }
    }

    fn includes(self, kind: HtsgetFormat) -> bool {
        match self {
            Self::Reads => matches!(kind, HtsgetFormat::Bam | HtsgetFormat::Cram),
            Self::Variants => kind == HtsgetFormat::Vcf,
        }
    }
}

/// An htsget ticket, which is the response to a request for data.
#[derive(Debug, Serialize)]
struct Ticket {
    format: &'static str,
    urls: Vec<TicketUrl>,
}

#[derive(Debug, Serialize)]
struct TicketUrl {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
}

type HtsgetResult = Result<Response<WebBody>, HtsgetError>;

impl Htsget {
    /// Creates the htsget service for the datasets of a root.
    pub(crate) fn new(root: Arc<DatasetRoot>, rules: Option<Arc<dyn Authorizer>>, public_url: Option<String>) -> Self {
        Self { inner: Arc::new(Inner { root, rules, public_url, layouts: Mutex::default() }) }
    }

    /// Responds to a request for a ticket, for the bytes of a data block, or for service info.
    pub(crate) async fn handle_request(
        &self,
        request: WebRequest,
        tickets: Arc<dyn FileTickets>,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        match &*request.path {
            FILE_DATA_PATH => self.handle_data_request(&request, &*tickets).await,
            _ => self.handle_ticket_request(request, tickets).await,
        }
    }

    /// Responds to a request for a ticket or for service info.
    async fn handle_ticket_request(
        &self,
        request: WebRequest,
        tickets: Arc<dyn FileTickets>,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        let principal = match &request.principal {
            Ok(caller) => caller.clone(),
            Err(error) => return (error_response(&authentication_error(error)), None),
        };
        let what = request_description(&request);
        let outcome = self.ticket_response(principal.clone(), request, tickets).await;
        response_and_record(&principal, "Htsget", what, outcome)
    }

    async fn ticket_response(
        &self,
        principal: Principal,
        request: WebRequest,
        tickets: Arc<dyn FileTickets>,
    ) -> HtsgetResult {
        let (datatype, id) = if let Some(id) = request.path.strip_prefix(READS_PREFIX) {
            (Datatype::Reads, id)
        } else if let Some(id) = request.path.strip_prefix(VARIANTS_PREFIX) {
            (Datatype::Variants, id)
        } else {
            return Err(HtsgetError::NotFound { problem: format!("there is no endpoint {}", request.path) });
        };
        let question = match request.method {
            Method::GET | Method::HEAD if id == "service-info" => {
                return Ok(json_response(&service_info(datatype, &request.origin)));
            }
            Method::GET | Method::HEAD => HtsgetRequest::from_query(request.query.as_deref().unwrap_or_default())?,
            Method::POST if request.query.is_some_and(|query| !query.is_empty()) => {
                return Err(HtsgetError::invalid_input(
                    "parameters of a POST request belong in the body, not in the query string",
                ));
            }
            Method::POST => {
                let too_large = || HtsgetError::PayloadTooLarge {
                    problem: "the body of the request is larger than 1 MiB".to_owned(),
                };
                HtsgetRequest::from_body(&request.body.ok_or_else(too_large)?)?
            }
            ref other => {
                return Err(HtsgetError::invalid_input(format!(
                    "{other} is not supported for tickets; use GET or POST"
                )));
            }
        };
        let name = percent_decode(id)
            .ok_or_else(|| HtsgetError::NotFound { problem: format!("{id:?} is not a valid name") })?;
        let this = self.clone();
        let lookup_principal = principal.clone();
        let (file, layout) = run_blocking(move || {
            let file = this.authorized_file(&lookup_principal, &name)?;
            if !datatype.includes(file.format) {
                return Err(DatasetError::NotFound { name }.into());
            }
            let layout = this.cached_layout(&file)?;
            Ok::<_, HtsgetError>((file, layout))
        })
        .await??;
        let wanted = question.format.as_deref().unwrap_or(datatype.formats()[0]);
        if wanted != layout.format {
            let problem = format!("{} has the format {}; request it with format={1}", file.name, layout.format);
            return Err(HtsgetError::UnsupportedFormat { problem });
        }
        let plan = layout.plan_ticket(&question, &file.name)?;
        let asked_at = tickets.origin().unwrap_or(&request.origin);
        let found_at = self.inner.public_url.as_deref().unwrap_or(asked_at).trim_end_matches('/');
        let url = format!("{found_at}{FILE_DATA_PATH}");
        let ticket = build_ticket(&plan, &layout, &url, question.header_only, |block| {
            let DataBlock { start, end, has_virtual_offsets: recompress_ends, .. } = *block;
            tickets.issue_token(
                &principal,
                FilePart { name: file.name.clone(), version: layout.version, start, end, recompress_ends },
            )
        });
        Ok(json_response(&json!({ "htsget": ticket })))
    }

    /// Responds to a request for the bytes of a data block.
    async fn handle_data_request(
        &self,
        request: &WebRequest,
        tickets: &dyn FileTickets,
    ) -> (Response<WebBody>, Option<AccessRecord>) {
        if !request.headers.contains_key(AUTHORIZATION) {
            let problem =
                "the request lacks the headers that the ticket lists; send them with each request for data".to_owned();
            return (error_response(&HtsgetError::InvalidAuthentication { problem }), None);
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return (error_response(&HtsgetError::invalid_input("only GET is supported for data URLs")), None);
        }
        let (principal, part) = match tickets.verify_token(&request.headers) {
            Ok(read) => read,
            Err(error) => return (error_response(&authentication_error(&error)), None),
        };
        let what = format!("{} {}-{}", part.name, part.start, part.end);
        let outcome = self.data_response(principal.clone(), part).await;
        response_and_record(&principal, "HtsgetData", what, outcome)
    }

    async fn data_response(&self, principal: Principal, part: FilePart) -> HtsgetResult {
        let this = self.clone();
        let (source, cut) = run_blocking(move || {
            // The token is valid, but the policy or the file may have changed since it was issued.
            let gone = |_| HtsgetError::PermissionDenied {
                problem: format!(
                    "this ticket is not valid for {} any more: the rules or the file have changed; request a new \
                     ticket",
                    part.name
                ),
            };
            let file = this.authorized_file(&principal, &part.name).map_err(gone)?;
            if file.snapshot.version != part.version {
                return Err(gone(HtsgetError::from(DatasetError::Changed { name: part.name.clone() })));
            }
            let source = this.inner.root.store().open(file.snapshot.single_file()?)?;
            let cut = match part.recompress_ends {
                true => extract_chunk(&source, part.start, part.end).map_err(dataset_error)?,
                false => {
                    ChunkBlocks { block_range: part.start..part.end.min(source.byte_len()), ..ChunkBlocks::default() }
                }
            };
            Ok::<_, HtsgetError>((source, cut))
        })
        .await??;
        let body = WebBody::Stream { content_length: Some(cut.byte_len()), stream: stream_bytes(source, cut) };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    }

    /// Returns the current file of a dataset if the principal may read all of it.
    fn authorized_file(&self, principal: &Principal, name: &str) -> Result<HtsgetFile, HtsgetError> {
        let Inner { root, rules, .. } = &*self.inner;
        let hidden = || DatasetError::NotFound { name: name.to_owned() };
        if let Some(rules) = rules {
            let canonical = root.canonical_name(name).map_err(|_| hidden())?;
            match rules.authorize_file(principal, &canonical, FileAccess::Read) {
                FileAuthorization::Allowed(rule) => principal.accesses().add(&canonical, &rule),
                FileAuthorization::Hidden => return Err(hidden().into()),
                FileAuthorization::Denied { problem } => return Err(HtsgetError::PermissionDenied { problem }),
            }
        }
        Ok(root.htsget_file(name)?)
    }

    /// Returns the layout of a file. The layout is read only once for each state of the file.
    fn cached_layout(&self, file: &HtsgetFile) -> Result<Arc<FileLayout>, HtsgetError> {
        let known = || self.inner.layouts.lock();
        if let Some(found) = known().get(&file.name).filter(|found| found.version == file.snapshot.version) {
            return Ok(found.clone());
        }
        let layout = Arc::new(FileLayout::open(&self.inner.root, file)?);
        let mut known = known();
        if known.len() >= MAX_CACHED_LAYOUTS {
            known.clear();
        }
        known.insert(file.name.clone(), layout.clone());
        Ok(layout)
    }
}

/// Returns the HTTP response for a result, and the access record for the audit log.
fn response_and_record(
    principal: &Principal,
    call: &str,
    what: String,
    outcome: HtsgetResult,
) -> (Response<WebBody>, Option<AccessRecord>) {
    let problem = outcome.as_ref().err().map(|error| format!("{}: {error}", error.name_and_status().0));
    let response = outcome.unwrap_or_else(|error| error_response(&error));
    let access = access_record(principal, call, what, problem, &response);
    (response, Some(access))
}

fn build_ticket(
    plan: &TicketPlan,
    layout: &FileLayout,
    url: &str,
    header_only: bool,
    mut token: impl FnMut(&DataBlock) -> String,
) -> Ticket {
    let mut part = |block: &DataBlock, class| TicketUrl {
        url: url.to_owned(),
        headers: Some(json!({ "Authorization": format!("Bearer {}", token(block)) })),
        class,
    };
    let urls = match plan {
        TicketPlan::Whole(block) => vec![part(block, None)],
        TicketPlan::Blocks(blocks, ending) => {
            let class = |is_header: bool| Some(if is_header { "header" } else { "body" });
            let mut urls: Vec<TicketUrl> = blocks.iter().map(|block| part(block, class(block.is_header))).collect();
            let kind = layout.format.to_ascii_lowercase();
            let ending = format!("data:application/vnd.ga4gh.{kind};base64,{}", encode_base64(ending));
            // In a ticket for the header only, the end-of-file block has the class of the header.
            urls.push(TicketUrl { url: ending, headers: None, class: class(header_only) });
            urls
        }
    };
    Ticket { format: layout.format, urls }
}

/// Returns the service info: GA4GH service-info 1.0 with the extensions of htsget 1.3.
fn service_info(datatype: Datatype, origin: &str) -> Value {
    json!({
        "id": format!("godwit.htsget.{}", datatype.name()),
        "name": format!("godwit: {}", datatype.name()),
        "type": { "group": "org.ga4gh", "artifact": "htsget", "version": "1.3.0" },
        "organization": { "name": "godwit", "url": origin },
        "version": env!("CARGO_PKG_VERSION"),
        "htsget": {
            "datatype": datatype.name(),
            "formats": datatype.formats(),
            "fieldsParametersEffective": false,
            "tagsParametersEffective": false,
        },
    })
}

fn json_response(value: &Value) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Full(Bytes::from(value.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON_CONTENT_TYPE));
    // Forbid caching, because a ticket is for one principal and expires.
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn error_response(error: &HtsgetError) -> Response<WebBody> {
    let (name, status) = error.name_and_status();
    let mut response = json_response(&json!({ "htsget": { "error": name, "message": error.to_string() } }));
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Converts a failed authentication to an htsget error.
fn authentication_error(error: &AuthError) -> HtsgetError {
    match error.clone() {
        AuthError::Forbidden { problem } => HtsgetError::PermissionDenied { problem },
        AuthError::Unauthenticated { problem } => HtsgetError::InvalidAuthentication { problem },
    }
}
