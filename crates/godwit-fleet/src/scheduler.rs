//! Scheduling of samples on hosts, and retries of failed ones.
//!
//! Ends of items go in, starts are returned: no clock, no processes. `godwit run` starts samples by it, and
//! [`cohort_simulation`](crate::cohort_simulation) simulates with it. Items are started in their order, each on the host with most
//! free slots. One that was lost with its host, or failed for a reason that may be the host's, is retried, elsewhere if possible; one
//! that failed by itself is not. A host that loses one item after the other is not used while others work: it would lose them all.

use std::collections::BTreeSet;

/// Consecutive items that a host may lose before it is avoided.
const MAX_CONSECUTIVE_LOSSES: u32 = 3;

/// The hosts and their free slots.
#[derive(Debug)]
pub struct HostSlots {
    free_by_host: Vec<usize>,
    /// Sum over all hosts.
    free_total: usize,
}

impl HostSlots {
    /// Creates `nodes` hosts with `each` slots.
    pub fn new(nodes: usize, each: usize) -> Self {
        Self { free_by_host: vec![each; nodes], free_total: nodes * each }
    }

    /// Takes a slot of the host with most free ones, the first of these; `None` where all are taken.
    pub fn take_slot(&mut self) -> Option<usize> {
        self.take_slot_where(|_| true)
    }

    /// Takes a slot as [`Self::take_slot`] does, of a suitable host.
    fn take_slot_where(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let fitting = self.free_by_host.iter_mut().enumerate().rev().filter(|(node, _)| fits(*node));
        // max_by_key returns the last of equals, which in reverse is the first.
        let (node, free) = fitting.max_by_key(|(_, free)| **free)?;
        *free = free.checked_sub(1)?;
        self.free_total -= 1;
        Some(node)
    }

    /// Reports whether a slot is free.
    fn is_any_free(&self) -> bool {
        self.free_total > 0
    }

    /// Releases a slot of this host.
    pub fn release_slot(&mut self, node: usize) {
        self.free_by_host[node] += 1;
        self.free_total += 1;
    }
}

/// The outcome of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// It succeeded.
    Done,
    /// It failed in a way that would repeat on any host.
    Failed,
    /// It was lost with its host, or failed for a reason that may be the host's.
    Lost,
}

/// The decision about an item that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// It is not retried.
    NoRetry,
    /// It is retried.
    Retry,
}

/// A scheduler of items on hosts.
#[derive(Debug)]
pub struct Scheduler {
    slots: HostSlots,
    waiting: BTreeSet<usize>,
    items: Vec<ItemState>,
    /// Consecutive items that each host lost.
    consecutive_losses: Vec<u32>,
    /// Most starts of an item.
    max_attempts: usize,
    started_items: usize,
}

#[derive(Clone, Debug, Default)]
struct ItemState {
    host: usize,
    /// Hosts that lost it.
    lost_on_hosts: Vec<usize>,
}

impl Scheduler {
    /// Creates a scheduler of `items` items for `nodes` hosts with `each` slots. Each is started `tries` times at most.
    pub fn new(items: usize, nodes: usize, each: usize, tries: usize) -> Self {
        Self {
            slots: HostSlots::new(nodes, each),
            waiting: (0..items).collect(),
            items: vec![ItemState::default(); items],
            consecutive_losses: vec![0; nodes],
            max_attempts: tries.max(1),
            started_items: 0,
        }
    }

    /// Starts the next item; returns it with its host; `None` where none waits or no suitable slot is free.
    pub fn start_next(&mut self) -> Option<(usize, usize)> {
        if !self.slots.is_any_free() {
            return None;
        }
        let sound = |node: usize| self.consecutive_losses[node] < MAX_CONSECUTIVE_LOSSES;
        let any_sound = (0..self.consecutive_losses.len()).any(sound);
        let started = self.waiting.iter().find_map(|item| {
            let lost_on = &self.items[*item].lost_on_hosts;
            let fits = |node: usize| sound(node) || !any_sound;
            // A host that lost it is used only where there is no other, however busy the others are.
            let elsewhere = |node: usize| fits(node) && !lost_on.contains(&node);
            let any_elsewhere = lost_on.is_empty() || (0..self.consecutive_losses.len()).any(elsewhere);
            let node = self.slots.take_slot_where(|node| if any_elsewhere { elsewhere(node) } else { fits(node) });
            node.map(|node| (*item, node))
        });
        let (item, node) = started?;
        self.waiting.remove(&item);
        self.items[item].host = node;
        self.started_items += 1;
        Some((item, node))
    }

