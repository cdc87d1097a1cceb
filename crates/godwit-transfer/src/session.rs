//! The decisions of a transfer: which blocks over which stream, what is asked for again, when a file is whole, when to give up.
//!
//! Events and the time go in, actions come out; there are no sockets, files or clocks here, so that the same code runs in a
//! simulator. A *stream* is one connection. A *request* is a list of spans of blocks that a stream was asked for; streams have
//! a few at a time, so that none is idle for a round trip. What arrives is known by block: a request that breaks off costs what of it
//! had not arrived.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::ranges::RangeSet;
use crate::tree::{BLOCK_BYTES, block_count, block_span};

/// A file of the transfer, by its 0-based place in the manifest.
pub type FileId = u32;
/// A connection.
pub type StreamId = u32;
/// What a stream was asked for.
pub type RequestId = u64;

/// Files that a request names, at most.
const SPANS_PER_REQUEST: usize = 512;
/// Times that one block may come damaged before its file is given up.
const DAMAGED_AT_MOST: u32 = 5;
/// The first wait before a stream is opened again; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait, so that a path that is back is used within a second or two.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Failures in a row after which a stream goes to the next source.
const FAILURES_BEFORE_ANOTHER_SOURCE: u32 = 2;
/// How long a request may make no progress before a stream that has nothing else to do is asked for the same.
const STALLED: Duration = Duration::from_secs(2);

/// How a session works.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Connections.
    pub streams: u32,
    /// Where the same files are to be had.
    pub sources: u32,
    /// Requests that each stream has at a time.
    pub requests_ahead: usize,
    /// Bytes of a request, at most.
    pub request_bytes: u64,
    /// How long nothing may arrive before the transfer ends.
    pub patience: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            streams: 8,
            sources: 1,
            requests_ahead: 2,
            request_bytes: 16 * BLOCK_BYTES,
            patience: Duration::from_secs(900),
        }
    }
}

/// Blocks `[start, end)` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First block, 0-based.
    pub start: u64,
    /// The block after the last one.
    pub end: u64,
}

/// What is to be fetched of a file.
#[derive(Clone, Debug)]
pub struct FileWork {
    /// Its size.
    pub size_bytes: u64,
    /// Its blocks that are not there yet.
    pub missing: RangeSet,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection is made.
    Opened {
        /// Which.
        stream: StreamId,
    },
    /// A block is here, verified and written.
    Arrived {
        /// Over which connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// A block is here and is not what its hash says.
    Damaged {
        /// Over which connection.
        stream: StreamId,
        /// Its file.
        file: FileId,
        /// The block, 0-based.
        block: u64,
    },
    /// The other end has sent all that it will for a request.
    Ended {
        /// Over which connection.
        stream: StreamId,
        /// The request.
        request: RequestId,
    },
    /// A connection broke, or could not be made.
    Lost {
        /// Which.
        stream: StreamId,
    },
    /// A file cannot be had: it is refused, gone, or another by now.
    Unavailable {
        /// Which.
        file: FileId,
    },
    /// The source says that blocks of a whole file are others: they are to be fetched again.
    Disproved {
        /// The file.
        file: FileId,
        /// Which blocks.
        blocks: RangeSet,
    },
    /// A file is proved and has its name.
    Finished {
        /// Which.
        file: FileId,
    },
    /// Time went on.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a connection.
    Open {
        /// Which.
        stream: StreamId,
        /// To which of the sources, 0-based.
        source: u32,
    },
    /// Ask a stream for blocks.
    Ask {
        /// Which.
        stream: StreamId,
        /// The request's name.
        request: RequestId,
        /// What is asked for, in this order.
        spans: Vec<Span>,
    },
    /// All blocks are here: prove the file and give it its name. Files of one block are finished as they arrive.
    Finish {
        /// Which.
        file: FileId,
    },
    /// A file came damaged too often.
    Refuse {
        /// Which.
        file: FileId,
    },
    /// All is done that can be.
    Done,
    /// Nothing came for too long.
    GiveUp,
}

#[derive(Debug, PartialEq, Eq)]
enum FileState {
    Fetching,
    Finishing,
    Done,
    Failed,
}

#[derive(Debug)]
struct File {
    size_bytes: u64,
    /// Blocks that nobody was asked for.
    unasked: RangeSet,
    /// Blocks that are not here.
    absent: RangeSet,
    damaged: BTreeMap<u64, u32>,
    state: FileState,
}

impl File {
    fn bytes(&self, start: u64, end: u64) -> u64 {
        block_span(end - 1, self.size_bytes).1 - block_span(start, self.size_bytes).0
    }
}

#[derive(Debug, PartialEq, Eq)]
enum StreamState {
    Opening,
    Open,
    Waiting { until: Duration },
}

#[derive(Debug)]
struct Stream {
    state: StreamState,
    failures: u32,
    source: u32,
    requests: BTreeMap<RequestId, Request>,
}

#[derive(Debug)]
struct Request {
    /// What of it is not here.
    outstanding: BTreeMap<FileId, RangeSet>,
    progressed: Duration,
    doubled: bool,
}

/// A transfer at work.
#[derive(Debug)]
pub struct Session {
    options: SessionOptions,
    files: Vec<File>,
    /// Files with blocks that nobody was asked for.
    unasked: BTreeSet<FileId>,
    unasked_bytes: u64,
    streams: Vec<Stream>,
    next_request: RequestId,
    progressed: Duration,
    unsettled: usize,
    ended: bool,
}

impl Session {
    /// A transfer of these files, and what is to be done first.
    pub fn new(files: Vec<FileWork>, options: SessionOptions, now: Duration) -> (Self, Vec<Action>) {
        let mut session = Self {
            files: Vec::with_capacity(files.len()),
            unasked: BTreeSet::new(),
            unasked_bytes: 0,
            streams: Vec::new(),
            next_request: 0,
            progressed: now,
            unsettled: files.len(),
            ended: false,
            options,
        };
        let mut actions = Vec::new();
        for (id, work) in (0..).zip(files) {
            let file = File {
                size_bytes: work.size_bytes,
                unasked: RangeSet::default(),
                absent: work.missing.clone(),
                damaged: BTreeMap::new(),
                state: FileState::Fetching,
            };
            session.files.push(file);
            for (start, end) in work.missing.iter() {
                session.give_back(id, start, end);
            }
            session.settle(id, &mut actions);
        }
        session.open_all(&mut actions);
        session.end(&mut actions);
        (session, actions)
    }

