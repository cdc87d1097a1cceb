//! The JSON API of the server's web page, which returns the principal, the datasets, and the rows of SQL statements.
//!
//! The API uses the same authorized catalog and SQL engine as Flight, so that a user sees only permitted data. Values
//! are text, as Arrow formats them. Web pages of other sites cannot read the responses, because no CORS header allows
//! it. Statements are accepted only as `application/json`, which a browser sends to another site only after a preflight
//! request.

use std::time::Instant;

use arrow_array::{Array as _, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, Schema};
use bytes::Bytes;
use futures_util::StreamExt as _;
use godwit_dataset::web::{API_PREFIX, WebBody, WebRequest, WebResponse};
use godwit_dataset::{AccessRecord, Catalog, ContigLine, Dataset, Principal, Scan, contig_lines};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::{Code, Status};

use super::{DatasetService, run_blocking};
use crate::access_recorder::{OUTCOME_DONE, status_outcome};
use crate::call_streams::Download;
use crate::code_name::code_name;
use crate::dataset_service::access_recording::truncate_for_record;
use crate::error::{auth_status, dataset_status};
use crate::sql::StatementProgress;
use crate::tickets::BoundStatement;

/// Maximum number of datasets in a response. The limit bounds the work, because each listed dataset is opened.
const DATASETS_PER_RESPONSE: usize = 100;
/// Maximum number of contigs in the description of a dataset.
const MAX_CONTIGS: usize = 5000;
/// Maximum number of batches that are searched for the first row with a genomic position.
const POSITION_SEARCH_BATCHES: usize = 8;
/// Maximum number of rows in a response; the page may request fewer.
const MAX_ROWS: usize = 200_000;
/// Approximate size limit of the rows in a response, bytes of JSON.
const MAX_ROWS_JSON_BYTES: usize = 16 << 20;

/// The body of a request to run an SQL statement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryRequest {
    sql: String,
    /// Maximum number of rows that the page requests.
    #[serde(default)]
    #[serde(rename = "rows")]
    max_rows: Option<usize>,
}

/// The body of a request to describe a dataset.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatasetRequest {
    name: String,
}

/// The JSON text of a response, and the number of dataset rows in it, for the access record.
type ApiResult = Result<(String, u64), Status>;

impl DatasetService {
    /// Answers a request of the web page.
    pub(super) async fn respond_api(&self, request: WebRequest) -> WebResponse {
        let principal = match &request.principal {
            Ok(principal) => principal.clone(),
            Err(error) => {
                let response = error_response(&auth_status(error.clone()));
                return WebResponse { response, access_record: None };
            }
        };
        let is_sent = ["query", "dataset"].contains(&api_endpoint(&request));
        let allowed_method = if is_sent { Method::POST } else { Method::GET };
        if request.method != allowed_method {
            let mut response = json_response(
                StatusCode::METHOD_NOT_ALLOWED,
                error_json(&format!("this path accepts only the method {allowed_method}")),
            );
            response
                .headers_mut()
                .extend(HeaderValue::from_str(allowed_method.as_str()).ok().map(|wanted| (ALLOW, wanted)));
            return WebResponse { response, access_record: None };
        }
        let resource = truncate_for_record(
            request.body.as_deref().filter(|_| is_sent).unwrap_or_else(|| api_endpoint(&request).as_bytes()),
        );
        let result = self.dispatch_api(&principal, &request).await;
        let mut access =
            AccessRecord { resource, datasets: principal.accesses().to_vec(), ..AccessRecord::new(&principal, "Page") };
        let outcome = result.as_ref().map_or_else(status_outcome, |_| OUTCOME_DONE.to_owned());
        let response = match result {
            Ok((text, rows)) => {
                (access.rows, access.bytes) = (rows, text.len() as u64);
                json_response(StatusCode::OK, text)
            }
            Err(status) => error_response(&status),
        };
        WebResponse { response, access_record: Some(access.with_outcome(outcome)) }
    }

    async fn dispatch_api(&self, principal: &Principal, request: &WebRequest) -> ApiResult {
        match api_endpoint(request) {
            "me" => Ok((self.principal_json(principal, request).to_string(), 0)),
            "datasets" => self.list_datasets(principal, query_number(request, "from")).await,
            "dataset" => {
                let DatasetRequest { name } = parse_json_body(request)?;
                let catalog = self.authorized_catalog(principal);
                run_blocking(move || dataset_details(&*catalog, &name)).await
            }
            "query" => self.run_query(principal, parse_json_body(request)?).await,
            page => Err(Status::not_found(format!("{API_PREFIX}{page} does not exist"))),
        }
    }