    /// Records the end of a started item.
    pub fn finish_item(&mut self, item: usize, outcome: ItemOutcome) -> RetryDecision {
        let found = &mut self.items[item];
        let node = found.host;
        self.started_items -= 1;
        self.slots.release_slot(node);
        if outcome != ItemOutcome::Lost {
            self.consecutive_losses[node] = 0;
            return RetryDecision::NoRetry;
        }
        self.consecutive_losses[node] += 1;
        found.lost_on_hosts.push(node);
        if found.lost_on_hosts.len() >= self.max_attempts {
            return RetryDecision::NoRetry;
        }
        self.waiting.insert(item);
        RetryDecision::Retry
    }

    /// Reports whether no item waits or runs.
    pub fn is_finished(&self) -> bool {
        self.waiting.is_empty() && self.started_items == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_all(scheduler: &mut Scheduler) -> Vec<(usize, usize)> {
        std::iter::from_fn(|| scheduler.start_next()).collect()
    }

    #[test]
    fn items_go_to_the_host_with_most_free_slots_in_their_order() {
        let mut scheduler = Scheduler::new(5, 2, 2, 1);
        assert_eq!(start_all(&mut scheduler), [(0, 0), (1, 1), (2, 0), (3, 1)]);
        assert_eq!(scheduler.finish_item(1, ItemOutcome::Done), RetryDecision::NoRetry);
        assert_eq!(start_all(&mut scheduler), [(4, 1)]);
        for item in [0, 2, 3, 4] {
            assert!(!scheduler.is_finished());
            scheduler.finish_item(item, ItemOutcome::Failed);
        }
        assert!(scheduler.is_finished() && scheduler.start_next().is_none());
    }

    #[test]
    fn what_is_lost_is_tried_again_elsewhere_a_few_times_and_what_failed_is_not() {
        let mut scheduler = Scheduler::new(2, 3, 1, 3);
        assert_eq!(start_all(&mut scheduler), [(0, 0), (1, 1)]);
        assert_eq!(scheduler.finish_item(0, ItemOutcome::Lost), RetryDecision::Retry);
        assert_eq!(scheduler.start_next(), Some((0, 2)));
        assert_eq!(scheduler.finish_item(0, ItemOutcome::Lost), RetryDecision::Retry);
        // The host that has not lost it yet is busy; the item waits for it.
        assert_eq!(scheduler.start_next(), None);
        assert_eq!(scheduler.finish_item(1, ItemOutcome::Failed), RetryDecision::NoRetry);
        assert_eq!(scheduler.start_next(), Some((0, 1)));
        assert_eq!(scheduler.finish_item(0, ItemOutcome::Lost), RetryDecision::NoRetry);
        assert!(scheduler.is_finished());
    }

    #[test]
    fn a_host_that_loses_every_item_does_not_get_all_items() {
        let mut scheduler = Scheduler::new(20, 2, 1, 2);
        let (mut done, mut lost) = (0, 0);
        let mut working = start_all(&mut scheduler);
        while !working.is_empty() {
            // Items of the failing host are lost at once.
            let next = working.iter().position(|(_, node)| *node == 0).unwrap_or(0);
            let (item, node) = working.swap_remove(next);
            if node == 0 {
                lost += 1;
                scheduler.finish_item(item, ItemOutcome::Lost);
            } else {
                done += 1;
                scheduler.finish_item(item, ItemOutcome::Done);
            }
            working.extend(start_all(&mut scheduler));
        }
        assert_eq!((done, lost), (20, MAX_CONSECUTIVE_LOSSES));
        assert!(scheduler.is_finished());
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
                while let Some((item, node)) = scheduler.start_next() {
                    starts[item] += 1;
                    working.push((item, node));
                    let here = working.iter().filter(|(_, at)| *at == node).count();
                    assert!(here <= each, "seed {seed}: {here} on one node");
                }
                if working.is_empty() {
                    break;
                }
                let (item, _) = working.swap_remove(number(working.len() as u64) as usize);
                let how =
                    [ItemOutcome::Done, ItemOutcome::Failed, ItemOutcome::Lost, ItemOutcome::Lost][number(4) as usize];
                over += usize::from(scheduler.finish_item(item, how) == RetryDecision::NoRetry);
            }
            assert!(scheduler.is_finished() && over == items, "seed {seed}: {over} of {items}");
            assert!(starts.iter().all(|starts| (1..=3).contains(starts)), "seed {seed}: {starts:?}");
        }
    }
}
