//! What streams are asked for: how much at a time, of which files, and what is asked for twice.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::{Action, FileId, FileState, Request, STALLED, Session, Span, Stream, StreamId, StreamState};
use crate::ranges::RangeSet;
use crate::tree::BLOCK_BYTES;

/// Files that a request names, at most.
const SPANS_PER_REQUEST: usize = 512;
/// Requests that a stream has at a time, at most.
const REQUESTS_AT_MOST: usize = 16;
/// Blocks of a slow stream that another one is asked for at a time, once nothing else is left.
const DOUBLED_BLOCKS: u64 = 2;
/// Over how long the rate of a stream is taken.
const RATE_WINDOW: Duration = Duration::from_millis(50);
/// What a stream is asked for lasts at most so long, once it is known how fast it is.
const WORK_AT_MOST: Duration = Duration::from_secs(1);
/// A stream is not counted on to be faster than it was on the whole by more than this factor.
const SPURT: f64 = 1.5;
/// A stream whose rate is below this share of what all have on average is not asked for what others are slow with, unless they stand still.
const TOO_SLOW: f64 = 0.25;
/// So many round trips and their like are left to a stream that has brought nothing yet.
const UNKNOWN_HORIZONS: u32 = 4;
/// Bytes that a stream may be asked for before that, and in any case.
const UNTRIED_BYTES: u64 = 8 << 20;

/// Bytes a second, of late.
#[derive(Debug, Default)]
pub(super) struct Rate {
    bytes_per_s: f64,
    /// Since when bytes are counted, and how many there were.
    since: Option<Duration>,
    bytes: u64,
    /// When the first came, and how many did since.
    first: Option<Duration>,
    all_bytes: u64,
}

impl Rate {
    pub(super) fn add(&mut self, now: Duration, bytes: u64) {
        // What comes first says when it came, not how long it took.
        let Some(since) = self.since else {
            (self.since, self.first) = (Some(now), Some(now));
            return;
        };
        self.bytes += bytes;
        self.all_bytes += bytes;
        let elapsed = now.saturating_sub(since);
        if elapsed >= RATE_WINDOW {
            let measured = self.bytes as f64 / elapsed.as_secs_f64();
            let before = if self.bytes_per_s > 0.0 { self.bytes_per_s } else { measured };
            (self.bytes_per_s, self.since, self.bytes) = (0.5 * (before + measured), Some(now), 0);
        }
    }

    /// Bytes that may be counted on in a time. What waited behind a packet that was lost comes at once, and says nothing of what is to come.
    fn comes_in(&self, now: Duration, time: Duration) -> f64 {
        let elapsed = self.first.map_or(Duration::ZERO, |first| now.saturating_sub(first)).max(RATE_WINDOW);
        let on_the_whole = self.all_bytes as f64 / elapsed.as_secs_f64();
        self.bytes_per_s.min(SPURT * on_the_whole) * time.as_secs_f64()
    }
}

impl Session {
    /// Gives streams as many requests as they may have, or `only` one of them. The stream with the fewest comes first.
    pub(super) fn ask(&mut self, now: Duration, only: Option<usize>, actions: &mut Vec<Action>) {
        let streams = self.asked().len();
        let asked = only.map_or(0..streams, |only| only..(only + 1).min(streams));
        for held in 0..REQUESTS_AT_MOST {
            for stream in asked.clone() {
                let found = &self.streams[stream];
                if found.state != StreamState::Open || found.requests.len() != held {
                    continue;
                }
                let ahead = self.spans_ahead(stream);
                let is_ahead = ahead.is_some();
                let outstanding = match ahead.or_else(|| self.next_spans(now, stream)) {
                    Some(spans) => spans,
                    None if held == 0 => match self.doubled_spans(now, stream) {
                        Some(spans) => spans,
                        None => {
                            self.move_to_work(stream, actions);
                            continue;
                        }
                    },
                    None => continue,
                };
                let request = self.next_request;
                self.next_request += 1;
                let spans = outstanding
                    .iter()
                    .flat_map(|(file, blocks)| blocks.iter().map(|(start, end)| Span { file: *file, start, end }));
                let (stream_id, spans) = (stream as StreamId, spans.collect());
                actions.push(Action::Ask { stream: stream_id, request, ahead: is_ahead, spans });
                let request_state = Request { outstanding, progressed: now, doubled: BTreeMap::new() };
                self.streams[stream].requests.insert(request, request_state);
            }
        }
    }

