//! Assigns blocks to streams: decides how many bytes a stream may have outstanding, which files come next, and which
//! blocks are requested twice.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    BlockRange, FileId, FilePhase, Request, STALL_TIMEOUT, SessionAction, SessionStream, StreamId, StreamState,
    TransferSession,
};
use crate::blake3_tree::BLOCK_BYTES;
use crate::ranges::RangeSet;

/// Largest number of files in a request.
const MAX_RANGES_PER_REQUEST: usize = 512;
/// Largest number of outstanding requests that a stream may have.
const MAX_REQUESTS_PER_STREAM: usize = 16;
/// Number of blocks of a slow stream that another stream duplicates at a time, after all blocks were requested.
const DUPLICATE_REQUEST_BLOCKS: u64 = 2;
/// Shortest time over which the rate of a stream is measured.
const RATE_WINDOW: Duration = Duration::from_millis(50);
/// Longest time that the outstanding requests of a stream should last, once its rate is known.
const MAX_WORK_DURATION: Duration = Duration::from_secs(1);
/// The expected rate of a stream is at most its mean rate since its first block, times this factor.
const MAX_SPEEDUP_FACTOR: f64 = 1.5;
/// A stream whose rate is below this fraction of the mean of all streams duplicates only stalled requests.
const SLOW_STREAM_RATE_FRACTION: f64 = 0.25;
/// A stream without a measured rate counts as late only after this number of horizons.
const UNMEASURED_HORIZON_FACTOR: u32 = 4;
/// Number of bytes that a stream may have outstanding even if its rate is unknown or low.
const INITIAL_WORK_BYTES: u64 = 8 << 20;

/// The recent rate at which a stream receives data, bytes per second.
#[derive(Debug, Default)]
pub(super) struct ReceiveRate {
    bytes_per_s: f64,
    /// Start of the present measurement; `window_bytes` counts the bytes since then.
    window_start: Option<Duration>,
    window_bytes: u64,
    /// Time at which the first block arrived; `total_bytes` counts the bytes since then.
    first_received_at: Option<Duration>,
    total_bytes: u64,
}

impl ReceiveRate {
    pub(super) fn add_bytes(&mut self, now: Duration, bytes: u64) {
        // The first block only starts the measurement: how long its transfer took is unknown.
        let Some(since) = self.window_start else {
            (self.window_start, self.first_received_at) = (Some(now), Some(now));
            return;
        };
        self.window_bytes += bytes;
        self.total_bytes += bytes;
        let elapsed = now.saturating_sub(since);
        if elapsed >= RATE_WINDOW {
            let measured = self.window_bytes as f64 / elapsed.as_secs_f64();
            let before = if self.bytes_per_s > 0.0 { self.bytes_per_s } else { measured };
            (self.bytes_per_s, self.window_start, self.window_bytes) = (0.5 * (before + measured), Some(now), 0);
        }
    }

    /// Returns the number of bytes that are expected within `time`. After a lost packet, the data that waited for it
    /// arrive all at once; limiting the rate by its mean keeps them from looking like a high rate.
    fn expected_bytes(&self, now: Duration, time: Duration) -> f64 {
        let elapsed = self.first_received_at.map_or(Duration::ZERO, |first| now.saturating_sub(first)).max(RATE_WINDOW);
        let on_the_whole = self.total_bytes as f64 / elapsed.as_secs_f64();
        self.bytes_per_s.min(MAX_SPEEDUP_FACTOR * on_the_whole) * time.as_secs_f64()
    }
}

impl TransferSession {
    /// Assigns requests to all streams, or to the stream `only`, until each has as many as allowed. Streams with the
    /// fewest requests come first.
    pub(super) fn assign_requests(&mut self, now: Duration, only: Option<usize>, actions: &mut Vec<SessionAction>) {
        let streams = self.active_streams().len();
        let candidates = only.map_or(0..streams, |only| only..(only + 1).min(streams));
        for held in 0..MAX_REQUESTS_PER_STREAM {
            for stream in candidates.clone() {
                let found = &self.streams[stream];
                if found.state != StreamState::Open || found.requests.len() != held {
                    continue;
                }
                let ahead = self.take_prefetched(stream);
                let is_ahead = ahead.is_some();
                let outstanding = match ahead.or_else(|| self.next_ranges(now, stream)) {
                    Some(spans) => spans,
                    None if held == 0 => match self.duplicate_ranges(now, stream) {
                        Some(spans) => spans,
                        None => {
                            self.move_to_source_with_work(stream, actions);
                            continue;
                        }
                    },
                    None => continue,
                };
                let request = self.next_request;
                self.next_request += 1;
                let spans = outstanding.iter().flat_map(|(file, blocks)| {
                    blocks.iter().map(|(start, end)| BlockRange { file: *file, start, end })
                });
                let (stream_id, ranges) = (stream as StreamId, spans.collect());
                actions.push(SessionAction::RequestBlocks {
                    stream: stream_id,
                    request,
                    is_prefetched: is_ahead,
                    ranges,
                });
                let request_state = Request { outstanding, last_progress: now, duplicated: BTreeMap::new() };
                self.streams[stream].requests.insert(request, request_state);
            }
        }
    }

