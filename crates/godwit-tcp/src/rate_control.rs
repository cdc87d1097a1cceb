//! Control of the sending rate of TCP connections. [`PoliteRateController`] is for copies that yield to other flows.
//! [`SlowStartMonitor`] and [`LinkRateController`] are for fast copies, which detect the rate of the link and keep to
//! it.
//!
//! A polite sender is controlled by the queueing delay, which is the round-trip time minus its minimum. With almost no
//! delay, the sender accelerates. Otherwise it aims at a small delay by sending at slightly more or less than its
//! delivery rate. Other TCP flows usually fill the queue, so the polite sender slows down in each round trip, and they
//! get the rate that they need. The principle is that of LEDBAT (RFC 6817), but with a rate instead of a window. Losses
//! without queueing delay are caused by the path, so the sender ignores them.
//!
//! A queue that only this sender causes does not reduce its delivery rate. If the delivery rate falls, other flows
//! compete; then the sender yields at once and recovers slowly. A CUBIC flow leaves slow start as soon as packets
//! queue. With a short queue there is little time to detect such a flow.

use std::collections::VecDeque;
use std::time::Duration;

/// Target of the queueing delay. Measured with 6 ms: a copy alone uses 94 % of a link of 200 Mbit/s with an RTT of 40
/// ms. A CUBIC flow beside the copy keeps 89 % of the rate that it has alone; the goal is 90 %.
const TARGET_QUEUE_DELAY: Duration = Duration::from_millis(5);
/// Lowest sending rate. The rate never becomes zero, because a stopped flow would receive no further samples.
const MIN_BYTES_PER_S: f64 = 250_000.0;
/// Relative increase of the rate per round trip if there is no queueing delay, after slow start.
const RATE_GAIN_PER_ROUND_TRIP: f64 = 0.2;
/// Largest relative difference from the delivery rate, by which the sender makes the queue longer or shorter.
const MAX_QUEUE_CORRECTION_FRACTION: f64 = 0.25;
/// If packets queue and the delivery rate is below this fraction of the best rate, other flows compete.
const COMPETING_RATE_FRACTION: f64 = 0.9;
/// If the delivery rate is above this fraction of the best rate, the other flows have ended.
const SOLE_FLOW_RATE_FRACTION: f64 = 0.96;
/// Fraction by which the best delivery rate decays per second.
const BEST_RATE_DECAY_PER_S: f64 = 0.02;
/// Queueing delay that is accepted while other flows compete.
const COMPETING_QUEUE_DELAY: Duration = Duration::from_millis(2);
/// Relative reduction below the delivery rate for each further millisecond of queueing delay, and the largest
/// reduction.
const YIELD_FRACTION_PER_MS_AND_MAX: (f64, f64) = (0.15, 0.6);
/// Relative increase of the rate per round trip after competition, and by how much this increase grows with each round
/// trip without queueing delay.
const RECOVERY_GAIN_AND_STEP: (f64, f64) = (0.01, 0.004);

/// Measurements of a connection since the previous sample.
#[derive(Clone, Copy, Debug)]
pub struct QueueDelaySample {
    /// Present round-trip time.
    pub rtt: Duration,
    /// Minimum of the round-trip time so far.
    pub min_rtt: Duration,
    /// Rate at which the receiver acknowledged bytes, bytes per second.
    pub delivery_bytes_per_s: f64,
    /// True if packets were lost.
    pub has_loss: bool,
    /// Time since the previous sample.
    pub elapsed: Duration,
}

/// The controller of the sending rate of a polite sender.
#[derive(Clone, Copy, Debug)]
pub struct PoliteRateController {
    bytes_per_s: f64,
    max_bytes_per_s: f64,
    in_slow_start: bool,
    /// Best delivery rate so far, which decays slowly; bytes per second.
    best_bytes_per_s: f64,
    /// True while other flows compete and until the sender has recovered. `quiet_round_trips` counts the round trips
    /// without a queue.
    has_competition: bool,
    quiet_round_trips: f64,
    /// Time during which further losses do not reduce the rate again.
    loss_response_pause: Duration,
}

impl PoliteRateController {
    /// Returns a controller whose rate never exceeds `max_bytes_per_s`.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_tcp::rate_control::PoliteRateController;
    ///
    /// assert_eq!(PoliteRateController::new(f64::INFINITY).bytes_per_s(), 1_000_000);
    /// assert_eq!(PoliteRateController::new(400_000.0).bytes_per_s(), 400_000);
    /// ```
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

    /// Returns the present sending rate, bytes per second.
    pub fn bytes_per_s(&self) -> u64 {
        self.bytes_per_s as u64
    }

