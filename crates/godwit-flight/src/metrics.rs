//! Metrics of a server and its calls, for Prometheus.
//!
//! The server counts calls when they start, send data and end. A client of the path `/metrics` receives all metrics as
//! text. Dashboards depend on the names of metrics, which `docs/reference/metrics.md` lists. Each label has few
//! possible values; no label contains the name of a dataset or a principal. Counting costs an atomic addition per
//! batch, and a lock at the end of a call.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use godwit_dataset::{AccessLog, AccessLogFuture, AccessRecord};
use http::HeaderMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tonic::Code;

use crate::call_type::CallType;
use crate::code_name::code_name;
use crate::trace::OpenSpan;

/// Upper bounds of the histogram buckets for call durations, seconds. They cover lookups in memory and file transfers
/// of hours.
const DURATION_BUCKETS_S: [f64; 12] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 14400.0];

/// Outcomes of a record of the audit log; `NOTED` means that nothing waits for the outcome.
const RECORDED: &str = "recorded";
const FAILED: &str = "failed";
const NOTED: &str = "noted";

type OneLabel = [(&'static str, &'static str); 1];
type CallLabels = [(&'static str, String); 2];

/// Metrics of the calls of one type.
#[derive(Clone, Debug)]
pub(crate) struct CallMetrics {
    open_calls: Gauge,
    duration_s: Histogram,
    pub(crate) sent_bytes: Counter,
    pub(crate) sent_rows: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) received_rows: Counter,
}

/// Numbers of worker processes that run SQL statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementWorkers {
    /// Number of workers that currently run a statement.
    pub busy: usize,
    /// Number of started workers that wait for a statement.
    pub idle: usize,
    /// Maximum number of workers that may be busy at the same time.
    pub limit: usize,
}

/// The metrics of a server.
#[derive(Debug)]
pub struct ServerMetrics {
    registry: Registry,
    call_metrics: Vec<CallMetrics>,
    ended_calls: Family<CallLabels, Counter>,
    connections: Gauge,
    rejections: Family<OneLabel, Counter>,
    audit_records: Family<OneLabel, Counter>,
    workers: Family<OneLabel, Gauge>,
    worker_limit: Gauge,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("godwit");
        let build_info = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program", build_info);
        let started: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        started.set(now.map_or(0.0, |since| since.as_secs_f64()));
        registry.register("start_time_seconds", "Start of the server, seconds since 1970", started);

        let of_verb = |_| Family::<OneLabel, Counter>::default();
        let [sent_bytes, sent_rows, received_bytes, received_rows] = [(); 4].map(of_verb);
        let (open, ended_calls) = (Family::<OneLabel, Gauge>::default(), Family::<CallLabels, Counter>::default());
        let seconds = Family::<OneLabel, Histogram>::new_with_constructor(|| Histogram::new(DURATION_BUCKETS_S));
        registry.register("calls", "Calls that have ended, by call type and status", ended_calls.clone());
        registry.register("open_calls", "Open calls and streams", open.clone());
        registry.register("call_seconds", "Duration of calls until the last byte, seconds", seconds.clone());
        registry.register("sent_bytes", "Bytes of responses, before encryption", sent_bytes.clone());
        registry.register("sent_rows", "Rows of responses", sent_rows.clone());
        registry.register("received_bytes", "Bytes of uploads, after decryption", received_bytes.clone());
        registry.register("received_rows", "Rows of uploads", received_rows.clone());
        let verbs = CallType::ALL.iter().map(|(_, name)| {
            let label = [("verb", *name)];
            CallMetrics {
                open_calls: open.get_or_create_owned(&label),
                duration_s: seconds.get_or_create_owned(&label),
                sent_bytes: sent_bytes.get_or_create_owned(&label),
                sent_rows: sent_rows.get_or_create_owned(&label),
                received_bytes: received_bytes.get_or_create_owned(&label),
                received_rows: received_rows.get_or_create_owned(&label),
            }
        });
        let call_metrics = verbs.collect();

        let connections = Gauge::default();
        registry.register("open_connections", "Open connections", connections.clone());
        let rejections = counters("reason", &RejectionReason::ALL.map(RejectionReason::name));
        let audit_records = counters("outcome", &[RECORDED, FAILED, NOTED]);
        registry.register("refused_callers", "Rejected calls and connections, by reason", rejections.clone());
        registry.register("audit_lines", "Accesses passed to the audit log, by outcome", audit_records.clone());
        let (workers, worker_limit) = (Family::default(), Gauge::default());
        registry.register("statement_workers", "Worker processes for statements, by state", workers.clone());
        registry.register("statement_workers_limit", "Statements that may run concurrently", worker_limit.clone());
        Self { registry, call_metrics, ended_calls, connections, rejections, audit_records, workers, worker_limit }
    }
}

