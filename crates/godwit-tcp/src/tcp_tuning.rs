//! The modes of a copy (polite, fair, fast), which decide how it shares the bandwidth of a path, and the socket options
//! that implement them.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use godwit_flight::SocketHandle;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};

use crate::rate_control::{
    LinkRateController, PoliteRateController, QueueDelaySample, RttSample, SlowStartMonitor, TcpSample,
};
use crate::socket_options::{TcpInfo, congestion_control, set_pacing_rate, tcp_info};

/// Behaviour of a copy toward other traffic on the same path.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_tcp::tcp_tuning::CopyMode;
///
/// assert_eq!(CopyMode::default(), CopyMode::Fair);
/// assert_eq!(serde_json::to_string(&CopyMode::Polite)?, r#""polite""#);
/// assert!(serde_json::from_str::<CopyMode>(r#""greedy""#).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// Uses only the bandwidth that other flows leave.
    Polite,
    /// Uses at most as much bandwidth as two ordinary TCP flows.
    #[default]
    Fair,
    /// Fills the link, at the expense of other flows.
    Fast,
}

/// Options that a request sets for the sender of its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendOptions {
    /// Behaviour of the connection toward other traffic on the same path.
    pub mode: CopyMode,
    /// Rate limit of the connection, bytes per second; `None` for no limit.
    pub bytes_per_s: Option<u64>,
    /// True if blocks are compressed with zstd.
    pub compress: bool,
}

/// Number of connections of a fair copy. It uses at most as much bandwidth as two ordinary flows.
pub const FAIR_STREAMS: u32 = 2;
/// Number of connections of a polite copy, each of which controls its own rate.
const POLITE_STREAMS: u32 = 2;
/// Number of connections of a fast copy on a path that is neither near nor long. Copying 512 MiB at 1000 Mbit/s and 10
/// ms took 4.58 s with 8 connections and 4.66 s with 16 (medians of 7).
const FAST_STREAMS: u32 = 8;
/// Number of connections of a fast copy on a long path. More connections find the rate of the link sooner, but too many
/// slow each other at the end. Copying 512 MiB at 1000 Mbit/s and 40 ms took 4.84 s with 8 connections, 4.80 s with 16
/// and 4.82 s with 24; at 100 ms 5.29 s with 16, and 5.23 to 5.41 s with 24.
const FAST_LONG_PATH_STREAMS: u32 = 16;
/// Round-trip time from which on a path counts as long.
const LONG_PATH_MIN_RTT: Duration = Duration::from_millis(20);
/// Smallest time that the requests of a connection should last, because threads that read and write may be delayed at
/// both ends.
pub const MIN_HORIZON: Duration = Duration::from_millis(100);
/// Round-trip time for which [`stream_count`] returns its largest number.
pub const MAX_RTT: Duration = Duration::MAX;
/// Number of connections of a fast copy on a near path, such as within a host, where more connections only cost thread
/// switches.
const FAST_NEAR_PATH_STREAMS: u32 = 2;
/// Round-trip time below which a path counts as near.
const NEAR_PATH_MAX_RTT: Duration = Duration::from_millis(1);
/// Send buffer that is requested in fast mode, bytes. The kernel may grant less.
const FAST_SEND_BUFFER_BYTES: usize = 64 << 20;
/// Shortest and longest time between two samples during slow start.
const SLOW_START_SAMPLE_INTERVAL_RANGE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Pacing rate after slow start, relative to the recent mean of the delivery rate, which was still growing.
const INITIAL_PACING_FACTOR: f64 = 1.25;
/// Time without progress after which a connection in slow start is sampled less often.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of round trips after the first loss that slow start may still take to fill the link.
const LOSSY_SLOW_START_ROUND_TRIPS: u32 = 20;
/// Shortest time between two samples of a connection after slow start.
const LINK_RATE_SAMPLE_INTERVAL: Duration = Duration::from_millis(40);
/// Time between two samples of a polite sender.
const POLITE_SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// Number of latest samples whose smallest round-trip time is used.
const POLITE_RTT_SAMPLE_COUNT: usize = 4;

/// Returns the number of connections with which a copy starts on a path with round-trip time `rtt`. `wanted` is the
/// number that the user requested, if any.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// use godwit_tcp::tcp_tuning::{CopyMode, FAIR_STREAMS, stream_count};
///
/// let rtt = Duration::from_millis(100);
/// assert_eq!(stream_count(CopyMode::Fast, Some(4), rtt), 4);
/// assert_eq!(stream_count(CopyMode::Fair, Some(4), rtt), FAIR_STREAMS);
/// // A fast copy opens more connections on a longer path.
/// assert!(stream_count(CopyMode::Fast, None, rtt) > stream_count(CopyMode::Fast, None, rtt / 10));
/// ```
pub fn stream_count(mode: CopyMode, wanted: Option<u32>, rtt: Duration) -> u32 {
    match mode {
        CopyMode::Fair => wanted.unwrap_or(FAIR_STREAMS).min(FAIR_STREAMS),
        CopyMode::Polite => wanted.unwrap_or(POLITE_STREAMS),
        CopyMode::Fast if is_near_path(rtt) => wanted.unwrap_or(FAST_NEAR_PATH_STREAMS),
        CopyMode::Fast => wanted.unwrap_or(if rtt < LONG_PATH_MIN_RTT { FAST_STREAMS } else { FAST_LONG_PATH_STREAMS }),
    }
}