    /// Makes all connections, where something is to be fetched and there are none.
    fn open_all(&mut self, actions: &mut Vec<Action>) {
        if self.unasked.is_empty() || !self.streams.is_empty() {
            return;
        }
        for stream in 0..self.options.streams.max(1) {
            let source = stream % self.options.sources.max(1);
            let state = StreamState::Opening;
            self.streams.push(Stream { state, failures: 0, source, requests: BTreeMap::new() });
            actions.push(Action::Open { stream, source });
        }
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn wake_at(&self) -> Option<Duration> {
        if self.ended {
            return None;
        }
        let waiting = self.streams.iter().filter_map(|stream| match stream.state {
            StreamState::Waiting { until } => Some(until),
            _ => None,
        });
        let requests = self.streams.iter().flat_map(|stream| stream.requests.values());
        let stalls = requests.filter(|request| !request.doubled).map(|request| request.progressed + STALLED);
        waiting.chain(stalls).chain([self.progressed + self.options.patience]).min()
    }

    /// Takes what happened; says what to do.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.ended {
            return actions;
        }
        match event {
            Event::Opened { stream } => {
                if let Some(stream) = self.streams.get_mut(stream as usize) {
                    stream.state = StreamState::Open;
                }
            }
            Event::Arrived { stream, file, block } => self.arrived(now, stream, file, block, &mut actions),
            Event::Damaged { stream, file, block } => self.damaged(stream, file, block, &mut actions),
            Event::Ended { stream, request } => {
                let ended = self.streams.get_mut(stream as usize).and_then(|stream| stream.requests.remove(&request));
                self.drop_request(ended);
            }
            Event::Lost { stream } => self.lost(now, stream),
            Event::Unavailable { file } => self.fail(file),
            Event::Disproved { file, blocks } => {
                self.disproved(file, &blocks);
                self.open_all(&mut actions);
            }
            Event::Finished { file } => {
                // Whatever is left to settle is another file.
                if let Some(found) = self.files.get_mut(file as usize).filter(|file| file.state == FileState::Finishing)
                {
                    found.state = FileState::Done;
                    self.unsettled -= 1;
                    self.progressed = now;
                }
            }
            Event::Tick => {}
        }
        self.open_due(now, &mut actions);
        self.ask(now, &mut actions);
        if self.end(&mut actions) {
            return actions;
        }
        if now >= self.progressed + self.options.patience {
            self.ended = true;
            actions.push(Action::GiveUp);
        }
        actions
    }

