//! The dashboard of `godwit run`: a web page that shows the progress of the samples to browsers on this host.
//!
//! `/` is the page. `/events` sends the state after each change, as server-sent events (HTML Standard §9.2). The first
//! event of a connection has all samples, the others have those that changed, because a run may have thousands. The server
//! listens only on the loopback interface, and rejects requests with a `Host` header other than `localhost` and
//! `127.0.0.1`. This prevents DNS rebinding: a foreign web page whose name resolves to this host cannot read the state.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_pipeline::observer::{ALL_SAMPLES, Event, Observer, SampleState, WorkflowStep};
use godwit_workflow::StoragePoolMember;
use parking_lot::{Condvar, Mutex};
use serde::Serialize;

use crate::progress::Progress;
use crate::verbs::storage_pool_monitor::StoragePoolMonitor;

const PAGE_HTML: &str = include_str!("dashboard/page.html");
/// Maximum number of concurrent connections; the server closes further connections immediately.
const MAX_CONNECTIONS: usize = 32;
/// Maximum number of bytes that the server reads of a request.
const MAX_REQUEST_BYTES: u64 = 8 << 10;
/// Timeout for receiving a request, and for sending data to a browser.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of updates if the state does not change, so that the page shows the elapsed time.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Name of the worker that is shown for samples which this process itself works on.
const LOCAL_WORKER_NAME: &str = "local";
/// Minimum interval between two updates to a browser; changes in between are sent together.
const UPDATE_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum number of notes on the page; the oldest notes are dropped first.
const MAX_NOTES: usize = 100;

/// An observer of the events of a run, which updates the dashboard and passes the events to the progress display.
pub struct Dashboard<'p> {
    progress: &'p Progress,
    server: Arc<DashboardServer>,
}

struct DashboardServer {
    state: Mutex<JobState>,
    changed: Condvar,
    start: Instant,
    connection_count: AtomicUsize,
    storage: Option<Arc<StoragePoolMonitor>>,
}

#[derive(Default)]
struct JobState {
    version: u64,
    is_finished: bool,
    samples: Vec<SampleProgress>,
    /// Progress of the joint steps of all samples.
    cohort: Option<SampleProgress>,
    /// Steps of the workflow that any sample has finished, in the order in which they were first finished.
    steps: Vec<WorkflowStep>,
    notes: VecDeque<String>,
    retries: usize,
}

#[derive(Clone, Serialize)]
struct SampleProgress {
    sample: String,
    state: Activity,
    #[serde(rename = "node")]
    worker: String,
    /// Wall-clock time of each finished step, in seconds.
    seconds: BTreeMap<&'static str, f64>,
    /// Version of the state with the last change of this sample.
    #[serde(skip)]
    version: u64,
}

/// The current activity of a sample: a state such as started or failed, or the step of the workflow that is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Activity {
    State(SampleState),
    Step(WorkflowStep),
}

/// The state that the server sends to browsers as JSON after each change.
#[derive(Serialize)]
struct DashboardUpdate<'s> {
    elapsed_s: f64,
    #[serde(rename = "over")]
    is_finished: bool,
    done: usize,
    failed: usize,
    working: usize,
    #[serde(rename = "again")]
    retries: usize,
    /// Samples that changed since the last update of the same connection.
    samples: Vec<&'s SampleProgress>,
    #[serde(rename = "together")]
    cohort: Option<&'s SampleProgress>,
    steps: &'s [WorkflowStep],
    notes: &'s VecDeque<String>,
    storage: Vec<StoragePoolMember>,
}

