//! The scheduling of a transfer. Decides which blocks are requested over which connection, which blocks are requested
//! again, when a file is complete, and when the transfer fails.
//!
//! The session receives events with the current time, and returns actions. It uses no sockets, files or clocks, so a
//! simulator can run the same code. A *stream* is one connection. A *request* is a list of block ranges that a stream
//! is to deliver. A stream has several requests at a time, so that it does not idle for a round trip. Received blocks
//! are recorded one by one, so only the missing blocks of an interrupted request are requested again.
//!
//! A *source* has all files or some of them; there may be several sources. A stream keeps its source until it fails
//! twice in a row. If a source verifies a file and finds blocks that differ, they are requested only from this source,
//! as long as it is available.

pub mod blake3_tree;
pub mod concurrency_controller;
pub mod copy_events;
pub mod lru;
pub mod partial_paths;
pub mod path_text;
pub mod ranges;
mod request_scheduler;
mod session_events;
pub mod unix_time;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use session_events::{
    BlockRange, FileId, FileWork, RequestId, SessionAction, SessionEvent, SessionOptions, SourceSet, StreamId,
};

use crate::blake3_tree::{block_byte_range, block_count};
use crate::ranges::RangeSet;
use request_scheduler::ReceiveRate;

/// If a block is received damaged this many times, its file fails.
const MAX_DAMAGED_RECEIPTS: u32 = 5;
/// Delay before a lost stream is opened again for the first time. The delay doubles with each failure.
const INITIAL_RECONNECT_DELAY: Duration = Duration::from_millis(100);
/// Longest delay before a lost stream is opened again, so that a restored path is used within a second or two.
const MAX_RECONNECT_DELAY: Duration = Duration::from_secs(1);
/// Number of failures in a row after which a stream changes to the next source.
const MAX_CONSECUTIVE_SOURCE_FAILURES: u32 = 2;
/// If a request makes no progress for this time, an idle stream requests the same blocks.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for outstanding requests after a write failure. On a slow path, a block may take seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
enum FilePhase {
    Fetching,
    Verifying,
    Done,
    Failed,
}

#[derive(Debug)]
struct FileTransfer {
    size_bytes: u64,
    /// Blocks that were not requested yet, or must be requested again.
    unrequested: RangeSet,
    /// Blocks that are not written at the destination yet.
    missing: RangeSet,
    damage_counts: BTreeMap<u64, u32>,
    /// Sources that have the file.
    holders: SourceSet,
    /// Sources from which blocks of the file are requested.
    request_sources: SourceSet,
    state: FilePhase,
}

impl FileTransfer {
    fn range_bytes(&self, start: u64, end: u64) -> u64 {
        block_byte_range(end - 1, self.size_bytes).1 - block_byte_range(start, self.size_bytes).0
    }
}

#[derive(Debug, PartialEq, Eq)]
enum StreamState {
    Opening,
    Open,
    Backoff {
        reconnect_at: Duration,
    },
    /// The stream was closed because enough other streams are open.
    Closed,
}

#[derive(Debug)]
struct SessionStream {
    state: StreamState,
    failures: u32,
    source: u32,
    /// Bytes received so far. A stream that has received more gets a larger share of the remaining blocks.
    received_bytes: u64,
    /// The present rate at which the stream receives data.
    rate: ReceiveRate,
    requests: BTreeMap<RequestId, Request>,
    /// Blocks that were requested over this stream before the session started.
    prefetched: BTreeMap<FileId, RangeSet>,
}

#[derive(Debug)]
struct Request {
    /// Requested blocks that were not received yet.
    outstanding: BTreeMap<FileId, RangeSet>,
    last_progress: Duration,
    /// Outstanding blocks that are also requested over another stream.
    duplicated: BTreeMap<FileId, RangeSet>,
}

/// A running transfer: its files, streams and requests.
#[derive(Debug)]
pub struct TransferSession {
    options: SessionOptions,
    files: Vec<FileTransfer>,
    /// Files that have unrequested blocks.
    unrequested_files: BTreeSet<FileId>,
    unrequested_bytes: u64,
    streams: Vec<SessionStream>,
    next_request: RequestId,
    last_progress: Duration,
    /// Time at which requests were last assigned to streams.
    last_scheduled: Duration,
    unfinished_files: usize,
    /// True after a write failure: no more blocks are requested.
    is_stopping: bool,
    has_ended: bool,
}

