//! Controls the number of connections of a copy in fast mode: more connections as long as they increase the throughput,
//! within the number of packets that the path can hold.
//!
//! The throughput of a connection over a long path depends on socket buffers at both ends and on packet losses, which
//! the receiving end cannot see. So the controller measures: it doubles the number of connections as long as the
//! throughput grows enough, and otherwise restores the previous number. Excess connections stay open without requests.
//! If the throughput falls later, the controller tries again.
//!
//! A slow path holds few packets. Over 10 Mbit/s and 40 ms, 16 connections with at least four packets in flight each
//! lost most of the data. They took five times as long as two connections. So on such a path the controller tries fewer
//! connections, and keeps them unless they are slower. If packets are lost at random, many connections with few bytes
//! in flight each are faster.

use std::time::Duration;

/// Largest number of connections that the controller selects.
const MAX_STREAMS: u32 = 128;
/// Duration of a measurement, in round trips. New connections need several round trips to reach their rate.
const MEASUREMENT_ROUND_TRIPS: u32 = 20;
/// Shortest duration of a measurement.
const MIN_MEASUREMENT_DURATION: Duration = Duration::from_secs(1);
/// If a connection has fewer bytes in flight than this, the controller tries fewer connections.
const MIN_IN_FLIGHT_BYTES: f64 = 24.0 * 1024.0;
/// More connections are tried only if each would have at least this many bytes in flight.
const PROBE_MIN_IN_FLIGHT_BYTES: f64 = 6.0 * 1024.0;
/// Number of measurements that are skipped after a reduction, while the remaining connections recover from packet
/// losses.
const REDUCTION_SETTLING_MEASUREMENTS: u32 = 3;
/// Smallest number of connections that the controller tries; fewer would not reduce the load on the path.
const MIN_STREAMS: u32 = 2;
/// Smallest ratio of the new throughput to the previous throughput at which the controller keeps the higher number of
/// connections.
const MIN_SPEEDUP_FACTOR: f64 = 1.1;
/// If the throughput falls below this fraction of the best one, the controller assumes that the path has changed.
const PATH_CHANGE_RATE_FRACTION: f64 = 0.7;
/// Bytes received before the first measurement. TLS and HTTP/2 handshakes alone transfer fewer.
const WARM_UP_BYTES: u64 = 256 << 10;
/// More connections are tried only if the remaining bytes last for at least this many measurements.
const MIN_REMAINING_MEASUREMENTS: f64 = 4.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum ControllerState {
    /// The copy has just started; the first measurement is used only to try fewer connections.
    WarmUp,
    Measure,
    /// More connections are being tried; `streams` and `bytes_per_s` are the previous number and throughput.
    /// `warmed_up` is true after the first measurement with the new connections.
    ProbeMore {
        streams: u32,
        bytes_per_s: f64,
        warmed_up: bool,
    },
    /// Fewer connections are being tried; `streams` and `bytes_per_s` are the previous number and throughput.
    /// `settling_measurements` is the number of measurements that are still to be skipped.
    ProbeFewer {
        streams: u32,
        bytes_per_s: f64,
        settling_measurements: u32,
    },
    /// The number of connections is fixed until the throughput falls.
    Settled {
        bytes_per_s: f64,
    },
}

/// The controller of the number of connections of a running copy.
#[derive(Debug)]
pub struct ConcurrencyController {
    state: ControllerState,
    streams: u32,
    window: Duration,
    rtt: Duration,
    /// Start time of the current measurement, and the number of bytes received until then.
    measurement_start: Option<(Duration, u64)>,
}

impl ConcurrencyController {
    /// Returns the controller of a copy that starts with `streams` connections over a path with round-trip time `rtt`.
    pub fn new(streams: u32, rtt: Duration) -> Self {
        Self {
            state: ControllerState::WarmUp,
            streams,
            window: MIN_MEASUREMENT_DURATION.max(rtt * MEASUREMENT_ROUND_TRIPS),
            rtt,
            measurement_start: None,
        }
    }

