//! Spans: what a server did for whom, for tools that follow a request through several programs (OpenTelemetry).
//!
//! Flows in: the context of who calls (W3C Trace Context, Level 1), and what begins and ends. Flows out: spans, to whoever sends them on
//! ([`SpanSink`]); and the context, with every call that is made on the way. Spans hold no name of a dataset or of somebody, no statement
//! and no token. Health and metrics are asked for all the time and make none.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use futures_core::Stream;
use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

use crate::access::code_name;
use crate::metrics::Verb;
use crate::server::{Download, Item};
use crate::sql::random_bytes;

/// The header of a context.
pub const TRACE_PARENT: &str = "traceparent";
/// What programs on the way add to it.
const TRACE_STATE: &str = "tracestate";
/// Bytes of that which are passed on; what is longer is left out (§3.3.1.5).
const STATE_BYTES: usize = 512;
/// The bit of the flags that says that spans are kept.
const SAMPLED: u8 = 1;
/// Bytes of a header of version 00.
const PARENT_BYTES: usize = 55;

tokio::task_local! {
    /// What the calls of a task belong to.
    static CURRENT: TraceContext;
}

/// What the calls of this process belong to, where their task belongs to nothing else.
static PROCESS: OnceLock<TraceContext> = OnceLock::new();

/// The span that something is part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Number of the trace, not 0.
    pub trace: u128,
    /// Number of the span, not 0.
    pub span: u64,
    /// Whether spans of it are kept.
    pub is_sampled: bool,
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// Reads the text of a header; `None` where it is none, and a new trace begins.
    pub fn parse(text: &str) -> Option<Self> {
        let lower_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let mut parts = text.split('-');
        let [version, trace, span, flags] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let lengths = [version.len(), trace.len(), span.len(), flags.len()];
        let is_whole = lengths == [2, 32, 16, 2] && [version, trace, span, flags].into_iter().all(lower_hex);
        if !is_whole || version == "ff" || (version == "00" && text.len() != PARENT_BYTES) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|number| *number != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|number| *number != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, is_sampled: flags & SAMPLED != 0, state: None })
    }

    /// The text of a header.
    pub fn text(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    /// What a caller belongs to.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACE_PARENT).iter();
        // Two of them are none (§3.2).
        let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
        let context = Self::parse(parent.to_str().ok()?)?;
        let states: Vec<&str> = headers.get_all(TRACE_STATE).iter().filter_map(|value| value.to_str().ok()).collect();
        let state = states.join(",");
        let is_passed_on = !state.is_empty() && state.len() <= STATE_BYTES;
        Some(Self { state: is_passed_on.then(|| state.into()), ..context })
    }

    /// Tells whoever is called what the call belongs to.
    pub(crate) fn add_to(&self, headers: &mut HeaderMap) {
        let mut add = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        add(TRACE_PARENT, &self.text());
        if let Some(state) = &self.state {
            add(TRACE_STATE, state);
        }
    }

    /// A span within this one, or the first of a trace.
    fn within(parent: Option<&Self>) -> Self {
        let not_zero = |bytes: [u8; 8]| u64::from_le_bytes(bytes).max(1);
        let (high, low) = (not_zero(random_bytes()), not_zero(random_bytes()));
        let span = not_zero(random_bytes());
        match parent {
            Some(parent) => Self { span, ..parent.clone() },
            None => Self { trace: u128::from(high) << 64 | u128::from(low), span, is_sampled: true, state: None },
        }
    }
}

/// What this process belongs to, as whoever started it said; only the first word counts.
pub fn continue_from(context: TraceContext) {
    let _ = PROCESS.set(context);
}

/// What the calls of this task belong to.
pub(crate) fn current() -> Option<TraceContext> {
    CURRENT.try_with(TraceContext::clone).ok().or_else(|| PROCESS.get().cloned())
}

/// Does some work whose calls belong to a span.
pub(crate) async fn within<T>(context: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    match context {
        Some(context) => CURRENT.scope(context, work).await,
        None => work.await,
    }
}

/// Something that is known of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanFact {
    /// A word.
    Text(String),
    /// A number.
    Number(i64),
}