    /// Streams that are asked for blocks. Those behind them are left with what they have.
    fn asked(&self) -> &[Stream] {
        &self.streams[..self.streams.len().min(self.options.streams.max(1) as usize)]
    }

    /// What a stream has been asked for already, once.
    fn spans_ahead(&mut self, stream: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        let mut ahead = std::mem::take(&mut self.streams[stream].ahead);
        ahead.retain(|file, _| self.files[*file as usize].state == FileState::Fetching);
        (!ahead.is_empty()).then_some(ahead)
    }

    /// Bytes that a stream may be asked for at a time: half of its share of what is left. That gets less towards the end, and is less for
    /// slower streams, so that all end together; only what is on its way in a round trip or two is not to get less.
    fn allowance(&self, now: Duration, stream: usize) -> u64 {
        // Before anything has come, all are alike.
        let weight = |stream: &Stream| u128::from(stream.arrived_bytes + BLOCK_BYTES);
        let all: u128 = self.streams.iter().map(weight).sum();
        let share = u128::from(self.unasked_bytes) * weight(&self.streams[stream]) / (2 * all);
        let comes_in = |time: Duration| self.streams[stream].rate.comes_in(now, time) as u64;
        let share = u64::try_from(share).unwrap_or(u64::MAX).min(comes_in(WORK_AT_MOST).max(UNTRIED_BYTES));
        let least = if self.streams[stream].rate.bytes_per_s > 0.0 { BLOCK_BYTES } else { 2 * BLOCK_BYTES };
        share.max(comes_in(self.options.horizon)).max(least)
    }

    /// Bytes that a stream has been asked for and that are not here.
    fn outstanding_bytes(&self, stream: usize) -> u64 {
        let spans = self.streams[stream].requests.values().flat_map(|request| &request.outstanding);
        let bytes = spans.flat_map(|(id, blocks)| {
            let file = &self.files[*id as usize];
            blocks.iter().map(|(start, end)| file.bytes(start, end))
        });
        bytes.sum()
    }

