//! What a server counts of its calls, as Prometheus reads it.
//!
//! Flows in: calls as they begin, go on and end. Flows out: text, in the format that whoever asks wants. Names of metrics are a
//! contract with dashboards and listed in `docs/reference/metrics.md`. Labels have few values: no name of a dataset or of somebody is in any.
//! Counting costs an atomic addition for each batch, and a lock when a call ends.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::HeaderMap;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use tonic::Code;

use crate::access::{AccessLog, Accessed, code_name};
use crate::sql::Pending;
use crate::trace::OpenSpan;
use crate::web::{API, FILE_DATA, READS, REFERENCES, SEQUENCES, SITE, VARIANTS};

/// Where metrics are told.
pub(crate) const METRICS: &str = "/metrics";

/// Upper ends of the buckets of durations, seconds: from a lookup in memory to a file of hours.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 14400.0];

type OneLabel = [(&'static str, &'static str); 1];
type CallLabels = [(&'static str, String); 2];

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Verb {
    DoGet,
    DoPut,
    DoExchange,
    DoAction,
    GetFlightInfo,
    GetSchema,
    ListFlights,
    ListActions,
    Handshake,
    Health,
    Metrics,
    /// Tickets of htsget, and what else it tells.
    Htsget,
    /// Bytes of files that those tickets are for.
    HtsgetData,
    /// Sequences by their digests.
    Refget,
    /// The page of a server, and what it asks.
    Page,
    /// What is none of these.
    Other,
}

impl Verb {
    const ALL: [(Self, &str); 16] = [
        (Self::DoGet, "DoGet"),
        (Self::DoPut, "DoPut"),
        (Self::DoExchange, "DoExchange"),
        (Self::DoAction, "DoAction"),
        (Self::GetFlightInfo, "GetFlightInfo"),
        (Self::GetSchema, "GetSchema"),
        (Self::ListFlights, "ListFlights"),
        (Self::ListActions, "ListActions"),
        (Self::Handshake, "Handshake"),
        (Self::Health, "Health"),
        (Self::Metrics, "Metrics"),
        (Self::Htsget, "Htsget"),
        (Self::HtsgetData, "HtsgetData"),
        (Self::Refget, "Refget"),
        (Self::Page, "Page"),
        (Self::Other, "Other"),
    ];

    /// What a path stands for.
    pub(crate) fn of(path: &str) -> Self {
        if let Some(method) = path.strip_prefix("/arrow.flight.protocol.FlightService/") {
            let found = Self::ALL[..=Self::Handshake as usize].iter().find(|(_, name)| *name == method);
            return found.map_or(Self::Other, |(verb, _)| *verb);
        }
        match path {
            METRICS => Self::Metrics,
            FILE_DATA => Self::HtsgetData,
            "/healthz" => Self::Health,
            health if health.starts_with("/grpc.health.v1.Health/") => Self::Health,
            page if page.starts_with(READS) || page.starts_with(VARIANTS) => Self::Htsget,
            page if page.starts_with(SEQUENCES) => Self::Refget,
            page if page.starts_with(REFERENCES) => Self::Refget,
            page if page == "/" || page.starts_with(SITE) || page.starts_with(API) => Self::Page,
            _ => Self::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// What is counted of the calls of one verb.
#[derive(Clone, Debug)]
pub(crate) struct VerbCounts {
    open: Gauge,
    seconds: Histogram,
    pub(crate) sent_bytes: Counter,
    pub(crate) sent_rows: Counter,
    pub(crate) received_bytes: Counter,
    pub(crate) received_rows: Counter,
}

/// Processes that run statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementWorkers {
    /// That run one.
    pub busy: usize,
    /// That wait for one.
    pub idle: usize,
    /// That may be busy at a time.
    pub limit: usize,
}

/// What a server counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    verbs: Vec<VerbCounts>,
    calls: Family<CallLabels, Counter>,
    connections: Gauge,
    refused: Family<OneLabel, Counter>,
    audit: Family<OneLabel, Counter>,
    workers: Family<OneLabel, Gauge>,
    worker_limit: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("godwit");
        let told = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "The program that serves", told);
        let started: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        started.set(now.map_or(0.0, |since| since.as_secs_f64()));
        registry.register("start_time_seconds", "When the server was started, seconds since 1970", started);

        let of_verb = |_| Family::<OneLabel, Counter>::default();
        let [sent_bytes, sent_rows, received_bytes, received_rows] = [(); 4].map(of_verb);
        let (open, calls) = (Family::<OneLabel, Gauge>::default(), Family::<CallLabels, Counter>::default());
        let seconds = Family::<OneLabel, Histogram>::new_with_constructor(|| Histogram::new(SECONDS));
        registry.register("calls", "Calls that have ended, by what was called and what came of it", calls.clone());
        registry.register("open_calls", "Calls and streams that are open", open.clone());
        registry.register("call_seconds", "How long calls took, to the last byte, seconds", seconds.clone());
        registry.register("sent_bytes", "Bytes of answers, before encryption", sent_bytes.clone());
        registry.register("sent_rows", "Rows of answers", sent_rows.clone());
        registry.register("received_bytes", "Bytes of uploads, after decryption", received_bytes.clone());
        registry.register("received_rows", "Rows of uploads", received_rows.clone());
        let verbs = Verb::ALL.iter().map(|(_, name)| {
            let label = [("verb", *name)];
            VerbCounts {
                open: open.get_or_create_owned(&label),
                seconds: seconds.get_or_create_owned(&label),
                sent_bytes: sent_bytes.get_or_create_owned(&label),
                sent_rows: sent_rows.get_or_create_owned(&label),
                received_bytes: received_bytes.get_or_create_owned(&label),
                received_rows: received_rows.get_or_create_owned(&label),
            }
        });
        let verbs = verbs.collect();

        let connections = Gauge::default();
        registry.register("open_connections", "Connections that are open", connections.clone());
        let (refused, audit) = (Family::default(), Family::default());
        registry.register("refused_callers", "Callers that were not let in, by the reason", refused.clone());
        registry.register("audit_lines", "Accesses to be recorded, by whether they were", audit.clone());
        let (workers, worker_limit) = (Family::default(), Gauge::default());
        registry.register("statement_workers", "Processes for statements, by what they do", workers.clone());
        registry.register("statement_workers_limit", "Statements that may run at a time", worker_limit.clone());
        Self { registry, verbs, calls, connections, refused, audit, workers, worker_limit }
    }
}

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RefusedFor {
    /// The token is missing or wrong.
    Token,
    /// It was granted for something else.
    Grant,
    /// The server is called by a name that is not its own.
    Host,
    /// There were too many connections.
    Connections,
    /// It had as many calls open as it may.
    Limit,
}

impl Metrics {
    /// A call that begins.
    pub(crate) fn begin(self: &Arc<Self>, verb: Verb) -> Call {
        self.of(verb).open.inc();
        Call { metrics: self.clone(), verb, begun: Instant::now(), outcome: None, span: None }
    }

    /// What is counted of a verb.
    pub(crate) fn of(&self, verb: Verb) -> &VerbCounts {
        &self.verbs[verb as usize]
    }

    /// A connection, until it is dropped.
    pub(crate) fn connection(&self) -> Connected {
        self.connections.inc();
        Connected(self.connections.clone())
    }

    pub(crate) fn refuse(&self, reason: RefusedFor) {
        let reason = match reason {
            RefusedFor::Token => "token",
            RefusedFor::Grant => "grant",
            RefusedFor::Host => "host",
            RefusedFor::Connections => "connections",
            RefusedFor::Limit => "limit",
        };
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn set_workers(&self, workers: StatementWorkers) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.workers.get_or_create(&[("state", "busy")]).set(count(workers.busy));
        self.workers.get_or_create(&[("state", "idle")]).set(count(workers.idle));
        self.worker_limit.set(count(workers.limit));
    }

    /// All of it as text, and the type of that: OpenMetrics 1.0 for who takes it, else the older text format of Prometheus.
    pub(crate) fn told(&self, headers: &HeaderMap) -> (&'static str, String) {
        let mut text = String::new();
        // A string takes whatever is written to it.
        let _ = encode(&mut text, &self.registry);
        let accepted = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if accepted.flat_map(|value| value.split(',')).any(is_open_metrics) {
            return ("application/openmetrics-text; version=1.0.0; charset=utf-8", text);
        }
        ("text/plain; version=0.0.4; charset=utf-8", in_older_format(&text))
    }
}

/// Whether a member of an `Accept` header asks for OpenMetrics.
fn is_open_metrics(member: &str) -> bool {
    let mut words = member.split(';').map(str::trim);
    words.next() == Some("application/openmetrics-text") && !words.any(|word| word == "q=0" || word == "q=0.0")
}

/// The text format 0.0.4 of what is written as OpenMetrics: there, counters and info are named as their samples are, and nothing
/// marks the end.
fn in_older_format(text: &str) -> String {
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

/// A connection that is counted as open.
#[derive(Debug)]
pub(crate) struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A call, counted as ended when it is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    metrics: Arc<Metrics>,
    verb: Verb,
    begun: Instant,
    outcome: Option<String>,
    span: Option<OpenSpan>,
}

impl Call {
    /// With a span, which ends when it does.
    pub(crate) fn traced(mut self, span: Option<OpenSpan>) -> Self {
        self.span = span;
        self
    }

    pub(crate) fn counts(&self) -> &VerbCounts {
        self.metrics.of(self.verb)
    }

    /// What came of a call of gRPC, where some headers say so: those of its beginning, or of its end.
    pub(crate) fn note_grpc(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            let code = Code::from_bytes(status.as_bytes());
            self.outcome = Some(code_name(code).to_owned());
            if let Some(span) = &mut self.span {
                span.note_grpc(code);
            }
        }
    }

    /// What came of a request that is none of gRPC.
    pub(crate) fn note_http(&mut self, status: http::StatusCode) {
        self.outcome = Some(status.as_str().to_owned());
        if let Some(span) = &mut self.span {
            span.note_http(status);
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let counts = self.counts();
        counts.open.dec();
        counts.seconds.observe(self.begun.elapsed().as_secs_f64());
        // Whoever asked has gone away before it was told.
        let outcome = self.outcome.take().unwrap_or_else(|| {
            if let Some(span) = &mut self.span {
                span.note_grpc(Code::Cancelled);
            }
            code_name(Code::Cancelled).to_owned()
        });
        self.metrics.calls.get_or_create(&[("verb", self.verb.name().to_owned()), ("status", outcome)]).inc();
    }
}

/// A log whose lines are counted.
#[derive(Debug)]
pub(crate) struct CountedLog {
    pub(crate) log: Arc<dyn AccessLog>,
    pub(crate) metrics: Arc<Metrics>,
}

impl AccessLog for CountedLog {
    fn record(&self, access: Accessed) -> Pending<'_, ()> {
        Box::pin(async move {
            let recorded = self.log.record(access).await;
            let outcome = if recorded.is_ok() { "recorded" } else { "failed" };
            self.metrics.audit.get_or_create(&[("outcome", outcome)]).inc();
            recorded
        })
    }

    fn note(&self, access: Accessed) {
        self.log.note(access);
        // Whether it was is known to the log alone, which refuses all that comes after where it was not.
        self.metrics.audit.get_or_create(&[("outcome", "noted")]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(metrics: &Metrics, accept: &str) -> (&'static str, String) {
        metrics.told(&HeaderMap::from_iter([(http::header::ACCEPT, accept.parse().unwrap())]))
    }

    #[test]
    fn verbs_are_named_as_they_are_numbered() {
        for (at, (verb, name)) in Verb::ALL.iter().enumerate() {
            assert_eq!((*verb as usize, verb.name()), (at, *name));
        }
        assert_eq!(Verb::of("/arrow.flight.protocol.FlightService/DoGet"), Verb::DoGet);
        assert_eq!(Verb::of("/arrow.flight.protocol.FlightService/Metrics"), Verb::Other);
        assert_eq!(Verb::of("/reads/a/b.bam"), Verb::Htsget);
        assert_eq!(Verb::of("/sequence/service-info"), Verb::Refget);
        assert_eq!(Verb::of("/x"), Verb::Other);
    }

    #[test]
    fn a_call_is_open_until_it_is_dropped_and_then_counted_by_what_came_of_it() {
        let metrics = Arc::new(Metrics::default());
        let mut call = metrics.begin(Verb::DoGet);
        call.counts().sent_rows.inc_by(7);
        let open = "godwit_open_calls{verb=\"DoGet\"} ";
        assert!(told(&metrics, "*/*").1.contains(&format!("{open}1\n")));
        call.note_grpc(&HeaderMap::from_iter([("grpc-status".parse().unwrap(), "5".parse().unwrap())]));
        drop((call, metrics.begin(Verb::DoGet)));
        let (_, text) = told(&metrics, "*/*");
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
    fn each_format_names_its_families_as_it_wants() {
        let metrics = Arc::new(Metrics::default());
        metrics.refuse(RefusedFor::Token);
        let (kind, open) = told(&metrics, "text/html, application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1");
        assert!(kind.starts_with("application/openmetrics-text") && open.ends_with("# EOF\n"), "{kind}");
        assert!(
            open.contains("# TYPE godwit_refused_callers counter\n") && open.contains("# TYPE godwit_build info\n")
        );
        for accept in ["text/plain", "application/openmetrics-text;q=0"] {
            let (kind, older) = told(&metrics, accept);
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
