//! How a sender behaves to others, and what is set on its sockets for that.

use std::collections::VecDeque;
use std::time::Duration;

use godwit_flight::Wire;
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use crate::pace::{PoliteRate, Sample};
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
/// Connections of a fast copy on a path of some length. With iperf3, 1 stream filled 58 % of 1000 Mbit/s at 40 ms; of 512 MiB by 8
/// streams the last blocks come more evenly than by 16: 4.86 s in place of 4.93.
const FAST_STREAMS: u32 = 8;
/// The same on a long path, where one stream with the send buffer that users get, 4 MB, carries 240 Mbit/s, and more find the
/// link's rate sooner: 5.4 s by 16 streams at 100 ms, 5.6 by 8.
const LONG_STREAMS: u32 = 16;
/// Round-trip times from this on are long.
const LONG: Duration = Duration::from_millis(60);
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

/// Sets a socket for a manner of sending. What the kernel refuses is left as it is; returns the congestion control that runs.
pub(crate) fn apply(wire: &Wire, manner: &Manner) -> String {
    let set = |socket: std::os::fd::BorrowedFd<'_>| {
        let options = SockRef::from(&socket);
        let wanted: &[&str] = match manner.mode {
            CopyMode::Fast => &["bbr"],
            // Who is fair is as heavy as what others run; Reno is never heavier than CUBIC.
            CopyMode::Fair | CopyMode::Polite => &["cubic", "reno"],
        };
        let runs = congestion_control(socket).unwrap_or_default();
        if !wanted.contains(&runs.as_str()) {
            let _ = wanted.iter().any(|name| options.set_tcp_congestion(name.as_bytes()).is_ok());
        }
        if manner.mode == CopyMode::Fast
            && tcp_info(socket).is_ok_and(|info| info.min_rtt_us as u128 >= NEAR.as_micros())
        {
            let _ = options.set_send_buffer_size(FAST_BUFFER_BYTES);
        }
        let _ = set_pacing_rate(socket, manner.bytes_per_s.unwrap_or(u64::MAX));
        congestion_control(socket).unwrap_or_default()
    };
    wire.with(set).unwrap_or_default()
}

/// What the kernel knows of a connection.
pub(crate) fn info(wire: &Wire) -> Option<TcpInfo> {
    wire.with(|socket| tcp_info(socket).ok()).flatten()
}

/// Steers a connection politely until it is closed, or the future is dropped.
pub(crate) async fn steer(wire: Wire, manner: Manner) {
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
