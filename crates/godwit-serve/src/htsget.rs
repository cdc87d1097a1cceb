//! htsget 1.3 (GA4GH, <https://samtools.github.io/hts-specs/htsget.html>): BAM, CRAM, VCF and BCF files as they are, by regions.
//!
//! Flows in: requests over plain HTTP, with who asks. Flows out: tickets, which say where the bytes are, and those bytes. Bytes are had at
//! this server, each part by a token that is signed, for one caller and one state of the file, and good for a while. Bytes cannot be masked:
//! who may see a part of a dataset by the rules gets none of them. `fields`, `tags` and `notags` are checked and leave nothing out.

mod data;
mod error;
mod layout;
mod question;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use godwit_flight::web::{FILE_DATA, FileTickets, READS, VARIANTS, WebBody, WebRequest};
use godwit_flight::{
    Accessed, Caller, Catalog as _, DatasetError, FilePart, FileUse, FileVerdict, Rules, encode_base64,
};
use godwit_formats::bgzf::{Cut, cut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Serialize;
use serde_json::{Value, json};

pub(crate) use self::data::streamed;
use self::error::HtsgetError;
use self::layout::{Layout, Plan, Stretch};
use self::question::Question;
pub(crate) use self::question::percent_decoded;
use crate::batches::blamed;
use crate::pages::{accessed, blocking, described};
use crate::root::{FileKind, OneFile, Root};

/// The version that is spoken, as the type of answers says it.
const JSON: &str = "application/vnd.ga4gh.htsget.v1.3.0+json; charset=utf-8";
/// Files of which it is known where things are in them, at most.
const MOST_KNOWN: usize = 64;
/// The reads and variants of a root, by htsget. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Htsget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: Arc<Root>,
    /// Who may see what; `None`: whoever is let in sees everything.
    rules: Option<Arc<dyn Rules>>,
    /// Where clients find this server; `None`: where they found it.
    public_url: Option<String>,
    known: Mutex<HashMap<String, Arc<Layout>>>,
}

/// What is asked about.
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

    /// The formats of its files; the first is meant where none is named.
    fn formats(self) -> [&'static str; 2] {
        match self {
            Self::Reads => ["BAM", "CRAM"],
            Self::Variants => ["VCF", "BCF"],
        }
    }

    fn has(self, kind: FileKind) -> bool {
        match self {
            Self::Reads => matches!(kind, FileKind::Bam | FileKind::Cram),
            Self::Variants => kind == FileKind::Vcf,
        }
    }
}

/// A ticket.
#[derive(Debug, Serialize)]
struct Ticket {
    format: &'static str,
    urls: Vec<Url>,
}

#[derive(Debug, Serialize)]
struct Url {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'static str>,
}

type Answered = Result<Response<WebBody>, HtsgetError>;

impl Htsget {
    /// The files of a root.
    pub(crate) fn new(root: Arc<Root>, rules: Option<Arc<dyn Rules>>, public_url: Option<String>) -> Self {
        Self { inner: Arc::new(Inner { root, rules, public_url, known: Mutex::default() }) }
    }

    /// A ticket, data, or what the service is.
    pub(crate) async fn answer(
        &self,
        request: WebRequest,
        tickets: FileTickets,
    ) -> (Response<WebBody>, Option<Accessed>) {
        match &*request.path {
            FILE_DATA => self.data(&request, &tickets).await,
            _ => self.ticket(request, tickets).await,
        }
    }

    /// A ticket, or what the service is.
    async fn ticket(&self, request: WebRequest, tickets: FileTickets) -> (Response<WebBody>, Option<Accessed>) {
        let caller = match &request.caller {
            Ok(caller) => caller.clone(),
            Err(status) => return (shown_error(&unknown(status)), None),
        };
        let what = described(&request);
        let answered = self.answer_ticket(caller.clone(), request, tickets).await;
        finished(&caller, "Htsget", what, answered)
    }