    /// The next blocks for a stream that nobody was asked for, where it may have more.
    fn next_spans(&mut self, now: Duration, stream: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        if self.unasked.is_empty() {
            return None;
        }
        let source = self.streams[stream].source;
        let (allowance, outstanding) = (self.allowance(now, stream), self.outstanding_bytes(stream));
        if outstanding > 0 && outstanding >= allowance {
            return None;
        }
        let most = self.options.request_bytes.max(BLOCK_BYTES);
        let mut left = (allowance / 2).min(allowance.saturating_sub(outstanding)).clamp(BLOCK_BYTES, most);
        let mut spans: BTreeMap<FileId, RangeSet> = BTreeMap::new();
        while left > 0 && spans.len() < SPANS_PER_REQUEST {
            let mut unasked = self.unasked.iter().copied();
            let Some(id) = unasked.find(|id| self.files[*id as usize].sources.has(source)) else { break };
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

    /// Has a stream without work go to a source that has some, and that no stream is at.
    fn move_to_work(&mut self, stream: usize, actions: &mut Vec<Action>) {
        let first = self.unasked.first().map(|file| self.files[*file as usize].sources);
        let Some(source) = first.and_then(|sources| sources.iter().next()) else { return };
        if self.asked().iter().all(|other| other.source != source) {
            let moved = &mut self.streams[stream];
            (moved.source, moved.state, moved.failures) = (source, StreamState::Opening, 0);
            actions.push(Action::Open { stream: stream as StreamId, source });
        }
    }

    /// Blocks that another stream has been asked for, will not bring soon, and this one's source has: the last of those that come last. So the
    /// end is not waited for at the slowest connection.
    fn doubled_spans(&mut self, now: Duration, idle: usize) -> Option<BTreeMap<FileId, RangeSet>> {
        let all_bytes: u64 = (0..self.streams.len()).map(|stream| self.outstanding_bytes(stream)).sum();
        let all_in_a_second: f64 = self.streams.iter().map(|stream| stream.in_a_second(now)).sum();
        let is_slow = self.streams[idle].in_a_second(now) < TOO_SLOW * all_in_a_second / self.streams.len() as f64;
        let all_left = Some(takes(all_bytes, all_in_a_second)).filter(|left| !left.is_zero() && !is_slow);
        let late = |stream: usize| Some((self.late(now, stream, all_left)?, stream)).filter(|_| stream != idle);
        let mut others: Vec<_> = (0..self.streams.len()).filter_map(late).collect();
        others.sort_unstable_by(|one, other| other.cmp(one));
        let (files, source) = (&self.files, self.streams[idle].source);
        for (_, other) in others {
            for request in self.streams[other].requests.values_mut().rev() {
                let mut spans: BTreeMap<FileId, RangeSet> = BTreeMap::new();
                // One that has been silent for long may never come.
                let mut left = if now >= request.progressed + STALLED { u64::MAX } else { DOUBLED_BLOCKS };
                for (file, blocks) in request.outstanding.iter().rev() {
                    if !files[*file as usize].sources.has(source) {
                        continue;
                    }
                    let doubled = request.doubled.entry(*file).or_default();
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

    /// How long a stream takes with what it has been asked for, where it stands still, or that is longer, by a round trip and more, than
    /// `all_left`: how long all streams take together with all that was asked for, where that is known.
    fn late(&self, now: Duration, stream: usize, all_left: Option<Duration>) -> Option<Duration> {
        let silent = self.silent(now, stream)?;
        let in_a_second = self.streams[stream].in_a_second(now);
        let left = silent + takes(self.outstanding_bytes(stream), in_a_second);
        let horizon = self.options.horizon * if in_a_second > 0.0 { 1 } else { UNKNOWN_HORIZONS };
        let is_late = all_left.is_some_and(|all_left| left > all_left + horizon);
        (silent >= STALLED || is_late).then_some(left)
    }

    /// Whether a stream brings what it was asked for in about the time that work is given out for.
    pub(super) fn is_through_soon(&self, now: Duration, stream: usize) -> bool {
        let (bytes, in_a_second) = (self.outstanding_bytes(stream), self.streams[stream].in_a_second(now));
        self.streams[stream].ahead.is_empty() && bytes as f64 <= 2.0 * in_a_second * WORK_AT_MOST.as_secs_f64()
    }

    /// How long a stream has brought nothing of what it was asked for; `None` where it has brought all.
    fn silent(&self, now: Duration, stream: usize) -> Option<Duration> {
        let progressed = self.streams[stream].requests.values().map(|request| request.progressed).max()?;
        Some(now.saturating_sub(progressed))
    }

    /// The stream at a source, 0-based, that has brought soonest what it was asked for, the fastest of them: the one that answers a question
    /// first.
    pub fn soonest(&self, now: Duration, source: u32) -> Option<StreamId> {
        let key = |stream: usize| {
            let (bytes, in_a_second) = (self.outstanding_bytes(stream), self.streams[stream].in_a_second(now));
            let left = if bytes > 0 && in_a_second <= 0.0 { Duration::MAX } else { takes(bytes, in_a_second) };
            (left.saturating_add(self.silent(now, stream).unwrap_or_default()), Reverse(in_a_second as u64))
        };
        let open = self
            .asked()
            .iter()
            .enumerate()
            .filter(|(_, stream)| stream.state == StreamState::Open && stream.source == source);
        open.map(|(stream, _)| stream).min_by_key(|stream| key(*stream)).map(|stream| stream as StreamId)
    }
}

impl Stream {
    /// Bytes that may be counted on in a second.
    fn in_a_second(&self, now: Duration) -> f64 {
        self.rate.comes_in(now, Duration::from_secs(1))
    }
}

/// How long bytes take at a rate; no time where that is not known.
fn takes(bytes: u64, bytes_per_s: f64) -> Duration {
    match bytes_per_s > 0.0 {
        true => Duration::try_from_secs_f64(bytes as f64 / bytes_per_s).unwrap_or(STALLED),
        false => Duration::ZERO,
    }
}
