//! Rate control of senders: a polite one that yields to other flows, and the detection and control of the link rate for a
//! fast one.
//!
//! A polite sender is controlled by queueing delay: the round-trip time minus its minimum. With almost no delay it
//! accelerates; else it aims at a small delay, at a rate slightly above or below its delivery rate. A flow that fills queues,
//! as usual TCP flows do, therefore gets the rate it needs: beside it, this one slows down in each round trip. The principle
//! is that of LEDBAT (RFC 6817), with the rate in place of the window. Losses without queueing delay are those of the path
//! and do not count.
//!
//! A queue of its own does not reduce the delivery rate. If the delivery rate falls, other flows compete: the sender yields
//! at once and recovers slowly. A CUBIC flow leaves slow start when packets queue, and with a short queue there is little
//! time to detect it.

use std::collections::VecDeque;
use std::time::Duration;

/// Target of the queueing delay. With 6 ms a copy alone takes 94 % of a link of 200 Mbit/s and 40 ms. A CUBIC flow beside it
/// keeps 89 % of its rate when alone; the goal is nine tenths.
const TARGET_QUEUE_DELAY: Duration = Duration::from_millis(5);
/// Lowest rate: a flow that stops gets no further samples.
const MIN_BYTES_PER_S: f64 = 250_000.0;
/// Relative gain per round trip without queueing delay, after the first queue was seen.
const RATE_GAIN_PER_ROUND_TRIP: f64 = 0.2;
/// Largest relative deviation from the delivery rate, to make the queue longer or shorter.
const MAX_QUEUE_CORRECTION_FRACTION: f64 = 0.25;
/// Other flows compete if packets queue and the delivery rate is below this fraction of the best.
const COMPETING_RATE_FRACTION: f64 = 0.9;
/// They have ended when the delivery rate is above this fraction of the best.
const SOLE_FLOW_RATE_FRACTION: f64 = 0.96;
/// Relative decay of the best delivery rate per second.
const BEST_RATE_DECAY_PER_S: f64 = 0.02;
/// Accepted queueing delay beside other flows.
const COMPETING_QUEUE_DELAY: Duration = Duration::from_millis(2);
/// Relative reduction below the delivery rate for each further millisecond, and its maximum.
const YIELD_FRACTION_PER_MS_AND_MAX: (f64, f64) = (0.15, 0.6);
/// Relative gain per round trip after competition, and its increase with each round trip without queueing delay.
const RECOVERY_GAIN_AND_STEP: (f64, f64) = (0.01, 0.004);

/// Measurements since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct QueueDelaySample {
    /// Present round-trip time.
    pub rtt: Duration,
    /// Minimum of the round-trip time.
    pub min_rtt: Duration,
    /// Delivery rate, bytes per second.
    pub delivery_bytes_per_s: f64,
    /// Packets were lost.
    pub has_loss: bool,
    /// Time since the last sample.
    pub elapsed: Duration,
}

/// The rate controller of a polite sender.
#[derive(Clone, Copy, Debug)]
pub struct PoliteRateController {
    bytes_per_s: f64,
    max_bytes_per_s: f64,
    in_slow_start: bool,
    /// Best delivery rate, bytes per second.
    best_bytes_per_s: f64,
    /// Other flows compete or did; the next field counts the round trips since without a queue.
    has_competition: bool,
    quiet_round_trips: f64,
    /// Remaining time in which losses do not count again.
    loss_response_pause: Duration,
}

