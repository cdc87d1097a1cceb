//! The decisions of a transfer: which blocks over which stream, what is asked for again, when a file is whole, when to give up.
//!
//! Events and the time go in, actions come out; there are no sockets, files or clocks here, so that the same code runs in a
//! simulator. A *stream* is one connection. A *request* is a list of spans of blocks that a stream was asked for; streams have
//! a few at a time, so that none is idle for a round trip. What arrives is known by block: a request that breaks off costs what of it
//! had not arrived.
//!
//! A *source* is where files are to be had; there may be several, each with all of the files or some. Streams keep to a source until it fails
//! them twice in a row. Whichever source proves a file and finds blocks of it to be others, is the only one that is asked for it from then
//! on, as long as it is there.

mod asking;
mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use events::{Action, Event, FileId, FileWork, RequestId, SessionOptions, Sources, Span, StreamId};

use crate::ranges::RangeSet;
use crate::tree::{block_count, block_span};
use asking::Rate;

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
/// How long what was asked for is waited for when nothing more can be written: a block on a slow path takes seconds.
const LAST_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Who has it.
    having: Sources,
    /// Who of them is asked for blocks.
    sources: Sources,
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
    Waiting {
        until: Duration,
    },
    /// There are enough without it.
    Closed,
}

#[derive(Debug)]
struct Stream {
    state: StreamState,
    failures: u32,
    source: u32,
    /// What came over it so far, for its share of what is left.
    arrived_bytes: u64,
    /// What comes over it now.
    rate: Rate,
    requests: BTreeMap<RequestId, Request>,
    /// What it has been asked for before there was a session.
    ahead: BTreeMap<FileId, RangeSet>,
}

