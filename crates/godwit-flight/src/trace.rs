//! Trace spans of the work of a server, for tools that follow a request through several programs (OpenTelemetry).
//!
//! A client sends its trace context in headers (W3C Trace Context, Level 1). The server passes each finished span to a
//! [`SpanExporter`], and adds the trace context to its own calls to other servers. Spans never contain names of
//! datasets or principals, statements or tokens. Health checks and metrics requests are frequent and create no spans.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use futures_core::Stream;
use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

use crate::call_streams::{BatchItem, Download};
use crate::call_type::CallType;
use crate::code_name::code_name;
use godwit_auth::random_bytes;

/// The HTTP header that contains trace ID, span ID and flags.
const TRACEPARENT_HEADER: &str = "traceparent";
/// The HTTP header with data of other tracing systems, which is forwarded unchanged.
const TRACESTATE_HEADER: &str = "tracestate";
/// Maximum length of a `tracestate` header that is forwarded, bytes; a longer header is dropped (§3.3.1.5).
const MAX_TRACESTATE_BYTES: usize = 512;
/// The bit of the trace flags in a `traceparent` header that marks a recorded trace.
const SAMPLED_FLAG: u8 = 1;
/// Length of a `traceparent` header of version 00, bytes.
const TRACEPARENT_BYTES: usize = 55;

tokio::task_local! {
    /// The trace context for calls that the current task makes.
    static TASK_CONTEXT: TraceContext;
}

/// The trace context for calls of this process, used if a task has no context.
static PROCESS_CONTEXT: OnceLock<TraceContext> = OnceLock::new();

/// The trace and span to which work belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace ID, never 0.
    pub trace_id: u128,
    /// Span ID, never 0.
    pub span_id: u64,
    /// True if the spans of the trace are recorded.
    pub is_sampled: bool,
    tracestate: Option<Arc<str>>,
}

impl TraceContext {
    /// Parses a `traceparent` header; `None` if the header is malformed.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_flight::trace::TraceContext;
    ///
    /// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let context = TraceContext::parse(text).ok_or("the header is malformed")?;
    /// assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    /// assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
    /// assert!(context.is_sampled);
    /// assert_eq!(TraceContext::parse("00-4bf92f35-00f067aa-01"), None);
    /// # Ok(())
    /// # }
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let lower_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let mut parts = text.split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let lengths = [version.len(), trace.len(), span.len(), flags.len()];
        let is_whole = lengths == [2, 32, 16, 2] && [version, trace, span, flags].into_iter().all(lower_hex);
        if !is_whole || version == "ff" || (version == "00" && text.len() != TRACEPARENT_BYTES) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|number| *number != 0)?;
        let span_id = u64::from_str_radix(span, 16).ok().filter(|number| *number != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace_id, span_id, is_sampled: flags & SAMPLED_FLAG != 0, tracestate: None })
    }

    /// Returns the value of a `traceparent` header.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_flight::trace::TraceContext;
    ///
    /// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let mut context = TraceContext::parse(text).ok_or("the header is malformed")?;
    /// assert_eq!(context.to_traceparent(), text);
    /// context.is_sampled = false;
    /// assert!(context.to_traceparent().ends_with("-00"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.is_sampled))
    }

    /// Returns the trace context in the headers of a request; `None` if there is no valid one.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACEPARENT_HEADER).iter();
        // A request with more than one `traceparent` header is treated as a request without it (§3.2).
        let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
        let context = Self::parse(parent.to_str().ok()?)?;
        let states: Vec<&str> =
            headers.get_all(TRACESTATE_HEADER).iter().filter_map(|value| value.to_str().ok()).collect();
        let state = states.join(",");
        let is_passed_on = !state.is_empty() && state.len() <= MAX_TRACESTATE_BYTES;
        Some(Self { tracestate: is_passed_on.then(|| state.into()), ..context })
    }

    /// Adds the trace context to the headers of an outgoing call.
    pub(crate) fn insert_into(&self, headers: &mut HeaderMap) {
        let mut add = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        add(TRACEPARENT_HEADER, &self.to_traceparent());
        if let Some(state) = &self.tracestate {
            add(TRACESTATE_HEADER, state);
        }
    }

    /// Creates the context of a new span within `parent`; without a parent, the first span of a new trace.
    fn child_of(parent: Option<&Self>) -> Self {
        let not_zero = |bytes: [u8; 8]| u64::from_le_bytes(bytes).max(1);
        let (high, low) = (not_zero(random_bytes()), not_zero(random_bytes()));
        let span_id = not_zero(random_bytes());
        match parent {
            Some(parent) => Self { span_id, ..parent.clone() },
            None => {
                Self { trace_id: u128::from(high) << 64 | u128::from(low), span_id, is_sampled: true, tracestate: None }
            }
        }
    }
}

/// Sets the trace context of this process, which its parent process passed to it. Only the first call has an effect.
pub fn set_process_context(context: TraceContext) {
    let _ = PROCESS_CONTEXT.set(context);
}

