//! How fast a sender goes that wants to be in nobody's way, and when one that wants to be fast has found the rate of its link.
//!
//! What the former goes by is the time that packets wait in queues: the round-trip time above the least that was seen. While there is
//! hardly any it goes faster; else it aims at a short time, going a little above or below the rate at which its bytes arrive. A flow that
//! fills queues, as TCP's usual ones do, thereby takes what it wants: beside it, this one goes slower in each round trip (the principle of
//! LEDBAT, RFC 6817, with the rate in place of the window). Packets that are lost while none wait are the path's loss, and no reason.
//!
//! A queue of its own making costs it nothing: as much arrives as ever. Where less does, others are there, and it makes way at once and comes
//! back slowly: a flow of CUBIC leaves its slow start as soon as packets wait, and where a queue is short has little time to be seen.

use std::collections::VecDeque;
use std::time::Duration;

/// Time in queues that is aimed at. With 6 ms a copy that is alone takes 94 % of a link of 200 Mbit/s and 40 ms, and a flow of CUBIC beside it keeps 89 % of
/// what it has alone, which are to be nine tenths.
const TARGET: Duration = Duration::from_millis(5);
/// The lowest rate: a flow that stops learns nothing any more.
const LEAST_BYTES_PER_S: f64 = 250_000.0;
/// Faster by this share in each round trip, where nothing waits, once the first queue was seen.
const GAIN: f64 = 0.2;
/// Above or below what arrives by this share at most, to make the queue longer or shorter.
const STEER: f64 = 0.25;
/// Others are there where packets wait and less arrives than this share of the most.
const SHARED: f64 = 0.9;
/// They are gone where as much arrives again as this share of it.
const ALONE: f64 = 0.96;
/// The most that arrived is forgotten by this share in a second.
const FORGET: f64 = 0.02;
/// Beside others, so much may wait,
const BESIDE: Duration = Duration::from_millis(2);
/// and for each millisecond more it goes slower than what arrives by this share, by the second one at most.
const MAKE_WAY: (f64, f64) = (0.15, 0.6);
/// After others, faster by this share in a round trip, and by this much more with each in which nothing waits.
const COME_BACK: (f64, f64) = (0.01, 0.004);

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
    /// The most that arrived, bytes a second.
    best_bytes_per_s: f64,
    /// Whether others are there, or were, and round trips since without a queue.
    others: bool,
    quiet_trips: f64,
    /// Until when losses are those that were answered already.
    deaf: Duration,
}