impl PoliteRateController {
    /// Returns the controller of a sender with a maximum rate.
    pub fn new(max_bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s: 1e6_f64.min(max_bytes_per_s),
            max_bytes_per_s,
            in_slow_start: true,
            best_bytes_per_s: 0.0,
            has_competition: false,
            quiet_round_trips: 0.0,
            loss_response_pause: Duration::ZERO,
        }
    }

    /// Returns the present rate, bytes per second.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s as u64
    }

    /// Adds a sample; returns the new rate, bytes per second.
    pub fn add_sample(&mut self, sample: QueueDelaySample) -> u64 {
        let queue = sample.rtt.saturating_sub(sample.min_rtt);
        self.loss_response_pause = self.loss_response_pause.saturating_sub(sample.elapsed);
        let trips = (sample.elapsed.as_secs_f64() / sample.rtt.as_secs_f64().max(0.001)).min(1.0);
        let full = queue.as_secs_f64() / TARGET_QUEUE_DELAY.as_secs_f64();
        let arriving = sample.delivery_bytes_per_s;
        self.best_bytes_per_s =
            arriving.max(self.best_bytes_per_s * (1.0 - BEST_RATE_DECAY_PER_S * sample.elapsed.as_secs_f64()));
        if arriving >= SOLE_FLOW_RATE_FRACTION * self.best_bytes_per_s {
            self.has_competition = false;
        } else if full >= 0.5 && !self.in_slow_start && arriving < COMPETING_RATE_FRACTION * self.best_bytes_per_s {
            self.has_competition = true;
        }
        let least_queue = if self.has_competition { COMPETING_QUEUE_DELAY } else { TARGET_QUEUE_DELAY / 2 };
        if queue < least_queue {
            self.quiet_round_trips += trips;
            self.bytes_per_s *= match (self.in_slow_start, self.has_competition) {
                (true, _) => 2f64.powf(trips),
                (_, true) => {
                    1.0 + trips
                        * (RECOVERY_GAIN_AND_STEP.0 + RECOVERY_GAIN_AND_STEP.1 * self.quiet_round_trips)
                            .min(RATE_GAIN_PER_ROUND_TRIP)
                }
                (_, false) => 1.0 + RATE_GAIN_PER_ROUND_TRIP * trips,
            };
        } else {
            (self.in_slow_start, self.quiet_round_trips) = (false, 0.0);
            // If packets queue, the delivery rate is the rate available to this flow: it keeps the queue constant.
            let steady = arriving.max(MIN_BYTES_PER_S);
            let more = match self.has_competition {
                true => -(YIELD_FRACTION_PER_MS_AND_MAX.0 * 1e3 * (queue - COMPETING_QUEUE_DELAY).as_secs_f64())
                    .min(YIELD_FRACTION_PER_MS_AND_MAX.1),
                false => MAX_QUEUE_CORRECTION_FRACTION * (1.0 - full).clamp(-1.0, 1.0),
            };
            let wanted = steady * (1.0 + more);
            self.bytes_per_s += trips * (wanted - self.bytes_per_s);
            if sample.has_loss && self.loss_response_pause.is_zero() {
                self.loss_response_pause = sample.rtt;
                self.bytes_per_s *= 0.7;
            }
        }
        // An unused rate shows nothing about the path: it stays near the delivery rate.
        let used = (2.0 * sample.delivery_bytes_per_s).max(1e6);
        self.bytes_per_s = self.bytes_per_s.min(used).min(self.max_bytes_per_s).max(MIN_BYTES_PER_S);
        self.bytes_per_s()
    }
}

/// A sample of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub struct TcpSample {
    /// Time of the sample.
    pub time: Duration,
    /// Bytes acknowledged so far.
    pub acknowledged_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
}

/// Packets queue if the round-trip time exceeds the recent minimum by this factor.
const QUEUE_RTT_FACTOR: f64 = 1.06;
/// The round-trip time is known when its deviation is below this fraction of it.
const STABLE_RTT_DEVIATION_FRACTION: f64 = 0.05;
/// Number of round trips after which it counts as known.
const UNSTABLE_RTT_ROUND_TRIPS: u32 = 4;
/// A link is full if the delivery rate grows in a round trip by less than this factor. Before, it doubles.
const FULL_LINK_GROWTH_FACTOR: f64 = 1.75;

/// The detector of the end of slow start, when the link is full.
///
/// A flow that doubles its data in flight per round trip has 1.44 times the capacity of the link in flight when
/// acknowledgements reach the full rate. Half a round trip later it has twice the capacity, and a queue of one round trip
/// overflows: the full link must be detected by then.
#[derive(Debug, Default)]
pub struct SlowStartMonitor {
    samples: VecDeque<TcpSample>,
    /// Time of the first sample.
    first_sample_at: Option<Duration>,
}

impl SlowStartMonitor {
    /// Adds a sample; returns the delivery rate, bytes per second, when it stops growing.
    pub fn add_sample(&mut self, sight: TcpSample) -> Option<f64> {
        let rtt = sight.rtt;
        let began = *self.first_sample_at.get_or_insert(sight.time);
        let is_early = sight.time.saturating_sub(began) < UNSTABLE_RTT_ROUND_TRIPS * rtt;
        if self.samples.is_empty() && is_early && sight.rtt_deviation > rtt.mul_f64(STABLE_RTT_DEVIATION_FRACTION) {
            return None;
        }
        self.samples.push_back(sight);
        let before = |time: Duration| {
            let sights = self.samples.iter().rev();
            sights.copied().find(|seen| sight.time.saturating_sub(seen.time) >= time)
        };
        let (lately, then, earlier) = (before(rtt / 4)?, before(rtt)?, before(rtt * 5 / 4)?);
        let half = before(rtt / 2)?;
        while self.samples.front().is_some_and(|seen| seen.time < earlier.time) {
            self.samples.pop_front();
        }
        let rate = |from: TcpSample, to: TcpSample| {
            let bytes = to.acknowledged_bytes.saturating_sub(from.acknowledged_bytes) as f64;
            bytes / (to.time - from.time).as_secs_f64().max(1e-6)
        };
        let is_waiting = self.min_rtt().is_some_and(|least| rtt > least.mul_f64(QUEUE_RTT_FACTOR));
        let (now, before) = (rate(lately, sight), rate(earlier, then));
        let is_full = is_waiting && before > 0.0 && now < FULL_LINK_GROWTH_FACTOR * before;
        is_full.then(|| rate(half, sight))
    }