    /// Adds a sample; returns the new sending rate, bytes per second.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use godwit_tcp::rate_control::{PoliteRateController, QueueDelaySample};
    ///
    /// let mut controller = PoliteRateController::new(f64::INFINITY);
    /// let rtt = Duration::from_millis(40);
    /// let idle = QueueDelaySample { rtt, min_rtt: rtt, delivery_bytes_per_s: 1e6, has_loss: false, elapsed: rtt };
    /// assert_eq!(controller.add_sample(idle), 2_000_000);
    ///
    /// // A queueing delay of 10 ms: the rate falls below the delivery rate.
    /// let rtt = Duration::from_millis(50);
    /// let queued = QueueDelaySample { rtt, delivery_bytes_per_s: 1.5e6, elapsed: rtt, ..idle };
    /// assert!(controller.add_sample(queued) < 1_500_000);
    /// ```
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
            // If packets queue, the link is full: sending at the delivery rate keeps the queue constant.
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
        // A sending rate that the sender does not reach gives no information about the path, so limit it to twice the
        // delivery rate.
        let used = (2.0 * sample.delivery_bytes_per_s).max(1e6);
        self.bytes_per_s = self.bytes_per_s.min(used).min(self.max_bytes_per_s).max(MIN_BYTES_PER_S);
        self.bytes_per_s()
    }
}

/// Measurements of a TCP connection at one time.
#[derive(Clone, Copy, Debug)]
pub struct TcpSample {
    /// Time of the sample, on any clock that does not jump.
    pub time: Duration,
    /// Number of bytes that the receiver has acknowledged so far.
    pub acknowledged_bytes: u64,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
}

/// If the round-trip time exceeds the recent minimum by this factor, packets queue.
const QUEUE_RTT_FACTOR: f64 = 1.06;
/// The measured round-trip time is used once its deviation is below this fraction of the round-trip time.
const STABLE_RTT_DEVIATION_FRACTION: f64 = 0.05;
/// After this number of round trips, the measured round-trip time is used whatever its deviation is.
const UNSTABLE_RTT_ROUND_TRIPS: u32 = 4;
/// If the delivery rate grows by less than this factor in a round trip, the link is full. Before, the rate doubles in
/// each round trip.
const FULL_LINK_GROWTH_FACTOR: f64 = 1.75;

/// A detector of the time when slow start has filled the link.
///
/// In slow start, a flow doubles its data in flight in each round trip. When its acknowledgements arrive at the full
/// rate of the link, 1.44 times the capacity of the link is in flight. Half a round trip later it is twice the
/// capacity, and a queue of one round trip overflows. The full link must be detected before that.
#[derive(Debug, Default)]
pub struct SlowStartMonitor {
    samples: VecDeque<TcpSample>,
    /// Time of the first sample.
    first_sample_at: Option<Duration>,
}

impl SlowStartMonitor {
    /// Adds a sample. When the delivery rate stops growing, returns this rate, bytes per second.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use godwit_tcp::rate_control::{SlowStartMonitor, TcpSample};
    ///
    /// // The link is full at 12.5 MB/s, so the round-trip time grows.
    /// let sample = |number: u64| TcpSample {
    ///     time: Duration::from_millis(10 * number),
    ///     acknowledged_bytes: 125_000 * number,
    ///     rtt: Duration::from_millis(100 + number),
    ///     rtt_deviation: Duration::ZERO,
    /// };
    /// let mut monitor = SlowStartMonitor::default();
    /// assert_eq!(monitor.add_sample(sample(0)), None);
    /// let bytes_per_s = (1..100).find_map(|number| monitor.add_sample(sample(number)));
    /// assert_eq!(bytes_per_s.map(f64::round), Some(12_500_000.0));
    /// ```
    pub fn add_sample(&mut self, sample: TcpSample) -> Option<f64> {
        let rtt = sample.rtt;
        let began = *self.first_sample_at.get_or_insert(sample.time);
        let is_early = sample.time.saturating_sub(began) < UNSTABLE_RTT_ROUND_TRIPS * rtt;
        if self.samples.is_empty() && is_early && sample.rtt_deviation > rtt.mul_f64(STABLE_RTT_DEVIATION_FRACTION) {
            return None;
        }
        self.samples.push_back(sample);
        let before = |time: Duration| {
            let latest_first = self.samples.iter().rev();
            latest_first.copied().find(|seen| sample.time.saturating_sub(seen.time) >= time)
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
        let (now, before) = (rate(lately, sample), rate(earlier, then));
        let is_full = is_waiting && before > 0.0 && now < FULL_LINK_GROWTH_FACTOR * before;
        is_full.then(|| rate(half, sample))
    }

    /// Returns the minimum of the recent round-trip times. The first packets may have much shorter times: if delays
    /// vary and packets arrive in order, packets in flight wait for the slowest of them, even without a queue.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.samples.iter().map(|seen| seen.rtt).min()
    }
}