/// The reason why a call or connection was rejected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RejectionReason {
    /// The token is missing or wrong.
    Token,
    /// The scope of the token does not allow the call.
    Scope,
    /// The host name in the request is not a name of the server.
    Host,
    /// The server has reached its limit of open connections.
    Connections,
    /// The principal has reached its limit of open calls.
    Limit,
}

impl RejectionReason {
    const ALL: [Self; 5] = [Self::Token, Self::Scope, Self::Host, Self::Connections, Self::Limit];

    /// Returns the value of the label `reason`.
    fn name(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Scope => "grant",
            Self::Host => "host",
            Self::Connections => "connections",
            Self::Limit => "limit",
        }
    }
}

/// Returns counters that exist from the start, one for each value of a label: `rate()` of Prometheus does not see the first
/// event of a counter that begins with it.
fn counters(label: &'static str, values: &[&'static str]) -> Family<OneLabel, Counter> {
    let family = Family::default();
    values.iter().for_each(|value| drop(family.get_or_create(&[(label, *value)])));
    family
}

impl ServerMetrics {
    /// Counts a call as open until the returned value is dropped.
    pub(crate) fn start_call(self: &Arc<Self>, call_type: CallType) -> MeteredCall {
        self.call_metrics(call_type).open_calls.inc();
        MeteredCall { metrics: self.clone(), call_type, started: Instant::now(), status: None, span: None }
    }

    /// Returns the counters for calls of one type.
    pub(crate) fn call_metrics(&self, call_type: CallType) -> &CallMetrics {
        &self.call_metrics[call_type as usize]
    }

    /// Counts a connection as open until the returned value is dropped.
    pub(crate) fn count_connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    pub(crate) fn count_rejection(&self, reason: RejectionReason) {
        self.rejections.get_or_create(&[("reason", reason.name())]).inc();
    }

    pub(crate) fn set_workers(&self, workers: StatementWorkers) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.workers.get_or_create(&[("state", "busy")]).set(count(workers.busy));
        self.workers.get_or_create(&[("state", "idle")]).set(count(workers.idle));
        self.worker_limit.set(count(workers.limit));
    }

    /// Returns the media type and the text of all metrics. The format is OpenMetrics 1.0 if the client accepts it,
    /// otherwise the Prometheus text format 0.0.4.
    pub(crate) fn encode_text(&self, headers: &HeaderMap) -> (&'static str, String) {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        let accepted = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if accepted.flat_map(|value| value.split(',')).any(is_open_metrics) {
            return ("application/openmetrics-text; version=1.0.0; charset=utf-8", text);
        }
        ("text/plain; version=0.0.4; charset=utf-8", to_prometheus_text(&text))
    }
}

/// Returns whether one element of an `Accept` header requests OpenMetrics.
fn is_open_metrics(member: &str) -> bool {
    let mut words = member.split(';').map(str::trim);
    words.next() == Some("application/openmetrics-text") && !words.any(|word| word == "q=0" || word == "q=0.0")
}

/// Converts OpenMetrics to the Prometheus text format 0.0.4. In this format, `# TYPE` and `# HELP` lines contain the
/// full names with the suffixes `_total` and `_info`, and there is no line `# EOF`.
fn to_prometheus_text(text: &str) -> String {
    let mut counters = Vec::new();
    let mut infos = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            Some((name, "counter")) => counters.push(name),
            Some((name, "info")) => infos.push(name),
            _ => {}
        }
    }
    let mut older = String::with_capacity(text.len());
    for line in text.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(&name) => {
                older.push_str(&format!("# {what} {name}_total {rest}"));
            }
            (Some("#"), Some(what), Some(name), Some(rest)) if infos.contains(&name) => {
                let rest = if what == "TYPE" { "gauge" } else { rest };
                older.push_str(&format!("# {what} {name}_info {rest}"));
            }
            _ => older.push_str(line),
        }
        older.push('\n');
    }
    older
}

/// A connection that is counted as open until this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A call that is counted as open until this value is dropped, and then as ended.
#[derive(Debug)]
pub(crate) struct MeteredCall {
    metrics: Arc<ServerMetrics>,
    call_type: CallType,
    started: Instant,
    status: Option<String>,
    span: Option<OpenSpan>,
}

impl MeteredCall {
    /// Attaches a trace span to the call. The span ends when the call ends.
    pub(crate) fn with_span(mut self, span: Option<OpenSpan>) -> Self {
        self.span = span;
        self
    }

    pub(crate) fn call_metrics(&self) -> &CallMetrics {
        self.metrics.call_metrics(self.call_type)
    }