impl TransferSession {
    /// Returns the session of a transfer of these files, and the first actions.
    pub fn new(files: Vec<FileWork>, options: SessionOptions, now: Duration) -> (Self, Vec<SessionAction>) {
        let mut session = Self {
            files: Vec::with_capacity(files.len()),
            unrequested_files: BTreeSet::new(),
            unrequested_bytes: 0,
            streams: Vec::new(),
            next_request: 0,
            last_progress: now,
            last_scheduled: now,
            unfinished_files: files.len(),
            is_stopping: false,
            has_ended: false,
            options,
        };
        let mut actions = Vec::new();
        for (id, work) in (0..).zip(files) {
            let file = FileTransfer {
                size_bytes: work.size_bytes,
                unrequested: RangeSet::default(),
                missing: work.missing.clone(),
                damage_counts: BTreeMap::new(),
                holders: work.sources,
                request_sources: work.sources,
                state: FilePhase::Fetching,
            };
            session.files.push(file);
            for (start, end) in work.missing.iter() {
                session.requeue_blocks(id, start, end);
            }
            session.finish_if_complete(id, &mut actions);
        }
        session.open_initial_streams(&mut actions);
        session.assign_prefetched();
        session.end_if_finished(&mut actions);
        (session, actions)
    }

    /// Opens all streams if there are unrequested blocks and no streams were opened yet.
    fn open_initial_streams(&mut self, actions: &mut Vec<SessionAction>) {
        if self.unrequested_files.is_empty() || !self.streams.is_empty() {
            return;
        }
        self.open_missing_streams(actions);
    }

    /// Assigns to each stream the blocks that were requested over it before the session started.
    fn assign_prefetched(&mut self) {
        for (stream, spans) in self.streams.iter_mut().zip(std::mem::take(&mut self.options.prefetched)) {
            for BlockRange { file: id, start, end } in spans {
                let Some(file) = self.files.get_mut(id as usize) else { continue };
                file.unrequested.remove(start, end);
                self.unrequested_bytes -= file.range_bytes(start, end);
                stream.prefetched.entry(id).or_default().insert(start, end);
                if file.unrequested.is_empty() {
                    self.unrequested_files.remove(&id);
                }
            }
        }
    }

    /// Closes the streams above the configured number, except those that will soon finish their requests. The blocks of
    /// closed streams are requested over other streams.
    fn close_excess_streams(&mut self, now: Duration, actions: &mut Vec<SessionAction>) {
        for stream in self.options.streams.max(1) as usize..self.streams.len() {
            if self.finishes_soon(now, stream) || self.streams[stream].state == StreamState::Closed {
                continue;
            }
            self.release_stream_work(stream);
            self.streams[stream].state = StreamState::Closed;
            actions.push(SessionAction::CloseStream { stream: stream as StreamId });
        }
    }

    /// Makes the outstanding blocks of a stream available to other streams.
    fn release_stream_work(&mut self, stream: usize) {
        let found = &mut self.streams[stream];
        let (ahead, requests) = (std::mem::take(&mut found.prefetched), std::mem::take(&mut found.requests));
        for request in requests.into_values() {
            self.requeue_request(Some(request));
        }
        for (file, blocks) in ahead {
            for (start, end) in blocks.iter() {
                self.requeue_unless_requested(file, start, end);
            }
        }
    }

    /// Opens streams until there are as many as the options require.
    fn open_missing_streams(&mut self, actions: &mut Vec<SessionAction>) {
        for (id, stream) in (0..self.options.streams.max(1)).zip(&mut self.streams) {
            if stream.state == StreamState::Closed {
                (stream.state, stream.rate) = (StreamState::Opening, ReceiveRate::default());
                actions.push(SessionAction::OpenStream { stream: id, source: stream.source });
            }
        }
        for stream in self.streams.len() as StreamId..self.options.streams.max(1) {
            let source = stream % self.options.sources.max(1);
            let state = StreamState::Opening;
            let (requests, prefetched, rate) = (BTreeMap::new(), BTreeMap::new(), ReceiveRate::default());
            self.streams.push(SessionStream {
                state,
                failures: 0,
                source,
                received_bytes: 0,
                rate,
                requests,
                prefetched,
            });
            actions.push(SessionAction::OpenStream { stream, source });
        }
    }