    /// Returns the minimum of the recent round-trip times. Those of the first packets may be much shorter: with variable
    /// delays and packets in order, packets in flight wait for the slowest of them, without any queue.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.samples.iter().map(|seen| seen.rtt).min()
    }
}

/// A round trip of a connection that fills its link.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Delivery rate, bytes per second.
    pub bytes_per_s: f64,
}

/// Weight of the last round trip in the smoothed delivery rate.
const RATE_SMOOTHING_WEIGHT: f64 = 0.3;
/// Relative increase above the delivery rate while no packets queue.
const PROBE_FRACTION: f64 = 0.5;
/// Relative reduction below the delivery rate while too many packets queue.
const YIELD_FRACTION: f64 = 0.05;
/// Queueing delay as fractions of the round-trip time: below the first no packets queue, above the second too many.
const QUEUE_ROUND_TRIP_FRACTION_RANGE: (f64, f64) = (0.1, 0.4);
/// A yield test ends when the accumulated reduction reaches this fraction of the data in a round trip.
const YIELD_TEST_FRACTION: f64 = 0.2;
/// If the round-trip time shrank by less than this fraction, the queue is not of this connection.
const YIELD_EFFECT_FRACTION: f64 = 0.05;
/// Below this fraction of the best rate, other flows fill the queue or the path has changed: BBR is left in control.
const MIN_BEST_RATE_FRACTION: f64 = 0.8;

/// The controller of the rate of a connection that fills its link: the delivery rate, or slightly more or less, so that only
/// as many packets queue as fill the link. It yields little to other flows.
#[derive(Debug)]
pub struct LinkRateController {
    pacing_bytes_per_s: f64,
    delivery_bytes_per_s: f64,
    best_bytes_per_s: f64,
    min_rtt: Duration,
    /// Round-trip time at the start of a yield test, and the accumulated reduction.
    yield_test: Option<(Duration, f64)>,
}

impl LinkRateController {
    /// Returns the controller of a connection with this delivery rate; 0 if it is unknown.
    pub fn new(bytes_per_s: f64, min_rtt: Duration) -> Self {
        Self {
            pacing_bytes_per_s: bytes_per_s,
            delivery_bytes_per_s: bytes_per_s,
            best_bytes_per_s: 0.0,
            min_rtt,
            yield_test: None,
        }
    }

    /// Adds a round trip; returns the new rate, bytes per second.
    pub fn add_sample(&mut self, trip: RttSample) -> u64 {
        if trip.bytes_per_s <= 0.0 {
            // The connection had no requests.
            return self.pacing_bytes_per_s as u64;
        }
        self.min_rtt = self.min_rtt.min(trip.rtt);
        let weight = if self.delivery_bytes_per_s > 0.0 { RATE_SMOOTHING_WEIGHT } else { 1.0 };
        self.delivery_bytes_per_s += weight * (trip.bytes_per_s - self.delivery_bytes_per_s);
        self.best_bytes_per_s = self.delivery_bytes_per_s.max(self.best_bytes_per_s);
        let waiting = trip.rtt.as_secs_f64() / self.min_rtt.as_secs_f64().max(1e-6) - 1.0;
        let full = ((waiting - QUEUE_ROUND_TRIP_FRACTION_RANGE.0)
            / (QUEUE_ROUND_TRIP_FRACTION_RANGE.1 - QUEUE_ROUND_TRIP_FRACTION_RANGE.0))
            .clamp(0.0, 1.0);
        let is_pushed = self.delivery_bytes_per_s < MIN_BEST_RATE_FRACTION * self.best_bytes_per_s;
        self.pacing_bytes_per_s = if full == 0.0 {
            // The sender may be limited by its requests, which does not reduce the rate.
            self.pacing_bytes_per_s.max(trip.bytes_per_s * (1.0 + PROBE_FRACTION))
        } else {
            let more = if is_pushed {
                PROBE_FRACTION
            } else {
                0.5 * PROBE_FRACTION - full * (0.5 * PROBE_FRACTION + YIELD_FRACTION)
            };
            self.record_yield(trip.rtt, -more);
            (self.delivery_bytes_per_s * (1.0 + more)).max(MIN_BYTES_PER_S)
        };
        self.pacing_bytes_per_s as u64
    }

