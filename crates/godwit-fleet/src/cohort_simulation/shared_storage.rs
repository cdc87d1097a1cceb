//! Simulates shared storage: the rates of concurrent transfers (streams) and the times at which they end.
//!
//! Volume is measured in hours of a storage server's network: 1.0 is the volume that this network transfers in an hour.
//! The streams of one kind through one storage server form a group and have the same rate. The volume that each of them
//! has moved is one number per group, and a heap contains the streams in the order of their ends. Rates are max-min
//! fair: a stream gets less than an equal share only if its own maximum rate is lower.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The time during which streams were slowed down, by bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageWait {
    /// Stream hours during which the network of a storage server was the bottleneck.
    pub network_hours: f64,
    /// Stream hours during which the disks behind all servers were the bottleneck.
    pub disk_hours: f64,
}

/// The state of all storage servers and of the streams through them.
#[derive(Debug)]
pub struct SharedStorage {
    stream_kinds: usize,
    disk_capacity: f64,
    groups: Vec<StreamGroup>,
    now_hours: f64,
    /// Hours during which streams were slowed down so far, by bottleneck.
    pub wait: StorageWait,
}

#[derive(Debug, Default)]
struct StreamGroup {
    /// Maximum rate of one stream, in volume per hour.
    max_rate: f64,
    rate: f64,
    limit: RateLimit,
    /// Volume that a stream moves in the time since the creation of the group.
    moved_volume: f64,
    /// Streams of the group, ordered by the value of `moved_volume` at which they end.
    streams: BinaryHeap<Reverse<(OrderedF64, usize)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum RateLimit {
    #[default]
    StreamMaximum,
    Network,
    Disks,
}

/// A number with a total order, for use as a key. It must not be NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OrderedF64(pub f64);

impl Eq for OrderedF64 {}

impl PartialOrd for OrderedF64 {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedF64 {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl SharedStorage {
    /// Creates `nodes` storage servers. The throughput of the disks of each server is `disk_share` of that of its
    /// network.
    pub fn new(nodes: usize, disk_share: f64, stream_kinds: usize) -> Self {
        let groups = (0..nodes * stream_kinds).map(|_| StreamGroup::default()).collect();
        Self {
            stream_kinds,
            disk_capacity: nodes as f64 * disk_share,
            groups,
            now_hours: 0.0,
            wait: StorageWait::default(),
        }
    }

    /// Starts a stream at the current simulated time. It moves `volume` through storage server `node`, at a rate of at
    /// most `cap` per hour.
    pub fn start_stream(&mut self, stream: usize, node: usize, kind: usize, (volume, cap): (f64, f64)) {
        let group = &mut self.groups[node * self.stream_kinds + kind];
        group.max_rate = cap;
        group.streams.push(Reverse((OrderedF64(group.moved_volume + volume), stream)));
        self.assign_rates();
    }

    /// Returns the time at which the next stream ends, in hours, if no other stream starts before; `None` if there are
    /// no streams.
    pub fn next_end(&self) -> Option<f64> {
        let ends = self.groups.iter().filter_map(|group| {
            let Reverse((OrderedF64(done_at), _)) = group.streams.peek()?;
            Some(self.now_hours + (done_at - group.moved_volume).max(0.0) / group.rate)
        });
        ends.min_by(f64::total_cmp)
    }

    /// Advances the simulated time to `to`, at most [`Self::next_end`]. Returns the streams that end at that time, each
    /// with its storage server.
    pub fn advance_to(&mut self, to: f64) -> Vec<(usize, usize)> {
        /// Remaining volume that is due to rounding only.
        const ROUNDING_VOLUME: f64 = 1e-9;
        let hours = to - self.now_hours;
        self.now_hours = to;
        let mut ended = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate().filter(|(_, group)| !group.streams.is_empty()) {
            let stream_hours = group.streams.len() as f64 * hours;
            match group.limit {
                RateLimit::StreamMaximum => {}
                RateLimit::Network => self.wait.network_hours += stream_hours,
                RateLimit::Disks => self.wait.disk_hours += stream_hours,
            }
            group.moved_volume += group.rate * hours;
            while let Some(Reverse((OrderedF64(done_at), stream))) = group.streams.peek().copied()
                && done_at <= group.moved_volume + ROUNDING_VOLUME
            {
                group.streams.pop();
                ended.push((stream, index / self.stream_kinds));
            }
        }
        if !ended.is_empty() {
            self.assign_rates();
        }
        ended
    }

    /// Computes the rates of all groups.
    fn assign_rates(&mut self) {
        let mut wanted = 0.0;
        for node in self.groups.chunks_mut(self.stream_kinds) {
            let level = max_min_fair_rate(node.iter().map(|group| (group.max_rate, group.streams.len())), 1.0);
            for group in node {
                (group.rate, group.limit) = if group.max_rate > level {
                    (level, RateLimit::Network)
                } else {
                    (group.max_rate, RateLimit::StreamMaximum)
                };
                wanted += group.rate * group.streams.len() as f64;
            }
        }
        if wanted > self.disk_capacity {
            let level = max_min_fair_rate(
                self.groups.iter().map(|group| (group.rate, group.streams.len())),
                self.disk_capacity,
            );
            for group in self.groups.iter_mut().filter(|group| group.rate > level) {
                (group.rate, group.limit) = (level, RateLimit::Disks);
            }
        }
    }
}

/// Returns the common rate at which the streams use `capacity` completely, if each of them has this rate or its own
/// maximum rate if that is lower. Returns infinity if the capacity suffices for all maximum rates.
fn max_min_fair_rate(streams: impl Iterator<Item = (f64, usize)>, capacity: f64) -> f64 {
    let mut streams: Vec<(f64, usize)> = streams.filter(|(_, count)| *count > 0).collect();
    streams.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = capacity;
    let mut count: usize = streams.iter().map(|(_, count)| count).sum();
    for (cap, alike) in streams {
        let level = left / count as f64;
        if cap > level {
            return level;
        }
        left -= cap * alike as f64;
        count -= alike;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_capacity_goes_to_streams_below_their_maximum() {
        assert_eq!(max_min_fair_rate([(1.0, 1), (0.1, 2)].into_iter(), 1.0), 0.8);
        assert_eq!(max_min_fair_rate([(1.0, 4), (2.0, 1)].into_iter(), 1.0), 0.2);
        assert_eq!(max_min_fair_rate([(0.1, 4)].into_iter(), 1.0), f64::INFINITY);
    }

    #[test]
    fn a_storage_server_is_shared_and_then_the_disks() {
        let mut storage = SharedStorage::new(2, 0.5, 1);
        for stream in 0..4 {
            storage.start_stream(stream, 0, 0, (0.5, 1.0));
        }
        // The disks of both servers together are as fast as one network, so four streams have a quarter of it each.
        assert_eq!(storage.next_end(), Some(2.0));
        assert_eq!(storage.advance_to(1.0), []);
        storage.start_stream(4, 1, 0, (0.5, 1.0));
        // From now on, five streams share the disks.
        assert!((storage.next_end().unwrap() - 2.25).abs() < 1e-9);
        let mut ended = storage.advance_to(2.25);
        ended.sort_unstable();
        assert_eq!(ended, [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert!((storage.wait.network_hours - 4.0).abs() < 1e-9 && (storage.wait.disk_hours - 6.25).abs() < 1e-9);
        // The last stream uses the disks of both servers alone.
        assert!((storage.next_end().unwrap() - 2.5).abs() < 1e-9);
        assert_eq!(storage.advance_to(2.5), [(4, 1)]);
        assert_eq!(storage.next_end(), None);
    }
}