    /// Records the status of a gRPC call if these headers or trailers contain a status.
    pub(crate) fn record_grpc_status(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            let code = Code::from_bytes(status.as_bytes());
            self.status = Some(code_name(code).to_owned());
            if let Some(span) = &mut self.span {
                span.set_grpc_status(code);
            }
        }
    }

    /// Records the status of a plain HTTP request.
    pub(crate) fn record_http_status(&mut self, status: http::StatusCode) {
        self.status = Some(status.as_str().to_owned());
        if let Some(span) = &mut self.span {
            span.set_http_status(status);
        }
    }
}

impl Drop for MeteredCall {
    fn drop(&mut self) {
        let counts = self.call_metrics();
        counts.open_calls.dec();
        counts.duration_s.observe(self.started.elapsed().as_secs_f64());
        // Without a status, the client disconnected before the server sent one.
        let outcome = self.status.take().unwrap_or_else(|| {
            if let Some(span) = &mut self.span {
                span.set_grpc_status(Code::Cancelled);
            }
            code_name(Code::Cancelled).to_owned()
        });
        self.metrics
            .ended_calls
            .get_or_create(&[("verb", self.call_type.name().to_owned()), ("status", outcome)])
            .inc();
    }
}

/// An access log that counts its records in the metrics of the server.
#[derive(Debug)]
pub(crate) struct MeteredAccessLog {
    pub(crate) log: Arc<dyn AccessLog>,
    pub(crate) metrics: Arc<ServerMetrics>,
}

impl AccessLog for MeteredAccessLog {
    fn record(&self, access: AccessRecord) -> AccessLogFuture<'_> {
        Box::pin(async move {
            let recorded = self.log.record(access).await;
            let outcome = if recorded.is_ok() { RECORDED } else { FAILED };
            self.metrics.audit_records.get_or_create(&[("outcome", outcome)]).inc();
            recorded
        })
    }

    fn record_in_background(&self, access: AccessRecord) {
        self.log.record_in_background(access);
        // Count the record as noted: whether writing succeeds is not visible here. After a failure, the log rejects all
        // later records.
        self.metrics.audit_records.get_or_create(&[("outcome", NOTED)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded_for(metrics: &ServerMetrics, accept: &str) -> (&'static str, String) {
        metrics.encode_text(&HeaderMap::from_iter([(http::header::ACCEPT, accept.parse().unwrap())]))
    }

    #[test]
    fn a_call_is_open_until_it_is_dropped_and_then_counted_by_its_status() {
        let metrics = Arc::new(ServerMetrics::default());
        let mut call = metrics.start_call(CallType::DoGet);
        call.call_metrics().sent_rows.inc_by(7);
        let open = "godwit_open_calls{verb=\"DoGet\"} ";
        assert!(encoded_for(&metrics, "*/*").1.contains(&format!("{open}1\n")));
        call.record_grpc_status(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), "5".parse().unwrap())]));
        drop((call, metrics.start_call(CallType::DoGet)));
        let (_, text) = encoded_for(&metrics, "*/*");
        for line in [
            &format!("{open}0"),
            "godwit_sent_rows_total{verb=\"DoGet\"} 7",
            "godwit_calls_total{verb=\"DoGet\",status=\"NotFound\"} 1",
            "godwit_calls_total{verb=\"DoGet\",status=\"Cancelled\"} 1",
            "godwit_call_seconds_count{verb=\"DoGet\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn counters_with_known_labels_exist_before_their_first_event() {
        let (_, text) = encoded_for(&ServerMetrics::default(), "*/*");
        for sample in ["refused_callers_total{reason=\"limit\"}", "audit_lines_total{outcome=\"failed\"}"] {
            assert!(text.contains(&format!("godwit_{sample} 0\n")), "{sample} is not in\n{text}");
        }
    }

    #[test]
    fn each_format_names_its_families_as_it_wants() {
        let metrics = Arc::new(ServerMetrics::default());
        metrics.count_rejection(RejectionReason::Token);
        let (kind, open) =
            encoded_for(&metrics, "text/html, application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1");
        assert!(kind.starts_with("application/openmetrics-text") && open.ends_with("# EOF\n"), "{kind}");
        assert!(
            open.contains("# TYPE godwit_refused_callers counter\n") && open.contains("# TYPE godwit_build info\n")
        );
        for accept in ["text/plain", "application/openmetrics-text;q=0"] {
            let (kind, older) = encoded_for(&metrics, accept);
            assert!(kind.starts_with("text/plain; version=0.0.4") && !older.contains("# EOF"), "{kind}");
            assert!(older.contains("# TYPE godwit_refused_callers_total counter\n"), "{older}");
            assert!(older.contains("# HELP godwit_build_info ") && older.contains("# TYPE godwit_build_info gauge\n"));
            let samples = |text: &str| -> Vec<String> {
                text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
            };
            assert_eq!(samples(&older), samples(&open));
        }
    }
}