impl<'p> Dashboard<'p> {
    /// Starts the dashboard of a run at `port`, or at any free port if `port` is 0. `storage` monitors the pool to
    /// which the run copies its outputs; the dashboard shows the pool members.
    pub fn open(port: u16, progress: &'p Progress, storage: Option<Arc<StoragePoolMonitor>>) -> Result<Self, Failure> {
        let failed = |error| {
            let problem = format!(
                "cannot listen on port {port} of this host: {error}; choose another --dashboard PORT, or 0 for any"
            );
            Failure::new(ErrorKind::Machine, problem)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server = Arc::new(DashboardServer {
            state: Mutex::default(),
            changed: Condvar::new(),
            start: Instant::now(),
            connection_count: AtomicUsize::new(0),
            storage,
        });
        let serving = server.clone();
        std::thread::spawn(move || accept_connections(&listener, &serving));
        progress.report(&format!("the dashboard of this run is at http://{address}/"));
        Ok(Self { progress, server })
    }

    fn update(&self, change: impl FnOnce(&mut JobState)) {
        let mut state = self.server.state.lock();
        state.version += 1;
        change(&mut state);
        drop(state);
        self.server.changed.notify_all();
    }
}

impl Observer for Dashboard<'_> {
    fn event(&self, event: &Event) {
        match event {
            Event::Sample { sample, state, host } => {
                self.update(|shown| {
                    shown.set_sample_state(
                        sample,
                        Activity::State(*state),
                        host.as_deref().unwrap_or(LOCAL_WORKER_NAME),
                    )
                });
            }
            Event::Step { sample, step } => {
                self.update(|shown| shown.set_sample_state(sample, Activity::Step(*step), LOCAL_WORKER_NAME))
            }
            Event::StepDone { sample, step, seconds } => {
                self.update(|shown| shown.record_step(sample, *step, *seconds))
            }
            Event::Warning { message } => self.update(|shown| shown.add_note(message)),
            _ => {}
        }
        self.progress.event(event);
    }
}