    /// Records a reduction by this fraction. If it does not shorten the round-trip time, that time is the new minimum:
    /// variable delays lengthen it with the number of packets in flight.
    fn record_yield(&mut self, rtt: Duration, share: f64) {
        if share <= 0.0 {
            self.yield_test = None;
            return;
        }
        let (before, made) = self.yield_test.unwrap_or((rtt, 0.0));
        self.yield_test = Some((before, made + share));
        if made >= YIELD_TEST_FRACTION {
            if rtt > before.mul_f64(1.0 - YIELD_EFFECT_FRACTION) {
                self.min_rtt = rtt.div_f64(1.0 + QUEUE_ROUND_TRIP_FRACTION_RANGE.0);
            }
            self.yield_test = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the mean rate over a link with a queue, alone or beside a flow that keeps the queue full.
    fn mean_polite_rate(link_bytes_per_s: f64, others_queue: Duration) -> f64 {
        let base = Duration::from_millis(40);
        let mut polite = PoliteRateController::new(f64::INFINITY);
        let mut queued_bytes = 0.0_f64;
        let step = Duration::from_millis(20);
        let mut sum = 0.0;
        for at in 0..3000 {
            let sent = polite.bytes_per_s() as f64;
            queued_bytes = (queued_bytes + (sent - link_bytes_per_s) * step.as_secs_f64()).max(0.0);
            let queue = Duration::from_secs_f64(queued_bytes / link_bytes_per_s) + others_queue;
            let delivery_bytes_per_s = sent.min(link_bytes_per_s);
            let rtt = base + queue;
            polite.add_sample(QueueDelaySample {
                rtt,
                min_rtt: base,
                delivery_bytes_per_s,
                has_loss: false,
                elapsed: step,
            });
            sum += if at >= 1000 { delivery_bytes_per_s / 2000.0 } else { 0.0 };
        }
        sum
    }

    /// Simulates connections with controlled rates over a link of 100 MB/s and 100 ms with a queue of one round trip, beside
    /// flows that keep it full. Returns their fraction of the link, and the longest queue in round trips, over the last half.
    ///
    /// With variable delays, a round trip takes longer by `jitter` round trips than the first ones.
    fn link_fraction_and_longest_queue(flows: usize, others: f64, jitter: f64) -> (f64, f64) {
        let (link, base) = (100e6, 0.1);
        let mut rates: Vec<_> = (0..flows)
            .map(|_| LinkRateController::new(0.5 * link / flows as f64, Duration::from_millis(100)))
            .collect();
        let mut held = vec![link / flows as f64; flows];
        let (mut queue, mut carried, mut longest) = (0.0_f64, 0.0, 0.0_f64);
        for trip in 0..400 {
            let offered: f64 = held.iter().sum::<f64>() + others * link;
            queue = (queue + (offered / link - 1.0)).clamp(if others > 0.0 { 1.0 } else { 0.0 }, 1.0);
            let share = (link / offered).min(1.0);
            for (rate, held) in rates.iter_mut().zip(&mut held) {
                let trip = RttSample {
                    rtt: Duration::from_secs_f64(base * (1.0 + jitter + queue)),
                    bytes_per_s: *held * share,
                };
                *held = rate.add_sample(trip) as f64;
            }
            if trip >= 200 {
                carried += held.iter().sum::<f64>() * share / link / 200.0;
                longest = longest.max(queue);
            }
        }
        (carried, longest)
    }

    #[test]
    fn connections_fill_their_link_and_not_its_queue_and_others_take_a_part_only() {
        for flows in [1, 16] {
            for jitter in [0.0, 0.3, 1.0] {
                let (carried, longest) = link_fraction_and_longest_queue(flows, 0.0, jitter);
                assert!(carried > 0.98 && longest < 0.9, "{flows}, {jitter}: {carried} {longest}");
            }
            let (beside, _) = link_fraction_and_longest_queue(flows, 0.3, 0.0);
            assert!(beside > 0.4, "{flows}: {beside}");
        }
    }

    #[test]
    fn slow_start_ends_when_delivery_stops_growing_and_before_twice_as_much_is_in_flight() {
        // Data in flight double in each round trip of 100 ms, until a link of 100 MB/s is full at 1 s.
        let (full_s, link) = (1.0, 100e6);
        let arrived = |at: f64| match at < full_s {
            true => link * 0.1 / 2f64.ln() * 2f64.powf((at - full_s) / 0.1),
            false => link * (0.1 / 2f64.ln() + at - full_s),
        };
        let mut start = SlowStartMonitor::default();
        let mut seen = None;
        for look in 0..200 {
            let at = 0.01 * f64::from(look);
            // Twice the acknowledged data are sent: acknowledged data waited in a queue that grew since half of the link was
            // used.
            let trips = ((at - full_s) / 0.1).max(0.0);
            let waiting = 0.1 * ((2f64.powf(trips) - 1.0) / 2f64.ln() - trips);
            let rtt = Duration::from_secs_f64(0.1 + waiting);
            let rtt_deviation = Duration::from_secs_f64(0.05 / (1.0 + 100.0 * at));
            let sight = TcpSample {
                time: Duration::from_secs_f64(at),
                acknowledged_bytes: arrived(at) as u64,
                rtt,
                rtt_deviation,
            };
            if let Some(rate) = start.add_sample(sight) {
                seen = Some((at, rate));
                break;
            }
        }
        let (at, rate) = seen.unwrap();
        assert!((full_s..full_s + 0.06).contains(&at), "{at}");
        assert!((0.6 * link..=link).contains(&rate), "{rate}");
    }

    #[test]
    fn slow_start_does_not_end_because_of_varying_delays_or_bursts() {
        // Bursts of 20 ms; round trips of 100 ms that take 140 ms with some packets in flight, and vary by 3 ms.
        let arrived = |at: f64| 30e3 * 2f64.powf((at / 0.02).floor() * 0.02 / 0.14);
        let mut start = SlowStartMonitor::default();
        for look in 0..100 {
            let at = 0.01 * f64::from(look);
            let rtt = Duration::from_secs_f64(0.1 + 0.04 * (at / 0.15).min(1.0) + 0.003 * f64::from(look % 3 - 1));
            let rtt_deviation = Duration::from_secs_f64(0.05 / (1.0 + 40.0 * at));
            let sight = TcpSample {
                time: Duration::from_secs_f64(at),
                acknowledged_bytes: arrived(at) as u64,
                rtt,
                rtt_deviation,
            };
            assert_eq!(start.add_sample(sight), None, "after {at} s");
        }
    }

    #[test]
    fn a_polite_sender_yields_to_a_growing_flow_and_recovers_when_that_ends() {
        let (link, base, step) = (25e6, Duration::from_millis(40), 0.02);
        let mut polite = PoliteRateController::new(f64::INFINITY);
        let mut queued_bytes = 0.0_f64;
        let (mut before, mut longest, mut beside, mut after) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        for at in 0..3000 {
            let at = f64::from(at) * step;
            // From a twentieth of the link to all of it within twenty seconds, from second 20 on.
            let other = if (20.0..45.0).contains(&at) { link * ((at - 19.0) / 20.0).min(1.0) } else { 0.0 };
            let sent = polite.bytes_per_s() as f64;
            let offered = sent + other;
            queued_bytes = (queued_bytes + (offered - link) * step).clamp(0.0, 0.25 * link * base.as_secs_f64());
            let rtt = base + Duration::from_secs_f64(queued_bytes / link);
            let delivery_bytes_per_s = sent * (link / offered).min(1.0);
            let elapsed = Duration::from_secs_f64(step);
            polite.add_sample(QueueDelaySample { rtt, min_rtt: base, delivery_bytes_per_s, has_loss: false, elapsed });
            match at {
                at if (10.0..20.0).contains(&at) => before += delivery_bytes_per_s * step / 10.0 / link,
                at if (25.0..38.0).contains(&at) => longest = longest.max(queued_bytes / link),
                at if (42.0..45.0).contains(&at) => beside = beside.max(delivery_bytes_per_s / link),
                at if at >= 55.0 => after += delivery_bytes_per_s * step / 5.0 / link,
                _ => {}
            }
        }
        assert!(before > 0.95 && after > 0.95, "alone {before}, and again {after}");
        assert!(longest < 0.006, "packets wait for {longest} s at most while there is room for both");
        assert!(beside < 0.03, "{beside} of a link that somebody else fills");
    }

    #[test]
    fn alone_it_fills_the_link_and_beside_a_full_queue_it_yields() {
        let link = 25e6;
        assert!(mean_polite_rate(link, Duration::ZERO) > 0.9 * link);
        assert!(mean_polite_rate(link, Duration::from_millis(10)) < 0.05 * link);
    }
}