    fn principal_json(&self, principal: &Principal, request: &WebRequest) -> Value {
        json!({
            "name": principal.name(),
            "asked": !request.is_auth_disabled,
            "rules": self.inner.options.authorizer.is_some(),
            "sql": self.inner.sql_engine.is_some(),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }

    /// Lists datasets in the order of their names, starting with the 0-based index `from`.
    async fn list_datasets(&self, principal: &Principal, from: usize) -> ApiResult {
        let catalog = self.authorized_catalog(principal);
        let page = run_blocking(move || {
            let names = catalog.names().map_err(dataset_status)?;
            let shown: Vec<Value> = names
                .iter()
                .skip(from)
                .take(DATASETS_PER_RESPONSE)
                .map(|name| dataset_json_or_error(&*catalog, name))
                .collect();
            Ok(json!({ "datasets": shown, "from": from, "all": names.len() }))
        });
        Ok((page.await?.to_string(), 0))
    }

    async fn run_query(&self, principal: &Principal, statement: QueryRequest) -> ApiResult {
        let started = Instant::now();
        let max_rows = statement.max_rows.unwrap_or(MAX_ROWS).min(MAX_ROWS);
        let text = BoundStatement { sql: statement.sql, parameters: Vec::new() };
        let download = self.run_statement(principal, text, StatementProgress::default()).await?;
        let rows = JsonRows::read(download, max_rows).await?;
        let (columns, more) = (Value::from(rows.columns), rows.is_truncated);
        let (seconds, text) = (started.elapsed().as_secs_f64(), rows.json);
        let body = format!("{{\"columns\":{columns},\"more\":{more},\"seconds\":{seconds},\"rows\":[{text}]}}");
        Ok((body, rows.count as u64))
    }
}

/// Parses the JSON body of a request.
fn parse_json_body<T: serde::de::DeserializeOwned>(request: &WebRequest) -> Result<T, Status> {
    let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    if !request.headers.get(CONTENT_TYPE).is_some_and(is_json) {
        return Err(Status::invalid_argument("the request must have the content type application/json"));
    }
    let body = request
        .body
        .as_ref()
        .ok_or_else(|| Status::invalid_argument("the body of the request is larger than 1 MiB"))?;
    serde_json::from_slice(body)
        .map_err(|error| Status::invalid_argument(format!("the body is not a valid request: {error}")))
}

/// Returns the part of the path after [`API_PREFIX`], which names the endpoint.
fn api_endpoint(request: &WebRequest) -> &str {
    request.path.strip_prefix(API_PREFIX).unwrap_or_default()
}

/// Returns a number in the query string; 0 if it is absent or not a number.
fn query_number(request: &WebRequest, name: &str) -> usize {
    let words = request.query.as_deref().unwrap_or_default().split('&');
    let value = words.filter_map(|word| word.split_once('=')).find(|(found, _)| *found == name);
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// Describes a dataset without reading its rows. If the dataset cannot be opened, returns the error message.
fn dataset_json_or_error(catalog: &dyn Catalog, name: &str) -> Value {
    match catalog.open(name) {
        Ok(dataset) => dataset_json(&*dataset, name),
        Err(error) => json!({ "name": name, "problem": dataset_status(error).message() }),
    }
}

fn dataset_json(dataset: &dyn Dataset, name: &str) -> Value {
    json!({
        "name": name,
        "kind": dataset.kind().name(),
        "bytes": Some(dataset.bytes()).filter(|bytes| *bytes > 0),
        "rows": dataset.rows(),
        "sample": dataset.sample(),
        "regions": dataset.has_regions(),
    })
}

/// Describes a dataset, with its columns, the contigs in its header, and the position of its first row.
fn dataset_details(catalog: &dyn Catalog, name: &str) -> ApiResult {
    let dataset = catalog.open(name).map_err(dataset_status)?;
    let schema = dataset.schema();
    let mut details = dataset_json(&*dataset, name);
    // Size 0 means that the rules hide some rows. Skip the search then: it could read the whole file to find a visible
    // row.
    let first = if dataset.bytes() > 0 { first_position(&*dataset)? } else { None };
    let rows = u64::from(first.is_some());
    details["first"] = first.map_or(Value::Null, |(contig, position)| json!([contig, position]));
    details["columns"] = columns_json(&schema).into();
    details["contigs"] = json!(contig_lengths(&schema));
    Ok((details.to_string(), rows))
}

/// Returns contig and 0-based position of the first row that has both. Searches only the first batches.
fn first_position(dataset: &dyn Dataset) -> Result<Option<(String, String)>, Status> {
    let schema = dataset.schema();
    let mut columns: Vec<usize> = ["contig", "position"].iter().filter_map(|name| schema.index_of(name).ok()).collect();
    columns.sort_unstable();
    if !dataset.has_regions() || columns.len() != 2 {
        return Ok(None);
    }
    let scan = Scan { columns: Some(columns), regions: None };
    let Some(part) = dataset.parts(&scan, 1).map_err(dataset_status)?.into_iter().next() else { return Ok(None) };
    for batch in dataset.read(&scan, &part).map_err(dataset_status)?.take(POSITION_SEARCH_BATCHES) {
        let batch = batch.map_err(dataset_status)?;
        let column = |name: &str| batch.column_by_name(name).cloned();
        let Some((contigs, positions)) = column("contig").zip(column("position")) else { return Ok(None) };
        let is_placed = |row: &usize| contigs.is_valid(*row) && positions.is_valid(*row);
        if let Some(row) = (0..batch.num_rows()).find(is_placed) {
            let shown = |column| ArrayFormatter::try_new(column, &FormatOptions::default())?.value(row).try_to_string();
            let position = shown(&*contigs).and_then(|contig| Ok((contig, shown(&*positions)?)));
            return position.map(Some).map_err(|error| Status::internal(error.to_string()));
        }
    }
    Ok(None)
}

/// Returns names and lengths of the contigs in the SAM or VCF header. Omits contigs without a length.
fn contig_lengths<'s>(schema: &'s Schema) -> Vec<(&'s str, u64)> {
    let contig = |line: ContigLine<'s>| Some((line.field("SN:", "ID=")?, line.field("LN:", "length=")?.parse().ok()?));
    contig_lines(schema).filter_map(contig).take(MAX_CONTIGS).collect()
}

fn columns_json(schema: &Schema) -> Vec<Value> {
    let column =
        |field: &arrow_schema::FieldRef| json!({ "name": field.name(), "type": field.data_type().to_string() });
    schema.fields().iter().map(column).collect()
}

/// Rows of a statement, formatted as JSON for a response.
struct JsonRows {
    columns: Vec<Value>,
    /// The rows as JSON arrays, separated by commas.
    json: String,
    count: usize,
    /// True if the statement returns more rows than these.
    is_truncated: bool,
}

impl JsonRows {
    /// Reads and formats at most `max_rows` rows of a download, and then stops the download.
    async fn read(download: Download, max_rows: usize) -> Result<Self, Status> {
        let Download { schema, mut batches } = download;
        let mut found = Self { columns: columns_json(&schema), json: String::new(), count: 0, is_truncated: false };
        while let Some(item) = batches.next().await {
            let (batch, _) = item?;
            if batch.num_rows() == 0 {
                continue;
            }
            if found.count == max_rows || found.json.len() > MAX_ROWS_JSON_BYTES {
                found.is_truncated = true;
                break;
            }
            // Format on a thread of the blocking pool, because formatting many rows would block other tasks.
            found = run_blocking(move || found.append_batch(&batch, max_rows)).await?;
            if found.is_truncated {
                break;
            }
        }
        Ok(found)
    }

    /// Appends the rows of a batch until the limit of rows or bytes is reached.
    fn append_batch(mut self, batch: &RecordBatch, max_rows: usize) -> Result<Self, Status> {
        let wrong = |error: ArrowError| Status::internal(error.to_string());
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
        let columns = columns.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        // Unlike the validity bitmap, `logical_nulls` also covers columns of the data type Null.
        let nulls: Vec<_> = batch.columns().iter().map(|column| column.logical_nulls()).collect();
        for row in 0..batch.num_rows() {
            if self.count == max_rows || self.json.len() > MAX_ROWS_JSON_BYTES {
                self.is_truncated = true;
                break;
            }
            self.json.push_str(if self.count == 0 { "[" } else { ",[" });
            for (at, (formatter, nulls)) in columns.iter().zip(&nulls).enumerate() {
                if at > 0 {
                    self.json.push(',');
                }
                if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                    self.json.push_str("null");
                } else {
                    let value = formatter.value(row).try_to_string().map_err(wrong)?;
                    self.json.push_str(&Value::String(value).to_string());
                }
            }
            self.json.push(']');
            self.count += 1;
        }
        Ok(self)
    }
}

pub(super) fn error_json(problem: &str) -> String {
    json!({ "error": problem }).to_string()
}

pub(super) fn json_response<E>(status: StatusCode, text: String) -> Response<WebBody<E>> {
    let mut response = Response::new(WebBody::Full(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Returns an HTTP error response, with the HTTP status code for a gRPC status.
pub(super) fn error_response<E>(status: &Status) -> Response<WebBody<E>> {
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
    let body = json!({ "error": status.message(), "code": code_name(status.code()) });
    let mut response = json_response(code, body.to_string());
    if code == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
