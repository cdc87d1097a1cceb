//! How a sender behaves to others, and what is set on its sockets for that.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use godwit_flight::Wire;
use serde::{Deserialize, Serialize};
use socket2::{Domain, SockRef, Socket, Type};

use crate::pace::{FullRate, PoliteRate, Sample, Sight, Start, Trip};
use crate::socket_options::{TcpInfo, congestion_control, set_pacing_rate, tcp_info};

/// What a copy is to others on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// Takes what nobody else wants.
    Polite,
    /// As heavy as two ordinary flows at most.
    #[default]
    Fair,
    /// Fills the link, whatever it costs others.
    Fast,
}

/// How a sender is to send on each of its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// To others.
    pub mode: CopyMode,
    /// Bytes a second on this connection, at most.
    pub bytes_per_s: Option<u64>,
    /// Whether blocks are compressed.
    pub compress: bool,
}

/// Connections of a fair copy: as many ordinary flows as it may weigh.
pub const FAIR_STREAMS: u32 = 2;
/// The same for a polite one, each of which steers itself.
const POLITE_STREAMS: u32 = 2;
/// Connections of a fast copy on a path of some length. Of 512 MiB at 1000 Mbit/s and 10 ms, medians of 7: 4.58 s by 8 streams, 4.66 by 16.
const FAST_STREAMS: u32 = 8;
/// The same on a long path, where more find the link's rate sooner, and more still are in each other's way at the end: at 40 ms 4.84 s by 8
/// streams, 4.80 by 16, 4.82 by 24; at 100 ms 5.29 by 16, and 5.23 to 5.41 by 24.
const LONG_STREAMS: u32 = 16;
/// Round-trip times from this on are long.
const LONG: Duration = Duration::from_millis(20);
/// How long what a connection is asked for lasts, at least: both ends read and write on threads that others may keep waiting.
pub(crate) const LEAST_HORIZON: Duration = Duration::from_millis(100);
/// A round-trip time that any number of connections is worth.
pub(crate) const FAR: Duration = Duration::MAX;
/// The same where a round trip takes no time, as within a machine: more only cost switches between threads.
const NEAR_STREAMS: u32 = 2;
/// Round-trip times below this are near.
const NEAR: Duration = Duration::from_millis(1);
/// Send buffer that is asked for in fast mode; the kernel gives what this user may have.
const FAST_BUFFER_BYTES: usize = 64 << 20;
/// How often a connection that begins is looked at: at least and at most.
const START_INTERVAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// What a connection is held at first, of what arrived lately on average, while that grew.
const HELD: f64 = 1.25;
/// A connection over which nothing went for so long is looked at less often.
const ASLEEP: Duration = Duration::from_secs(1);
/// Round trips after the first loss in which a connection fills its link, if it ever does.
const LOSSY_START_TRIPS: u32 = 20;
/// How often a connection that fills its link is looked at, at most.
const FULL_INTERVAL: Duration = Duration::from_millis(40);
/// How often a polite sender looks at its connection.
pub(crate) const POLITE_INTERVAL: Duration = Duration::from_millis(20);
/// Looks of which the one with the least waiting counts.
const POLITE_SAMPLES: usize = 4;

/// Connections to begin with, for a path of that round-trip time. `wanted` where somebody said how many.
pub fn streams(mode: CopyMode, wanted: Option<u32>, rtt: Duration) -> u32 {
    match mode {
        CopyMode::Fair => wanted.unwrap_or(FAIR_STREAMS).min(FAIR_STREAMS),
        CopyMode::Polite => wanted.unwrap_or(POLITE_STREAMS),
        CopyMode::Fast if is_near(rtt) => wanted.unwrap_or(NEAR_STREAMS),
        CopyMode::Fast => wanted.unwrap_or(if rtt < LONG { FAST_STREAMS } else { LONG_STREAMS }),
    }
}

/// Whether a round trip takes no time.
pub(crate) fn is_near(rtt: Duration) -> bool {
    rtt < NEAR
}

