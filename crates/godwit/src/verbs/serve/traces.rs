//! Spans on their way to a collector: OTLP over HTTP, as JSON (OpenTelemetry Protocol 1.x, "OTLP/HTTP").

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use godwit_flight::trace::{Span, SpanFact, SpanSink, Tracer};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::cli::{Common, LogLevel, ServeArgs};
use crate::failure::{Exit, Failure, log_event, log_warning};

/// Where a collector is, as OpenTelemetry's programs are told: for traces alone, or the address that what it is for is added to.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Headers for it, `name=value` with commas between.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// What the server is called there.
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
/// What is added to an address.
const PATH: &str = "/v1/traces";
/// Spans that wait, at most; others are dropped (2048 and 512 are the values that OpenTelemetry's programs have).
const WAITING: usize = 2048;
/// Spans that are sent at a time, and how long the first of them waits for others.
const AT_A_TIME: usize = 512;
const GATHERING: Duration = Duration::from_secs(1);
/// How long a collector may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last spans may take once the server has ended.
const LAST_PATIENCE: Duration = Duration::from_secs(3);
/// `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// The server's end of the queue.
#[derive(Debug)]
struct Queue {
    spans: Mutex<Option<mpsc::Sender<Span>>>,
    dropped: AtomicU64,
}

impl SpanSink for Queue {
    fn ended(&self, span: Span) {
        if !span.context.is_sampled {
            return;
        }
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.as_ref().is_some_and(|spans| spans.try_send(span).is_err()) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Calls as lines of the log.
#[derive(Debug)]
struct CallLog;

impl SpanSink for CallLog {
    fn ended(&self, span: Span) {
        if !span.is_call {
            return;
        }
        let seconds = span.times.1.duration_since(span.times.0).unwrap_or_default().as_secs_f64();
        let mut line = json!({
            "event": "call",
            "unix_s": span.times.1.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            "name": span.name,
            "seconds": seconds,
            "trace": format!("{:032x}", span.context.trace),
        });
        for (name, fact) in &span.facts {
            line[*name] = match fact {
                SpanFact::Text(text) => text.as_str().into(),
                SpanFact::Number(number) => (*number).into(),
            };
        }
        log_event(&line.to_string());
    }
}

/// What has all spans.
#[derive(Debug)]
struct All(Vec<Arc<dyn SpanSink>>);

impl SpanSink for All {
    fn ended(&self, span: Span) {
        for sink in &self.0 {
            sink.ended(span.clone());
        }
    }
}

/// What makes spans, where somebody wants them: a collector, or the log of everything, which has each call as a line of JSON.
pub(super) fn tracer_of(exporter: Option<&Exporter>, common: &Common) -> Option<Tracer> {
    let sent = exporter.map(|exporter| exporter.queue.clone() as Arc<dyn SpanSink>);
    let is_logged = common.log >= LogLevel::Debug && !common.quiet;
    let logged = is_logged.then(|| Arc::new(CallLog) as Arc<dyn SpanSink>);
    let sinks: Vec<_> = sent.into_iter().chain(logged).collect();
    (!sinks.is_empty()).then(|| Tracer::new(Arc::new(All(sinks))))
}

/// What sends spans.
pub(super) struct Exporter {
    queue: Arc<Queue>,
    sending: JoinHandle<()>,
}

/// Where spans go, and as whose.
struct Collector {
    client: reqwest::Client,
    url: String,
    service: String,
}

impl Exporter {
    /// Begins to send, where an option or the environment says where to. To be called within a runtime.
    pub(super) fn start(args: &ServeArgs) -> Result<Option<Self>, Failure> {
        let environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let added = |base: String| format!("{}{PATH}", base.trim_end_matches('/'));
        let url = args.otlp.clone().map(added).or_else(|| environment(ENDPOINTS[0]));
        let Some(url) = url.or_else(|| environment(ENDPOINTS[1]).map(added)) else { return Ok(None) };
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let problem = format!("{url} is no address of a collector: write --otlp http://HOST:4318");
            return Err(Failure::new(Exit::Usage, problem));
        }
        let headers = HEADERS.iter().find_map(|name| environment(name)).unwrap_or_default();
        let client = client(&headers, args.ca.as_deref())?;
        let service = environment(SERVICE_NAME).unwrap_or_else(|| "godwit".to_owned());
        let (spans, received) = mpsc::channel(WAITING);
        let queue = Arc::new(Queue { spans: Mutex::new(Some(spans)), dropped: AtomicU64::new(0) });
        let sending = tokio::spawn(Collector { client, url, service }.send_all(received));
        Ok(Some(Self { queue, sending }))
    }

    /// Sends what is left.
    pub(super) async fn close(self) {
        self.queue.spans.lock().unwrap_or_else(PoisonError::into_inner).take();
        let sent = tokio::time::timeout(LAST_PATIENCE, self.sending).await;
        let dropped = self.queue.dropped.load(Ordering::Relaxed);
        if dropped > 0 || sent.is_err() {
            let last = if sent.is_err() { ", and the last ones" } else { "" };
            log_warning(&format!("{dropped} spans{last} were not sent: the collector is too slow"));
        }
    }
}

/// Speaks HTTP with these headers, `name=value` with commas between.
fn client(headers: &str, authority: Option<&Path>) -> Result<reqwest::Client, Failure> {
    let wrong = |problem: String| Failure::new(Exit::Usage, format!("{}: {problem}", HEADERS[1]));
    let mut map = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    for pair in headers.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        // What stands in it may be a secret, and is not told.
        let found = pair.split_once('=').and_then(|(name, value)| {
            let value = decoded(value.trim())?;
            Some((name.trim().parse::<HeaderName>().ok()?, HeaderValue::from_bytes(&value).ok()?))
        });
        let (name, mut value) = found.ok_or_else(|| wrong("write NAME=VALUE,NAME=VALUE".to_owned()))?;
        value.set_sensitive(true);
        map.insert(name, value);
    }
    let failed = |error: reqwest::Error| {
        Failure::new(Exit::Machine, format!("cannot send spans: {}", godwit_formats::with_causes(&error.without_url())))
    };
    let mut builder = reqwest::Client::builder().default_headers(map).timeout(PATIENCE);
    if let Some(path) = authority {
        let pem = std::fs::read(path);
        let pem =
            pem.map_err(|error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", path.display())))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&pem).map_err(failed)?;
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(failed)
}

/// Text whose percent signs stand before two hexadecimal digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>()?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    Some(bytes)
}

impl Collector {
    /// Sends spans until nobody has any more. What a collector does not take is not sent again; that it does not is told once, until it
    /// does.
    async fn send_all(self, mut spans: mpsc::Receiver<Span>) {
        let (mut batch, mut is_told) = (Vec::new(), false);
        while let Some(first) = spans.recv().await {
            batch.push(first);
            let gathered =
                async { while batch.len() < AT_A_TIME && spans.recv_many(&mut batch, AT_A_TIME).await > 0 {} };
            let _ = tokio::time::timeout(GATHERING, gathered).await;
            let outcome = self.send(&batch).await;
            batch.clear();
            if let Err(problem) = &outcome
                && !is_told
            {
                log_warning(&format!("the collector does not take spans: {problem}"));
            }
            is_told = outcome.is_err();
        }
    }