/// Measurements of a connection during one round trip.
#[derive(Clone, Copy, Debug)]
pub struct RttSample {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Delivery rate, bytes per second.
    pub bytes_per_s: f64,
}

/// Weight of the latest round trip in the smoothed delivery rate.
const RATE_SMOOTHING_WEIGHT: f64 = 0.3;
/// Relative increase above the delivery rate while there is no queue.
const PROBE_FRACTION: f64 = 0.5;
/// Relative reduction below the delivery rate while the queue is too long.
const YIELD_FRACTION: f64 = 0.05;
/// Queueing delay as fractions of the round-trip time. Below the first fraction there is no queue; above the second one
/// the queue is too long.
const QUEUE_ROUND_TRIP_FRACTION_RANGE: (f64, f64) = (0.1, 0.4);
/// A yield test ends when the reductions add up to this fraction of the data sent in a round trip.
const YIELD_TEST_FRACTION: f64 = 0.2;
/// If the round-trip time has shrunk by less than this fraction in a yield test, the connection does not cause the
/// queue.
const YIELD_EFFECT_FRACTION: f64 = 0.05;
/// If the delivery rate is below this fraction of the best one, other flows fill the queue or the path has changed.
/// Then the rate is raised, so that BBR limits the connection.
const MIN_BEST_RATE_FRACTION: f64 = 0.8;

/// The controller of the sending rate of a fast connection that fills its link. It sends slightly more or less than the
/// delivery rate, so that the queue is just long enough to keep the link full. It yields little to other flows.
#[derive(Debug)]
pub struct LinkRateController {
    pacing_bytes_per_s: f64,
    delivery_bytes_per_s: f64,
    best_bytes_per_s: f64,
    min_rtt: Duration,
    /// Round-trip time at the start of the current yield test, and the sum of the reductions since then; `None` outside
    /// a test.
    yield_test: Option<(Duration, f64)>,
}

impl LinkRateController {
    /// Returns a controller for a connection with this delivery rate, bytes per second; 0 if the rate is unknown.
    pub fn new(bytes_per_s: f64, min_rtt: Duration) -> Self {
        Self {
            pacing_bytes_per_s: bytes_per_s,
            delivery_bytes_per_s: bytes_per_s,
            best_bytes_per_s: 0.0,
            min_rtt,
            yield_test: None,
        }
    }

    /// Adds the measurements of a round trip; returns the new sending rate, bytes per second.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use godwit_tcp::rate_control::{LinkRateController, RttSample};
    ///
    /// let mut controller = LinkRateController::new(10e6, Duration::from_millis(100));
    /// let free = RttSample { rtt: Duration::from_millis(100), bytes_per_s: 10e6 };
    /// assert!(controller.add_sample(free) > 10_000_000);
    /// let queued = RttSample { rtt: Duration::from_millis(200), ..free };
    /// assert!(controller.add_sample(queued) < 10_000_000);
    /// ```
    pub fn add_sample(&mut self, sample: RttSample) -> u64 {
        if sample.bytes_per_s <= 0.0 {
            // The connection was idle, so the sample does not describe the link.
            return self.pacing_bytes_per_s as u64;
        }
        self.min_rtt = self.min_rtt.min(sample.rtt);
        let weight = if self.delivery_bytes_per_s > 0.0 { RATE_SMOOTHING_WEIGHT } else { 1.0 };
        self.delivery_bytes_per_s += weight * (sample.bytes_per_s - self.delivery_bytes_per_s);
        self.best_bytes_per_s = self.delivery_bytes_per_s.max(self.best_bytes_per_s);
        let waiting = sample.rtt.as_secs_f64() / self.min_rtt.as_secs_f64().max(1e-6) - 1.0;
        let full = ((waiting - QUEUE_ROUND_TRIP_FRACTION_RANGE.0)
            / (QUEUE_ROUND_TRIP_FRACTION_RANGE.1 - QUEUE_ROUND_TRIP_FRACTION_RANGE.0))
            .clamp(0.0, 1.0);
        let is_pushed = self.delivery_bytes_per_s < MIN_BEST_RATE_FRACTION * self.best_bytes_per_s;
        self.pacing_bytes_per_s = if full == 0.0 {
            // The client may have requested few blocks; that does not reduce the rate.
            self.pacing_bytes_per_s.max(sample.bytes_per_s * (1.0 + PROBE_FRACTION))
        } else {
            let more = if is_pushed {
                PROBE_FRACTION
            } else {
                0.5 * PROBE_FRACTION - full * (0.5 * PROBE_FRACTION + YIELD_FRACTION)
            };
            self.record_yield(sample.rtt, -more);
            (self.delivery_bytes_per_s * (1.0 + more)).max(MIN_BYTES_PER_S)
        };
        self.pacing_bytes_per_s as u64
    }