/// Returns the trace context of the current task, or else of this process.
pub(crate) fn current_context() -> Option<TraceContext> {
    TASK_CONTEXT.try_with(TraceContext::clone).ok().or_else(|| PROCESS_CONTEXT.get().cloned())
}

/// Runs work with a trace context, which the calls of the work send to other servers.
pub(crate) async fn with_context<T>(context: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    match context {
        Some(context) => TASK_CONTEXT.scope(context, work).await,
        None => work.await,
    }
}

/// The value of a span attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttributeValue {
    /// A string.
    Text(String),
    /// An integer.
    Number(i64),
}

/// A finished trace span.
#[derive(Clone, Debug)]
pub struct Span {
    /// Trace ID and span ID of this span.
    pub context: TraceContext,
    /// Span ID of the parent span; `None` for the first span of a trace.
    pub parent_span_id: Option<u64>,
    /// Name of the span, such as the called RPC.
    pub name: String,
    /// True for a span that handles a request of a client (kind SERVER); false for an internal span.
    pub is_server: bool,
    /// Start and end of the span.
    pub start_and_end: (SystemTime, SystemTime),
    /// Attributes by name. Names follow the semantic conventions of OpenTelemetry if these define one.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// The error type if the server failed, such as a gRPC code; `None` otherwise.
    pub error_type: Option<String>,
}

/// A receiver of finished spans, including spans of traces that are not sampled. An implementation must not block; it
/// should drop spans that it cannot store.
pub trait SpanExporter: fmt::Debug + Send + Sync + 'static {
    /// Receives a finished span for export.
    fn export(&self, span: Span);
}

/// A factory of spans, which passes finished spans to an exporter.
#[derive(Clone, Debug)]
pub struct Tracer {
    exporter: Arc<dyn SpanExporter>,
}

impl Tracer {
    /// Creates a tracer that passes finished spans to this exporter.
    pub fn new(exporter: Arc<dyn SpanExporter>) -> Self {
        Self { exporter }
    }

    /// Starts the span of a call that a client made; `None` for health checks and metrics requests.
    pub(crate) fn start_server_span(
        &self,
        call_type: CallType,
        request: &http::request::Parts,
        is_grpc: bool,
    ) -> Option<OpenSpan> {
        if matches!(call_type, CallType::Health | CallType::Metrics) {
            return None;
        }
        let parent = TraceContext::from_headers(&request.headers);
        let text = |text: &str| AttributeValue::Text(text.to_owned());
        let (name, facts) = match request.uri.path().trim_start_matches('/').rsplit_once('/') {
            Some((service, method)) if is_grpc && call_type != CallType::Other => (
                format!("{service}/{method}"),
                vec![("rpc.system", text("grpc")), ("rpc.service", text(service)), ("rpc.method", text(method))],
            ),
            _ => {
                let method = method_attribute(&request.method);
                let facts = vec![("http.request.method", text(method)), ("http.route", text(call_type.name()))];
                (format!("{method} {}", call_type.name()), facts)
            }
        };
        Some(self.new_span(name, parent.as_ref(), true, facts))
    }

    /// Starts an internal span. Its parent is the span of the current task.
    pub(crate) fn start_span(&self, name: &str) -> OpenSpan {
        self.new_span(name.to_owned(), current_context().as_ref(), false, Vec::new())
    }

    fn new_span(
        &self,
        name: String,
        parent: Option<&TraceContext>,
        is_server: bool,
        attributes: Vec<(&'static str, AttributeValue)>,
    ) -> OpenSpan {
        let (context, now) = (TraceContext::child_of(parent), SystemTime::now());
        let parent_span_id = parent.map(|parent| parent.span_id);
        let span =
            Span { context, parent_span_id, name, is_server, start_and_end: (now, now), attributes, error_type: None };
        OpenSpan { span, started: Instant::now(), exporter: self.exporter.clone() }
    }
}

/// Returns the HTTP method, or `_OTHER` for an unknown method, because clients can send any word as method.
fn method_attribute(method: &http::Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "OPTIONS" | "PUT" | "DELETE" | "PATCH" | "TRACE" | "CONNECT") => known,
        _ => "_OTHER",
    }
}

/// A started span, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    span: Span,
    started: Instant,
    exporter: Arc<dyn SpanExporter>,
}

impl OpenSpan {
    pub(crate) fn context(&self) -> TraceContext {
        self.span.context.clone()
    }

    fn set_number(&mut self, name: &'static str, number: i64) {
        self.span.attributes.push((name, AttributeValue::Number(number)));
    }

    /// Adds the status of a gRPC call to the span.
    pub(crate) fn set_grpc_status(&mut self, code: Code) {
        self.set_number("rpc.grpc.status_code", i64::from(code as i32));
        self.set_error_type(code);
    }

    /// Adds the status of an HTTP request that is not gRPC to the span.
    pub(crate) fn set_http_status(&mut self, status: http::StatusCode) {
        self.set_number("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.span.error_type = Some(status.as_str().to_owned());
        }
    }