/// Sets a socket for a manner of sending, and steers it from then on, until it is closed. What the kernel refuses is left as it is.
pub(crate) fn steer(wire: &Wire, manner: Manner) {
    wire.with(|socket| {
        let is_far = tcp_info(socket).is_ok_and(|info| info.min_rtt_us as u128 >= NEAR.as_micros());
        let hold = |bytes_per_s: Option<u64>| drop(set_pacing_rate(socket, bytes_per_s.unwrap_or(u64::MAX)));
        // Whoever asks first for something over a connection has it steered; what it is steered by lasts longer than what was asked for.
        match manner.mode {
            CopyMode::Fast if is_far => {
                if wire.take_helm() {
                    if may_ask_for_buffers() {
                        let _ = SockRef::from(&socket).set_send_buffer_size(FAST_BUFFER_BYTES);
                    }
                    run(socket, &["reno"]);
                    tokio::spawn(fill(wire.clone(), manner));
                }
                if manner.bytes_per_s.is_some() {
                    hold(manner.bytes_per_s);
                }
            }
            CopyMode::Fast => {
                run(socket, &["bbr"]);
                hold(manner.bytes_per_s);
            }
            // Who is fair is as heavy as what others run; Reno is never heavier than CUBIC.
            CopyMode::Fair => {
                run(socket, &["cubic", "reno"]);
                hold(manner.bytes_per_s);
            }
            CopyMode::Polite => {
                run(socket, &["cubic", "reno"]);
                if wire.take_helm() {
                    tokio::spawn(yield_to_others(wire.clone(), manner));
                }
            }
        }
    });
}

/// Whether a send buffer that is asked for gets larger than the kernel would make it by itself. Who asks for one is held at what is given: where
/// `net.core.wmem_max` is 208 KiB, as it is in many kernels, that is a tenth.
fn may_ask_for_buffers() -> bool {
    static FOUND: LazyLock<bool> = LazyLock::new(|| {
        let given = || -> std::io::Result<usize> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_send_buffer_size(FAST_BUFFER_BYTES)?;
            socket.send_buffer_size()
        };
        let own = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
        given().is_ok_and(|given| is_worth_asking(given, &own))
    });
    *FOUND
}

/// The same for what is given, and least, default and most of what the kernel does by itself.
fn is_worth_asking(given_bytes: usize, tcp_wmem: &str) -> bool {
    let own = tcp_wmem.split_whitespace().nth(2).and_then(|most| most.parse().ok());
    own.is_some_and(|own: usize| given_bytes > own)
}

/// Has one of these congestion controls run, the first that there is.
fn run(socket: BorrowedFd<'_>, wanted: &[&str]) {
    let runs = congestion_control(socket).unwrap_or_default();
    if !wanted.contains(&runs.as_str()) {
        let _ = wanted.iter().any(|name| SockRef::from(&socket).set_tcp_congestion(name.as_bytes()).is_ok());
    }
}

