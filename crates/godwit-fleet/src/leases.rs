//! Leases: numbered work items that are assigned to named workers for a limited time.
//!
//! [`Leases`] receives the requests of workers and the current time, and returns responses. It does not use a clock or
//! a socket, so a simulation can run the same code. All times are durations since an arbitrary fixed moment.
//!
//! - Items are leased in the order of their numbers. Items that workers returned are leased before new ones.
//! - A worker that sends no message for the duration of a lease counts as lost, and its items are leased to other
//!   workers. The worker may resume later.
//! - When all items are leased or committed, an item that takes long is also leased to a second worker. The first
//!   commit of an item wins, whichever worker sends it, because any two results of an item are the same bytes.
//! - A worker that was restarted has a higher attempt number. Requests with a lower number are rejected.
//!
//! This module does not know the meaning of items or the location of their results. If the result of an item is lost,
//! the caller must [reopen](Leases::reopen_item) the item.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// Number of a work item. The first item that was added has number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub u64);

/// Attempt number of a worker. A worker that is restarted gets a higher number and replaces its earlier attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// The time limits that [`Leases`] uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimeouts {
    /// Time without a message after which a worker counts as lost. Set it to several heartbeat intervals.
    pub lease_duration: Duration,
    /// Age of a lease from which on the item may also be leased to a second, idle worker.
    pub straggler_age: Duration,
}

/// The response to a worker that requests a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The worker gets an item.
    Lease {
        /// Number of the item.
        item: ItemId,
        /// Number of times that the item was leased, including this time. It is high for an item that makes every
        /// worker fail.
        lease_count: u32,
        /// Time by which the worker must send its next message.
        deadline: Duration,
    },
    /// No item is available now. The worker should request again after a change, or at the latest at `until`.
    Wait {
        /// Time at which an item may become available without a change; `None` if there is no such time.
        until: Option<Duration>,
    },
    /// All items are committed, and no more items will be added.
    Finished,
    /// The request is rejected, because a later attempt of this worker is known.
    Fenced {
        /// Number of the later attempt.
        current: Attempt,
    },
}

/// The response to a worker that commits the result of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// This result is the first one of the item and is valid.
    First {
        /// Names of the other workers that hold the item and may stop working on it.
        other_workers: Vec<String>,
    },
    /// The item already has a result. The worker must discard this one.
    Late,
    /// The result is rejected, because a later attempt of this worker is known. The worker must discard the result.
    Fenced {
        /// Number of the later attempt.
        current: Attempt,
    },
    /// The item was never leased to any worker, so the worker made an error.
    NeverLeased,
}

/// A worker that sent no message for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredWorker {
    /// Name of the worker.
    pub name: String,
    /// Items that the worker held, in ascending order. Those that no other worker holds will be leased again.
    pub items: Vec<ItemId>,
}

/// The state of all work items and of all workers.
pub struct Leases {
    timeouts: LeaseTimeouts,
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
    workers: HashMap<String, Worker>,
    /// Workers that hold items, each with the time at which it counts as lost, earliest first.
    deadlines: BTreeSet<(Duration, String)>,
    #[cfg(test)]
    steps: u64,
}

/// An item that is leased.
struct LeasedItem {
    /// Names of the one or two workers that hold the item.
    workers: Vec<String>,
    lease_count: u32,
    /// Time of the item's first lease since it was last returned to the unleased items.
    first_leased_at: Duration,
}

struct Worker {
    attempt: Attempt,
    deadline: Duration,
    items: BTreeSet<ItemId>,
}

