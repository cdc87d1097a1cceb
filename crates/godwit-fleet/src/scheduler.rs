//! Which sample is worked on where, and what becomes of one that failed.
//!
//! Ends of items go in, starts come out: no clock, no processes. `godwit run` starts samples by it, and [`plan`](crate::plan) simulates
//! with it. Items are started in their order, each on the node that has most room. One that was lost with its node, or failed for a reason
//! that may lie there, is tried again, elsewhere where there is room; one that failed by itself is not. A node on which one item after
//! the other is lost gets nothing more while others work: it would go through all of them.

use std::collections::BTreeSet;

/// Items that are lost on a node in a row before it is left alone.
const LOST_IN_A_ROW: u32 = 3;

/// The nodes and how many items each can take more.
#[derive(Debug)]
pub struct Slots {
    free: Vec<usize>,
    /// Of all nodes.
    all: usize,
}

impl Slots {
    /// `nodes` nodes with `each` slots.
    pub fn new(nodes: usize, each: usize) -> Self {
        Self { free: vec![each; nodes], all: nodes * each }
    }

    /// A slot of the node that has most left, the first of these; `None` where all are taken.
    pub fn take(&mut self) -> Option<usize> {
        self.take_where(|_| true)
    }

    /// As [`Self::take`], of the nodes that fit.
    fn take_where(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let fitting = self.free.iter_mut().enumerate().rev().filter(|(node, _)| fits(*node));
        // max_by_key gives the last of equals, which in reverse is the first.
        let (node, free) = fitting.max_by_key(|(_, free)| **free)?;
        *free = free.checked_sub(1)?;
        self.all -= 1;
        Some(node)
    }

    /// Whether one is left.
    fn is_any_free(&self) -> bool {
        self.all > 0
    }

    /// A slot of this node is free again.
    pub fn give_back(&mut self, node: usize) {
        self.free[node] += 1;
        self.all += 1;
    }
}

/// How the work on an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Well.
    Done,
    /// In a way that it would end in anywhere.
    Failed,
    /// With its node, or for a reason that may lie there.
    Lost,
}

/// What becomes of an item whose work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is over.
    Over,
    /// It is tried again.
    Again,
}

/// Deals out items to nodes.
#[derive(Debug)]
pub struct Scheduler {
    slots: Slots,
    waiting: BTreeSet<usize>,
    items: Vec<Item>,
    /// Items lost in a row on each node.
    lost: Vec<u32>,
    /// How often an item is started, at most.
    tries: usize,
    working: usize,
}

#[derive(Clone, Debug, Default)]
struct Item {
    node: usize,
    /// Nodes on which it was lost.
    lost_on: Vec<usize>,
}

impl Scheduler {
    /// `items` items for `nodes` nodes that take `each` at a time. Each is started `tries` times at most.
    pub fn new(items: usize, nodes: usize, each: usize, tries: usize) -> Self {
        Self {
            slots: Slots::new(nodes, each),
            waiting: (0..items).collect(),
            items: vec![Item::default(); items],
            lost: vec![0; nodes],
            tries: tries.max(1),
            working: 0,
        }
    }

    /// An item to be started, and where; `None` where none waits or nothing is free for those that do.
    pub fn start(&mut self) -> Option<(usize, usize)> {
        if !self.slots.is_any_free() {
            return None;
        }
        let sound = |node: usize| self.lost[node] < LOST_IN_A_ROW;
        let any_sound = (0..self.lost.len()).any(sound);
        let started = self.waiting.iter().find_map(|item| {
            let lost_on = &self.items[*item].lost_on;
            let fits = |node: usize| sound(node) || !any_sound;
            // Where it was lost it goes only if there is no other place, however busy that is.
            let elsewhere = |node: usize| fits(node) && !lost_on.contains(&node);
            let any_elsewhere = lost_on.is_empty() || (0..self.lost.len()).any(elsewhere);
            let node = self.slots.take_where(|node| if any_elsewhere { elsewhere(node) } else { fits(node) });
            node.map(|node| (*item, node))
        });
        let (item, node) = started?;
        self.waiting.remove(&item);
        self.items[item].node = node;
        self.working += 1;
        Some((item, node))
    }