/// Reports whether the round-trip time is so short that it does not slow down a copy.
pub fn is_near_path(rtt: Duration) -> bool {
    rtt < NEAR_PATH_MAX_RTT
}

/// Sets the options of a socket and, depending on the mode, starts a task that controls its sending rate until it is
/// closed. Options that the kernel rejects are ignored.
pub fn apply_send_options(wire: &SocketHandle, options: SendOptions) {
    wire.with_fd(|socket| {
        let is_far = tcp_info(socket).is_ok_and(|info| info.min_rtt_us as u128 >= NEAR_PATH_MAX_RTT.as_micros());
        let hold = |bytes_per_s: Option<u64>| drop(set_pacing_rate(socket, bytes_per_s.unwrap_or(u64::MAX)));
        // The task is started by the first request over a connection and continues after that request.
        match options.mode {
            CopyMode::Fast if is_far => {
                if wire.claim_control() {
                    if allows_large_send_buffers() {
                        let _ = SockRef::from(&socket).set_send_buffer_size(FAST_SEND_BUFFER_BYTES);
                    }
                    set_congestion_control(socket, &["reno"]);
                    tokio::spawn(control_link_rate(wire.clone(), options));
                }
                if options.bytes_per_s.is_some() {
                    hold(options.bytes_per_s);
                }
            }
            CopyMode::Fast => {
                set_congestion_control(socket, &["bbr"]);
                hold(options.bytes_per_s);
            }
            // A fair sender uses CUBIC, as most other flows do, or Reno, which is never more aggressive than CUBIC.
            CopyMode::Fair => {
                set_congestion_control(socket, &["cubic", "reno"]);
                hold(options.bytes_per_s);
            }
            CopyMode::Polite => {
                set_congestion_control(socket, &["cubic", "reno"]);
                if wire.claim_control() {
                    tokio::spawn(control_polite_rate(wire.clone(), options));
                }
            }
        }
    });
}

/// Reports whether a requested send buffer may be larger than the buffer that the kernel sizes automatically. A
/// requested buffer keeps the granted size. With a `net.core.wmem_max` of 208 KiB, which is common, that is a tenth of
/// the automatic maximum.
fn allows_large_send_buffers() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let given = || -> std::io::Result<usize> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_send_buffer_size(FAST_SEND_BUFFER_BYTES)?;
            socket.send_buffer_size()
        };
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
        given().is_ok_and(|given| exceeds_autotuned_buffer(given, &own))
    });
    *FOUND
}

/// Reports whether the granted size exceeds the maximum in `tcp_wmem`, which has the values minimum, default and
/// maximum.
fn exceeds_autotuned_buffer(given_bytes: usize, tcp_wmem: &str) -> bool {
    let own = tcp_wmem.split_whitespace().nth(2).and_then(|most| most.parse().ok());
    own.is_some_and(|own: usize| given_bytes > own)
}

/// Sets the first of these congestion controls that is available, unless one of them is already in use.
fn set_congestion_control(socket: BorrowedFd<'_>, wanted: &[&str]) {
    let runs = congestion_control(socket).unwrap_or_default();
    if !wanted.contains(&runs.as_str()) {
        let _ = wanted.iter().any(|name| SockRef::from(&socket).set_tcp_congestion(name.as_bytes()).is_ok());
    }
}