impl Leases {
    /// Creates a state without items and workers.
    pub fn new(timeouts: LeaseTimeouts) -> Self {
        Self {
            timeouts,
            next_number: 0,
            closed: false,
            unleased_items: BTreeMap::new(),
            leased_items: BTreeMap::new(),
            single_holder_items: BTreeSet::new(),
            workers: HashMap::new(),
            deadlines: BTreeSet::new(),
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

    /// Declares that no more items will be added. When all items are committed, workers then get
    /// [`LeaseResponse::Finished`].
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns the number of items that are waiting to be leased.
    pub fn unleased_count(&self) -> usize {
        self.unleased_items.len()
    }

    /// Returns the number of items that are leased to workers.
    pub fn leased_count(&self) -> usize {
        self.leased_items.len()
    }

    /// Returns the number of committed items.
    pub fn committed_count(&self) -> u64 {
        self.next_number - (self.unleased_items.len() + self.leased_items.len()) as u64
    }

    /// Returns whether every item is committed and no more items will be added.
    pub fn is_finished(&self) -> bool {
        self.closed && self.unleased_items.is_empty() && self.leased_items.is_empty()
    }

    /// Returns whether an item is committed.
    pub fn is_committed(&self, item: ItemId) -> bool {
        item.0 < self.next_number && !self.unleased_items.contains_key(&item) && !self.leased_items.contains_key(&item)
    }

    /// Sets the age from which on an item may be leased to a second worker. A good value may be known only after some
    /// items are committed.
    pub fn set_straggler_age(&mut self, age: Duration) {
        self.timeouts.straggler_age = age;
    }

    /// Leases an item to a worker that requests one. A worker may hold several items at a time.
    pub fn request_item(&mut self, worker: &str, attempt: Attempt, now: Duration) -> LeaseResponse {
        self.request_suitable_item(worker, attempt, |_| true, now)
    }

    /// Leases an item for which `suits` returns true, in the same way as [`Leases::request_item`]. This excludes items
    /// that have already failed on this worker.
    pub fn request_suitable_item(
        &mut self,
        worker: &str,
        attempt: Attempt,
        suits: impl Fn(ItemId) -> bool,
        now: Duration,
    ) -> LeaseResponse {
        if let Err(current) = self.record_contact(worker, attempt, now) {
            return LeaseResponse::Fenced { current };
        }
        let waiting = self.unleased_items.iter().find(|(item, _)| suits(**item)).map(|(item, issued)| (*item, *issued));
        if let Some((item, issued)) = waiting {
            self.unleased_items.remove(&item);
            return self.lease_item(worker, item, issued + 1, now);
        }
        if self.is_finished() {
            return LeaseResponse::Finished;
        }
        match self.oldest_leased_elsewhere(worker, suits) {
            Some((since, item)) if since.saturating_add(self.timeouts.straggler_age) <= now => {
                let issued = self.leased_items.get(&item).map_or(0, |out| out.lease_count);
                self.lease_item(worker, item, issued + 1, now)
            }
            straggler => {
                let ripe = straggler.map(|(since, _)| since.saturating_add(self.timeouts.straggler_age));
                LeaseResponse::Wait { until: ripe.into_iter().chain(self.next_deadline()).min() }
            }
        }
    }

    /// Records a heartbeat of a worker, which renews all its leases. Every other request of the worker renews them as
    /// well.
    ///
    /// # Errors
    /// The number of a later attempt of this worker, if one is known.
    pub fn heartbeat(&mut self, worker: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        self.record_contact(worker, attempt, now)
    }

    /// Commits an item. The caller must have stored the result of the item safely before.
    pub fn commit_item(&mut self, worker: &str, attempt: Attempt, item: ItemId, now: Duration) -> CommitResult {
        if let Err(current) = self.record_contact(worker, attempt, now) {
            return CommitResult::Fenced { current };
        }
        if item.0 >= self.next_number || self.unleased_items.get(&item) == Some(&0) {
            return CommitResult::NeverLeased;
        }
        if self.unleased_items.remove(&item).is_some() {
            return CommitResult::First { other_workers: Vec::new() };
        }
        let Some(out) = self.leased_items.remove(&item) else { return CommitResult::Late };
        self.single_holder_items.remove(&(out.first_leased_at, item));
        for holder in &out.workers {
            self.remove_from_worker(holder, item);
        }
        CommitResult::First { other_workers: out.workers.into_iter().filter(|holder| holder != worker).collect() }
    }

    /// Ends the lease of an item that its worker cannot complete. Returns whether the worker held the item.
    pub fn return_item(&mut self, worker: &str, attempt: Attempt, item: ItemId, now: Duration) -> bool {
        if self.record_contact(worker, attempt, now).is_err() || !self.worker_holds_item(worker, item) {
            return false;
        }
        self.remove_from_worker(worker, item);
        self.requeue_item(worker, item);
        true
    }

    /// Removes the leases of a worker that leaves or is lost. Returns its items, which will be leased again. Lower
    /// attempt numbers of this worker are still rejected.
    pub fn remove_worker(&mut self, worker: &str) -> Vec<ItemId> {
        let Some(left) = self.workers.get_mut(worker) else { return Vec::new() };
        let items: Vec<ItemId> = std::mem::take(&mut left.items).into_iter().collect();
        self.deadlines.remove(&(left.deadline, worker.to_owned()));
        for item in &items {
            self.requeue_item(worker, *item);
        }
        items
    }

    /// Removes the leases of workers that count as lost. Must be called at the time [`Leases::next_deadline`] or
    /// earlier.
    pub fn expire_workers(&mut self, now: Duration) -> Vec<ExpiredWorker> {
        let mut expired = Vec::new();
        while let Some((deadline, name)) = self.deadlines.first().cloned() {
            self.count_step();
            if deadline > now {
                break;
            }
            let items = self.remove_worker(&name);
            expired.push(ExpiredWorker { name, items });
        }
        expired
    }

    /// Returns the time at which the next worker will count as lost if it sends no message; `None` if no worker holds
    /// items.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
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

    /// Records a message of a worker: extends its deadline, or rejects the attempt if a later one is known.
    fn record_contact(&mut self, name: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        let known = self.workers.get(name).map(|worker| worker.attempt);
        match known {
            Some(current) if current > attempt => return Err(current),
            // The leases of the earlier attempt end when a later attempt sends its first message.
            Some(current) if current < attempt => drop(self.remove_worker(name)),
            _ => {}
        }
        let deadline = now.saturating_add(self.timeouts.lease_duration);
        let new = || Worker { attempt, deadline, items: BTreeSet::new() };
        let worker = self.workers.entry(name.to_owned()).or_insert_with(new);
        worker.attempt = attempt;
        let before = std::mem::replace(&mut worker.deadline, deadline);
        if !worker.items.is_empty() && before != deadline {
            self.deadlines.remove(&(before, name.to_owned()));
            self.deadlines.insert((deadline, name.to_owned()));
        }
        Ok(())
    }

    fn lease_item(&mut self, name: &str, item: ItemId, lease_count: u32, now: Duration) -> LeaseResponse {
        let worker = self.workers.get_mut(name).expect("a worker that requests an item is registered");
        worker.items.insert(item);
        let deadline = worker.deadline;
        self.deadlines.insert((deadline, name.to_owned()));
        let out = self.leased_items.entry(item).or_insert_with(|| LeasedItem {
            workers: Vec::new(),
            lease_count,
            first_leased_at: now,
        });
        out.lease_count = lease_count;
        out.workers.push(name.to_owned());
        let key = (out.first_leased_at, item);
        if out.workers.len() == 1 {
            self.single_holder_items.insert(key);
        } else {
            self.single_holder_items.remove(&key);
        }
        LeaseResponse::Lease { item, lease_count, deadline }
    }

    /// Returns the item that exactly one other worker has held for the longest time. Skips items of this worker and
    /// unsuitable ones.
    fn oldest_leased_elsewhere(&mut self, name: &str, suits: impl Fn(ItemId) -> bool) -> Option<(Duration, ItemId)> {
        let own = &self.workers.get(name)?.items;
        let passed =
            self.single_holder_items.iter().take_while(|(_, item)| own.contains(item) || !suits(*item)).count();
        #[cfg(test)]
        {
            self.steps += passed as u64;
        }
        self.single_holder_items.iter().nth(passed).copied()
    }

    fn worker_holds_item(&self, name: &str, item: ItemId) -> bool {
        self.workers.get(name).is_some_and(|worker| worker.items.contains(&item))
    }

    /// Removes an item from the items of a worker.
    fn remove_from_worker(&mut self, name: &str, item: ItemId) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.items.remove(&item);
        if worker.items.is_empty() {
            self.deadlines.remove(&(worker.deadline, name.to_owned()));
        }
    }

    /// Removes a worker from the holders of an item. If it was the only holder, the item is queued to be leased again.
    fn requeue_item(&mut self, name: &str, item: ItemId) {
        self.count_step();
        let Some(out) = self.leased_items.get_mut(&item) else { return };
        out.workers.retain(|holder| holder != name);
        if out.workers.is_empty() {
            let (since, issue) = (out.first_leased_at, out.lease_count);
            self.single_holder_items.remove(&(since, item));
            self.leased_items.remove(&item);
            self.unleased_items.insert(item, issue);
        } else {
            self.single_holder_items.insert((out.first_leased_at, item));
        }
    }

    /// Counts the steps of linear scans, for a test of their complexity.
    fn count_step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

#[cfg(test)]
mod tests;