    /// The work on an item that was started has ended.
    pub fn ended(&mut self, item: usize, how: Ended) -> Verdict {
        let found = &mut self.items[item];
        let node = found.node;
        self.working -= 1;
        self.slots.give_back(node);
        if how != Ended::Lost {
            self.lost[node] = 0;
            return Verdict::Over;
        }
        self.lost[node] += 1;
        found.lost_on.push(node);
        if found.lost_on.len() >= self.tries {
            return Verdict::Over;
        }
        self.waiting.insert(item);
        Verdict::Again
    }

    /// Whether nothing waits and nothing is worked on.
    pub fn is_over(&self) -> bool {
        self.waiting.is_empty() && self.working == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(scheduler: &mut Scheduler) -> Vec<(usize, usize)> {
        std::iter::from_fn(|| scheduler.start()).collect()
    }

    #[test]
    fn items_go_to_the_node_with_most_room_in_their_order() {
        let mut scheduler = Scheduler::new(5, 2, 2, 1);
        assert_eq!(all(&mut scheduler), [(0, 0), (1, 1), (2, 0), (3, 1)]);
        assert_eq!(scheduler.ended(1, Ended::Done), Verdict::Over);
        assert_eq!(all(&mut scheduler), [(4, 1)]);
        for item in [0, 2, 3, 4] {
            assert!(!scheduler.is_over());
            scheduler.ended(item, Ended::Failed);
        }
        assert!(scheduler.is_over() && scheduler.start().is_none());
    }

    #[test]
    fn what_is_lost_is_tried_again_elsewhere_a_few_times_and_what_failed_is_not() {
        let mut scheduler = Scheduler::new(2, 3, 1, 3);
        assert_eq!(all(&mut scheduler), [(0, 0), (1, 1)]);
        assert_eq!(scheduler.ended(0, Ended::Lost), Verdict::Again);
        assert_eq!(scheduler.start(), Some((0, 2)));
        assert_eq!(scheduler.ended(0, Ended::Lost), Verdict::Again);
        // The place where it was not yet is busy; it waits for that.
        assert_eq!(scheduler.start(), None);
        assert_eq!(scheduler.ended(1, Ended::Failed), Verdict::Over);
        assert_eq!(scheduler.start(), Some((0, 1)));
        assert_eq!(scheduler.ended(0, Ended::Lost), Verdict::Over);
        assert!(scheduler.is_over());
    }

    #[test]
    fn a_node_that_loses_everything_does_not_go_through_all_items() {
        let mut scheduler = Scheduler::new(20, 2, 1, 2);
        let (mut done, mut lost) = (0, 0);
        let mut working = all(&mut scheduler);
        while !working.is_empty() {
            // What is lost is so at once.
            let next = working.iter().position(|(_, node)| *node == 0).unwrap_or(0);
            let (item, node) = working.swap_remove(next);
            if node == 0 {
                lost += 1;
                scheduler.ended(item, Ended::Lost);
            } else {
                done += 1;
                scheduler.ended(item, Ended::Done);
            }
            working.extend(all(&mut scheduler));
        }
        assert_eq!((done, lost), (20, LOST_IN_A_ROW));
        assert!(scheduler.is_over());
    }

    #[test]
    fn every_item_ends_whatever_happens_to_it() {
        for seed in 0..500_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut number = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let (items, nodes, each) = (number(30) as usize, 1 + number(5) as usize, 1 + number(3) as usize);
            let mut scheduler = Scheduler::new(items, nodes, each, 3);
            let (mut starts, mut over, mut working) = (vec![0; items], 0, Vec::new());
            loop {
                while let Some((item, node)) = scheduler.start() {
                    starts[item] += 1;
                    working.push((item, node));
                    let here = working.iter().filter(|(_, at)| *at == node).count();
                    assert!(here <= each, "seed {seed}: {here} on one node");
                }
                if working.is_empty() {
                    break;
                }
                let (item, _) = working.swap_remove(number(working.len() as u64) as usize);
                let how = [Ended::Done, Ended::Failed, Ended::Lost, Ended::Lost][number(4) as usize];
                over += usize::from(scheduler.ended(item, how) == Verdict::Over);
            }
            assert!(scheduler.is_over() && over == items, "seed {seed}: {over} of {items}");
            assert!(starts.iter().all(|starts| (1..=3).contains(starts)), "seed {seed}: {starts:?}");
        }
    }
}