impl PoliteRate {
    /// A sender that never exceeds a rate.
    pub fn new(most_bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s: 1e6_f64.min(most_bytes_per_s),
            most_bytes_per_s,
            starting: true,
            best_bytes_per_s: 0.0,
            others: false,
            quiet_trips: 0.0,
            deaf: Duration::ZERO,
        }
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
        let arriving = sample.delivered_bytes_per_s;
        self.best_bytes_per_s = arriving.max(self.best_bytes_per_s * (1.0 - FORGET * sample.elapsed.as_secs_f64()));
        if arriving >= ALONE * self.best_bytes_per_s {
            self.others = false;
        } else if full >= 0.5 && !self.starting && arriving < SHARED * self.best_bytes_per_s {
            self.others = true;
        }
        let least_queue = if self.others { BESIDE } else { TARGET / 2 };
        if queue < least_queue {
            self.quiet_trips += trips;
            self.bytes_per_s *= match (self.starting, self.others) {
                (true, _) => 2f64.powf(trips),
                (_, true) => 1.0 + trips * (COME_BACK.0 + COME_BACK.1 * self.quiet_trips).min(GAIN),
                (_, false) => 1.0 + GAIN * trips,
            };
        } else {
            (self.starting, self.quiet_trips) = (false, 0.0);
            // Where packets wait, what arrives is what there is for this flow: that much keeps the queue as it is.
            let steady = arriving.max(LEAST_BYTES_PER_S);
            let more = match self.others {
                true => -(MAKE_WAY.0 * 1e3 * (queue - BESIDE).as_secs_f64()).min(MAKE_WAY.1),
                false => STEER * (1.0 - full).clamp(-1.0, 1.0),
            };
            let wanted = steady * (1.0 + more);
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

/// A look at a connection.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// When.
    pub at: Duration,
    /// Bytes that had arrived then.
    pub acknowledged_bytes: u64,
    /// Smoothed round-trip time then.
    pub rtt: Duration,
    /// How far round trips were from that.
    pub deviation: Duration,
}

/// Packets wait where the round trip is longer by this factor than it was a round trip ago, or since.
const WAITING: f64 = 1.06;
/// What the round trip is is known as soon as those of the first packets are no farther apart than this share of it.
const KNOWN: f64 = 0.05;
/// Round trips after which it counts as known.
const UNKNOWN_TRIPS: u32 = 4;
/// A link is full where no more arrives than a round trip before by this factor. It is twice as much until then.
const GROWING: f64 = 1.75;

/// A connection that begins, until its link is full.
///
/// Who doubles what is under way in each round trip has 1.44 times of what the link holds under way when acknowledgements begin to come
/// at its full rate, and twice as much half a round trip later, when a queue of one round trip overflows: it is to be seen by then.
#[derive(Debug, Default)]
pub struct Start {
    sights: VecDeque<Sight>,
    /// When it was looked at first.
    began: Option<Duration>,
}

impl Start {
    /// Takes a look; returns the bytes a second that arrive, where they get no more.
    pub fn full(&mut self, sight: Sight) -> Option<f64> {
        let rtt = sight.rtt;
        let began = *self.began.get_or_insert(sight.at);
        let is_early = sight.at.saturating_sub(began) < UNKNOWN_TRIPS * rtt;
        if self.sights.is_empty() && is_early && sight.deviation > rtt.mul_f64(KNOWN) {
            return None;
        }
        self.sights.push_back(sight);
        let before = |time: Duration| {
            let sights = self.sights.iter().rev();
            sights.copied().find(|seen| sight.at.saturating_sub(seen.at) >= time)
        };
        let (lately, then, earlier) = (before(rtt / 4)?, before(rtt)?, before(rtt * 5 / 4)?);
        let half = before(rtt / 2)?;
        while self.sights.front().is_some_and(|seen| seen.at < earlier.at) {
            self.sights.pop_front();
        }
        let rate = |from: Sight, to: Sight| {
            let bytes = to.acknowledged_bytes.saturating_sub(from.acknowledged_bytes) as f64;
            bytes / (to.at - from.at).as_secs_f64().max(1e-6)
        };
        let is_waiting = self.least_rtt().is_some_and(|least| rtt > least.mul_f64(WAITING));
        let (now, before) = (rate(lately, sight), rate(earlier, then));
        let is_full = is_waiting && before > 0.0 && now < GROWING * before;
        is_full.then(|| rate(half, sight))
    }

    /// The shortest round trip of late. That of the first packets may be much shorter: where delays vary and packets stay in order, those
    /// that are under way wait for the slowest among them, and no queue is the reason.
    pub fn least_rtt(&self) -> Option<Duration> {
        self.sights.iter().map(|seen| seen.rtt).min()
    }
}

/// A round trip of a connection that fills its link.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Bytes a second that arrived meanwhile.
    pub bytes_per_s: f64,
}

/// What the last round trip counts among those before.
const WEIGHT: f64 = 0.3;
/// How much more than now is sent where nothing waits.
const PROBE: f64 = 0.5;
/// How much less than arrives, where too much waits.
const YIELD: f64 = 0.05;
/// Packets wait for so much of a round trip, where nothing does, and where too much does.
const WAIT: (f64, f64) = (0.1, 0.4);
/// Who made way by this share of what a round trip holds,
const MADE_WAY: f64 = 0.2;
/// and sees the round trip shorter by less than this share, did so in vain: it is not its packets that wait.
const IN_VAIN: f64 = 0.05;
/// Below this share of the best rate, it is others who make packets wait, or the path is another one: that is left to BBR.
const SHARE: f64 = 0.8;

/// The rate that a connection is held at which fills its link: that at which bytes arrive, and a little more or less, so that no more of them
/// wait than it takes to fill the link. To others it yields little.
#[derive(Debug)]
pub struct FullRate {
    held_bytes_per_s: f64,
    arriving_bytes_per_s: f64,
    best_bytes_per_s: f64,
    least_rtt: Duration,
    /// The round trip when it began to make way, and how much way it made since.
    making_way: Option<(Duration, f64)>,
}

