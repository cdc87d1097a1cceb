//! How many connections a fast copy has: as many as make it faster, and no more than its path can hold packets of.
//!
//! What one connection carries over a long path depends on what the kernels at both ends let be under way, and on losses, none of which the end
//! that receives can see. So it is tried: twice as many for a while, as long as the rate grows by that; else it goes back. Connections that are
//! too many stay open, and are asked for nothing. Where the rate falls later on, it is tried again.
//!
//! A slow path holds little: over 10 Mbit/s and 40 ms, 16 connections, each of which keeps four packets under way at least, lost most of what was
//! sent, and took five times as long as two do. So there are fewer, as long as that is no slower: where packets are lost by themselves, many
//! connections that have little under way each are right.

use std::time::Duration;

/// Connections, at most.
const MOST: u32 = 128;
/// Round trips that a rate is measured over. New connections take some to find theirs.
const TRIPS: u32 = 20;
/// The least time that a rate is measured over.
const LEAST: Duration = Duration::from_secs(1);
/// What a connection is to have under way at least, for there to be so many.
const LEAST_UNDER_WAY_BYTES: f64 = 24.0 * 1024.0;
/// What it has at the very least, so that more are worth trying.
const TOO_LITTLE_UNDER_WAY_BYTES: f64 = 6.0 * 1024.0;
/// Measurements that pass before fewer connections count: those that are left begin anew after the losses of many.
const FEWER_WAIT: u32 = 3;
/// Fewer than this are no lighter.
const FEWEST: u32 = 2;
/// Longer by this factor is worth it.
const WORTH: f64 = 1.1;
/// Where the rate falls below this share of the best, the path is another one.
const FALLEN: f64 = 0.7;
/// Nothing counts before so much has come: what handshakes bring is no more.
const FIRST_BYTES: u64 = 256 << 10;
/// What is done sooner than this many measurements is not worth trying for.
const LEFT_AT_LEAST: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The first bytes come: as long as one measurement, nothing counts.
    Starting,
    Measuring,
    /// With fewer connections it was that fast. `begun`: new ones have had one measurement's time.
    Trying {
        streams: u32,
        bytes_per_s: f64,
        begun: bool,
    },
    /// With more connections it was that fast. `waits`: measurements until fewer count.
    Fewer {
        streams: u32,
        bytes_per_s: f64,
        waits: u32,
    },
    /// As good as it gets.
    Settled {
        bytes_per_s: f64,
    },
}

/// The number of connections of a copy that is under way.
#[derive(Debug)]
pub(super) struct Climb {
    state: State,
    streams: u32,
    window: Duration,
    rtt: Duration,
    /// When the measurement began, and with how many bytes.
    mark: Option<(Duration, u64)>,
}

impl Climb {
    /// A copy that begins with so many connections over a path of that round-trip time.
    pub(super) fn new(streams: u32, rtt: Duration) -> Self {
        Self { state: State::Starting, streams, window: LEAST.max(rtt * TRIPS), rtt, mark: None }
    }

    /// Takes how many bytes have come, blocks that are not whole among them, and how many are still to come; returns how many connections there are to be, where that changes.
    pub(super) fn look(&mut self, now: Duration, arrived_bytes: u64, left_bytes: u64) -> Option<u32> {
        if arrived_bytes < FIRST_BYTES {
            return None;
        }
        let (since, before) = *self.mark.get_or_insert((now, arrived_bytes));
        let elapsed = now.saturating_sub(since);
        if elapsed < self.window {
            return None;
        }
        self.mark = Some((now, arrived_bytes));
        let bytes_per_s = (arrived_bytes - before) as f64 / elapsed.as_secs_f64();
        let (state, streams) = self.next(bytes_per_s, left_bytes);
        self.state = state;
        let changed = streams != self.streams;
        self.streams = streams;
        changed.then_some(streams)
    }

    /// Connections that have so many bytes under way each.
    fn holding(&self, bytes_per_s: f64, each: f64) -> u32 {
        (bytes_per_s * self.rtt.as_secs_f64() / each) as u32
    }