    /// Sets the error type of the span if the gRPC code means a failure of the server, as OpenTelemetry defines it.
    fn set_error_type(&mut self, code: Code) {
        let own = [Code::Unknown, Code::DeadlineExceeded, Code::Unimplemented, Code::Internal, Code::Unavailable];
        if own.contains(&code) || code == Code::DataLoss {
            self.span.error_type = Some(code_name(code).to_owned());
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let now = SystemTime::now();
        // Compute the end from the monotonic clock: a change of the system clock must not make a span end before its
        // start.
        self.span.start_and_end.1 = self.span.start_and_end.0.checked_add(self.started.elapsed()).unwrap_or(now);
        self.exporter.export(self.span.clone());
    }
}

/// Wraps a download so that the span ends with its last batch. If the download could not start, ends the span with the
/// error.
pub(crate) fn trace_download(span: Option<OpenSpan>, started: Result<Download, Status>) -> Result<Download, Status> {
    let Some(mut span) = span else { return started };
    match started {
        Ok(Download { schema, batches }) => {
            let measure = |item: &BatchItem| item.0.num_rows() as i64;
            Ok(Download { schema, batches: trace_stream(Some(span), batches, "godwit.rows", measure) })
        }
        Err(status) => {
            span.set_error_type(status.code());
            Err(status)
        }
    }
}

type ResultStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Wraps a stream so that the span ends with the stream. The sum of `measure` over all items becomes the attribute
/// `total_attribute`.
pub(crate) fn trace_stream<T: 'static>(
    span: Option<OpenSpan>,
    stream: ResultStream<T>,
    total_attribute: &'static str,
    measure: fn(&T) -> i64,
) -> ResultStream<T> {
    match span {
        Some(span) => Box::pin(TracedStream { stream, span, total_attribute, measure, total: 0 }),
        None => stream,
    }
}

struct TracedStream<T> {
    stream: ResultStream<T>,
    span: OpenSpan,
    total_attribute: &'static str,
    measure: fn(&T) -> i64,
    total: i64,
}

impl<T> Stream for TracedStream<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = ready!(self.stream.as_mut().poll_next(context));
        match &piece {
            Some(Ok(piece)) => self.total += (self.measure)(piece),
            Some(Err(status)) => self.span.set_error_type(status.code()),
            None => {}
        }
        Poll::Ready(piece)
    }
}

impl<T> Drop for TracedStream<T> {
    fn drop(&mut self) {
        self.span.set_number(self.total_attribute, self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_the_specification_has_them() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!((context.trace_id, context.span_id), (0x4bf92f3577b34da6a3ce929d0e0e4736, 0x00f067aa0ba902b7));
        assert!(context.is_sampled && context.to_traceparent() == text);
        assert!(!TraceContext::parse(&text.replace("-01", "-00")).unwrap().is_sampled);
        let later = TraceContext::parse(&format!("{}-what-comes", text.replace("00-4", "01-4"))).unwrap();
        assert_eq!(later.to_traceparent(), text);
        for wrong in [
            "",
            "00",
            &text.to_uppercase(),
            &text.replace("00-4", "ff-4"),
            &format!("{text}-x"),
            &text[..54],
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT_HEADER, text.parse().unwrap());
        headers.append(TRACESTATE_HEADER, "a=1".parse().unwrap());
        headers.append(TRACESTATE_HEADER, "b=2".parse().unwrap());
        let mut passed_on = HeaderMap::new();
        TraceContext::from_headers(&headers).unwrap().insert_into(&mut passed_on);
        assert_eq!(
            (&passed_on[TRACEPARENT_HEADER], &passed_on[TRACESTATE_HEADER]),
            (&text.parse().unwrap(), &"a=1,b=2".parse().unwrap())
        );
        headers.append(TRACEPARENT_HEADER, text.parse().unwrap());
        assert_eq!(TraceContext::from_headers(&headers), None, "two of them");
    }

    #[test]
    fn spans_have_the_context_of_their_task_as_parent() {
        #[derive(Debug, Default)]
        struct CollectingExporter(parking_lot::Mutex<Vec<Span>>);
        impl SpanExporter for CollectingExporter {
            fn export(&self, span: Span) {
                self.0.lock().push(span);
            }
        }
        let kept = Arc::new(CollectingExporter::default());
        let tracer = Tracer::new(kept.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        runtime.block_on(with_context(Some(context.clone()), async { drop(tracer.start_span("read")) }));
        let not_kept = TraceContext { is_sampled: false, ..context.clone() };
        runtime.block_on(with_context(Some(not_kept), async { drop(tracer.start_span("read")) }));
        runtime.block_on(async { drop(tracer.start_span("read")) });
        let spans = kept.0.lock();
        assert_eq!(spans.len(), 3);
        assert!(
            !spans[1].context.is_sampled
                && spans[2].parent_span_id.is_none()
                && spans[2].context.trace_id != context.trace_id
        );
        assert_eq!((spans[0].context.trace_id, spans[0].parent_span_id), (context.trace_id, Some(context.span_id)));
        assert!(spans[0].context.span_id != context.span_id && spans[0].start_and_end.0 <= spans[0].start_and_end.1);
    }
}