impl FullRate {
    /// A connection over which bytes arrive at that rate; 0 where that is not known.
    pub fn new(bytes_per_s: f64, least_rtt: Duration) -> Self {
        Self {
            held_bytes_per_s: bytes_per_s,
            arriving_bytes_per_s: bytes_per_s,
            best_bytes_per_s: 0.0,
            least_rtt,
            making_way: None,
        }
    }

    /// Takes a round trip; returns the rate from now on.
    pub fn update(&mut self, trip: Trip) -> u64 {
        if trip.bytes_per_s <= 0.0 {
            // Nobody asked for anything.
            return self.held_bytes_per_s as u64;
        }
        self.least_rtt = self.least_rtt.min(trip.rtt);
        let weight = if self.arriving_bytes_per_s > 0.0 { WEIGHT } else { 1.0 };
        self.arriving_bytes_per_s += weight * (trip.bytes_per_s - self.arriving_bytes_per_s);
        self.best_bytes_per_s = self.arriving_bytes_per_s.max(self.best_bytes_per_s);
        let waiting = trip.rtt.as_secs_f64() / self.least_rtt.as_secs_f64().max(1e-6) - 1.0;
        let full = ((waiting - WAIT.0) / (WAIT.1 - WAIT.0)).clamp(0.0, 1.0);
        let is_pushed = self.arriving_bytes_per_s < SHARE * self.best_bytes_per_s;
        self.held_bytes_per_s = if full == 0.0 {
            // It may have less to send than it might: that it is asked for little makes it no slower.
            self.held_bytes_per_s.max(trip.bytes_per_s * (1.0 + PROBE))
        } else {
            let more = if is_pushed { PROBE } else { 0.5 * PROBE - full * (0.5 * PROBE + YIELD) };
            self.makes_way(trip.rtt, -more);
            (self.arriving_bytes_per_s * (1.0 + more)).max(LEAST_BYTES_PER_S)
        };
        self.held_bytes_per_s as u64
    }