    fn next(&self, bytes_per_s: f64, left_bytes: u64) -> (State, u32) {
        let most = MOST.min(self.holding(bytes_per_s, TOO_LITTLE_UNDER_WAY_BYTES));
        let more = (2 * self.streams).min(most);
        let fewer = self.holding(bytes_per_s, LEAST_UNDER_WAY_BYTES).max(FEWEST);
        let is_worth_it = left_bytes as f64 > bytes_per_s * self.window.as_secs_f64() * LEFT_AT_LEAST;
        let settled = (State::Settled { bytes_per_s }, self.streams);
        let try_fewer = || {
            let state = State::Fewer { streams: self.streams, bytes_per_s, waits: FEWER_WAIT };
            (fewer < self.streams && bytes_per_s > 0.0).then_some((state, fewer))
        };
        let try_more = || match more > self.streams && is_worth_it {
            true => (State::Trying { streams: self.streams, bytes_per_s, begun: false }, more),
            false => settled,
        };
        match self.state {
            State::Starting => try_fewer().unwrap_or((State::Measuring, self.streams)),
            State::Measuring => try_fewer().unwrap_or_else(try_more),
            State::Trying { streams, bytes_per_s: before, begun: false } => {
                (State::Trying { streams, bytes_per_s: before, begun: true }, self.streams)
            }
            State::Trying { bytes_per_s: before, .. } if bytes_per_s >= before * WORTH => try_more(),
            State::Trying { streams, bytes_per_s: before, .. } => (State::Settled { bytes_per_s: before }, streams),
            // It was not the path that was slow.
            State::Fewer { streams, .. } if fewer >= 2 * self.streams => (State::Measuring, fewer.min(streams)),
            State::Fewer { streams, bytes_per_s, waits: waits @ 1.. } => {
                (State::Fewer { streams, bytes_per_s, waits: waits - 1 }, self.streams)
            }
            // What it was before may have been the beginning only, and fewer are fast for that.
            State::Fewer { bytes_per_s: before, .. } if bytes_per_s * WORTH >= before => {
                try_fewer().unwrap_or_else(try_more)
            }
            State::Fewer { streams, bytes_per_s: before, .. } => (State::Settled { bytes_per_s: before }, streams),
            State::Settled { bytes_per_s: best } if bytes_per_s < best * FALLEN => (State::Measuring, self.streams),
            State::Settled { bytes_per_s: best } => {
                (State::Settled { bytes_per_s: best.max(bytes_per_s) }, self.streams)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections after a while, over a path on which so many carry that many bytes a second.
    fn settled(rate: impl Fn(u32, u64) -> f64, left_bytes: u64) -> Vec<u32> {
        let (mut climb, mut streams, mut bytes) = (Climb::new(16, Duration::from_millis(40)), 16, 0.0);
        let mut changes = vec![streams];
        for tick in 0..400_u64 {
            bytes += rate(streams, tick) * 0.25;
            let now = Duration::from_millis(250 * (tick + 1));
            if let Some(wanted) = climb.look(now, bytes as u64, left_bytes) {
                streams = wanted;
                changes.push(wanted);
            }
        }
        changes
    }

    #[test]
    fn it_stops_where_more_is_no_faster() {
        let full = |streams: u32, _: u64| (f64::from(streams) * 1e6).min(50e6);
        assert_eq!(settled(full, 1 << 40), [16, 32, 64, 128, 64]);
        assert_eq!(settled(|_, _| 125e6, 1 << 40), [16, 32, 16]);
        assert_eq!(settled(|streams, _| f64::from(streams) * 1e6, 1 << 40), [16, 32, 64, 128]);
    }

    #[test]
    fn a_slow_path_has_few_unless_that_is_slower() {
        // 10 Mbit/s, of which what many connections lose is missing.
        let slow = |streams: u32, _: u64| 1.25e6 / (1.0 + f64::from(streams) / 16.0);
        assert_eq!(settled(slow, 1 << 40), [16, 2, 4, 2]);
        // Where packets are lost by themselves, each brings what it brings.
        let lossy = |streams: u32, _: u64| f64::from(streams) * 0.3e6;
        assert_eq!(settled(lossy, 1 << 40), [16, 7, 16]);
    }

    #[test]
    fn a_slow_beginning_is_not_taken_for_a_slow_path_for_long() {
        // The disk was asleep.
        let late = |_: u32, tick: u64| if tick < 20 { 0.1e6 } else { 100e6 };
        assert_eq!(settled(late, 1 << 40)[..3], [16, 2, 16]);
        // The same, and each brings what it brings.
        let lossy = |streams: u32, tick: u64| if tick < 20 { 0.1e6 } else { f64::from(streams) * 0.6e6 };
        assert_eq!(settled(lossy, 1 << 40).last(), Some(&128));
    }

    #[test]
    fn what_is_done_soon_and_what_stands_still_tries_nothing() {
        assert_eq!(settled(|streams, _| f64::from(streams) * 1e6, 10 << 20), [16]);
        assert_eq!(settled(|_, _| 0.0, 1 << 40), [16]);
    }

    #[test]
    fn another_path_is_tried_anew() {
        let lossy_later = |streams: u32, tick: u64| match tick < 100 {
            true => 100e6,
            false => (f64::from(streams) * 1e6).min(30e6),
        };
        assert_eq!(settled(lossy_later, 1 << 40), [16, 32, 16, 32, 64, 32]);
    }
}