    /// Returns the streams that may get new requests. Excess streams only finish the requests that they already have.
    fn active_streams(&self) -> &[SessionStream] {
        &self.streams[..self.streams.len().min(self.options.streams.max(1) as usize)]
    }

    /// Removes and returns the blocks that were requested over a stream before the session started.
    fn take_prefetched(&mut self, stream: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        let mut ahead = std::mem::take(&mut self.streams[stream].prefetched);
        ahead.retain(|file, _| self.files[*file as usize].state == FilePhase::Fetching);
        (!ahead.is_empty()).then_some(ahead)
    }

    /// Returns the number of bytes that a stream may have outstanding: half of its share of the unrequested bytes. The
    /// share shrinks towards the end of the transfer and is smaller for slower streams, so that all streams end
    /// together. The number is at least what the stream receives within the horizon.
    fn request_allowance_bytes(&self, now: Duration, stream: usize) -> u64 {
        // Before any data arrive, all streams have equal weights.
        let weight = |stream: &SessionStream| u128::from(stream.received_bytes + BLOCK_BYTES);
        let all: u128 = self.streams.iter().map(weight).sum();
        let share = u128::from(self.unrequested_bytes) * weight(&self.streams[stream]) / (2 * all);
        let comes_in = |time: Duration| self.streams[stream].rate.expected_bytes(now, time) as u64;
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(comes_in(MAX_WORK_DURATION).max(INITIAL_WORK_BYTES));
        let least = if self.streams[stream].rate.bytes_per_s > 0.0 { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
        share.max(comes_in(self.options.horizon)).max(least)
    }

    /// Returns the number of outstanding bytes of a stream.
    fn outstanding_bytes(&self, stream: usize) -> u64 {
        let spans = self.streams[stream].requests.values().flat_map(|request| &request.outstanding);
        let bytes = spans.flat_map(|(id, blocks)| {
            let file = &self.files[*id as usize];
            blocks.iter().map(|(start, end)| file.range_bytes(start, end))
        });
        bytes.sum()
    }

    /// Removes and returns the next unrequested blocks for a stream; `None` if its allowance is used up or its source
    /// has none.
    fn next_ranges(&mut self, now: Duration, stream: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        if self.unrequested_files.is_empty() {
            return None;
        }
        let source = self.streams[stream].source;
        let (allowance, outstanding) = (self.request_allowance_bytes(now, stream), self.outstanding_bytes(stream));
        if outstanding > 0 && outstanding >= allowance {
            return None;
        }
        let most = self.options.request_bytes.max(BLOCK_BYTES);
        let mut left = (allowance / 2).min(allowance.saturating_sub(outstanding)).clamp(BLOCK_BYTES, most);
        let mut spans: BTreeMap<FileId, RangeSet> = BTreeMap::new();
        while left > 0 && spans.len() < MAX_RANGES_PER_REQUEST {
            let mut unasked = self.unrequested_files.iter().copied();
            let Some(id) = unasked.find(|id| self.files[*id as usize].request_sources.contains(source)) else { break };
            let file = &mut self.files[id as usize];
            let Some((start, end)) = file.unrequested.take_first(left.div_ceil(BLOCK_BYTES)) else { break };
            let bytes = file.range_bytes(start, end);
            if file.unrequested.is_empty() {
                self.unrequested_files.remove(&id);
            }
            self.unrequested_bytes -= bytes;
            // An empty file counts too, because it takes space in the request.
            left = left.saturating_sub(bytes.max(4096));
            spans.entry(id).or_default().insert(start, end);
        }
        (!spans.is_empty()).then_some(spans)
    }

    /// If a stream has nothing to request, moves it to a source that has unrequested files but no stream.
    fn move_to_source_with_work(&mut self, stream: usize, actions: &mut Vec<SessionAction>) {
        let first = self.unrequested_files.first().map(|file| self.files[*file as usize].request_sources);
        let Some(source) = first.and_then(|sources| sources.iter().next()) else { return };
        if self.active_streams().iter().all(|other| other.source != source) {
            let moved = &mut self.streams[stream];
            (moved.source, moved.state, moved.failures) = (source, StreamState::Opening, 0);
            actions.push(SessionAction::OpenStream { stream: stream as StreamId, source });
        }
    }

    /// Returns blocks that the idle stream requests in addition to a late stream, so that the transfer does not end
    /// with a wait for the slowest connection. The source of the idle stream must have the file. The last blocks of the
    /// latest stream come first.
    fn duplicate_ranges(&mut self, now: Duration, idle: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        let all_bytes: u64 = (0..self.streams.len()).map(|stream| self.outstanding_bytes(stream)).sum();
        let all_in_a_second: f64 = self.streams.iter().map(|stream| stream.expected_bytes_per_s(now)).sum();
        let is_slow = self.streams[idle].expected_bytes_per_s(now)
            < SLOW_STREAM_RATE_FRACTION * all_in_a_second / self.streams.len() as f64;
        let all_left = Some(transfer_time(all_bytes, all_in_a_second)).filter(|left| !left.is_zero() && !is_slow);
        let late =
            |stream: usize| Some((self.time_left_if_late(now, stream, all_left)?, stream)).filter(|_| stream != idle);
        let mut others: Vec<_> = (0..self.streams.len()).filter_map(late).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        let (files, source) = (&self.files, self.streams[idle].source);
        for (_, other) in others {
            for request in self.streams[other].requests.values_mut().rev() {
                let mut spans: BTreeMap<FileId, RangeSet> = BTreeMap::new();
                // A request without progress may never be answered, so duplicate all its blocks.
                let mut left =
                    if now >= request.last_progress + STALL_TIMEOUT { u64::MAX } else { DUPLICATE_REQUEST_BLOCKS };
                for (file, blocks) in request.outstanding.iter().rev() {
                    if !files[*file as usize].request_sources.contains(source) {
                        continue;
                    }
                    let doubled = request.duplicated.entry(*file).or_default();
                    let mut single = blocks.clone();
                    doubled.iter().for_each(|(start, end)| single.remove(start, end));
                    while left > 0 {
                        let Some((start, end)) = single.iter().next_back() else { break };
                        let start = start.max(end.saturating_sub(left));
                        single.remove(start, end);
                        doubled.insert(start, end);
                        spans.entry(*file).or_default().insert(start, end);
                        left -= end - start;
                    }
                }
                if !spans.is_empty() {
                    return Some(spans);
                }
            }
        }
        None
    }

    /// Returns the time that a stream needs for its outstanding blocks if it is late: if it has stalled, or if this
    /// time exceeds `all_left` by more than the horizon. `all_left` is the time that all streams together need for all
    /// outstanding blocks, if known.
    fn time_left_if_late(&self, now: Duration, stream: usize, all_left: Option<Duration>) -> Option<Duration> {
        let silent = self.time_without_progress(now, stream)?;
        let in_a_second = self.streams[stream].expected_bytes_per_s(now);
        let left = silent + transfer_time(self.outstanding_bytes(stream), in_a_second);
        let horizon = self.options.horizon * if in_a_second > 0.0 { 1 } else { UNMEASURED_HORIZON_FACTOR };
        let is_late = all_left.is_some_and(|all_left| left > all_left + horizon);
        (silent >= STALL_TIMEOUT || is_late).then_some(left)
    }

    /// Reports whether a stream will finish its requests within about twice [`MAX_WORK_DURATION`].
    pub(super) fn finishes_soon(&self, now: Duration, stream: usize) -> bool {
        let (bytes, in_a_second) = (self.outstanding_bytes(stream), self.streams[stream].expected_bytes_per_s(now));
        self.streams[stream].prefetched.is_empty()
            && bytes as f64 <= 2.0 * in_a_second * MAX_WORK_DURATION.as_secs_f64()
    }

    /// Returns the time since a request of a stream last made progress; `None` if the stream has no requests.
    fn time_without_progress(&self, now: Duration, stream: usize) -> Option<Duration> {
        let progressed = self.streams[stream].requests.values().map(|request| request.last_progress).max()?;
        Some(now.saturating_sub(progressed))
    }

    /// Returns the open stream of a source (0-based) that is expected to finish its requests first; of equal streams,
    /// the fastest. A further request over this stream is answered soonest.
    pub fn soonest_idle_stream(&self, now: Duration, source: u32) -> Option<StreamId> {
        let key = |stream: usize| {
            let (bytes, in_a_second) = (self.outstanding_bytes(stream), self.streams[stream].expected_bytes_per_s(now));
            let left = if bytes > 0 && in_a_second <= 0.0 { Duration::MAX } else { transfer_time(bytes, in_a_second) };
            (
                left.saturating_add(self.time_without_progress(now, stream).unwrap_or_default()),
                Reverse(in_a_second as u64),
            )
        };
        let open = self
            .active_streams()
            .iter()
            .enumerate()
            .filter(|(_, stream)| stream.state == StreamState::Open && stream.source == source);
        open.map(|(stream, _)| stream).min_by_key(|stream| key(*stream)).map(|stream| stream as StreamId)
    }
}

impl SessionStream {
    /// Returns the number of bytes that the stream is expected to receive per second.
    fn expected_bytes_per_s(&self, now: Duration) -> f64 {
        self.rate.expected_bytes(now, Duration::from_secs(1))
    }
}

/// Returns the time that a number of bytes takes at a rate; zero if the rate is unknown.
fn transfer_time(bytes: u64, bytes_per_s: f64) -> Duration {
    match bytes_per_s > 0.0 {
        true => Duration::try_from_secs_f64(bytes as f64 / bytes_per_s).unwrap_or(STALL_TIMEOUT),
        false => Duration::ZERO,
    }
}