    /// Returns the sources of a file if all its blocks are requested but not all are written; `None` otherwise, and for
    /// a file of one block.
    pub fn fully_requested_sources(&self, file: FileId) -> Option<SourceSet> {
        let found = self.files.get(file as usize)?;
        let is_asked_for =
            found.unrequested.is_empty() && !found.missing.is_empty() && block_count(found.size_bytes) > 1;
        is_asked_for.then_some(found.holders)
    }

    /// Returns the time at which the driver must send the next [`SessionEvent::Tick`]; `None` after the end.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if self.has_ended {
            return None;
        }
        let waiting = self.streams.iter().filter_map(|stream| match stream.state {
            StreamState::Backoff { reconnect_at } => Some(reconnect_at),
            _ => None,
        });
        let requests = self.streams.iter().flat_map(|stream| stream.requests.values());
        let stall_timeout = if self.has_idle_stream() { self.options.horizon } else { STALL_TIMEOUT };
        let stalls = requests
            .map(|request| (request.last_progress + stall_timeout).max(self.last_scheduled + stall_timeout / 4));
        if self.is_stopping {
            return Some(self.last_progress + self.drain_timeout());
        }
        waiting.chain(stalls).chain([self.last_progress + self.options.idle_timeout]).min()
    }

    /// Reports whether all blocks are requested and at least one open stream has no requests.
    fn has_idle_stream(&self) -> bool {
        let is_idle = |stream: &SessionStream| stream.state == StreamState::Open && stream.requests.is_empty();
        self.unrequested_files.is_empty() && self.streams.iter().any(is_idle)
    }

    /// Returns how long the session waits for progress after a write failure.
    fn drain_timeout(&self) -> Duration {
        DRAIN_TIMEOUT.min(self.options.idle_timeout)
    }

    /// Handles an event at the time `now`; returns the actions that the driver must carry out.
    pub fn handle_event(&mut self, now: Duration, event: SessionEvent) -> Vec<SessionAction> {
        let mut actions = Vec::new();
        if self.has_ended {
            return actions;
        }
        // The only stream that may get new requests; `None` if all streams may.
        let mut only = None;
        match event {
            SessionEvent::StreamOpened { stream } => {
                if let Some(stream) = self.streams.get_mut(stream as usize) {
                    stream.state = StreamState::Open;
                }
            }
            SessionEvent::BlockWritten { stream, file, block } => {
                // When all blocks are requested, other streams may duplicate the requests of this stream.
                only = Some(stream as usize).filter(|_| !self.unrequested_files.is_empty());
                self.record_block(now, stream, file, block, &mut actions);
            }
            SessionEvent::BlockDamaged { stream, file, block } => {
                self.record_damaged_block(stream, file, block, &mut actions)
            }
            SessionEvent::RequestEnded { stream, request } => {
                let ended = self.streams.get_mut(stream as usize).and_then(|stream| stream.requests.remove(&request));
                self.requeue_request(ended);
            }
            SessionEvent::WriteFailed { stream, request } => self.record_write_failure(now, stream, request),
            SessionEvent::StreamLost { stream } => self.record_lost_stream(now, stream),
            SessionEvent::FileUnavailable { file, source } => self.remove_source(file, source, &mut actions),
            SessionEvent::VerificationFailed { file, blocks, source } => {
                self.refetch_mismatched(file, &blocks, source);
                self.open_initial_streams(&mut actions);
            }
            SessionEvent::FileFinished { file } => {
                // A file that is not being verified is already done or has failed.
                if let Some(found) = self.files.get_mut(file as usize).filter(|file| file.state == FilePhase::Verifying)
                {
                    found.state = FilePhase::Done;
                    self.unfinished_files -= 1;
                    self.last_progress = now;
                }
            }
            SessionEvent::StreamCountChanged { count } => {
                self.options.streams = count;
                if !self.streams.is_empty() {
                    self.close_excess_streams(now, &mut actions);
                    self.open_missing_streams(&mut actions);
                }
            }
            SessionEvent::Tick => {}
        }
        if self.is_stopping {
            self.stop_if_drained(now, &mut actions);
        } else {
            self.last_scheduled = now;
            self.reopen_due_streams(now, &mut actions);
            self.assign_requests(now, only, &mut actions);
        }
        if self.end_if_finished(&mut actions) {
            return actions;
        }
        if now >= self.last_progress + self.options.idle_timeout {
            self.has_ended = true;
            actions.push(SessionAction::FailWithTimeout);
        }
        actions
    }

    fn record_block(
        &mut self,
        now: Duration,
        stream: StreamId,
        file: FileId,
        block: u64,
        actions: &mut Vec<SessionAction>,
    ) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if !found.missing.contains(block) {
            return;
        }
        found.missing.remove(block, block + 1);
        if found.unrequested.contains(block) {
            // The first stream delivered the block after the block was made available to other streams.
            found.unrequested.remove(block, block + 1);
            self.unrequested_bytes -= found.range_bytes(block, block + 1);
            if found.unrequested.is_empty() {
                self.unrequested_files.remove(&file);
            }
        }
        self.last_progress = now;
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            stream.failures = 0;
            let bytes = found.range_bytes(block, block + 1);
            stream.received_bytes += bytes;
            stream.rate.add_bytes(now, bytes);
        }
        for holder in &mut self.streams {
            holder.requests.retain(|_, request| {
                if let Some(outstanding) = request.outstanding.get_mut(&file).filter(|blocks| blocks.contains(block)) {
                    outstanding.remove(block, block + 1);
                    request.last_progress = now;
                    if outstanding.is_empty() {
                        request.outstanding.remove(&file);
                    }
                }
                !request.outstanding.is_empty()
            });
        }
        self.finish_if_complete(file, actions);
    }

    /// Finishes a file if all its blocks are written. A file of one block is done; any other file is verified next.
    fn finish_if_complete(&mut self, file: FileId, actions: &mut Vec<SessionAction>) {
        let found = &mut self.files[file as usize];
        if found.state != FilePhase::Fetching || !found.missing.is_empty() {
            return;
        }
        if block_count(found.size_bytes) == 1 {
            found.state = FilePhase::Done;
            self.unfinished_files -= 1;
        } else {
            found.state = FilePhase::Verifying;
            actions.push(SessionAction::VerifyFile { file, sources: found.holders });
        }
    }

    fn record_damaged_block(&mut self, stream: StreamId, file: FileId, block: u64, actions: &mut Vec<SessionAction>) {
        let Some(found) = self.files.get_mut(file as usize).filter(|file| file.missing.contains(block)) else { return };
        let times = found.damage_counts.entry(block).or_default();
        *times += 1;
        if *times >= MAX_DAMAGED_RECEIPTS {
            self.fail_file(file);
            actions.push(SessionAction::FailFile { file });
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
            self.requeue_unless_requested(file, block, block + 1);
        }
    }

    fn record_lost_stream(&mut self, now: Duration, stream: StreamId) {
        let sources = self.options.sources.max(1);
        let Some(found) = self.streams.get_mut(stream as usize) else { return };
        found.failures += 1;
        if found.failures % MAX_CONSECUTIVE_SOURCE_FAILURES == 0 {
            let gone = found.source;
            found.source = (gone + 1) % sources;
            // If files are requested only from the lost source, request them from any source that has them.
            for file in self.files.iter_mut().filter(|file| file.request_sources == SourceSet::only(gone)) {
                file.request_sources = file.holders;
            }
        }
        let wait = INITIAL_RECONNECT_DELAY * (1 << (found.failures - 1).min(10));
        found.state = StreamState::Backoff { reconnect_at: now + wait.min(MAX_RECONNECT_DELAY) };
        self.release_stream_work(stream as usize);
    }

    fn record_write_failure(&mut self, now: Duration, stream: StreamId, request: Option<RequestId>) {
        self.is_stopping = true;
        self.last_progress = now;
        if let Some(stream) = self.streams.get_mut(stream as usize) {
            stream.requests.retain(|id, _| request.is_some_and(|request| request != *id));
        }
    }

    /// After a write failure, ends the transfer once no requests and verifications are outstanding, or after the drain
    /// timeout.
    fn stop_if_drained(&mut self, now: Duration, actions: &mut Vec<SessionAction>) {
        let is_idle = self.streams.iter().all(|stream| stream.requests.is_empty());
        let is_proving = self.files.iter().any(|file| file.state == FilePhase::Verifying);
        if !self.has_ended
            && self.unfinished_files > 0
            && (is_idle && !is_proving || now >= self.last_progress + self.drain_timeout())
        {
            self.has_ended = true;
            actions.push(SessionAction::StopAfterWriteFailure);
        }
    }

    fn fail_file(&mut self, file: FileId) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if matches!(found.state, FilePhase::Done | FilePhase::Failed) {
            return;
        }
        found.state = FilePhase::Failed;
        self.unfinished_files -= 1;
        let unasked = std::mem::take(&mut found.unrequested);
        self.unrequested_bytes -= unasked.iter().map(|(start, end)| found.range_bytes(start, end)).sum::<u64>();
        found.missing = RangeSet::default();
        self.unrequested_files.remove(&file);
        for stream in &mut self.streams {
            stream.requests.retain(|_, request| {
                request.outstanding.remove(&file);
                !request.outstanding.is_empty()
            });
        }
    }

    /// Removes a source of a file. If no other source has the file, the file fails.
    fn remove_source(&mut self, file: FileId, source: u32, actions: &mut Vec<SessionAction>) {
        let Some(found) = self.files.get_mut(file as usize) else { return };
        if matches!(found.state, FilePhase::Done | FilePhase::Failed) || !found.holders.contains(source) {
            return;
        }
        (found.holders, found.request_sources) =
            (found.holders.without_source(source), found.request_sources.without_source(source));
        if found.holders.is_empty() {
            self.fail_file(file);
            return actions.push(SessionAction::FailFile { file });
        }
        if found.request_sources.is_empty() {
            found.request_sources = found.holders;
        }
        if found.state == FilePhase::Verifying {
            return actions.push(SessionAction::VerifyFile { file, sources: found.holders });
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
            self.requeue_unless_requested(file, start, end);
        }
    }

    fn refetch_mismatched(&mut self, file: FileId, blocks: &RangeSet, source: u32) {
        let Some(found) = self.files.get_mut(file as usize).filter(|file| file.state == FilePhase::Verifying) else {
            return;
        };
        found.state = FilePhase::Fetching;
        found.request_sources = SourceSet::only(source);
        found.missing = blocks.clone();
        for (start, end) in blocks.iter() {
            self.requeue_blocks(file, start, end);
        }
    }

    /// Makes the outstanding blocks of a request that has ended available to all streams.
    fn requeue_request(&mut self, request: Option<Request>) {
        for (file, blocks) in request.into_iter().flat_map(|request| request.outstanding) {
            for (start, end) in blocks.iter() {
                self.requeue_unless_requested(file, start, end);
            }
        }
    }

    /// Makes missing blocks of a range available to all streams, except blocks that another request still covers.
    fn requeue_unless_requested(&mut self, file: FileId, start: u64, end: u64) {
        let mut returned = RangeSet::from_range(start, end);
        for request in self.streams.iter().flat_map(|stream| stream.requests.values()) {
            for (from, to) in request.outstanding.get(&file).into_iter().flat_map(RangeSet::iter) {
                returned.remove(from, to);
            }
        }
        for (from, to) in returned.iter() {
            self.requeue_blocks(file, from, to);
        }
    }

    fn requeue_blocks(&mut self, file: FileId, start: u64, end: u64) {
        let found = &mut self.files[file as usize];
        for block in start..end {
            if found.missing.contains(block) && !found.unrequested.contains(block) {
                found.unrequested.insert(block, block + 1);
                self.unrequested_bytes += found.range_bytes(block, block + 1);
                self.unrequested_files.insert(file);
            }
        }
    }

    fn reopen_due_streams(&mut self, now: Duration, actions: &mut Vec<SessionAction>) {
        for (id, stream) in (0..).zip(&mut self.streams) {
            if matches!(stream.state, StreamState::Backoff { reconnect_at } if reconnect_at <= now) {
                stream.state = StreamState::Opening;
                actions.push(SessionAction::OpenStream { stream: id, source: stream.source });
            }
        }
    }

    fn end_if_finished(&mut self, actions: &mut Vec<SessionAction>) -> bool {
        if self.unfinished_files == 0 && !self.has_ended {
            self.has_ended = true;
            actions.push(SessionAction::Done);
        }
        self.has_ended
    }
}

#[cfg(test)]
mod tests;