    async fn answer_ticket(&self, caller: Caller, request: WebRequest, tickets: FileTickets) -> Answered {
        let (datatype, id) = if let Some(id) = request.path.strip_prefix(READS) {
            (Datatype::Reads, id)
        } else if let Some(id) = request.path.strip_prefix(VARIANTS) {
            (Datatype::Variants, id)
        } else {
            return Err(HtsgetError::NotFound { problem: format!("there is no page {}", request.path) });
        };
        let question = match request.method {
            Method::GET | Method::HEAD if id == "service-info" => {
                return Ok(json_answer(&service_info(datatype, &request.origin)));
            }
            Method::GET | Method::HEAD => Question::of_query(request.query.as_deref().unwrap_or_default())?,
            Method::POST if request.query.is_some_and(|query| !query.is_empty()) => {
                return Err(HtsgetError::input("POST has its parameters in its body, and none behind a question mark"));
            }
            Method::POST => {
                let too_large = || HtsgetError::PayloadTooLarge { problem: "the body is over 1 MiB".to_owned() };
                Question::of_body(&request.body.ok_or_else(too_large)?)?
            }
            ref other => {
                return Err(HtsgetError::input(format!("tickets are had with GET and POST, not with {other}")));
            }
        };
        let name =
            percent_decoded(id).ok_or_else(|| HtsgetError::NotFound { problem: format!("{id:?} is no name") })?;
        let this = self.clone();
        let asker = caller.clone();
        let (file, layout) = blocking(move || {
            let file = this.seen_by(&asker, &name)?;
            if !datatype.has(file.kind) {
                return Err(DatasetError::NotFound { name }.into());
            }
            let layout = this.layout(&file)?;
            Ok::<_, HtsgetError>((file, layout))
        })
        .await??;
        let wanted = question.format.as_deref().unwrap_or(datatype.formats()[0]);
        if wanted != layout.format {
            let problem = format!("{} is {}; ask with format={1}", file.name, layout.format);
            return Err(HtsgetError::UnsupportedFormat { problem });
        }
        let plan = layout.plan(&question, &file.name)?;
        let asked_at = tickets.place().unwrap_or(&request.origin);
        let found_at = self.inner.public_url.as_deref().unwrap_or(asked_at).trim_end_matches('/');
        let url = format!("{found_at}{FILE_DATA}");
        let ticket = ticket_of(&plan, &layout, &url, question.header_only, |stretch| {
            let Stretch { start, end, cut, .. } = *stretch;
            tickets.token(&caller, FilePart { name: file.name.clone(), version: layout.version, start, end, cut })
        });
        Ok(json_answer(&json!({ "htsget": ticket })))
    }

