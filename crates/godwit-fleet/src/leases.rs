//! Leases: numbered work items that are assigned to workers until their results are committed.
//!
//! [`Leases`] receives the requests of workers and the current time, and returns items. It does not use a clock or a
//! socket, so a simulation can run the same code. All times are durations since an arbitrary fixed moment.
//!
//! - Items are leased in the order of their numbers. Items that workers returned are leased before new ones.
//! - The items of a lost worker are leased to other workers. The caller detects the loss, by the end of a connection or
//!   of a process.
//! - When all items are leased or committed, an item that takes long is also leased to a second worker. The first
//!   commit of an item wins, whichever worker sends it, because any two results of an item are the same bytes.
//!
//! This module does not know the meaning of items or the location of their results. If the result of an item is lost,
//! the caller must [reopen](Leases::reopen_item) the item.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The id of a worker of a job. In a cluster run, a lost worker that joins again has another id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerId(pub u32);

/// Number of a work item. The first item that was added has number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemId(pub u64);

/// An item that a worker has leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Number of the item.
    pub item: ItemId,
    /// Number of times that the item was leased, including this time. It is high for an item that makes every worker
    /// fail.
    pub lease_count: u32,
}

/// The response to a worker that commits the result of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// This result is the first one of the item and is valid.
    First {
        /// The other workers that hold the item and may stop working on it.
        other_workers: Vec<WorkerId>,
    },
    /// The item already has a result. The worker must discard this one.
    Late,
    /// The item was never leased to any worker, so the worker made an error.
    NeverLeased,
}

/// The state of all work items and of all workers.
pub struct Leases {
    /// Age of a lease from which on the item may also be leased to a second, idle worker.
    straggler_age: Duration,
    /// Number of the next item that is added.
    next_number: u64,
    closed: bool,
    /// Items that are not leased now, each with the number of its earlier leases. An item below `next_number` that is
    /// in neither map is committed.
    unleased_items: BTreeMap<ItemId, u32>,
    /// Items that are leased to workers.
    leased_items: BTreeMap<ItemId, LeasedItem>,
    /// Leased items that only one worker holds, each with the time of its first lease, oldest first.
    single_holder_items: BTreeSet<(Duration, ItemId)>,
    /// The items that each worker holds.
    held_items: HashMap<WorkerId, BTreeSet<ItemId>>,
    #[cfg(test)]
    steps: u64,
}

/// An item that is leased.
struct LeasedItem {
    /// The one or two workers that hold the item.
    workers: Vec<WorkerId>,
    lease_count: u32,
    /// Time of the item's first lease since it was last returned to the unleased items.
    first_leased_at: Duration,
}

