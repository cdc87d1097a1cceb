//! SQL statements over plain HTTP: `POST /sql` returns the rows of a statement as JSON Lines, CSV, TSV or an Arrow IPC
//! stream, for programs without a Flight client.
//!
//! The statement runs with the catalog, the engine and the limits that Flight SQL uses, and the access is recorded in
//! the same way. Rows are sent while they are computed. When the client disconnects, the response is dropped, which
//! cancels the statement. An error before the first rows is a JSON response with an HTTP status; a later error aborts
//! the response, so that a client never takes a part for the whole. Web pages of other sites cannot run statements: a
//! browser sends both accepted content types only after a preflight request, which this path does not answer.

use std::io;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use godwit_dataset::Principal;
use godwit_dataset::web::WebRequest;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use tonic::Status;

use super::access_recording::truncate_for_record;
use super::browser_api::{error_json, error_response, json_response};
use super::{DatasetService, encode_batch, run_blocking};
use crate::call_streams::{BatchItem, Download};
use crate::error::auth_status;
use crate::row_stream_writer::{RowStreamFormat, RowStreamWriter};
use crate::sql::StatementProgress;
use crate::tickets::{BoundStatement, TicketClaims};
use crate::web::{WebBody, WebStream};

/// The name of the call in access records.
const CALL_NAME: &str = "Sql";

/// The formats of rows and their media types. The first is sent to clients that accept any type.
const FORMATS: [(&str, RowStreamFormat); 5] = [
    ("application/x-ndjson", RowStreamFormat::Json),
    ("application/jsonl", RowStreamFormat::Json),
    ("text/csv", RowStreamFormat::Csv),
    ("text/tab-separated-values", RowStreamFormat::Tsv),
    ("application/vnd.apache.arrow.stream", RowStreamFormat::Arrow),
];

/// The body of a request with the content type `application/json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StatementBody {
    sql: String,
    /// The values of the parameters `$1`, `$2` and so on: texts, numbers, booleans or nulls.
    #[serde(default)]
    parameters: Vec<Value>,
}

impl DatasetService {
    /// Runs the statement of a request, and returns the response with its rows or an error.
    pub(super) async fn respond_sql(&self, request: WebRequest) -> Response<WebBody> {
        if request.method != Method::POST {
            let mut response = request_error(StatusCode::METHOD_NOT_ALLOWED, "this path accepts only the method POST");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let principal = match &request.principal {
            Ok(principal) => principal.clone(),
            Err(error) => return error_response(&auth_status(error.clone())),
        };
        let Some((media_type, format)) = accepted_format(&request.headers) else {
            let types = FORMATS.map(|(media_type, _)| media_type).join(", ");
            return request_error(StatusCode::NOT_ACCEPTABLE, &format!("rows are sent as one of {types}"));
        };
        let Some(body) = &request.body else {
            return request_error(StatusCode::PAYLOAD_TOO_LARGE, "the body of the request is larger than 1 MiB");
        };
        let statement = match media_type_of(&request.headers).as_deref() {
            Some("application/json") => json_statement(body),
            Some("application/sql") => text_statement(body),
            _ => {
                let problem = "the request must have the content type application/json or application/sql";
                return request_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem);
            }
        };
        let rows = match statement {
            Ok(statement) => self.statement_body(&principal, statement, format).await,
            Err(problem) => Err(Status::invalid_argument(problem)),
        };
        match rows {
            Ok(stream) => rows_response(media_type, stream),
            Err(status) => error_response(&status),
        }
    }

    /// Starts a statement, and returns its rows as bytes in a format. Waits for the first bytes, so that most errors are
    /// known before the response starts.
    async fn statement_body(
        &self,
        principal: &Principal,
        statement: BoundStatement,
        format: RowStreamFormat,
    ) -> Result<WebStream, Status> {
        let resource = truncate_for_record(statement.sql.as_bytes());
        let claims = TicketClaims {
            statement: Some(statement),
            ..TicketClaims::new(principal, self.inner.options.ticket_lifetime)
        };
        let started = self.start_download(principal, claims, StatementProgress::default()).await;
        let (download, recorder) = self.record_start_or_failure(principal, CALL_NAME, resource, started).await?;
        let download = match recorder {
            Some(recorder) => recorder.record_download(download),
            None => download,
        };
        let mut bytes = encode_rows(download, format)?.fuse();
        let first = bytes.next().await.transpose()?;
        Ok(Box::pin(stream::iter(first.map(Ok)).chain(bytes)))
    }
}