    /// It sends less than arrives, by that share. Where that makes no round trip shorter, this is how long one takes: delays that vary lengthen
    /// it, the more the more packets are under way.
    fn makes_way(&mut self, rtt: Duration, share: f64) {
        if share <= 0.0 {
            self.making_way = None;
            return;
        }
        let (before, made) = self.making_way.unwrap_or((rtt, 0.0));
        self.making_way = Some((before, made + share));
        if made >= MADE_WAY {
            if rtt > before.mul_f64(1.0 - IN_VAIN) {
                self.least_rtt = rtt.div_f64(1.0 + WAIT.0);
            }
            self.making_way = None;
        }
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

    /// Connections that are held at their rates, over a link of 100 MB/s and 100 ms with a queue of one round trip, beside others that keep
    /// it full: what they carry, of the link, and the longest queue in round trips, over the last half.
    ///
    /// Where delays vary, each round trip takes longer by `jitter` round trips than the first ones did.
    fn filled(flows: usize, others: f64, jitter: f64) -> (f64, f64) {
        let (link, base) = (100e6, 0.1);
        let mut rates: Vec<_> =
            (0..flows).map(|_| FullRate::new(0.5 * link / flows as f64, Duration::from_millis(100))).collect();
        let mut held = vec![link / flows as f64; flows];
        let (mut queue, mut carried, mut longest) = (0.0_f64, 0.0, 0.0_f64);
        for trip in 0..400 {
            let offered: f64 = held.iter().sum::<f64>() + others * link;
            queue = (queue + (offered / link - 1.0)).clamp(if others > 0.0 { 1.0 } else { 0.0 }, 1.0);
            let share = (link / offered).min(1.0);
            for (rate, held) in rates.iter_mut().zip(&mut held) {
                let trip =
                    Trip { rtt: Duration::from_secs_f64(base * (1.0 + jitter + queue)), bytes_per_s: *held * share };
                *held = rate.update(trip) as f64;
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
                let (carried, longest) = filled(flows, 0.0, jitter);
                assert!(carried > 0.98 && longest < 0.9, "{flows}, {jitter}: {carried} {longest}");
            }
            let (beside, _) = filled(flows, 0.3, 0.0);
            assert!(beside > 0.4, "{flows}: {beside}");
        }
    }

    #[test]
    fn a_start_ends_when_no_more_arrives_and_before_twice_as_much_is_under_way() {
        // What is under way doubles in each round trip of 100 ms, until a link of 100 MB/s is full at 1 s.
        let (full_s, link) = (1.0, 100e6);
        let arrived = |at: f64| match at < full_s {
            true => link * 0.1 / 2f64.ln() * 2f64.powf((at - full_s) / 0.1),
            false => link * (0.1 / 2f64.ln() + at - full_s),
        };
        let mut start = Start::default();
        let mut seen = None;
        for look in 0..200 {
            let at = 0.01 * f64::from(look);
            // Twice as much is sent as is acknowledged: what is acknowledged waited in a queue that grew since half of the link was.
            let trips = ((at - full_s) / 0.1).max(0.0);
            let waiting = 0.1 * ((2f64.powf(trips) - 1.0) / 2f64.ln() - trips);
            let rtt = Duration::from_secs_f64(0.1 + waiting);
            let deviation = Duration::from_secs_f64(0.05 / (1.0 + 100.0 * at));
            let sight =
                Sight { at: Duration::from_secs_f64(at), acknowledged_bytes: arrived(at) as u64, rtt, deviation };
            if let Some(rate) = start.full(sight) {
                seen = Some((at, rate));
                break;
            }
        }
        let (at, rate) = seen.unwrap();
        assert!((full_s..full_s + 0.06).contains(&at), "{at}");
        assert!((0.6 * link..=link).contains(&rate), "{rate}");
    }

    #[test]
    fn a_start_does_not_end_where_delays_vary_and_what_arrives_comes_in_heaps() {
        // Heaps of 20 ms; round trips of 100 ms that take 140 as soon as some packets are under way, and 3 ms more or less.
        let arrived = |at: f64| 30e3 * 2f64.powf((at / 0.02).floor() * 0.02 / 0.14);
        let mut start = Start::default();
        for look in 0..100 {
            let at = 0.01 * f64::from(look);
            let rtt = Duration::from_secs_f64(0.1 + 0.04 * (at / 0.15).min(1.0) + 0.003 * f64::from(look % 3 - 1));
            let deviation = Duration::from_secs_f64(0.05 / (1.0 + 40.0 * at));
            let sight =
                Sight { at: Duration::from_secs_f64(at), acknowledged_bytes: arrived(at) as u64, rtt, deviation };
            assert_eq!(start.full(sight), None, "after {at} s");
        }
    }

    #[test]
    fn it_makes_way_for_a_flow_that_grows_and_takes_the_link_again_when_that_is_gone() {
        let (link, base, step) = (25e6, Duration::from_millis(40), 0.02);
        let mut polite = PoliteRate::new(f64::INFINITY);
        let mut queued_bytes = 0.0_f64;
        let (mut before, mut longest, mut beside, mut after) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
        for at in 0..3000 {
            let at = f64::from(at) * step;
            // From a twentieth of the link to all of it within twenty seconds, from the twentieth second on.
            let other = if (20.0..45.0).contains(&at) { link * ((at - 19.0) / 20.0).min(1.0) } else { 0.0 };
            let sent = polite.bytes_per_s() as f64;
            let offered = sent + other;
            queued_bytes = (queued_bytes + (offered - link) * step).clamp(0.0, 0.25 * link * base.as_secs_f64());
            let rtt = base + Duration::from_secs_f64(queued_bytes / link);
            let delivered_bytes_per_s = sent * (link / offered).min(1.0);
            let elapsed = Duration::from_secs_f64(step);
            polite.update(Sample { rtt, least_rtt: base, delivered_bytes_per_s, lost: false, elapsed });
            match at {
                at if (10.0..20.0).contains(&at) => before += delivered_bytes_per_s * step / 10.0 / link,
                at if (25.0..38.0).contains(&at) => longest = longest.max(queued_bytes / link),
                at if (42.0..45.0).contains(&at) => beside = beside.max(delivered_bytes_per_s / link),
                at if at >= 55.0 => after += delivered_bytes_per_s * step / 5.0 / link,
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
        assert!(rate_after(link, Duration::ZERO) > 0.9 * link);
        assert!(rate_after(link, Duration::from_millis(10)) < 0.05 * link);
    }
}
