//! Exports trace spans of the server to an OpenTelemetry collector, as JSON over HTTP (OpenTelemetry Protocol 1.x,
//! "OTLP/HTTP").

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use godwit_cli::cli::{CommonArgs, LogLevel, ServeArgs};
use godwit_cli::failure::Failure;
use godwit_cli::log::{log_event, log_warning};
use godwit_dataset::percent_decode;
use godwit_flight::trace::{AttributeValue, Span, SpanExporter, Tracer};
use godwit_model::ErrorKind;
use parking_lot::Mutex;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Environment variables with the URL of the collector: the URL for traces, and the base URL, to which [`TRACES_PATH`]
/// is appended.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Environment variables with HTTP headers for the collector, as `name=value` pairs separated by commas.
const HEADER_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// Environment variable with the name of the service in exported spans.
const SERVICE_NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
/// Path that is appended to the base URL of the collector.
const TRACES_PATH: &str = "/v1/traces";
/// Maximum number of spans that wait for export; further spans are dropped. This is the default of OpenTelemetry.
const MAX_QUEUED_SPANS: usize = 2048;
/// Maximum number of spans in a request (the default of OpenTelemetry), and the time to wait until a request is full.
const MAX_BATCH_SPANS: usize = 512;
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Timeout of a request to the collector.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for sending the last spans when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Numeric values of the protocol's constants `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR`.
const SPAN_KIND_INTERNAL: u8 = 1;
const SPAN_KIND_SERVER: u8 = 2;
const STATUS_CODE_ERROR: u8 = 2;

/// A queue of spans that wait for their export to the collector.
#[derive(Debug)]
struct SpanQueue {
    spans: Mutex<Option<mpsc::Sender<Span>>>,
    dropped: AtomicU64,
}

impl SpanExporter for SpanQueue {
    fn export(&self, span: Span) {
        if !span.context.is_sampled {
            return;
        }
        let spans = self.spans.lock();
        if spans.as_ref().is_some_and(|spans| spans.try_send(span).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An exporter that prints the span of each call as a line of JSON on stderr.
#[derive(Debug)]
struct CallLog;

impl SpanExporter for CallLog {
    fn export(&self, span: Span) {
        if !span.is_server {
            return;
        }
        let seconds = span.start_and_end.1.duration_since(span.start_and_end.0).unwrap_or_default().as_secs_f64();
        let mut line = json!({
            "event": "call",
            "unix_s": span.start_and_end.1.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            "name": span.name,
            "seconds": seconds,
            "trace": format!("{:032x}", span.context.trace_id),
        });
        for (name, fact) in &span.attributes {
            line[*name] = match fact {
                AttributeValue::Text(text) => text.as_str().into(),
                AttributeValue::Number(number) => (*number).into(),
            };
        }
        log_event(&line.to_string());
    }
}

/// An exporter that passes each span to several other exporters.
#[derive(Debug)]
struct SpanSinks(Vec<Arc<dyn SpanExporter>>);

impl SpanExporter for SpanSinks {
    fn export(&self, span: Span) {
        for sink in &self.0 {
            sink.export(span.clone());
        }
    }
}

/// Creates the tracer of the server. Returns `None` if spans are neither exported to a collector nor logged; they are
/// logged as JSON lines at the log level `debug`.
pub(super) fn build_tracer(exporter: Option<&OtlpExporter>, common: &CommonArgs) -> Option<Tracer> {
    let sent = exporter.map(|exporter| exporter.queue.clone() as Arc<dyn SpanExporter>);
    let is_logged = common.log >= LogLevel::Debug && !common.quiet;
    let logged = is_logged.then(|| Arc::new(CallLog) as Arc<dyn SpanExporter>);
    let sinks: Vec<_> = sent.into_iter().chain(logged).collect();
    (!sinks.is_empty()).then(|| Tracer::new(Arc::new(SpanSinks(sinks))))
}

/// The exporter of spans to a collector: a queue, and the task that sends the queued spans.
pub(super) struct OtlpExporter {
    queue: Arc<SpanQueue>,
    sender_task: JoinHandle<()>,
}

/// An HTTP client that sends spans to a collector.
struct CollectorClient {
    client: reqwest::Client,
    url: String,
    service: String,
}

impl OtlpExporter {
    /// Starts the export if `--otlp` or the environment names a collector; otherwise returns `None`. Must be called
    /// within a tokio runtime.
    pub(super) fn start(args: &ServeArgs) -> Result<Option<Self>, Failure> {
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let added = |base: String| format!("{}{TRACES_PATH}", base.trim_end_matches('/'));
        let url = args.otlp.clone().map(added).or_else(|| environment(ENDPOINT_VARIABLES[0]));
        let Some(url) = url.or_else(|| environment(ENDPOINT_VARIABLES[1]).map(added)) else { return Ok(None) };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let problem = format!("{url} is not a collector URL: write --otlp http://HOST:4318");
            return Err(Failure::new(ErrorKind::Usage, problem));
        }
        let headers = HEADER_VARIABLES.iter().find_map(|name| environment(name)).unwrap_or_default();
        let client = build_http_client(&headers, args.ca.as_deref())?;
        let service = environment(SERVICE_NAME_VARIABLE).unwrap_or_else(|| "godwit".to_owned());
        let (spans, received) = mpsc::channel(MAX_QUEUED_SPANS);
        let queue = Arc::new(SpanQueue { spans: Mutex::new(Some(spans)), dropped: AtomicU64::new(0) });
        let sender_task = tokio::spawn(CollectorClient { client, url, service }.send_batches(received));
        Ok(Some(Self { queue, sender_task }))
    }

    /// Closes the queue and waits until the remaining spans are sent, or until a timeout.
    pub(super) async fn close(self) {
        self.queue.spans.lock().take();
        let sent = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.sender_task).await;
        let dropped = self.queue.dropped.load(Ordering::Relaxed);
        if dropped > 0 || sent.is_err() {
            let last = if sent.is_err() { ", and the last ones" } else { "" };
            log_warning(&format!("{dropped} spans{last} were not sent: the collector is too slow"));
        }
    }
}

/// Builds an HTTP client that sends these headers, given as `name=value` pairs separated by commas.
fn build_http_client(headers: &str, authority: Option<&Path>) -> Result<reqwest::Client, Failure> {
    let wrong = |problem: String| Failure::new(ErrorKind::Usage, format!("{}: {problem}", HEADER_VARIABLES[1]));
    let mut map = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for pair in headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // The error message does not contain the header, because headers may contain secrets.
        let found = pair.split_once('=').and_then(|(name, value)| {
            let value = percent_decode(value.trim())?;
            Some((name.trim().parse::<HeaderName>().ok()?, HeaderValue::from_bytes(value.as_bytes()).ok()?))
        });
        let (name, mut value) = found.ok_or_else(|| wrong("write NAME=VALUE,NAME=VALUE".to_owned()))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    let failed = |error: reqwest::Error| {
        Failure::new(
            ErrorKind::Machine,
            format!("cannot send spans: {}", godwit_model::message_with_causes(&error.without_url())),
        )
    };
    let mut builder = reqwest::Client::builder().default_headers(map).timeout(REQUEST_TIMEOUT);
    if let Some(path) = authority {
        let pem = std::fs::read(path);
        let pem =
            pem.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display())))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(failed)?;
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(failed)
}