/// Brings a connection that is to fill its link to its rate, and holds it there, until it is closed.
///
/// Reno doubles what is under way in each round trip; BBR, in the first ones, does not, and goes on doubling while the sender has nothing to
/// send at times: over 100 ms, 16 connections that were left to it lost a sixth of all packets to a queue of one round trip. So BBR takes
/// over when the link is full, and does not get more than arrives and a little; or where packets are lost, and then goes on doubling until
/// the link is full.
async fn fill(wire: Wire, manner: Manner) {
    let began = Instant::now();
    let mut start = Start::default();
    let take_over = || wire.with(|socket| run(socket, &["bbr", "cubic"]));
    let mut lost: Option<Duration> = None;
    let mut least_rtt = Duration::MAX;
    let (mut acknowledged, mut moved) = (0, Duration::ZERO);
    let (mut last, bytes_per_s) = loop {
        let Some(now) = info(&wire) else { return };
        let rtt = Duration::from_micros(now.rtt_us.into());
        let deviation = Duration::from_micros(now.rtt_deviation_us.into());
        let at = began.elapsed();
        least_rtt = least_rtt.min(rtt);
        if let Some(bytes_per_s) = start.full(Sight { at, acknowledged_bytes: now.acknowledged_bytes, rtt, deviation })
        {
            break (now, bytes_per_s);
        }
        if now.retransmits > 0 {
            let since = *lost.get_or_insert_with(|| {
                take_over();
                at
            });
            if at - since > LOSSY_START_TRIPS * rtt {
                break (now, 0.0);
            }
        }
        if now.acknowledged_bytes != acknowledged {
            (acknowledged, moved) = (now.acknowledged_bytes, at);
        }
        let often = (rtt / 8).clamp(START_INTERVAL.0, START_INTERVAL.1);
        tokio::time::sleep(if at - moved < ASLEEP { often } else { FULL_INTERVAL }).await;
    };
    let most = manner.bytes_per_s.unwrap_or(u64::MAX);
    let hold = |bytes_per_s: u64| wire.with(|socket| set_pacing_rate(socket, bytes_per_s.min(most)));
    take_over();
    if bytes_per_s > 0.0 {
        hold((HELD * bytes_per_s) as u64);
    }
    let mut rate = FullRate::new(bytes_per_s, start.least_rtt().unwrap_or(least_rtt));
    let mut before = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_micros(last.rtt_us.into()).max(FULL_INTERVAL)).await;
        let Some(now) = info(&wire) else { return };
        let bytes = now.acknowledged_bytes.saturating_sub(last.acknowledged_bytes) as f64;
        let trip =
            Trip { rtt: Duration::from_micros(now.rtt_us.into()), bytes_per_s: bytes / before.elapsed().as_secs_f64() };
        (last, before) = (now, Instant::now());
        hold(rate.update(trip));
    }
}

/// What the kernel knows of a connection.
pub(crate) fn info(wire: &Wire) -> Option<TcpInfo> {
    wire.with(|socket| tcp_info(socket).ok()).flatten()
}

/// Steers a connection politely until it is closed.
async fn yield_to_others(wire: Wire, manner: Manner) {
    let mut rate = PoliteRate::new(manner.bytes_per_s.map_or(f64::INFINITY, |rate| rate as f64));
    let mut last: Option<TcpInfo> = None;
    let mut least_us = u32::MAX;
    let mut delivered = 0.0;
    let mut trips_us: VecDeque<u32> = VecDeque::new();
    loop {
        let set = wire.with(|socket| set_pacing_rate(socket, rate.bytes_per_s()));
        if set.is_none() {
            return;
        }
        tokio::time::sleep(POLITE_INTERVAL).await;
        let Some(now) = info(&wire) else { return };
        if now.min_rtt_us > 0 {
            least_us = least_us.min(now.min_rtt_us);
        }
        // Processes that wait for a processor look like queues: the least of a while does not.
        trips_us.push_back(now.rtt_us);
        if trips_us.len() > POLITE_SAMPLES {
            trips_us.pop_front();
        }
        let rtt_us = trips_us.iter().copied().min().unwrap_or(now.rtt_us);
        if let Some(before) = last {
            let bytes = now.acknowledged_bytes.saturating_sub(before.acknowledged_bytes) as f64;
            // Acknowledgements come in heaps: a mean over some 100 ms.
            delivered += 0.2 * (bytes / POLITE_INTERVAL.as_secs_f64() - delivered);
            rate.update(Sample {
                rtt: Duration::from_micros(rtt_us.into()),
                least_rtt: Duration::from_micros(least_us.min(rtt_us).into()),
                delivered_bytes_per_s: delivered,
                lost: now.retransmits > before.retransmits,
                elapsed: POLITE_INTERVAL,
            });
        }
        last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_asked_for_where_that_makes_them_larger() {
        assert!(is_worth_asking(8 << 20, "4096\t16384\t4194304\n"));
        assert!(!is_worth_asking(425_984, "4096\t16384\t4194304\n"));
        assert!(!is_worth_asking(128 << 20, "4096\t16384\t1073741824\n"));
        assert!(!is_worth_asking(8 << 20, ""));
    }
}