/// Returns an error response for a request that does not reach the engine.
fn request_error(status: StatusCode, problem: &str) -> Response<WebBody> {
    json_response(status, error_json(problem))
}

fn rows_response(media_type: &'static str, stream: WebStream) -> Response<WebBody> {
    let mut response = Response::new(WebBody::Stream { content_length: None, stream });
    for (name, value) in
        [(CONTENT_TYPE, media_type), (CACHE_CONTROL, "no-store"), (VARY, "Accept"), (X_CONTENT_TYPE_OPTIONS, "nosniff")]
    {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Parses the body of a request with a statement and its parameters as JSON.
fn json_statement(body: &[u8]) -> Result<BoundStatement, String> {
    let StatementBody { sql, parameters } =
        serde_json::from_slice(body).map_err(|error| format!("the body is not a valid request: {error}"))?;
    if parameters.is_empty() {
        return Ok(BoundStatement { sql, parameters: Vec::new() });
    }
    let columns =
        (1..).zip(&parameters).map(|(number, value)| Ok((format!("${number}"), parameter_column(value)?, true)));
    let columns = columns.collect::<Result<Vec<_>, String>>()?;
    let row = RecordBatch::try_from_iter_with_nullable(columns).map_err(|error| error.to_string())?;
    let parameters = encode_batch(&row).map_err(|status| status.message().to_owned())?;
    Ok(BoundStatement { sql, parameters })
}

/// Parses the body of a request that consists of the statement only.
fn text_statement(body: &[u8]) -> Result<BoundStatement, String> {
    let sql = std::str::from_utf8(body).map_err(|_| "the statement is not UTF-8 text".to_owned())?;
    Ok(BoundStatement { sql: sql.to_owned(), parameters: Vec::new() })
}

/// Returns the value of a parameter as a column with one row.
fn parameter_column(value: &Value) -> Result<ArrayRef, String> {
    Ok(match value {
        Value::Null => Arc::new(NullArray::new(1)),
        Value::Bool(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::String(text) => Arc::new(StringArray::from(vec![text.as_str()])),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Arc::new(Int64Array::from(vec![integer])),
            (None, Some(integer)) => Arc::new(arrow_array::UInt64Array::from(vec![integer])),
            (None, None) => Arc::new(Float64Array::from(vec![number.as_f64().ok_or("a number is out of range")?])),
        },
        Value::Array(_) | Value::Object(_) => {
            return Err("a parameter must be a text, a number, a boolean or null".to_owned());
        }
    })
}

/// Returns the media type in `Content-Type` in lower case, without its parameters.
fn media_type_of(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next()?.trim().to_ascii_lowercase())
}

/// Selects the format that a client prefers by its `Accept` headers (RFC 9110 §12.5.1); `None` if it accepts none. Of
/// formats with the same weight, the one that the client lists first is selected.
fn accepted_format(headers: &HeaderMap) -> Option<(&'static str, RowStreamFormat)> {
    if !headers.contains_key(ACCEPT) {
        return FORMATS.first().copied();
    }
    let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
    let mut best: Option<(f32, (&'static str, RowStreamFormat))> = None;
    for range in lists.flat_map(|list| list.split(',')) {
        let mut words = range.split(';').map(|word| word.trim().to_ascii_lowercase());
        let wanted = words.next().unwrap_or_default();
        let weight = words.find_map(|word| word.strip_prefix("q=").map(|number| number.trim().parse().unwrap_or(0.0)));
        let weight = weight.unwrap_or(1.0);
        let is_meant = |media_type: &str| match wanted.strip_suffix("/*") {
            Some(group) => group == "*" || media_type.split('/').next() == Some(group),
            None => media_type == wanted,
        };
        let found = FORMATS.into_iter().find(|(media_type, _)| is_meant(media_type));
        if let Some(found) = found.filter(|_| weight > best.map_or(0.0, |(weight, _)| weight)) {
            best = Some((weight, found));
        }
    }
    best.map(|(_, found)| found)
}

/// The state of a response: rows that are not read yet, and the writer, whose bytes are taken from `written`.
struct EncodedRows {
    batches: std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<BatchItem, Status>> + Send>>,
    writer: RowStreamWriter<SharedBuffer>,
    written: SharedBuffer,
}

/// Returns the rows of a download as bytes in a format. Each batch is converted on a thread of the blocking pool.
fn encode_rows(download: Download, format: RowStreamFormat) -> Result<WebStream, Status> {
    let written = SharedBuffer::default();
    let writer = RowStreamWriter::new(format, &download.schema, written.clone()).map_err(encoding_status)?;
    let rows = EncodedRows { batches: download.batches, writer, written };
    let bytes = stream::unfold(Some(rows), |rows| async move {
        match rows?.next_bytes().await {
            Ok((bytes, rows)) => Some((Ok(bytes), rows)),
            Err(status) => Some((Err(status), None)),
        }
    });
    // A piece without bytes would end a chunked body.
    let bytes = bytes.filter(|piece| std::future::ready(!matches!(piece, Ok(bytes) if bytes.is_empty())));
    Ok(Box::pin(bytes))
}

impl EncodedRows {
    /// Returns the bytes of the next batch, or the last bytes and `None` if there is no further batch.
    async fn next_bytes(mut self) -> Result<(Bytes, Option<Self>), Status> {
        let next = self.batches.next().await.transpose()?;
        run_blocking(move || match next {
            Some((batch, _)) => {
                self.writer.write(&batch).map_err(encoding_status)?;
                Ok((self.written.take(), Some(self)))
            }
            None => {
                self.writer.finish().map_err(encoding_status)?;
                Ok((self.written.take(), None))
            }
        })
        .await
    }
}

fn encoding_status(error: ArrowError) -> Status {
    Status::invalid_argument(format!("the rows cannot be written in this format: {error}"))
}

/// Bytes that a writer has written and that are not sent yet.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn take(&self) -> Bytes {
        std::mem::take(&mut *self.0.lock()).into()
    }
}

impl io::Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_for(accept: &str) -> Option<&'static str> {
        let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
        accepted_format(&headers).map(|(media_type, _)| media_type)
    }

    #[test]
    fn the_format_is_the_one_that_the_client_prefers() {
        assert_eq!(accepted_format(&HeaderMap::new()).map(|(_, format)| format), Some(RowStreamFormat::Json));
        for (accept, expected) in [
            ("*/*", Some("application/x-ndjson")),
            ("text/csv", Some("text/csv")),
            ("Text/CSV; charset=utf-8", Some("text/csv")),
            ("text/*;q=0.5, application/vnd.apache.arrow.stream", Some("application/vnd.apache.arrow.stream")),
            ("application/json, text/plain, */*", Some("application/x-ndjson")),
            ("text/tab-separated-values, text/csv", Some("text/tab-separated-values")),
            ("text/csv;q=0", None),
            ("text/html", None),
        ] {
            assert_eq!(format_for(accept), expected, "{accept}");
        }
    }

    #[test]
    fn parameters_keep_their_types() {
        let statement =
            json_statement(br#"{"sql": "SELECT $1", "parameters": ["a", 7, 18446744073709551615, 1.5, true, null]}"#)
                .unwrap();
        let row = super::super::decode_batch(&statement.parameters).unwrap().unwrap();
        let types = row.schema().fields().iter().map(|field| field.data_type().to_string()).collect::<Vec<_>>();
        assert_eq!(types, ["Utf8", "Int64", "UInt64", "Float64", "Boolean", "Null"]);
        assert!(json_statement(br#"{"sql": "SELECT $1", "parameters": [[1]]}"#).unwrap_err().contains("a text"));
        assert!(json_statement(br#"{"sql": "SELECT 1", "rows": 7}"#).unwrap_err().contains("rows"));
    }
}
