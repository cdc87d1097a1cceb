//! What the page of a server asks: who somebody is, which datasets there are, and rows of statements, as JSON.
//!
//! It is answered from the same catalog and by the same engine as everything else, so that a page shows what its reader may see and no more.
//! Values are text, as Arrow shows them. Pages of other sites cannot read it: nothing here says that they may, and statements are taken as
//! `application/json` only, which a browser sends to another site after asking first.

use std::time::Instant;

use arrow_array::{Array as _, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{Node, blocking};
use crate::access::{Accessed, DONE, outcome_of};
use crate::dataset::{Catalog, ContigLine, Dataset, DatasetError, Scan, contig_lines};
use crate::gate::Caller;
use crate::node::recording::shortened;
use crate::server::Download;
use crate::tickets::StatementText;
use crate::web::{API, WebBody, WebReply, WebRequest};

/// Datasets of an answer: each is opened, to say what is in it.
const LISTED: usize = 100;
/// Contigs of a dataset that are told.
const MOST_CONTIGS: usize = 5000;
/// Batches that are read for the first row with a place.
const FIRST_BATCHES: usize = 8;
/// Rows of an answer, where the page does not ask for fewer.
const MOST_ROWS: usize = 200_000;
/// Bytes of rows of an answer, about.
const MOST_BYTES: usize = 16 << 20;

/// A statement, as a page sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    sql: String,
    /// Rows that are wanted, at most.
    #[serde(default)]
    rows: Option<usize>,
}

/// The name of a dataset, as a page sends it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

/// An answer as text, and how many rows of data it has.
type Told = Result<(String, u64), Status>;

impl Node {
    /// Answers a request of the page.
    pub(super) async fn answer_api(&self, request: WebRequest) -> WebReply {
        let caller = match &request.caller {
            Ok(caller) => caller.clone(),
            Err(status) => return WebReply { response: failed(status), access: None },
        };
        let is_sent = ["query", "dataset"].contains(&about(&request));
        let wanted = if is_sent { Method::POST } else { Method::GET };
        if request.method != wanted {
            let mut response =
                answer(StatusCode::METHOD_NOT_ALLOWED, error_text(&format!("this path accepts {wanted} only")));
            response.headers_mut().extend(HeaderValue::from_str(wanted.as_str()).ok().map(|wanted| (ALLOW, wanted)));
            return WebReply { response, access: None };
        }
        let what = shortened(request.body.as_deref().filter(|_| is_sent).unwrap_or_else(|| about(&request).as_bytes()));
        let told = self.told_to_page(&caller, &request).await;
        let mut access = Accessed { what, touched: caller.touches().all(), ..Accessed::of(&caller, "Page") };
        let outcome = told.as_ref().map_or_else(outcome_of, |_| DONE.to_owned());
        let response = match told {
            Ok((text, rows)) => {
                (access.rows, access.bytes) = (rows, text.len() as u64);
                answer(StatusCode::OK, text)
            }
            Err(status) => failed(&status),
        };
        WebReply { response, access: Some(access.ended(outcome)) }
    }

    async fn told_to_page(&self, caller: &Caller, request: &WebRequest) -> Told {
        match about(request) {
            "me" => Ok((self.who(caller, request).to_string(), 0)),
            "datasets" => self.listed(caller, number_of(request, "from")).await,
            "dataset" => {
                let Named { name } = sent(request)?;
                let catalog = self.catalog(caller);
                blocking(move || all_of(&*catalog, &name)).await
            }
            "query" => self.queried(caller, sent(request)?).await,
            page => Err(Status::not_found(format!("{API}{page} does not exist"))),
        }
    }

