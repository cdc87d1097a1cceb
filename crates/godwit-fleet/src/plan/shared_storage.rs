//! Storage that many streams share: who moves how fast, and who is done when.
//!
//! Volume is in hours of one storage node's network: 1.0 is what it carries in an hour. Streams of one kind through one storage
//! node are equal, so they are a group with one rate; how much each of its streams has moved is one number, and which ends next is
//! the top of a heap. Rates are max-min fair: nobody has less than its share unless it cannot take more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What keeps streams from going as fast as they could alone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waited {
    /// Stream hours in which the network of a storage node was the limit.
    pub network: f64,
    /// Stream hours in which the disks behind all nodes were.
    pub disks: f64,
}

/// All storage nodes.
#[derive(Debug)]
pub struct SharedStorage {
    kinds: usize,
    disks: f64,
    groups: Vec<Group>,
    now: f64,
    /// So far.
    pub waited: Waited,
}

#[derive(Debug, Default)]
struct Group {
    /// Most that one stream takes.
    cap: f64,
    rate: f64,
    limit: Limit,
    /// What each stream that was there from the start has moved.
    moved: f64,
    /// Streams by what the group will have moved when they are done.
    streams: BinaryHeap<Reverse<(Ordered, usize)>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Limit {
    #[default]
    Itself,
    Network,
    Disks,
}

/// A number that can be sorted by; none here is a NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ordered(pub f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl SharedStorage {
    /// `nodes` storage nodes; the disks of each carry `disk_share` of its network; streams are of `kinds` kinds.
    pub fn new(nodes: usize, disk_share: f64, kinds: usize) -> Self {
        let groups = (0..nodes * kinds).map(|_| Group::default()).collect();
        Self { kinds, disks: nodes as f64 * disk_share, groups, now: 0.0, waited: Waited::default() }
    }

    /// A stream of a kind begins: `volume` through `node`, at most `cap` of it an hour. Time is where [`Self::advance`] left it.
    pub fn start(&mut self, stream: usize, node: usize, kind: usize, (volume, cap): (f64, f64)) {
        let group = &mut self.groups[node * self.kinds + kind];
        group.cap = cap;
        group.streams.push(Reverse((Ordered(group.moved + volume), stream)));
        self.share();
    }

    /// When the next stream ends if nothing else happens, in hours.
    pub fn next_end(&self) -> Option<f64> {
        let ends = self.groups.iter().filter_map(|group| {
            let Reverse((Ordered(done_at), _)) = group.streams.peek()?;
            Some(self.now + (done_at - group.moved).max(0.0) / group.rate)
        });
        ends.min_by(f64::total_cmp)
    }

    /// Lets time pass, not beyond [`Self::next_end`]. Streams that end at that moment: each with its storage node.
    pub fn advance(&mut self, to: f64) -> Vec<(usize, usize)> {
        /// Volume that only rounding left over.
        const NOTHING: f64 = 1e-9;
        let hours = to - self.now;
        self.now = to;
        let mut ended = Vec::new();
        for (index, group) in self.groups.iter_mut().enumerate().filter(|(_, group)| !group.streams.is_empty()) {
            let stream_hours = group.streams.len() as f64 * hours;
            match group.limit {
                Limit::Itself => {}
                Limit::Network => self.waited.network += stream_hours,
                Limit::Disks => self.waited.disks += stream_hours,
            }
            group.moved += group.rate * hours;
            while let Some(Reverse((Ordered(done_at), stream))) = group.streams.peek().copied()
                && done_at <= group.moved + NOTHING
            {
                group.streams.pop();
                ended.push((stream, index / self.kinds));
            }
        }
        if !ended.is_empty() {
            self.share();
        }
        ended
    }

    /// Gives every group its rate.
    fn share(&mut self) {
        let mut wanted = 0.0;
        for node in self.groups.chunks_mut(self.kinds) {
            let level = fair_level(node.iter().map(|group| (group.cap, group.streams.len())), 1.0);
            for group in node {
                (group.rate, group.limit) =
                    if group.cap > level { (level, Limit::Network) } else { (group.cap, Limit::Itself) };
                wanted += group.rate * group.streams.len() as f64;
            }
        }
        if wanted > self.disks {
            let level = fair_level(self.groups.iter().map(|group| (group.rate, group.streams.len())), self.disks);
            for group in self.groups.iter_mut().filter(|group| group.rate > level) {
                (group.rate, group.limit) = (level, Limit::Disks);
            }
        }
    }
}

/// The rate that nobody has to exceed for `capacity` to be used up: each of `streams` takes that, or its cap where this is
/// less. Infinite where there is enough for all.
fn fair_level(streams: impl Iterator<Item = (f64, usize)>, capacity: f64) -> f64 {
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
    fn what_is_left_over_goes_to_those_who_can_take_it() {
        assert_eq!(fair_level([(1.0, 1), (0.1, 2)].into_iter(), 1.0), 0.8);
        assert_eq!(fair_level([(1.0, 4), (2.0, 1)].into_iter(), 1.0), 0.2);
        assert_eq!(fair_level([(0.1, 4)].into_iter(), 1.0), f64::INFINITY);
    }

    #[test]
    fn a_node_is_shared_and_then_the_disks() {
        let mut storage = SharedStorage::new(2, 0.5, 1);
        for stream in 0..4 {
            storage.start(stream, 0, 0, (0.5, 1.0));
        }
        // The disks of both nodes carry as much as the network of one: four quarters.
        assert_eq!(storage.next_end(), Some(2.0));
        assert_eq!(storage.advance(1.0), []);
        storage.start(4, 1, 0, (0.5, 1.0));
        // Five streams share the disks from now on.
        assert!((storage.next_end().unwrap() - 2.25).abs() < 1e-9);
        let mut ended = storage.advance(2.25);
        ended.sort_unstable();
        assert_eq!(ended, [(0, 0), (1, 0), (2, 0), (3, 0)]);
        assert!((storage.waited.network - 4.0).abs() < 1e-9 && (storage.waited.disks - 6.25).abs() < 1e-9);
        // The last one has both to itself.
        assert!((storage.next_end().unwrap() - 2.5).abs() < 1e-9);
        assert_eq!(storage.advance(2.5), [(4, 1)]);
        assert_eq!(storage.next_end(), None);
    }
}