    /// The bytes of a part.
    async fn data(&self, request: &WebRequest, tickets: &FileTickets) -> (Response<WebBody>, Option<Accessed>) {
        if !request.headers.contains_key(AUTHORIZATION) {
            let problem = "data are had with the headers that their ticket has".to_owned();
            return (shown_error(&HtsgetError::InvalidAuthentication { problem }), None);
        }
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return (shown_error(&HtsgetError::input("data are had with GET")), None);
        }
        let (caller, part) = match tickets.read(&request.headers) {
            Ok(read) => read,
            Err(status) => {
                let problem = status.message().to_owned();
                return (shown_error(&HtsgetError::PermissionDenied { problem }), None);
            }
        };
        let what = format!("{} {}-{}", part.name, part.start, part.end);
        let answered = self.answer_data(caller.clone(), part).await;
        finished(&caller, "HtsgetData", what, answered)
    }

    async fn answer_data(&self, caller: Caller, part: FilePart) -> Answered {
        let this = self.clone();
        let (source, cut) = blocking(move || {
            // Rules may have changed, and so may the file.
            let gone = |_| HtsgetError::PermissionDenied {
                problem: format!("{} is not had with this ticket any more; ask for a new one", part.name),
            };
            let file = this.seen_by(&caller, &part.name).map_err(gone)?;
            if file.seen.version != part.version {
                return Err(gone(HtsgetError::from(DatasetError::Changed { name: part.name.clone() })));
            }
            let source = this.inner.root.store().open(file.seen.file()?)?;
            let cut = match part.cut {
                true => cut(&source, part.start, part.end).map_err(blamed)?,
                false => Cut { whole: part.start..part.end.min(source.bytes()), ..Cut::default() },
            };
            Ok::<_, HtsgetError>((source, cut))
        })
        .await??;
        let body = WebBody::Stream { bytes: cut.bytes(), stream: streamed(source, cut) };
        let mut response = Response::new(body);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        Ok(response)
    }

    /// The file of a name, as it is now, where a caller may see all of it.
    fn seen_by(&self, caller: &Caller, name: &str) -> Result<OneFile, HtsgetError> {
        let Inner { root, rules, .. } = &*self.inner;
        let hidden = || DatasetError::NotFound { name: name.to_owned() };
        if let Some(rules) = rules {
            let canonical = root.canonical_name(name).map_err(|_| hidden())?;
            match rules.file(caller, &canonical, FileUse::Read) {
                FileVerdict::Allowed(rule) => caller.touches().add(&canonical, &rule),
                FileVerdict::Hidden => return Err(hidden().into()),
                FileVerdict::Refused { problem } => return Err(HtsgetError::PermissionDenied { problem }),
            }
        }
        Ok(root.one_file(name)?)
    }

    /// Where things are in a file, which is looked up once for each state of it.
    fn layout(&self, file: &OneFile) -> Result<Arc<Layout>, HtsgetError> {
        let known = || self.inner.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&file.name).filter(|found| found.version == file.seen.version) {
            return Ok(found.clone());
        }
        let layout = Arc::new(Layout::open(&self.inner.root, file)?);
        let mut known = known();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(file.name.clone(), layout.clone());
        Ok(layout)
    }
}

/// The answer, and what is recorded of it.
fn finished(caller: &Caller, call: &str, what: String, answered: Answered) -> (Response<WebBody>, Option<Accessed>) {
    let problem = answered.as_ref().err().map(|error| format!("{}: {error}", error.kind().0));
    let response = answered.unwrap_or_else(|error| shown_error(&error));
    let access = accessed(caller, call, what, problem, &response);
    (response, Some(access))
}

fn ticket_of(
    plan: &Plan,
    layout: &Layout,
    url: &str,
    header_only: bool,
    mut token: impl FnMut(&Stretch) -> String,
) -> Ticket {
    let mut part = |stretch: &Stretch, class| Url {
        url: url.to_owned(),
        headers: Some(json!({ "Authorization": format!("Bearer {}", token(stretch)) })),
        class,
    };
    let urls = match plan {
        Plan::Whole(stretch) => vec![part(stretch, None)],
        Plan::Parts(stretches, ending) => {
            let class = |is_header: bool| Some(if is_header { "header" } else { "body" });
            let mut urls: Vec<Url> = stretches.iter().map(|stretch| part(stretch, class(stretch.is_header))).collect();
            let kind = layout.format.to_ascii_lowercase();
            let ending = format!("data:application/vnd.ga4gh.{kind};base64,{}", encode_base64(ending));
            // A file of a header alone ends with it.
            urls.push(Url { url: ending, headers: None, class: class(header_only) });
            urls
        }
    };
    Ticket { format: layout.format, urls }
}

/// GA4GH service-info 1.0, as htsget 1.3 extends it.
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

fn json_answer(value: &Value) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::from(value.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    // A ticket is for whoever asked for it, and ends.
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn shown_error(error: &HtsgetError) -> Response<WebBody> {
    let (name, status) = error.kind();
    let mut response = json_answer(&json!({ "htsget": { "error": name, "message": error.to_string() } }));
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Nobody is let in who asks so.
fn unknown(status: &godwit_flight::Status) -> HtsgetError {
    let problem = status.message().to_owned();
    match status.code() {
        godwit_flight::Code::PermissionDenied => HtsgetError::PermissionDenied { problem },
        _ => HtsgetError::InvalidAuthentication { problem },
    }
}