    /// Records the received bytes, including those of incomplete blocks, and the remaining bytes. Returns the new
    /// number of connections if it changes.
    pub fn update(&mut self, now: Duration, arrived_bytes: u64, left_bytes: u64) -> Option<u32> {
        if arrived_bytes < WARM_UP_BYTES {
            return None;
        }
        let (since, before) = *self.measurement_start.get_or_insert((now, arrived_bytes));
        let elapsed = now.saturating_sub(since);
        if elapsed < self.window {
            return None;
        }
        self.measurement_start = Some((now, arrived_bytes));
        let bytes_per_s = (arrived_bytes - before) as f64 / elapsed.as_secs_f64();
        let (state, streams) = self.next_state(bytes_per_s, left_bytes);
        self.state = state;
        let changed = streams != self.streams;
        self.streams = streams;
        changed.then_some(streams)
    }

    /// Returns the number of connections at which each has `each` bytes in flight.
    fn streams_for_in_flight_bytes(&self, bytes_per_s: f64, each: f64) -> u32 {
        (bytes_per_s * self.rtt.as_secs_f64() / each) as u32
    }

    fn next_state(&self, bytes_per_s: f64, left_bytes: u64) -> (ControllerState, u32) {
        let most = MAX_STREAMS.min(self.streams_for_in_flight_bytes(bytes_per_s, PROBE_MIN_IN_FLIGHT_BYTES));
        let more = (2 * self.streams).min(most);
        let fewer = self.streams_for_in_flight_bytes(bytes_per_s, MIN_IN_FLIGHT_BYTES).max(MIN_STREAMS);
        let is_worth_it = left_bytes as f64 > bytes_per_s * self.window.as_secs_f64() * MIN_REMAINING_MEASUREMENTS;
        let settled = (ControllerState::Settled { bytes_per_s }, self.streams);
        let try_fewer = || {
            let state = ControllerState::ProbeFewer {
                streams: self.streams,
                bytes_per_s,
                settling_measurements: REDUCTION_SETTLING_MEASUREMENTS,
            };
            (fewer < self.streams && bytes_per_s > 0.0).then_some((state, fewer))
        };
        let try_more = || match more > self.streams && is_worth_it {
            true => (ControllerState::ProbeMore { streams: self.streams, bytes_per_s, warmed_up: false }, more),
            false => settled,
        };
        match self.state {
            ControllerState::WarmUp => try_fewer().unwrap_or((ControllerState::Measure, self.streams)),
            ControllerState::Measure => try_fewer().unwrap_or_else(try_more),
            ControllerState::ProbeMore { streams, bytes_per_s: before, warmed_up: false } => {
                (ControllerState::ProbeMore { streams, bytes_per_s: before, warmed_up: true }, self.streams)
            }
            ControllerState::ProbeMore { bytes_per_s: before, .. } if bytes_per_s >= before * MIN_SPEEDUP_FACTOR => {
                try_more()
            }
            ControllerState::ProbeMore { streams, bytes_per_s: before, .. } => {
                (ControllerState::Settled { bytes_per_s: before }, streams)
            }
            // More throughput with fewer connections would indicate a slow path; here the throughput has risen with
            // more connections.
            ControllerState::ProbeFewer { streams, .. } if fewer >= 2 * self.streams => {
                (ControllerState::Measure, fewer.min(streams))
            }
            ControllerState::ProbeFewer { streams, bytes_per_s, settling_measurements: waits @ 1.. } => {
                (ControllerState::ProbeFewer { streams, bytes_per_s, settling_measurements: waits - 1 }, self.streams)
            }
            // If the previous throughput was measured during the slow start of the copy, any later measurement looks
            // fast, also with fewer connections.
            ControllerState::ProbeFewer { bytes_per_s: before, .. } if bytes_per_s * MIN_SPEEDUP_FACTOR >= before => {
                try_fewer().unwrap_or_else(try_more)
            }
            ControllerState::ProbeFewer { streams, bytes_per_s: before, .. } => {
                (ControllerState::Settled { bytes_per_s: before }, streams)
            }
            ControllerState::Settled { bytes_per_s: best } if bytes_per_s < best * PATH_CHANGE_RATE_FRACTION => {
                (ControllerState::Measure, self.streams)
            }
            ControllerState::Settled { bytes_per_s: best } => {
                (ControllerState::Settled { bytes_per_s: best.max(bytes_per_s) }, self.streams)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of connections that the controller selects if `rate` gives bytes per second by the number of
    /// connections and the tick.
    fn stream_count_changes(rate: impl Fn(u32, u64) -> f64, left_bytes: u64) -> Vec<u32> {
        let (mut controller, mut streams, mut bytes) =
            (ConcurrencyController::new(16, Duration::from_millis(40)), 16, 0.0);
        let mut changes = vec![streams];
        for tick in 0..400_u64 {
            bytes += rate(streams, tick) * 0.25;
            let now = Duration::from_millis(250 * (tick + 1));
            if let Some(wanted) = controller.update(now, bytes as u64, left_bytes) {
                streams = wanted;
                changes.push(wanted);
            }
        }
        changes
    }

    #[test]
    fn it_stops_where_more_is_no_faster() {
        let full = |streams: u32, _: u64| (f64::from(streams) * 1e6).min(50e6);
        assert_eq!(stream_count_changes(full, 1 << 40), [16, 32, 64, 128, 64]);
        assert_eq!(stream_count_changes(|_, _| 125e6, 1 << 40), [16, 32, 16]);
        assert_eq!(stream_count_changes(|streams, _| f64::from(streams) * 1e6, 1 << 40), [16, 32, 64, 128]);
    }

    #[test]
    fn a_slow_path_has_few_unless_that_is_slower() {
        // Simulate a path of 10 Mbit/s, on which many connections lose packets.
        let slow = |streams: u32, _: u64| 1.25e6 / (1.0 + f64::from(streams) / 16.0);
        assert_eq!(stream_count_changes(slow, 1 << 40), [16, 2, 4, 2]);
        // If packets are lost at random, each additional connection increases the total rate.
        let lossy = |streams: u32, _: u64| f64::from(streams) * 0.3e6;
        assert_eq!(stream_count_changes(lossy, 1 << 40), [16, 7, 16]);
    }

    #[test]
    fn a_slow_beginning_is_not_taken_for_a_slow_path_for_long() {
        // Simulate a server whose disk is slow at the start of the copy.
        let late = |_: u32, tick: u64| if tick < 20 { 0.1e6 } else { 100e6 };
        assert_eq!(stream_count_changes(late, 1 << 40)[..3], [16, 2, 16]);
        // Simulate a server whose disk is slow at the start, and a path on which each additional connection increases
        // the total rate.
        let lossy = |streams: u32, tick: u64| if tick < 20 { 0.1e6 } else { f64::from(streams) * 0.6e6 };
        assert_eq!(stream_count_changes(lossy, 1 << 40).last(), Some(&128));
    }

    #[test]
    fn what_is_done_soon_and_what_stands_still_tries_nothing() {
        assert_eq!(stream_count_changes(|streams, _| f64::from(streams) * 1e6, 10 << 20), [16]);
        assert_eq!(stream_count_changes(|_, _| 0.0, 1 << 40), [16]);
    }

    #[test]
    fn another_path_is_tried_anew() {
        let lossy_later = |streams: u32, tick: u64| match tick < 100 {
            true => 100e6,
            false => (f64::from(streams) * 1e6).min(30e6),
        };
        assert_eq!(stream_count_changes(lossy_later, 1 << 40), [16, 32, 16, 32, 64, 32]);
    }
}