impl CollectorClient {
    /// Sends spans to the collector until the queue is closed. Spans that the collector rejects are lost. Only the
    /// first of several consecutive rejections is reported.
    async fn send_batches(self, mut spans: mpsc::Receiver<Span>) {
        let (mut batch, mut is_told) = (Vec::new(), false);
        while let Some(first) = spans.recv().await {
            batch.push(first);
            let gathered = async {
                while batch.len() < MAX_BATCH_SPANS && spans.recv_many(&mut batch, MAX_BATCH_SPANS).await > 0 {}
            };
            let _ = tokio::time::timeout(BATCH_DELAY, gathered).await;
            let outcome = self.send_batch(&batch).await;
            batch.clear();
            if let Err(problem) = &outcome
                && !is_told
            {
                log_warning(&format!("the collector rejects spans: {problem}"));
            }
            is_told = outcome.is_err();
        }
    }

    async fn send_batch(&self, spans: &[Span]) -> Result<(), String> {
        let body = export_request(&self.service, spans).to_string();
        let sent = self.client.post(&self.url).body(body).send().await;
        let response = sent.and_then(reqwest::Response::error_for_status);
        response.map(drop).map_err(|error| godwit_model::message_with_causes(&error.without_url()))
    }
}

/// Builds the JSON of an `ExportTraceServiceRequest`, in which 64-bit numbers are strings, and trace and span ids are
/// hexadecimal.
fn export_request(service: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", service), text("service.version", version)] },
        "scopeSpans": [{
            "scope": { "name": "godwit", "version": version },
            "spans": spans.iter().map(span_json).collect::<Vec<_>>(),
        }],
    }] })
}

fn span_json(span: &Span) -> Value {
    let nanoseconds = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).map_or_else(|_| "0".to_owned(), |since| since.as_nanos().to_string())
    };
    let facts = span.attributes.iter().map(|(key, fact)| {
        let value = match fact {
            AttributeValue::Text(text) => json!({ "stringValue": text }),
            AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": key, "value": value })
    });
    let mut json_span = json!({
        "traceId": format!("{:032x}", span.context.trace_id),
        "spanId": format!("{:016x}", span.context.span_id),
        "name": span.name,
        "kind": if span.is_server { SPAN_KIND_SERVER } else { SPAN_KIND_INTERNAL },
        "startTimeUnixNano": nanoseconds(span.start_and_end.0),
        "endTimeUnixNano": nanoseconds(span.start_and_end.1),
        "attributes": facts.collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent_span_id {
        json_span["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(kind) = &span.error_type {
        json_span["status"] = json!({ "code": STATUS_CODE_ERROR, "message": kind });
    }
    json_span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_environment_are_decoded_and_wrong_ones_are_not_printed() {
        assert!(build_http_client("authorization=Bearer%20x, x-b=2,", None).is_ok());
        for wrong in ["secret", "na me=secret", "a=%zzsecret", "a=secret%0a"] {
            let failure = build_http_client(wrong, None).map(drop).unwrap_err();
            assert_eq!(failure.kind, ErrorKind::Usage);
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }
}
