//! A page about a run that is under way, for a browser on this machine.
//!
//! `/` is the page, `/events` what it shows, as server-sent events (HTML Standard §9.2): the whole state each time it changes. Only this machine
//! reaches the port, and only under names of this machine: a page of somebody else whose name was made to point here is refused.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use godwit_pipeline::{ALL_SAMPLES, Event, Observer, SampleState, StorageNode, WorkflowStep};
use serde::Serialize;

use crate::failure::{Exit, Failure};
use crate::progress::Progress;
use crate::verbs::storage_watch::StorageWatch;

const PAGE: &str = include_str!("dashboard/page.html");
/// Connections at a time; others are closed.
const MOST_CONNECTIONS: usize = 32;
/// Bytes of a request that are read.
const REQUEST_BYTES: u64 = 8 << 10;
/// How long a request may take to come, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the state is sent where it does not change: hours go on.
const INTERVAL: Duration = Duration::from_secs(5);
/// Where what this process does is done.
const HERE: &str = "here";
/// Changes within so long are sent together.
const TOGETHER: Duration = Duration::from_millis(200);
/// Notes that are shown; the oldest go first.
const MOST_NOTES: usize = 100;

/// Shows the events of a run to whoever looks, and to its progress.
pub struct Dashboard<'p> {
    progress: &'p Progress,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    started: Instant,
    connections: AtomicUsize,
    storage: Option<Arc<StorageWatch>>,
}

#[derive(Default)]
struct State {
    version: u64,
    over: bool,
    samples: Vec<Sample>,
    /// What all samples go through together.
    together: Option<Sample>,
    /// Steps in the order in which they were first finished.
    steps: Vec<WorkflowStep>,
    notes: VecDeque<String>,
    again: usize,
}

#[derive(Clone, Serialize)]
struct Sample {
    sample: String,
    state: Activity,
    node: String,
    /// Wall time of each step that was finished.
    seconds: BTreeMap<&'static str, f64>,
}

/// The activity of a sample: the name of its state or of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Activity {
    State(SampleState),
    Step(WorkflowStep),
}

/// What is sent.
#[derive(Serialize)]
struct Shown<'s> {
    elapsed_s: f64,
    over: bool,
    done: usize,
    failed: usize,
    working: usize,
    again: usize,
    samples: &'s [Sample],
    together: Option<&'s Sample>,
    steps: &'s [WorkflowStep],
    notes: &'s VecDeque<String>,
    storage: Vec<StorageNode>,
}

impl<'p> Dashboard<'p> {
    /// Shows a run at a port, any where it is 0, and the storage that it uses.
    pub fn open(port: u16, progress: &'p Progress, storage: Option<Arc<StorageWatch>>) -> Result<Self, Failure> {
        let failed = |error| {
            let problem = format!(
                "cannot listen on port {port} of this machine: {error}; choose another --dashboard PORT, or 0 for any"
            );
            Failure::new(Exit::Machine, problem)
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            started: Instant::now(),
            connections: AtomicUsize::new(0),
            storage,
        });
        let serving = shared.clone();
        std::thread::spawn(move || serve(&listener, &serving));
        progress.say(&format!("the run is shown at http://{address}/"));
        Ok(Self { progress, shared })
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.state();
        change(&mut state);
        state.version += 1;
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Observer for Dashboard<'_> {
    fn event(&self, event: &Event) {
        match event {
            Event::Sample { sample, state, node } => {
                self.change(|shown| shown.set(sample, Activity::State(*state), node.as_deref().unwrap_or(HERE)));
            }
            Event::Step { sample, step } => self.change(|shown| shown.set(sample, Activity::Step(*step), HERE)),
            Event::StepDone { sample, step, seconds } => self.change(|shown| shown.took(sample, *step, *seconds)),
            Event::Warning { message } => self.change(|shown| shown.note(message)),
            _ => {}
        }
        self.progress.event(event);
    }
}

