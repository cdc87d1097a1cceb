//! Storage that many streams share: their rates and the times of their ends.
//!
//! Volume is in hours of one storage server's network: 1.0 is what it carries in an hour. Streams of one kind through one storage
//! server are equal, so they are a group with one rate; the volume that each of them has moved is one number, and the next one to
//! end is the top of a heap. Rates are max-min fair: a stream has less than an equal part only where it cannot use more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The bottlenecks of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StorageWait {
    /// Stream hours in which the network of a storage server was the limit.
    pub network_hours: f64,
    /// Stream hours in which the disks behind all servers were the limit.
    pub disk_hours: f64,
}

/// The state of all storage servers.
#[derive(Debug)]
pub struct SharedStorage {
    stream_kinds: usize,
    disk_capacity: f64,
    groups: Vec<StreamGroup>,
    now_hours: f64,
    /// Waiting so far.
    pub wait: StorageWait,
}

#[derive(Debug, Default)]
struct StreamGroup {
    /// Largest rate of one stream.
    max_rate: f64,
    rate: f64,
    limit: RateLimit,
    /// Volume that each stream since the start of the group has moved.
    moved_volume: f64,
    /// Streams by the moved volume of the group at their end.
    streams: BinaryHeap<Reverse<(OrderedF64, usize)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum RateLimit {
    #[default]
    StreamMaximum,
    Network,
    Disks,
}

/// An ordered number, which must not be NaN.
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
    /// Creates `nodes` storage servers; the disks of each carry `disk_share` of its network.
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

    /// Starts a stream of a kind: `volume` through server `node`, at most `cap` an hour, at the time of [`Self::advance_to`].
    pub fn start_stream(&mut self, stream: usize, node: usize, kind: usize, (volume, cap): (f64, f64)) {
        let group = &mut self.groups[node * self.stream_kinds + kind];
        group.max_rate = cap;
        group.streams.push(Reverse((OrderedF64(group.moved_volume + volume), stream)));
        self.assign_rates();
    }

    /// Returns the time of the next end of a stream if nothing else happens, hours.
    pub fn next_end(&self) -> Option<f64> {
        let ends = self.groups.iter().filter_map(|group| {
            let Reverse((OrderedF64(done_at), _)) = group.streams.peek()?;
            Some(self.now_hours + (done_at - group.moved_volume).max(0.0) / group.rate)
        });
        ends.min_by(f64::total_cmp)
    }

    /// Advances the time up to [`Self::next_end`]. Returns the streams that end then, each with its storage server.
    pub fn advance_to(&mut self, to: f64) -> Vec<(usize, usize)> {
        /// Volume that is left by rounding.
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

    /// Assigns the rate of every group.
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

/// Returns the common rate at which `capacity` is used up: each of `streams` uses that, or its cap where this is less.
/// Infinite where the capacity is enough for all.
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
        // The disks of both servers carry as much as the network of one: four quarters.
        assert_eq!(storage.next_end(), Some(2.0));
        assert_eq!(storage.advance_to(1.0), []);
        storage.start_stream(4, 1, 0, (0.5, 1.0));
        // Five streams share the disks from now on.
        assert!((storage.next_end().unwrap() - 2.25).abs() < 1e-9);
        let mut ended = storage.advance_to(2.25);
        ended.sort_unstable();
        assert_eq!(ended, [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert!((storage.wait.network_hours - 4.0).abs() < 1e-9 && (storage.wait.disk_hours - 6.25).abs() < 1e-9);
        // The last one has both to itself.
        assert!((storage.next_end().unwrap() - 2.5).abs() < 1e-9);
        assert_eq!(storage.advance_to(2.5), [(4, 1)]);
        assert_eq!(storage.next_end(), None);
    }
}