/// Makes a connection reach the rate of its link, and holds it at that rate until the connection is closed.
///
/// During slow start, Reno doubles the data in flight in each round trip. BBR does not in the first round trips, and it
/// goes on doubling if the sender is idle at times. Over 100 ms, 16 connections with BBR alone lost a sixth of all
/// packets in a queue of one round trip. So the connection changes from Reno to BBR when the link is full, paced
/// slightly above the delivery rate. If packets are lost earlier, it changes to BBR at once, which then doubles the
/// rate until the link is full.
async fn control_link_rate(wire: SocketHandle, options: SendOptions) {
    let began = Instant::now();
    let mut start = SlowStartMonitor::default();
    let take_over = || wire.with_fd(|socket| set_congestion_control(socket, &["bbr", "cubic"]));
    let mut lost: Option<Duration> = None;
    let mut least_rtt = Duration::MAX;
    let (mut acknowledged, mut moved) = (0, Duration::ZERO);
    let (mut last, bytes_per_s) = loop {
        let Some(now) = connection_tcp_info(&wire) else { return };
        let rtt = Duration::from_micros(now.rtt_us.into());
        let rtt_deviation = Duration::from_micros(now.rtt_deviation_us.into());
        let time = began.elapsed();
        least_rtt = least_rtt.min(rtt);
        if let Some(bytes_per_s) =
            start.add_sample(TcpSample { time, acknowledged_bytes: now.acknowledged_bytes, rtt, rtt_deviation })
        {
            break (now, bytes_per_s);
        }
        if now.retransmits > 0 {
            let since = *lost.get_or_insert_with(|| {
                take_over();
                time
            });
            if time - since > LOSSY_SLOW_START_ROUND_TRIPS * rtt {
                break (now, 0.0);
            }
        }
        if now.acknowledged_bytes != acknowledged {
            (acknowledged, moved) = (now.acknowledged_bytes, time);
        }
        let often = (rtt / 8).clamp(SLOW_START_SAMPLE_INTERVAL_RANGE.0, SLOW_START_SAMPLE_INTERVAL_RANGE.1);
        tokio::time::sleep(if time - moved < IDLE_CONNECTION_TIMEOUT { often } else { LINK_RATE_SAMPLE_INTERVAL })
            .await;
    };
    let most = options.bytes_per_s.unwrap_or(u64::MAX);
    let hold = |bytes_per_s: u64| wire.with_fd(|socket| set_pacing_rate(socket, bytes_per_s.min(most)));
    take_over();
    if bytes_per_s > 0.0 {
        hold((INITIAL_PACING_FACTOR * bytes_per_s) as u64);
    }
    let mut rate = LinkRateController::new(bytes_per_s, start.min_rtt().unwrap_or(least_rtt));
    let mut before = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_micros(last.rtt_us.into()).max(LINK_RATE_SAMPLE_INTERVAL)).await;
        let Some(now) = connection_tcp_info(&wire) else { return };
        let bytes = now.acknowledged_bytes.saturating_sub(last.acknowledged_bytes) as f64;
        let sample = RttSample {
            rtt: Duration::from_micros(now.rtt_us.into()),
            bytes_per_s: bytes / before.elapsed().as_secs_f64(),
        };
        (last, before) = (now, Instant::now());
        hold(rate.add_sample(sample));
    }
}

/// Returns the statistics that the kernel keeps of a connection; `None` if the connection is closed.
pub fn connection_tcp_info(wire: &SocketHandle) -> Option<TcpInfo> {
    wire.with_fd(|socket| tcp_info(socket).ok()).flatten()
}

/// Controls the sending rate of a connection in polite mode until it is closed.
async fn control_polite_rate(wire: SocketHandle, options: SendOptions) {
    let mut rate = PoliteRateController::new(options.bytes_per_s.map_or(f64::INFINITY, |rate| rate as f64));
    let mut last: Option<TcpInfo> = None;
    let mut least_us = u32::MAX;
    let mut delivered = 0.0;
    let mut trips_us: VecDeque<u32> = VecDeque::new();
    loop {
        let set = wire.with_fd(|socket| set_pacing_rate(socket, rate.bytes_per_s()));
        if set.is_none() {
            return;
        }
        tokio::time::sleep(POLITE_SAMPLE_INTERVAL).await;
        let Some(now) = connection_tcp_info(&wire) else { return };
        if now.min_rtt_us > 0 {
            least_us = least_us.min(now.min_rtt_us);
        }
        // A process that waits for a processor delays acknowledgements, which looks like a queue. The minimum of
        // several samples excludes that.
        trips_us.push_back(now.rtt_us);
        if trips_us.len() > POLITE_RTT_SAMPLE_COUNT {
            trips_us.pop_front();
        }
        let rtt_us = trips_us.iter().copied().min().unwrap_or(now.rtt_us);
        if let Some(before) = last {
            let bytes = now.acknowledged_bytes.saturating_sub(before.acknowledged_bytes) as f64;
            // Acknowledgements arrive in bursts, so take a mean over about 100 ms.
            delivered += 0.2 * (bytes / POLITE_SAMPLE_INTERVAL.as_secs_f64() - delivered);
            rate.add_sample(QueueDelaySample {
                rtt: Duration::from_micros(rtt_us.into()),
                min_rtt: Duration::from_micros(least_us.min(rtt_us).into()),
                delivery_bytes_per_s: delivered,
                has_loss: now.retransmits > before.retransmits,
                elapsed: POLITE_SAMPLE_INTERVAL,
            });
        }
        last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn send_buffers_are_requested_where_that_makes_them_larger() {
        assert!(exceeds_autotuned_buffer(8 << 20, "4096\t16384\t4194304\n"));
        assert!(!exceeds_autotuned_buffer(425_984, "4096\t16384\t4194304\n"));
        assert!(!exceeds_autotuned_buffer(128 << 20, "4096\t16384\t1073741824\n"));
        assert!(!exceeds_autotuned_buffer(8 << 20, ""));
    }
}