/// What was done, and when.
#[derive(Clone, Debug)]
pub struct Span {
    /// Which span it is.
    pub context: TraceContext,
    /// The number of the span that it is part of.
    pub parent: Option<u64>,
    /// What it is called.
    pub name: String,
    /// Whether it answers somebody; otherwise it is a part of that.
    pub is_call: bool,
    /// When it began and ended.
    pub times: (SystemTime, SystemTime),
    /// What else is known, by name (OpenTelemetry's semantic conventions, where they have one).
    pub facts: Vec<(&'static str, SpanFact)>,
    /// What kind of failure it ended with, where the server is to blame.
    pub failed: Option<String>,
}

/// Where spans go, also those of a trace that its caller does not keep. It keeps nobody waiting: what it has no room for it drops.
pub trait SpanSink: fmt::Debug + Send + Sync + 'static {
    /// A span has ended.
    fn ended(&self, span: Span);
}

/// Makes spans.
#[derive(Clone, Debug)]
pub struct Tracer {
    sink: Arc<dyn SpanSink>,
}

impl Tracer {
    /// Spans go there.
    pub fn new(sink: Arc<dyn SpanSink>) -> Self {
        Self { sink }
    }

    /// A call begins; `None` where it is not to be kept.
    pub(crate) fn call(&self, verb: Verb, request: &http::request::Parts, is_grpc: bool) -> Option<OpenSpan> {
        if matches!(verb, Verb::Health | Verb::Metrics) {
            return None;
        }
        let parent = TraceContext::of(&request.headers);
        let text = |text: &str| SpanFact::Text(text.to_owned());
        let (name, facts) = match request.uri.path().trim_start_matches('/').rsplit_once('/') {
            Some((service, method)) if is_grpc && verb != Verb::Other => (
                format!("{service}/{method}"),
                vec![("rpc.system", text("grpc")), ("rpc.service", text(service)), ("rpc.method", text(method))],
            ),
            _ => {
                let method = known_method(&request.method);
                let facts = vec![("http.request.method", text(method)), ("http.route", text(verb.name()))];
                (format!("{method} {}", verb.name()), facts)
            }
        };
        Some(self.begin(name, parent.as_ref(), true, facts))
    }

    /// Something begins that is part of what this task does.
    pub(crate) fn part(&self, name: &str) -> OpenSpan {
        self.begin(name.to_owned(), current().as_ref(), false, Vec::new())
    }

    fn begin(
        &self,
        name: String,
        parent: Option<&TraceContext>,
        is_call: bool,
        facts: Vec<(&'static str, SpanFact)>,
    ) -> OpenSpan {
        let (context, now) = (TraceContext::within(parent), SystemTime::now());
        let parent = parent.map(|parent| parent.span);
        let span = Span { context, parent, name, is_call, times: (now, now), facts, failed: None };
        OpenSpan { span, began: Instant::now(), sink: self.sink.clone() }
    }
}

/// The methods that there are; any word can be sent for one.
fn known_method(method: &http::Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "OPTIONS" | "PUT" | "DELETE" | "PATCH" | "TRACE" | "CONNECT") => known,
        _ => "_OTHER",
    }
}

/// A span that has begun. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    span: Span,
    began: Instant,
    sink: Arc<dyn SpanSink>,
}

impl OpenSpan {
    pub(crate) fn context(&self) -> TraceContext {
        self.span.context.clone()
    }

    fn note(&mut self, name: &'static str, number: i64) {
        self.span.facts.push((name, SpanFact::Number(number)));
    }

    /// What came of a call of gRPC.
    pub(crate) fn note_grpc(&mut self, code: Code) {
        self.note("rpc.grpc.status_code", i64::from(code as i32));
        self.blame(code);
    }

    /// What came of a request that is none of gRPC.
    pub(crate) fn note_http(&mut self, status: http::StatusCode) {
        self.note("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.span.failed = Some(status.as_str().to_owned());
        }
    }