impl Leases {
    /// Creates a state without items and workers.
    pub fn new(straggler_age: Duration) -> Self {
        Self {
            straggler_age,
            next_number: 0,
            closed: false,
            unleased_items: BTreeMap::new(),
            leased_items: BTreeMap::new(),
            single_holder_items: BTreeSet::new(),
            held_items: HashMap::new(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Adds `count` items. Returns the range of their numbers.
    pub fn add_items(&mut self, count: u64) -> Range<u64> {
        let added = self.next_number..self.next_number.saturating_add(count);
        self.next_number = added.end;
        self.unleased_items.extend(added.clone().map(|number| (ItemId(number), 0)));
        added
    }

    /// Marks an item that was never leased as committed, because an earlier run produced its result. Returns false if
    /// the item was already leased or committed.
    pub fn mark_committed(&mut self, item: ItemId) -> bool {
        self.unleased_items.get(&item) == Some(&0) && self.unleased_items.remove(&item).is_some()
    }

    /// Declares that no more items will be added.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns the number of items that are waiting to be leased.
    pub fn unleased_count(&self) -> usize {
        self.unleased_items.len()
    }

    /// Returns whether every item is committed and no more items will be added.
    pub fn is_finished(&self) -> bool {
        self.closed && self.unleased_items.is_empty() && self.leased_items.is_empty()
    }

    /// Returns whether an item is committed.
    fn is_committed(&self, item: ItemId) -> bool {
        item.0 < self.next_number && !self.unleased_items.contains_key(&item) && !self.leased_items.contains_key(&item)
    }

    /// Sets the age from which on an item may be leased to a second worker. A good value may be known only after some
    /// items are committed.
    pub fn set_straggler_age(&mut self, age: Duration) {
        self.straggler_age = age;
    }

    /// Leases an item to a worker that requests one; returns `None` if no item is available now. A worker may hold
    /// several items at a time.
    pub fn request_item(&mut self, worker: WorkerId, now: Duration) -> Option<Lease> {
        self.request_suitable_item(worker, |_| true, now)
    }

    /// Leases an item for which `suits` returns true, in the same way as [`Leases::request_item`]. This excludes items
    /// that have already failed on this worker.
    pub fn request_suitable_item(
        &mut self,
        worker: WorkerId,
        suits: impl Fn(ItemId) -> bool,
        now: Duration,
    ) -> Option<Lease> {
        let waiting = self.unleased_items.iter().find(|(item, _)| suits(**item)).map(|(item, issued)| (*item, *issued));
        if let Some((item, issued)) = waiting {
            self.unleased_items.remove(&item);
            return Some(self.lease_item(worker, item, issued + 1, now));
        }
        let (since, item) = self.oldest_leased_elsewhere(worker, suits)?;
        if since.saturating_add(self.straggler_age) > now {
            return None;
        }
        let issued = self.leased_items.get(&item).map_or(0, |out| out.lease_count);
        Some(self.lease_item(worker, item, issued + 1, now))
    }

    /// Commits an item. The caller must have stored the result of the item safely before.
    pub fn commit_item(&mut self, worker: WorkerId, item: ItemId) -> CommitResult {
        if item.0 >= self.next_number || self.unleased_items.get(&item) == Some(&0) {
            return CommitResult::NeverLeased;
        }
        if self.unleased_items.remove(&item).is_some() {
            return CommitResult::First { other_workers: Vec::new() };
        }
        let Some(out) = self.leased_items.remove(&item) else { return CommitResult::Late };
        self.single_holder_items.remove(&(out.first_leased_at, item));
        for holder in &out.workers {
            self.remove_from_worker(*holder, item);
        }
        CommitResult::First { other_workers: out.workers.into_iter().filter(|holder| *holder != worker).collect() }
    }

    /// Takes back an item that its worker cannot complete. Returns whether the worker held the item.
    pub fn return_item(&mut self, worker: WorkerId, item: ItemId) -> bool {
        let holds = self.remove_from_worker(worker, item);
        if holds {
            self.requeue_item(worker, item);
        }
        holds
    }

    /// Removes the leases of a worker that leaves or is lost. Returns its items, in ascending order; those that no other
    /// worker holds will be leased again.
    pub fn remove_worker(&mut self, worker: WorkerId) -> Vec<ItemId> {
        let items: Vec<ItemId> = self.held_items.remove(&worker).unwrap_or_default().into_iter().collect();
        for item in &items {
            self.requeue_item(worker, *item);
        }
        items
    }

    /// Reopens a committed item whose result was lost, so that it is leased again. Returns whether the item was
    /// committed.
    pub fn reopen_item(&mut self, item: ItemId) -> bool {
        let committed = self.is_committed(item);
        if committed {
            // Count the item as leased once: a late commit of an earlier lease requires only that the item was leased
            // before.
            self.unleased_items.insert(item, 1);
        }
        committed
    }

    fn lease_item(&mut self, worker: WorkerId, item: ItemId, lease_count: u32, now: Duration) -> Lease {
        self.held_items.entry(worker).or_default().insert(item);
        let out = self.leased_items.entry(item).or_insert_with(|| LeasedItem {
            workers: Vec::new(),
            lease_count,
            first_leased_at: now,
        });
        out.lease_count = lease_count;
        out.workers.push(worker);
        let key = (out.first_leased_at, item);
        if out.workers.len() == 1 {
            self.single_holder_items.insert(key);
        } else {
            self.single_holder_items.remove(&key);
        }
        Lease { item, lease_count }
    }

    /// Returns the item that exactly one other worker has held for the longest time. Skips items of this worker and
    /// unsuitable ones.
    fn oldest_leased_elsewhere(
        &mut self,
        worker: WorkerId,
        suits: impl Fn(ItemId) -> bool,
    ) -> Option<(Duration, ItemId)> {
        let own = self.held_items.get(&worker);
        let is_own = |item: &ItemId| own.is_some_and(|own| own.contains(item));
        let passed = self.single_holder_items.iter().take_while(|(_, item)| is_own(item) || !suits(*item)).count();
        #[cfg(test)]
        {
            self.steps += passed as u64;
        }
        self.single_holder_items.iter().nth(passed).copied()
    }

    /// Removes an item from the items of a worker. Returns whether the worker held it.
    fn remove_from_worker(&mut self, worker: WorkerId, item: ItemId) -> bool {
        self.held_items.get_mut(&worker).is_some_and(|items| items.remove(&item))
    }

    /// Removes a worker from the holders of an item. If it was the only holder, the item is queued to be leased again.
    fn requeue_item(&mut self, worker: WorkerId, item: ItemId) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
        let Some(out) = self.leased_items.get_mut(&item) else { return };
        out.workers.retain(|holder| *holder != worker);
        if out.workers.is_empty() {
            let (since, issue) = (out.first_leased_at, out.lease_count);
            self.single_holder_items.remove(&(since, item));
            self.leased_items.remove(&item);
            self.unleased_items.insert(item, issue);
        } else {
            self.single_holder_items.insert((out.first_leased_at, item));
        }
    }
}

#[cfg(test)]
mod tests;