    /// Records that the rate was reduced by the fraction `share`. If the reductions do not shorten the round-trip time,
    /// that time becomes the new minimum, because variable delays lengthen it with the number of packets in flight.
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

    /// Returns the mean rate of a polite sender over a link. `others_queue` is the constant queueing delay that other
    /// flows cause.
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

    /// Simulates connections with controlled rates over a link of 100 MB/s and 100 ms, whose queue holds one round
    /// trip. Other flows with `others` times the rate of the link may keep the queue full. Returns the fraction of the
    /// link that the connections use, and the longest queue in round trips, in the second half of the simulation.
    ///
    /// Because of variable delays, a round trip takes `jitter` round trips longer than the first ones.
    fn link_fraction_and_longest_queue(flows: usize, others: f64, jitter: f64) -> (f64, f64) {
        let (link, base) = (100e6, 0.1);
        let mut rates: Vec<_> = (0..flows)
            .map(|_| LinkRateController::new(0.5 * link / flows as f64, Duration::from_millis(100)))
            .collect();
        let mut held = vec![link / flows as f64; flows];
        let (mut queue, mut carried, mut longest) = (0.0_f64, 0.0, 0.0_f64);
        for round in 0..400 {
            let offered: f64 = held.iter().sum::<f64>() + others * link;
            queue = (queue + (offered / link - 1.0)).clamp(if others > 0.0 { 1.0 } else { 0.0 }, 1.0);
            let share = (link / offered).min(1.0);
            for (rate, held) in rates.iter_mut().zip(&mut held) {
                let sample = RttSample {
                    rtt: Duration::from_secs_f64(base * (1.0 + jitter + queue)),
                    bytes_per_s: *held * share,
                };
                *held = rate.add_sample(sample) as f64;
            }
            if round >= 200 {
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
        // The data in flight double in each round trip of 100 ms, until they fill a link of 100 MB/s after 1 s.
        let (full_s, link) = (1.0, 100e6);
        let arrived = |at: f64| match at < full_s {
            true => link * 0.1 / 2f64.ln() * 2f64.powf((at - full_s) / 0.1),
            false => link * (0.1 / 2f64.ln() + at - full_s),
        };
        let mut start = SlowStartMonitor::default();
        let mut seen = None;
        for look in 0..200 {
            let at = 0.01 * f64::from(look);
            // Twice the acknowledged data are sent. The acknowledged data waited in a queue, which has grown since half
            // of the link was used.
            let trips = ((at - full_s) / 0.1).max(0.0);
            let waiting = 0.1 * ((2f64.powf(trips) - 1.0) / 2f64.ln() - trips);
            let rtt = Duration::from_secs_f64(0.1 + waiting);
            let rtt_deviation = Duration::from_secs_f64(0.05 / (1.0 + 100.0 * at));
            let sample = TcpSample {
                time: Duration::from_secs_f64(at),
                acknowledged_bytes: arrived(at) as u64,
                rtt,
                rtt_deviation,
            };
            if let Some(rate) = start.add_sample(sample) {
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
        // Packets arrive in bursts every 20 ms. Round trips take 100 ms, later 140 ms with some packets in flight, and
        // vary by 3 ms.
        let arrived = |at: f64| 30e3 * 2f64.powf((at / 0.02).floor() * 0.02 / 0.14);
        let mut start = SlowStartMonitor::default();
        for look in 0..100 {
            let at = 0.01 * f64::from(look);
            let rtt = Duration::from_secs_f64(0.1 + 0.04 * (at / 0.15).min(1.0) + 0.003 * f64::from(look % 3 - 1));
            let rtt_deviation = Duration::from_secs_f64(0.05 / (1.0 + 40.0 * at));
            let sample = TcpSample {
                time: Duration::from_secs_f64(at),
                acknowledged_bytes: arrived(at) as u64,
                rtt,
                rtt_deviation,
            };
            assert_eq!(start.add_sample(sample), None, "after {at} s");
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
            // The other flow starts after 20 s with a twentieth of the link, and fills the link 19 s later.
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
        assert!(beside < 0.03, "{beside} of a link that another flow fills");
    }

    #[test]
    fn alone_it_fills_the_link_and_beside_a_full_queue_it_yields() {
        let link = 25e6;
        assert!(mean_polite_rate(link, Duration::ZERO) > 0.9 * link);
        assert!(mean_polite_rate(link, Duration::from_millis(10)) < 0.05 * link);
    }
}