    /// The codes by which a server fails (OpenTelemetry's conventions for gRPC).
    fn blame(&mut self, code: Code) {
        let own = [Code::Unknown, Code::DeadlineExceeded, Code::Unimplemented, Code::Internal, Code::Unavailable];
        if own.contains(&code) || code == Code::DataLoss {
            self.span.failed = Some(code_name(code).to_owned());
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let now = SystemTime::now();
        // A clock that is set in between makes no span end before it began.
        self.span.times.1 = self.span.times.0.checked_add(self.began.elapsed()).unwrap_or(now);
        self.sink.ended(self.span.clone());
    }
}

/// The batches of something that has begun, which ends with them; or why it did not begin.
pub(crate) fn over(span: Option<OpenSpan>, started: Result<Download, Status>) -> Result<Download, Status> {
    let Some(mut span) = span else { return started };
    match started {
        Ok(Download { schema, batches }) => {
            let measure = |item: &Item| item.0.num_rows() as i64;
            Ok(Download { schema, batches: over_stream(Some(span), batches, "godwit.rows", measure) })
        }
        Err(status) => {
            span.blame(status.code());
            Err(status)
        }
    }
}

type Pieces<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The pieces of something that has begun, which ends with them; what they add up to is told by that name.
pub(crate) fn over_stream<T: 'static>(
    span: Option<OpenSpan>,
    pieces: Pieces<T>,
    name: &'static str,
    measure: fn(&T) -> i64,
) -> Pieces<T> {
    match span {
        Some(span) => Box::pin(Traced { pieces, span, name, measure, total: 0 }),
        None => pieces,
    }
}

struct Traced<T> {
    pieces: Pieces<T>,
    span: OpenSpan,
    name: &'static str,
    measure: fn(&T) -> i64,
    total: i64,
}

impl<T> Stream for Traced<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = ready!(self.pieces.as_mut().poll_next(context));
        match &piece {
            Some(Ok(piece)) => self.total += (self.measure)(piece),
            Some(Err(status)) => self.span.blame(status.code()),
            None => {}
        }
        Poll::Ready(piece)
    }
}

impl<T> Drop for Traced<T> {
    fn drop(&mut self) {
        self.span.note(self.name, self.total);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_as_the_specification_has_them() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(text).unwrap();
        assert_eq!((context.trace, context.span), (0x4bf92f3577b34da6a3ce929d0e0e4736, 0x00f067aa0ba902b7));
        assert!(context.is_sampled && context.text() == text);
        assert!(!TraceContext::parse(&text.replace("-01", "-00")).unwrap().is_sampled);
        let later = TraceContext::parse(&format!("{}-what-comes", text.replace("00-4", "01-4"))).unwrap();
        assert_eq!(later.text(), text);
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
        headers.append(TRACE_PARENT, text.parse().unwrap());
        headers.append(TRACE_STATE, "a=1".parse().unwrap());
        headers.append(TRACE_STATE, "b=2".parse().unwrap());
        let mut passed_on = HeaderMap::new();
        TraceContext::of(&headers).unwrap().add_to(&mut passed_on);
        assert_eq!(
            (&passed_on[TRACE_PARENT], &passed_on[TRACE_STATE]),
            (&text.parse().unwrap(), &"a=1,b=2".parse().unwrap())
        );
        headers.append(TRACE_PARENT, text.parse().unwrap());
        assert_eq!(TraceContext::of(&headers), None, "two of them");
    }

    #[test]
    fn parts_belong_to_what_their_task_belongs_to() {
        #[derive(Debug, Default)]
        struct Kept(std::sync::Mutex<Vec<Span>>);
        impl SpanSink for Kept {
            fn ended(&self, span: Span) {
                self.0.lock().unwrap().push(span);
            }
        }
        let kept = Arc::new(Kept::default());
        let tracer = Tracer::new(kept.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
        runtime.block_on(within(Some(context.clone()), async { drop(tracer.part("read")) }));
        let not_kept = TraceContext { is_sampled: false, ..context.clone() };
        runtime.block_on(within(Some(not_kept), async { drop(tracer.part("read")) }));
        runtime.block_on(async { drop(tracer.part("read")) });
        let spans = kept.0.lock().unwrap();
        assert_eq!(spans.len(), 3);
        assert!(!spans[1].context.is_sampled && spans[2].parent.is_none() && spans[2].context.trace != context.trace);
        assert_eq!((spans[0].context.trace, spans[0].parent), (context.trace, Some(context.span)));
        assert!(spans[0].context.span != context.span && spans[0].times.0 <= spans[0].times.1);
    }
}