    async fn send(&self, spans: &[Span]) -> Result<(), String> {
        let body = request(&self.service, spans).to_string();
        let sent = self.client.post(&self.url).body(body).send().await;
        let answered = sent.and_then(reqwest::Response::error_for_status);
        answered.map(drop).map_err(|error| godwit_formats::with_causes(&error.without_url()))
    }
}

/// An `ExportTraceServiceRequest`. Numbers of 64 bits are strings in JSON, those of traces and spans hexadecimal digits.
fn request(service: &str, spans: &[Span]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", service), text("service.version", version)] },
        "scopeSpans": [{
            "scope": { "name": "godwit", "version": version },
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }] })
}

fn span(span: &Span) -> Value {
    let nanoseconds = |time: SystemTime| {
        time.duration_since(UNIX_EPOCH).map_or_else(|_| "0".to_owned(), |since| since.as_nanos().to_string())
    };
    let facts = span.facts.iter().map(|(key, fact)| {
        let value = match fact {
            SpanFact::Text(text) => json!({ "stringValue": text }),
            SpanFact::Number(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": key, "value": value })
    });
    let mut told = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.context.span),
        "name": span.name,
        "kind": if span.is_call { SERVER } else { INTERNAL },
        "startTimeUnixNano": nanoseconds(span.times.0),
        "endTimeUnixNano": nanoseconds(span.times.1),
        "attributes": facts.collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(kind) = &span.failed {
        told["status"] = json!({ "code": ERROR, "message": kind });
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_environment_are_decoded_and_wrong_ones_are_not_told() {
        assert_eq!(decoded("Bearer%20a%2Cb").as_deref(), Some(&b"Bearer a,b"[..]));
        assert_eq!(decoded("a%2"), None);
        assert!(client("authorization=Bearer%20x, x-b=2,", None).is_ok());
        for wrong in ["secret", "na me=secret", "a=%zzsecret", "a=secret%0a"] {
            let failure = client(wrong, None).map(drop).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage);
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }
}