impl Drop for Dashboard<'_> {
    fn drop(&mut self) {
        self.update(|shown| shown.is_finished = true);
        // Wait up to a second until the final state is sent to all open connections.
        let until = Instant::now() + Duration::from_secs(1);
        while self.server.connection_count.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl JobState {
    fn set_sample_state(&mut self, sample: &str, state: Activity, node: &str) {
        let version = self.version;
        match self.find_sample(sample) {
            Some(known) => {
                let started = Activity::State(SampleState::Started);
                let again = state == started && known.state == started;
                (known.state, known.worker, known.version) = (state, node.to_owned(), version);
                self.retries += usize::from(again);
            }
            None => {
                let new = SampleProgress {
                    sample: sample.to_owned(),
                    state,
                    worker: node.to_owned(),
                    seconds: BTreeMap::default(),
                    version,
                };
                match sample == ALL_SAMPLES {
                    true => self.cohort = Some(new),
                    false => self.samples.push(new),
                }
            }
        }
    }

    fn find_sample(&mut self, sample: &str) -> Option<&mut SampleProgress> {
        self.samples.iter_mut().chain(&mut self.cohort).find(|known| known.sample == sample)
    }

    fn record_step(&mut self, sample: &str, step: WorkflowStep, seconds: f64) {
        let version = self.version;
        if let Some(known) = self.find_sample(sample) {
            known.seconds.insert(step.name(), seconds);
            known.version = version;
        }
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    fn add_note(&mut self, message: &str) {
        if self.notes.len() >= MAX_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(message.to_owned());
    }
}

impl DashboardServer {
    /// Returns the state for a connection over which version `sent` was sent last; `sent` is `None` for a new connection.
    fn update_json(&self, state: &JobState, sent: Option<u64>) -> String {
        let count =
            |wanted: SampleState| state.samples.iter().filter(|sample| sample.state == Activity::State(wanted)).count();
        let (done, failed) = (count(SampleState::Done), count(SampleState::Failed));
        let shown = DashboardUpdate {
            elapsed_s: self.start.elapsed().as_secs_f64(),
            is_finished: state.is_finished,
            done,
            failed,
            working: if state.is_finished { 0 } else { state.samples.len() - done - failed },
            retries: state.retries,
            samples: state.samples.iter().filter(|sample| sent.is_none_or(|sent| sample.version > sent)).collect(),
            cohort: state.cohort.as_ref(),
            steps: &state.steps,
            notes: &state.notes,
            storage: self.storage.as_ref().map(|storage| storage.latest_nodes()).unwrap_or_default(),
        };
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// Sends the state to one browser after each change, until the run ends or the connection is closed.
    fn send_events(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut sent = None;
        loop {
            let mut state = self.state.lock();
            if sent == Some(state.version) {
                self.changed.wait_for(&mut state, KEEP_ALIVE_INTERVAL);
            }
            let (shown, over) = (self.update_json(&state, sent), state.is_finished);
            sent = Some(state.version);
            drop(state);
            write!(out, "data: {shown}\n\n")?;
            out.flush()?;
            if over {
                return Ok(());
            }
            std::thread::sleep(UPDATE_INTERVAL);
        }
    }
}

fn accept_connections(listener: &TcpListener, shared: &Arc<DashboardServer>) {
    for connection in listener.incoming().flatten() {
        if shared.connection_count.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
            shared.connection_count.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let shared = shared.clone();
        std::thread::spawn(move || {
            // Ignore errors: the browser may have closed the connection.
            let _ = handle_connection(connection, &shared);
            shared.connection_count.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn handle_connection(mut connection: TcpStream, shared: &DashboardServer) -> std::io::Result<()> {
    connection.set_read_timeout(Some(IO_TIMEOUT))?;
    connection.set_write_timeout(Some(IO_TIMEOUT))?;
    let own_port = connection.local_addr()?.port();
    let (path, host) = read_request(connection.try_clone()?)?;
    if !["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{own_port}")) {
        return write_response(
            &mut connection,
            "403 Forbidden",
            "text/plain",
            "the dashboard accepts only connections from its own host\n",
        );
    }
    match path.as_str() {
        "/" => write_response(&mut connection, "200 OK", "text/html; charset=utf-8", PAGE_HTML),
        "/events" => {
            write!(
                connection,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
            )?;
            shared.send_events(&mut connection)
        }
        _ => write_response(&mut connection, "404 Not Found", "text/plain", "not found; use / or /events\n"),
    }
}

/// Reads an HTTP request and returns its path and its `Host` header; both are empty unless the method is GET.
fn read_request(connection: TcpStream) -> std::io::Result<(String, String)> {
    let mut lines = BufReader::new(connection.take(MAX_REQUEST_BYTES)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let path = first.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
    let mut host = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_ascii_lowercase();
        }
    }
    Ok((path.to_owned(), host))
}

fn write_response(out: &mut impl Write, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
    write!(
        out,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nContent-Security-Policy: default-src 'self' 'unsafe-inline'\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_failed_by_its_state_whatever_the_warnings_are() {
        let mut shown = JobState::default();
        for sample in ["a", "b"] {
            shown.set_sample_state(sample, Activity::State(SampleState::Started), "n1");
        }
        shown.set_sample_state("a", Activity::Step(WorkflowStep::Align), LOCAL_WORKER_NAME);
        shown.add_note("b failed: a warning that is none of a failure");
        assert!(shown.samples.iter().all(|sample| sample.state != Activity::State(SampleState::Failed)));
        shown.set_sample_state("a", Activity::State(SampleState::Failed), "n1");
        shown.add_note("reworded");
        let text = serde_json::to_value(&shown.samples).unwrap();
        assert_eq!((&text[0]["state"], &text[1]["state"]), (&"failed".into(), &"started".into()));
    }

    #[test]
    fn a_browser_receives_the_samples_that_changed() {
        let server = DashboardServer {
            state: Mutex::default(),
            changed: Condvar::new(),
            start: Instant::now(),
            connection_count: AtomicUsize::new(0),
            storage: None,
        };
        let received = |state: &JobState, sent| {
            let update: serde_json::Value = serde_json::from_str(&server.update_json(state, sent)).unwrap();
            let names = update["samples"].as_array().unwrap().iter().map(|sample| sample["sample"].to_string());
            (names.collect::<Vec<_>>().join(" "), update["working"].as_u64())
        };
        let mut shown = JobState { version: 1, ..JobState::default() };
        for sample in ["a", "b"] {
            shown.set_sample_state(sample, Activity::State(SampleState::Started), "n1");
        }
        assert_eq!(received(&shown, None), (r#""a" "b""#.to_owned(), Some(2)));
        assert_eq!(received(&shown, Some(1)), (String::new(), Some(2)));
        shown.version = 2;
        shown.record_step("b", WorkflowStep::Call, 1.5);
        assert_eq!(received(&shown, Some(1)), (r#""b""#.to_owned(), Some(2)));
    }

    #[test]
    fn a_second_start_counts_as_one_that_is_tried_again() {
        let mut shown = JobState::default();
        shown.set_sample_state("a", Activity::State(SampleState::Started), "n1");
        shown.set_sample_state("a", Activity::State(SampleState::Started), "n2");
        shown.record_step("a", WorkflowStep::Call, 1.5);
        assert_eq!((shown.retries, shown.steps.as_slice()), (1, &[WorkflowStep::Call][..]));
        assert_eq!(serde_json::to_value(&shown.samples[0].seconds).unwrap(), serde_json::json!({ "call": 1.5 }));
    }
}