    fn who(&self, caller: &Caller, request: &WebRequest) -> Value {
        json!({
            "name": caller.name(),
            "asked": !request.is_open,
            "rules": self.inner.options.rules.is_some(),
            "sql": self.inner.engine.is_some(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Some datasets from one on, by their names.
    async fn listed(&self, caller: &Caller, from: usize) -> Told {
        let catalog = self.catalog(caller);
        let told = blocking(move || {
            let names = catalog.names()?;
            let shown: Vec<Value> =
                names.iter().skip(from).take(LISTED).map(|name| described(&*catalog, name)).collect();
            Ok(json!({ "datasets": shown, "from": from, "all": names.len() }))
        });
        Ok((told.await?.to_string(), 0))
    }

    async fn queried(&self, caller: &Caller, statement: Statement) -> Told {
        let begun = Instant::now();
        let most = statement.rows.unwrap_or(MOST_ROWS).min(MOST_ROWS);
        let text = StatementText { sql: statement.sql, parameters: Vec::new() };
        let download = self.run_statement(caller, text).await?;
        let rows = Rows::of(download, most).await?;
        let (columns, more) = (Value::from(rows.columns), rows.more);
        let (seconds, text) = (begun.elapsed().as_secs_f64(), rows.text);
        let told = format!("{{\"columns\":{columns},\"more\":{more},\"seconds\":{seconds},\"rows\":[{text}]}}");
        Ok((told, rows.count as u64))
    }
}

/// What a page sends.
fn sent<T: serde::de::DeserializeOwned>(request: &WebRequest) -> Result<T, Status> {
    let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    if !request.headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(Status::invalid_argument("the body must have the content type application/json"));
    }
    let body = request.body.as_ref().ok_or_else(|| Status::invalid_argument("the body is larger than 1 MiB"))?;
    serde_json::from_slice(body)
        .map_err(|error| Status::invalid_argument(format!("the body is not a valid request: {error}")))
}

/// What a request is about.
fn about(request: &WebRequest) -> &str {
    request.path.strip_prefix(API).unwrap_or_default()
}

/// A number behind the question mark; 0 where there is none.
fn number_of(request: &WebRequest, name: &str) -> usize {
    let words = request.query.as_deref().unwrap_or_default().split('&');
    let value = words.filter_map(|word| word.split_once('=')).find(|(found, _)| *found == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// What is known of a dataset without reading its rows.
fn described(catalog: &dyn Catalog, name: &str) -> Value {
    match catalog.open(name) {
        Ok(dataset) => told_of(&*dataset, name),
        Err(error) => json!({ "name": name, "problem": told_problem(error) }),
    }
}

fn told_of(dataset: &dyn Dataset, name: &str) -> Value {
    json!({
        "name": name,
        "kind": dataset.kind().name(),
        "bytes": Some(dataset.bytes()).filter(|bytes| *bytes > 0),
        "rows": dataset.rows(),
        "sample": dataset.sample(),
        "regions": dataset.has_regions(),
    })
}

/// The same with its columns, and the contigs of its header.
fn all_of(catalog: &dyn Catalog, name: &str) -> Told {
    let dataset = catalog.open(name)?;
    let schema = dataset.schema();
    let mut told = told_of(&*dataset, name);
    // Where rows are hidden, finding one that is not may take all of the file.
    let first = if dataset.bytes() > 0 { first_place(&*dataset)? } else { None };
    let rows = u64::from(first.is_some());
    told["first"] = first.map_or(Value::Null, |(contig, position)| json!([contig, position]));
    told["columns"] = columns_of(&schema).into();
    told["contigs"] = json!(contigs_of(&schema));
    Ok((told.to_string(), rows))
}

/// Contig and 0-based position of the first row that has both, where one of the first batches has it.
fn first_place(dataset: &dyn Dataset) -> Result<Option<(String, String)>, Status> {
    let schema = dataset.schema();
    let mut columns: Vec<usize> = ["contig", "position"].iter().filter_map(|name| schema.index_of(name).ok()).collect();
    columns.sort_unstable();
    if !dataset.has_regions() || columns.len() != 2 {
        return Ok(None);
    }
    let scan = Scan { columns: Some(columns), regions: None };
    let Some(part) = dataset.parts(&scan, 1)?.into_iter().next() else { return Ok(None) };
    for batch in dataset.read(&scan, &part)?.take(FIRST_BATCHES) {
        let batch = batch?;
        let column = |name: &str| batch.column_by_name(name).cloned();
        let Some((contigs, positions)) = column("contig").zip(column("position")) else { return Ok(None) };
        let is_placed = |row: &usize| contigs.is_valid(*row) && positions.is_valid(*row);
        if let Some(row) = (0..batch.num_rows()).find(is_placed) {
            let shown = |column| ArrayFormatter::try_new(column, &FormatOptions::default())?.value(row).try_to_string();
            let place = shown(&*contigs).and_then(|contig| Ok((contig, shown(&*positions)?)));
            return place.map(Some).map_err(|error| Status::internal(error.to_string()));
        }
    }
    Ok(None)
}

fn told_problem(error: DatasetError) -> String {
    Status::from(error).message().to_owned()
}

/// Contigs with their lengths, as a header of SAM or VCF has them; none of those without a length.
fn contigs_of<'s>(schema: &'s Schema) -> Vec<(&'s str, u64)> {
    let contig = |line: ContigLine<'s>| Some((line.field("SN:", "ID=")?, line.field("LN:", "length=")?.parse().ok()?));
    contig_lines(schema).filter_map(contig).take(MOST_CONTIGS).collect()
}

fn columns_of(schema: &Schema) -> Vec<Value> {
    let column =
        |field: &arrow_schema::FieldRef| json!({ "name": field.name(), "type": field.data_type().to_string() });
    schema.fields().iter().map(column).collect()
}

/// Rows of an answer.
struct Rows {
    columns: Vec<Value>,
    /// They, as JSON, with commas between them.
    text: String,
    count: usize,
    /// Whether there are more than were taken.
    more: bool,
}

impl Rows {
    /// So many of a download, at most; what is not wanted is not read.
    async fn of(download: Download, most: usize) -> Result<Self, Status> {
        let Download { schema, mut batches } = download;
        let mut found = Self { columns: columns_of(&schema), text: String::new(), count: 0, more: false };
        while let Some(item) = batches.next().await {
            let (batch, _) = item?;
            if batch.num_rows() == 0 {
                continue;
            }
            if found.count == most || found.text.len() > MOST_BYTES {
                found.more = true;
                break;
            }
            // Making text of many rows keeps nobody else waiting.
            found = blocking(move || found.with(&batch, most)).await?;
            if found.more {
                break;
            }
        }
        Ok(found)
    }

    /// With the rows of a batch, as long as there is room.
    fn with(mut self, batch: &RecordBatch, most: usize) -> Result<Self, Status> {
        let wrong = |error: ArrowError| Status::internal(error.to_string());
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        // Those of columns that have nothing else, too.
        let nulls: Vec<_> = batch.columns().iter().map(|column| column.logical_nulls()).collect();
        for row in 0..batch.num_rows() {
            if self.count == most || self.text.len() > MOST_BYTES {
                self.more = true;
                break;
            }
            self.text.push_str(if self.count == 0 { "[" } else { ",[" });
            for (at, (formatter, nulls)) in columns.iter().zip(&nulls).enumerate() {
                if at > 0 {
                    self.text.push(',');
                }
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    self.text.push_str("null");
                } else {
                    let value = formatter.value(row).try_to_string().map_err(wrong)?;
                    self.text.push_str(&Value::String(value).to_string());
                }
            }
            self.text.push(']');
            self.count += 1;
        }
        Ok(self)
    }
}

fn error_text(problem: &str) -> String {
    json!({ "error": problem }).to_string()
}

fn answer(status: StatusCode, text: String) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Whole(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A failure, with the code that HTTP has for it.
fn failed(status: &Status) -> Response<WebBody> {
    let code = match status.code() {
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = answer(code, error_text(status.message()));
    if code == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
