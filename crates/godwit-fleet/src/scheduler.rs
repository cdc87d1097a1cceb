//! Assigns samples to hosts, and retries samples that failed.
//!
//! A [`Scheduler`] receives the outcomes of items and returns the items to start. It uses no clock and starts no
//! processes. `godwit run` starts samples with it, and [`cohort_simulation`](crate::cohort_simulation) uses it for
//! simulations. Items are started in their order, each on the host with most free slots. An item is retried if it was
//! lost with its host, or failed for a reason that may be due to the host. The retry runs on another host if possible.
//! An item that failed for any other reason is not retried. A host that loses several items in a row is not used while
//! other hosts work, because it would lose all items.

use std::collections::BTreeSet;

/// Number of consecutive items that a host may lose before the scheduler avoids it.
const MAX_CONSECUTIVE_LOSSES: u32 = 3;

/// The number of free slots on each host.
#[derive(Debug)]
struct HostSlots {
    free_by_host: Vec<usize>,
    /// Number of free slots on all hosts.
    free_total: usize,
}

impl HostSlots {
    /// Creates `hosts` hosts with `each` free slots per host.
    fn new(hosts: usize, each: usize) -> Self {
        Self { free_by_host: vec![each; hosts], free_total: hosts * each }
    }

    /// Takes a slot on the host with most free slots, or on the first of several such hosts, among the hosts for which
    /// `fits` returns true. Returns the 0-based index of the host; `None` if no slot is free.
    fn take_slot_where(&mut self, fits: impl Fn(usize) -> bool) -> Option<usize> {
        let fitting = self.free_by_host.iter_mut().enumerate().rev().filter(|(host, _)| fits(*host));
        // max_by_key returns the last of several maxima. The order is reversed, so this is the first host.
        let (host, free) = fitting.max_by_key(|(_, free)| **free)?;
        *free = free.checked_sub(1)?;
        self.free_total -= 1;
        Some(host)
    }

    /// Returns whether any host has a free slot.
    fn is_any_free(&self) -> bool {
        self.free_total > 0
    }

    /// Returns a slot to the host with index `host`.
    fn release_slot(&mut self, host: usize) {
        self.free_by_host[host] += 1;
        self.free_total += 1;
    }
}

/// The outcome of an item that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// The item succeeded.
    Done,
    /// The item failed in a way that would repeat on any host.
    Failed,
    /// The item was lost with its host, or failed for a reason that may be due to the host.
    Lost,
}

/// The decision whether an item that has ended is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// The item is not retried.
    NoRetry,
    /// The item is retried.
    Retry,
}

/// A scheduler of numbered items on hosts with slots.
#[derive(Debug)]
pub struct Scheduler {
    slots: HostSlots,
    waiting: BTreeSet<usize>,
    items: Vec<ItemState>,
    /// Number of consecutive items that each host has lost, by index of the host.
    consecutive_losses: Vec<u32>,
    /// Maximum number of starts of an item.
    max_attempts: usize,
    started_items: usize,
}

#[derive(Clone, Debug, Default)]
struct ItemState {
    host: usize,
    /// Indexes of the hosts on which the item was lost.
    lost_on_hosts: Vec<usize>,
}

impl Scheduler {
    /// Creates a scheduler of `items` items on `hosts` hosts with `each` slots per host. An item is started at most
    /// `tries` times.
    pub fn new(items: usize, hosts: usize, each: usize, tries: usize) -> Self {
        Self {
            slots: HostSlots::new(hosts, each),
            waiting: (0..items).collect(),
            items: vec![ItemState::default(); items],
            consecutive_losses: vec![0; hosts],
            max_attempts: tries.max(1),
            started_items: 0,
        }
    }

    /// Starts the next item and returns it with the index of its host. Returns `None` if no item is waiting, or no
    /// suitable slot is free.
    pub fn start_next(&mut self) -> Option<(usize, usize)> {
        if !self.slots.is_any_free() {
            return None;
        }
        let sound = |host: usize| self.consecutive_losses[host] < MAX_CONSECUTIVE_LOSSES;
        let any_sound = (0..self.consecutive_losses.len()).any(sound);
        let started = self.waiting.iter().find_map(|item| {
            let lost_on = &self.items[*item].lost_on_hosts;
            let fits = |host: usize| sound(host) || !any_sound;
            // A host that lost this item is used only if there is no other usable host, even if all other hosts are
            // busy.
            let elsewhere = |host: usize| fits(host) && !lost_on.contains(&host);
            let any_elsewhere = lost_on.is_empty() || (0..self.consecutive_losses.len()).any(elsewhere);
            let host = self.slots.take_slot_where(|host| if any_elsewhere { elsewhere(host) } else { fits(host) });
            host.map(|host| (*item, host))
        });
        let (item, host) = started?;
        self.waiting.remove(&item);
        self.items[item].host = host;
        self.started_items += 1;
        Some((item, host))
    }

    /// Records the outcome of an item that was started, and returns whether it is retried.
    pub fn finish_item(&mut self, item: usize, outcome: ItemOutcome) -> RetryDecision {
        let found = &mut self.items[item];
        let host = found.host;
        self.started_items -= 1;
        self.slots.release_slot(host);
        if outcome != ItemOutcome::Lost {
            self.consecutive_losses[host] = 0;
            return RetryDecision::NoRetry;
        }
        self.consecutive_losses[host] += 1;
        found.lost_on_hosts.push(host);
        if found.lost_on_hosts.len() >= self.max_attempts {
            return RetryDecision::NoRetry;
        }
        self.waiting.insert(item);
        RetryDecision::Retry
    }

    /// Returns whether no item is waiting or running.
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
        // The only host that has not lost the item is busy, so the item waits for this host.
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
            // Items on the failing host end first, and all of them are lost.
            let next = working.iter().position(|(_, host)| *host == 0).unwrap_or(0);
            let (item, host) = working.swap_remove(next);
            if host == 0 {
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
            let (items, hosts, each) = (number(30) as usize, 1 + number(5) as usize, 1 + number(3) as usize);
            let mut scheduler = Scheduler::new(items, hosts, each, 3);
            let (mut starts, mut over, mut working) = (vec![0; items], 0, Vec::new());
            loop {
                while let Some((item, host)) = scheduler.start_next() {
                    starts[item] += 1;
                    working.push((item, host));
                    let here = working.iter().filter(|(_, at)| *at == host).count();
                    assert!(here <= each, "seed {seed}: {here} on one host");
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