impl Drop for Dashboard<'_> {
    fn drop(&mut self) {
        self.change(|shown| shown.over = true);
        // Whoever looks is told of the end.
        let until = Instant::now() + Duration::from_secs(1);
        while self.shared.connections.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl State {
    fn set(&mut self, sample: &str, state: Activity, node: &str) {
        match self.find(sample) {
            Some(known) => {
                let started = Activity::State(SampleState::Started);
                let again = state == started && known.state == started;
                (known.state, known.node) = (state, node.to_owned());
                self.again += usize::from(again);
            }
            None => {
                let new =
                    Sample { sample: sample.to_owned(), state, node: node.to_owned(), seconds: BTreeMap::default() };
                match sample == ALL_SAMPLES {
                    true => self.together = Some(new),
                    false => self.samples.push(new),
                }
            }
        }
    }

    fn find(&mut self, sample: &str) -> Option<&mut Sample> {
        self.samples.iter_mut().chain(&mut self.together).find(|known| known.sample == sample)
    }

    fn took(&mut self, sample: &str, step: WorkflowStep, seconds: f64) {
        if let Some(known) = self.find(sample) {
            known.seconds.insert(step.name(), seconds);
        }
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    fn note(&mut self, message: &str) {
        if self.notes.len() >= MOST_NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(message.to_owned());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self, state: &State) -> String {
        let count =
            |wanted: SampleState| state.samples.iter().filter(|sample| sample.state == Activity::State(wanted)).count();
        let (done, failed) = (count(SampleState::Done), count(SampleState::Failed));
        let shown = Shown {
            elapsed_s: self.started.elapsed().as_secs_f64(),
            over: state.over,
            done,
            failed,
            working: if state.over { 0 } else { state.samples.len() - done - failed },
            again: state.again,
            samples: &state.samples,
            together: state.together.as_ref(),
            steps: &state.steps,
            notes: &state.notes,
            storage: self.storage.as_ref().map(|storage| storage.last()).unwrap_or_default(),
        };
        serde_json::to_string(&shown).unwrap_or_default()
    }

    /// Sends the state each time it changes, until the run or the connection ends.
    fn send_events(&self, out: &mut impl Write) -> std::io::Result<()> {
        let mut sent = None;
        loop {
            let mut state = self.state();
            if sent == Some(state.version) {
                state = self.changed.wait_timeout(state, INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
            }
            sent = Some(state.version);
            let (shown, over) = (self.shown(&state), state.over);
            drop(state);
            write!(out, "data: {shown}\n\n")?;
            out.flush()?;
            if over {
                return Ok(());
            }
            std::thread::sleep(TOGETHER);
        }
    }
}

fn serve(listener: &TcpListener, shared: &Arc<Shared>) {
    for connection in listener.incoming().flatten() {
        if shared.connections.fetch_add(1, Ordering::Relaxed) >= MOST_CONNECTIONS {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let shared = shared.clone();
        std::thread::spawn(move || {
            // A browser that went away is no failure.
            let _ = answer(connection, &shared);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

fn answer(mut connection: TcpStream, shared: &Shared) -> std::io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let own_port = connection.local_addr()?.port();
    let (path, host) = request(connection.try_clone()?)?;
    if !["127.0.0.1", "localhost"].iter().any(|name| host == format!("{name}:{own_port}")) {
        return respond(&mut connection, "403 Forbidden", "text/plain", "this page is for this machine only\n");
    }
    match path.as_str() {
        "/" => respond(&mut connection, "200 OK", "text/html; charset=utf-8", PAGE),
        "/events" => {
            write!(
                connection,
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
            )?;
            shared.send_events(&mut connection)
        }
        _ => respond(&mut connection, "404 Not Found", "text/plain", "there is / and /events\n"),
    }
}

/// Path and host of a request; empty where it is none of GET.
fn request(connection: TcpStream) -> std::io::Result<(String, String)> {
    let mut lines = BufReader::new(connection.take(REQUEST_BYTES)).lines();
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

fn respond(out: &mut impl Write, status: &str, kind: &str, body: &str) -> std::io::Result<()> {
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
        let mut shown = State::default();
        for sample in ["a", "b"] {
            shown.set(sample, Activity::State(SampleState::Started), "n1");
        }
        shown.set("a", Activity::Step(WorkflowStep::Align), HERE);
        shown.note("b failed: a warning that is none of a failure");
        assert!(shown.samples.iter().all(|sample| sample.state != Activity::State(SampleState::Failed)));
        shown.set("a", Activity::State(SampleState::Failed), "n1");
        shown.note("reworded");
        let text = serde_json::to_value(&shown.samples).unwrap();
        assert_eq!((&text[0]["state"], &text[1]["state"]), (&"failed".into(), &"started".into()));
    }

    #[test]
    fn a_second_start_counts_as_one_that_is_tried_again() {
        let mut shown = State::default();
        shown.set("a", Activity::State(SampleState::Started), "n1");
        shown.set("a", Activity::State(SampleState::Started), "n2");
        shown.took("a", WorkflowStep::Call, 1.5);
        assert_eq!((shown.again, shown.steps.as_slice()), (1, &[WorkflowStep::Call][..]));
        assert_eq!(serde_json::to_value(&shown.samples[0].seconds).unwrap(), serde_json::json!({ "call": 1.5 }));
    }
}