#[derive(Debug)]
struct Request {
    /// What of it is not here.
    outstanding: BTreeMap<FileId, RangeSet>,
    progressed: Duration,
    /// What of it another stream was asked for, too.
    doubled: BTreeMap<FileId, RangeSet>,
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
    /// When it was last seen what may be asked for.
    looked: Duration,
    unsettled: usize,
    /// Something could not be written: nothing more is asked for.
    stopping: bool,
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
            looked: now,
            unsettled: files.len(),
            stopping: false,
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
                having: work.sources,
                sources: work.sources,
                state: FileState::Fetching,
            };
            session.files.push(file);
            for (start, end) in work.missing.iter() {
                session.give_back(id, start, end);
            }
            session.settle(id, &mut actions);
        }
        session.open_all(&mut actions);
        session.set_ahead();
        session.end(&mut actions);
        (session, actions)
    }

    /// Makes all connections, where something is to be fetched and there are none.
    fn open_all(&mut self, actions: &mut Vec<Action>) {
        if self.unasked.is_empty() || !self.streams.is_empty() {
            return;
        }
        self.open_more(actions);
    }

    /// Leaves to each stream what it has been asked for.
    fn set_ahead(&mut self) {
        for (stream, spans) in self.streams.iter_mut().zip(std::mem::take(&mut self.options.ahead)) {
            for Span { file: id, start, end } in spans {
                let Some(file) = self.files.get_mut(id as usize) else { continue };
                file.unasked.remove(start, end);
                self.unasked_bytes -= file.bytes(start, end);
                stream.ahead.entry(id).or_default().insert(start, end);
                if file.unasked.is_empty() {
                    self.unasked.remove(&id);
                }
            }
        }
    }

    /// Closes connections that are too many and would take long with what they have been asked for, which goes back.
    fn close_surplus(&mut self, now: Duration, actions: &mut Vec<Action>) {
        for stream in self.options.streams.max(1) as usize..self.streams.len() {
            if self.is_through_soon(now, stream) || self.streams[stream].state == StreamState::Closed {
                continue;
            }
            self.give_up_work(stream);
            self.streams[stream].state = StreamState::Closed;
            actions.push(Action::Close { stream: stream as StreamId });
        }
    }

    /// What a stream has been asked for, and did not bring, goes back.
    fn give_up_work(&mut self, stream: usize) {
        let found = &mut self.streams[stream];
        let (ahead, requests) = (std::mem::take(&mut found.ahead), std::mem::take(&mut found.requests));
        for request in requests.into_values() {
            self.drop_request(Some(request));
        }
        for (file, blocks) in ahead {
            for (start, end) in blocks.iter() {
                self.return_unless_asked(file, start, end);
            }
        }
    }

    /// Makes the connections that there are to be and are not.
    fn open_more(&mut self, actions: &mut Vec<Action>) {
        for (id, stream) in (0..self.options.streams.max(1)).zip(&mut self.streams) {
            if stream.state == StreamState::Closed {
                (stream.state, stream.rate) = (StreamState::Opening, Rate::default());
                actions.push(Action::Open { stream: id, source: stream.source });
            }
        }
        for stream in self.streams.len() as StreamId..self.options.streams.max(1) {
            let source = stream % self.options.sources.max(1);
            let state = StreamState::Opening;
            let (requests, ahead, rate) = (BTreeMap::new(), BTreeMap::new(), Rate::default());
            self.streams.push(Stream { state, failures: 0, source, arrived_bytes: 0, rate, requests, ahead });
            actions.push(Action::Open { stream, source });
        }
    }

    /// The sources of a file of several blocks all of which have been asked for, and are not all here.
    pub fn asked_for(&self, file: FileId) -> Option<Sources> {
        let found = self.files.get(file as usize)?;
        let is_asked_for = found.unasked.is_empty() && !found.absent.is_empty() && block_count(found.size_bytes) > 1;
        is_asked_for.then_some(found.having)
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
        let patience = if self.is_some_stream_idle() { self.options.horizon } else { STALLED };
        let stalls = requests.map(|request| (request.progressed + patience).max(self.looked + patience / 4));
        if self.stopping {
            return Some(self.progressed + self.last_patience());
        }
        waiting.chain(stalls).chain([self.progressed + self.options.patience]).min()
    }

    /// Whether all was asked for, and some stream has nothing to do.
    fn is_some_stream_idle(&self) -> bool {
        let is_idle = |stream: &Stream| stream.state == StreamState::Open && stream.requests.is_empty();
        self.unasked.is_empty() && self.streams.iter().any(is_idle)
    }

    /// How long nothing may arrive once nothing more is asked for.
    fn last_patience(&self) -> Duration {
        LAST_PATIENCE.min(self.options.patience)
    }

    /// Takes what happened; says what to do.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.ended {
            return actions;
        }
        // Streams that may be asked for more.
        let mut only = None;
        match event {
            Event::Opened { stream } => {
                if let Some(stream) = self.streams.get_mut(stream as usize) {
                    stream.state = StreamState::Open;
                }
            }
            Event::Arrived { stream, file, block } => {
                // At the end, others may take over what this one is slow with.
                only = Some(stream as usize).filter(|_| !self.unasked.is_empty());
                self.arrived(now, stream, file, block, &mut actions);
            }
            Event::Damaged { stream, file, block } => self.damaged(stream, file, block, &mut actions),
            Event::Ended { stream, request } => {
                let ended = self.streams.get_mut(stream as usize).and_then(|stream| stream.requests.remove(&request));
                self.drop_request(ended);
            }
            Event::Unwritable { stream, request } => self.unwritable(now, stream, request),
            Event::Lost { stream } => self.lost(now, stream),
            Event::Unavailable { file, source } => self.unavailable(file, source, &mut actions),
            Event::Disproved { file, blocks, source } => {
                self.disproved(file, &blocks, source);
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
            Event::Streams { wanted } => {
                self.options.streams = wanted;
                if !self.streams.is_empty() {
                    self.close_surplus(now, &mut actions);
                    self.open_more(&mut actions);
                }
            }
            Event::Tick => {}
        }
        if self.stopping {
            self.stop(now, &mut actions);
        } else {
            self.looked = now;
            self.open_due(now, &mut actions);
            self.ask(now, only, &mut actions);
        }
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
            let bytes = found.bytes(block, block + 1);
            stream.arrived_bytes += bytes;
            stream.rate.add(now, bytes);
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
            actions.push(Action::Finish { file, sources: found.having });
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
            let gone = found.source;
            found.source = (gone + 1) % sources;
            // What only this one is trusted for comes from others rather than not at all.
            for file in self.files.iter_mut().filter(|file| file.sources == Sources::only(gone)) {
                file.sources = file.having;
            }
        }
        let wait = FIRST_WAIT * (1 << (found.failures - 1).min(10));
        found.state = StreamState::Waiting { until: now + wait.min(LONGEST_WAIT) };
        self.give_up_work(stream as usize);
    }

    fn unwritable(&mut self, now: Duration, stream: StreamId, request: Option<RequestId>) {
        self.stopping = true;
        self.progressed = now;
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            stream.requests.retain(|id, _| request.is_some_and(|request| request != *id));
        }
    }

    /// Ends where all that was asked for is here or cannot be written, or does not come.
    fn stop(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let is_idle = self.streams.iter().all(|stream| stream.requests.is_empty());
        let is_proving = self.files.iter().any(|file| file.state == FileState::Finishing);
        if !self.ended
            && self.unsettled > 0
            && (is_idle && !is_proving || now >= self.progressed + self.last_patience())
        {
            self.ended = true;
            actions.push(Action::Stop);
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

    /// Does without a source of a file. Where it was the last one, the file is given up.
    fn unavailable(&mut self, file: FileId, source: u32, actions: &mut Vec<Action>) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if matches!(found.state, FileState::Done | FileState::Failed) || !found.having.has(source) {
            return;
        }
        (found.having, found.sources) = (found.having.without(source), found.sources.without(source));
        if found.having.is_empty() {
            self.fail(file);
            return actions.push(Action::Refuse { file });
        }
        if found.sources.is_empty() {
            found.sources = found.having;
        }
        if found.state == FileState::Finishing {
            return actions.push(Action::Finish { file, sources: found.having });
        }
        let mut left = RangeSet::default();
        for stream in self.streams.iter_mut().filter(|stream| stream.source == source) {
            stream.requests.retain(|_, request| {
                for (start, end) in request.outstanding.remove(&file).iter().flat_map(RangeSet::iter) {
                    left.insert(start, end);
                }
                !request.outstanding.is_empty()
            });
        }
        for (start, end) in left.iter() {
            self.return_unless_asked(file, start, end);
        }
    }

    fn disproved(&mut self, file: FileId, blocks: &RangeSet, source: u32) {
        let Some(found) = self.files.get_mut(file as usize).filter(|file| file.state == FileState::Finishing) else {
            return;
        };
        found.state = FileState::Fetching;
        found.sources = Sources::only(source);
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