    fn arrived(&mut self, now: Duration, stream: StreamId, file: FileId, block: u64, actions: &mut Vec<Action>) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if !found.absent.contains(block) {
            return;
        }
        found.absent.remove(block, block + 1);
        if found.unasked.contains(block) {
            // It was given back while it was on its way.
            found.unasked.remove(block, block + 1);
            self.unasked_bytes -= found.bytes(block, block + 1);
            if found.unasked.is_empty() {
                self.unasked.remove(&file);
            }
        }
        self.progressed = now;
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            stream.failures = 0;
        }
        for holder in &mut self.streams {
            holder.requests.retain(|_, request| {
                if let Some(outstanding) = request.outstanding.get_mut(&file).filter(|blocks| blocks.contains(block)) {
                    outstanding.remove(block, block + 1);
                    request.progressed = now;
                    if outstanding.is_empty() {
                        request.outstanding.remove(&file);
                    }
                }
                !request.outstanding.is_empty()
            });
        }
        self.settle(file, actions);
    }

    /// A file whose blocks are all here is finished, at once or by proof.
    fn settle(&mut self, file: FileId, actions: &mut Vec<Action>) {
        let found = &mut self.files[file as usize];
        if found.state != FileState::Fetching || !found.absent.is_empty() {
            return;
        }
        if block_count(found.size_bytes) == 1 {
            found.state = FileState::Done;
            self.unsettled -= 1;
        } else {
            found.state = FileState::Finishing;
            actions.push(Action::Finish { file });
        }
    }

    fn damaged(&mut self, stream: StreamId, file: FileId, block: u64, actions: &mut Vec<Action>) {
        let Some(found) = self.files.get_mut(file as usize).filter(|file| file.absent.contains(block)) else { return };
        let times = found.damaged.entry(block).or_default();
        *times += 1;
        if *times >= DAMAGED_AT_MOST {
            self.fail(file);
            actions.push(Action::Refuse { file });
            return;
        }
        let Some(holder) = self.streams.get_mut(stream as usize) else { return };
        let mut was_asked = false;
        holder.requests.retain(|_, request| {
            if let Some(outstanding) = request.outstanding.get_mut(&file).filter(|blocks| blocks.contains(block)) {
                outstanding.remove(block, block + 1);
                was_asked = true;
                if outstanding.is_empty() {
                    request.outstanding.remove(&file);
                }
            }
            !request.outstanding.is_empty()
        });
        if was_asked {
            self.return_unless_asked(file, block, block + 1);
        }
    }

    fn lost(&mut self, now: Duration, stream: StreamId) {
        let sources = self.options.sources.max(1);
        let Some(found) = self.streams.get_mut(stream as usize) else { return };
        found.failures += 1;
        if found.failures % FAILURES_BEFORE_ANOTHER_SOURCE == 0 {
            found.source = (found.source + 1) % sources;
        }
        let wait = FIRST_WAIT * (1 << (found.failures - 1).min(10));
        found.state = StreamState::Waiting { until: now + wait.min(LONGEST_WAIT) };
        for request in std::mem::take(&mut found.requests).into_values() {
            self.drop_request(Some(request));
        }
    }

    fn fail(&mut self, file: FileId) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if matches!(found.state, FileState::Done | FileState::Failed) {
            return;
        }
        found.state = FileState::Failed;
        self.unsettled -= 1;
        let unasked = std::mem::take(&mut found.unasked);
        self.unasked_bytes -= unasked.iter().map(|(start, end)| found.bytes(start, end)).sum::<u64>();
        found.absent = RangeSet::default();
        self.unasked.remove(&file);
        for stream in &mut self.streams {
            stream.requests.retain(|_, request| {
                request.outstanding.remove(&file);
                !request.outstanding.is_empty()
            });
        }
    }

    fn disproved(&mut self, file: FileId, blocks: &RangeSet) {
        let Some(found) = self.files.get_mut(file as usize).filter(|file| file.state == FileState::Finishing) else {
            return;
        };
        found.state = FileState::Fetching;
        found.absent = blocks.clone();
        for (start, end) in blocks.iter() {
            self.give_back(file, start, end);
        }
    }

    /// What a request that ended did not bring is asked for again.
    fn drop_request(&mut self, request: Option<Request>) {
        for (file, blocks) in request.into_iter().flat_map(|request| request.outstanding) {
            for (start, end) in blocks.iter() {
                self.return_unless_asked(file, start, end);
            }
        }
    }

    /// Blocks that are absent and that no stream was asked for go back.
    fn return_unless_asked(&mut self, file: FileId, start: u64, end: u64) {
        let mut returned = RangeSet::of(start, end);
        for request in self.streams.iter().flat_map(|stream| stream.requests.values()) {
            for (from, to) in request.outstanding.get(&file).into_iter().flat_map(RangeSet::iter) {
                returned.remove(from, to);
            }
        }
        for (from, to) in returned.iter() {
            self.give_back(file, from, to);
        }
    }

    fn give_back(&mut self, file: FileId, start: u64, end: u64) {
        let found = &mut self.files[file as usize];
        for block in start..end {
            if found.absent.contains(block) && !found.unasked.contains(block) {
                found.unasked.insert(block, block + 1);
                self.unasked_bytes += found.bytes(block, block + 1);
                self.unasked.insert(file);
            }
        }
    }

    fn open_due(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for (id, stream) in (0..).zip(&mut self.streams) {
            if matches!(stream.state, StreamState::Waiting { until } if until <= now) {
                stream.state = StreamState::Opening;
                actions.push(Action::Open { stream: id, source: stream.source });
            }
        }
    }

    /// Gives every stream as many requests as it may have. The stream with the fewest comes first.
    fn ask(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for held in 0..self.options.requests_ahead {
            for stream in 0..self.streams.len() {
                let found = &self.streams[stream];
                if found.state != StreamState::Open || found.requests.len() != held {
                    continue;
                }
                let outstanding = match self.next_spans() {
                    Some(spans) => spans,
                    None if held == 0 => match self.doubled_spans(now, stream) {
                        Some(spans) => spans,
                        None => continue,
                    },
                    None => return,
                };
                let request = self.next_request;
                self.next_request += 1;
                let spans = outstanding
                    .iter()
                    .flat_map(|(file, blocks)| blocks.iter().map(|(start, end)| Span { file: *file, start, end }));
                actions.push(Action::Ask { stream: stream as StreamId, request, spans: spans.collect() });
                let request_state = Request { outstanding, progressed: now, doubled: false };
                self.streams[stream].requests.insert(request, request_state);
            }
        }
    }

    /// The next blocks that nobody was asked for. Requests get smaller towards the end, so that all streams end together.
    fn next_spans(&mut self) -> Option<BTreeMap<FileId, RangeSet>> {
        let shares = 4 * self.streams.len() as u64;
        let mut left = (self.unasked_bytes / shares).clamp(BLOCK_BYTES, self.options.request_bytes.max(BLOCK_BYTES));
        let mut spans: BTreeMap<FileId, RangeSet> = BTreeMap::new();
        while left > 0 && spans.len() < SPANS_PER_REQUEST {
            let Some(id) = self.unasked.first().copied() else { break };
            let file = &mut self.files[id as usize];
            let Some((start, end)) = file.unasked.take(left.div_ceil(BLOCK_BYTES)) else { break };
            let bytes = file.bytes(start, end);
            if file.unasked.is_empty() {
                self.unasked.remove(&id);
            }
            self.unasked_bytes -= bytes;
            // A file without bytes takes room, too.
            left = left.saturating_sub(bytes.max(4096));
            spans.entry(id).or_default().insert(start, end);
        }
        (!spans.is_empty()).then_some(spans)
    }

    /// What another stream has been asked for long ago.
    fn doubled_spans(&mut self, now: Duration, idle: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        let others = self.streams.iter_mut().enumerate().filter(|(stream, _)| *stream != idle);
        let requests = others.flat_map(|(_, stream)| stream.requests.values_mut());
        let mut stalled = requests.filter(|request| !request.doubled && now >= request.progressed + STALLED);
        let request = stalled.next()?;
        request.doubled = true;
        Some(request.outstanding.clone())
    }

    fn end(&mut self, actions: &mut Vec<Action>) -> bool {
        if self.unsettled == 0 && !self.ended {
            self.ended = true;
            actions.push(Action::Done);
        }
        self.ended
    }
}

#[cfg(test)]
mod tests;
