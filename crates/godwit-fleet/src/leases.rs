//! Leases: numbered items of work, assigned to named workers for a limited time.
//!
//! In: requests of workers, and the time. Out: responses. No clock or socket is used, so that a simulation can run the same
//! code. Times are counted from any fixed moment.
//!
//! - Items are leased in the order of their numbers. Returned items are leased before new ones.
//! - A worker that is silent for a lease's length counts as lost, and its items are leased again. It may resume.
//! - When no unleased item is left, items that take long are leased to a second worker. The first commit wins, whatever its
//!   worker, since any two results of an item are the same bytes.
//! - A worker that was started again has a higher attempt. Requests of a lower one are rejected.
//!
//! The meaning of items and the location of their results are not known here: an item whose result was lost is
//! [reopened](Leases::reopen_item).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// Number of an item, from 0 in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub u64);

/// Number of a worker's start. Higher ones replace lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// Time limits of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimeouts {
    /// Silence after which a worker counts as lost. Several heartbeat intervals.
    pub lease_duration: Duration,
    /// Age of a lease from which on an idle worker may lease its item too.
    pub straggler_age: Duration,
}

/// The response to a request for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseResponse {
    /// An item is leased.
    Lease {
        /// Its number.
        item: ItemId,
        /// Number of its leases, this one included. High for an item that ends every worker that runs it.
        lease_count: u32,
        /// Time by which the worker has to send its next message.
        deadline: Duration,
    },
    /// No item now. Request again when something changed, or at that time.
    Wait {
        /// Time at which an item may become free without another event.
        until: Option<Duration>,
    },
    /// All items are committed, and no more will come.
    Finished,
    /// A later start of this worker is known.
    Fenced {
        /// Its attempt.
        current: Attempt,
    },
}

/// The result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitResult {
    /// It is the first result of the item.
    First {
        /// Other workers that hold it, which may stop.
        other_workers: Vec<String>,
    },
    /// The item had a result already. Discard this one.
    Late,
    /// A later start of this worker is known. Discard it.
    Fenced {
        /// Its attempt.
        current: Attempt,
    },
    /// The item was never leased: an error of the worker.
    NeverLeased,
}

/// A worker that was silent for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredWorker {
    /// Its name.
    pub name: String,
    /// Its items, in order; those without another worker will be leased again.
    pub items: Vec<ItemId>,
}

/// The state of all items and workers.
pub struct Leases {
    timeouts: LeaseTimeouts,
    /// Number of the next item.
    next_number: u64,
    closed: bool,
    /// Items to be leased, and how often they were. Items below `next_number` that are in no map are committed.
    unleased_items: BTreeMap<ItemId, u32>,
    /// Items that workers hold.
    leased_items: BTreeMap<ItemId, LeasedItem>,
    /// Those with one worker, oldest first.
    single_holder_items: BTreeSet<(Duration, ItemId)>,
    workers: HashMap<String, Worker>,
    /// Workers that hold items, by deadline.
    deadlines: BTreeSet<(Duration, String)>,
    #[cfg(test)]
    steps: u64,
}

/// A leased item.
struct LeasedItem {
    /// The one or two workers that hold it.
    workers: Vec<String>,
    lease_count: u32,
    /// Time of its first lease.
    first_leased_at: Duration,
}

struct Worker {
    attempt: Attempt,
    deadline: Duration,
    items: BTreeSet<ItemId>,
}

impl Leases {
    /// Creates leases without items and workers.
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

    /// Adds items. Returns their numbers.
    pub fn add_items(&mut self, count: u64) -> Range<u64> {
        let added = self.next_number..self.next_number.saturating_add(count);
        self.next_number = added.end;
        self.unleased_items.extend(added.clone().map(|number| (ItemId(number), 0)));
        added
    }

    /// Marks an item that was never leased as committed by an earlier run. Returns whether it was unleased.
    pub fn mark_committed(&mut self, item: ItemId) -> bool {
        self.unleased_items.get(&item) == Some(&0) && self.unleased_items.remove(&item).is_some()
    }

    /// Declares that no more items will be added.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns the number of items that wait to be leased.
    pub fn unleased_count(&self) -> usize {
        self.unleased_items.len()
    }

    /// Returns the number of items that workers hold.
    pub fn leased_count(&self) -> usize {
        self.leased_items.len()
    }

    /// Returns the number of items with a result.
    pub fn committed_count(&self) -> u64 {
        self.next_number - (self.unleased_items.len() + self.leased_items.len()) as u64
    }

    /// Reports whether every item has a result and no more will be added.
    pub fn is_finished(&self) -> bool {
        self.closed && self.unleased_items.is_empty() && self.leased_items.is_empty()
    }

    /// Reports whether an item has a result.
    pub fn is_committed(&self, item: ItemId) -> bool {
        item.0 < self.next_number && !self.unleased_items.contains_key(&item) && !self.leased_items.contains_key(&item)
    }

    /// Sets the age from which on items may be leased to a second worker: it may be known only when some are done.
    pub fn set_straggler_age(&mut self, age: Duration) {
        self.timeouts.straggler_age = age;
    }

    /// Requests an item for a worker, which may hold several at a time.
    pub fn request_item(&mut self, worker: &str, attempt: Attempt, now: Duration) -> LeaseResponse {
        self.request_suitable_item(worker, attempt, |_| true, now)
    }

    /// As [`Leases::request_item`], among suitable items: one that failed on a worker may succeed on another.
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

    /// Records that a worker is alive, which renews all its leases. Any other request does so too.
    ///
    /// # Errors
    /// The attempt of a later start of this worker, if one is known.
    pub fn heartbeat(&mut self, worker: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        self.record_contact(worker, attempt, now)
    }

    /// Commits the result of an item, which must be safe.
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

    /// Returns an item that its worker cannot complete. Returns whether the worker held it.
    pub fn return_item(&mut self, worker: &str, attempt: Attempt, item: ItemId, now: Duration) -> bool {
        if self.record_contact(worker, attempt, now).is_err() || !self.worker_holds_item(worker, item) {
            return false;
        }
        self.remove_from_worker(worker, item);
        self.requeue_item(worker, item);
        true
    }

    /// Removes a worker that leaves or was lost. Its items are leased again. Attempts below its last one stay fenced.
    pub fn remove_worker(&mut self, worker: &str) -> Vec<ItemId> {
        let Some(left) = self.workers.get_mut(worker) else { return Vec::new() };
        let items: Vec<ItemId> = std::mem::take(&mut left.items).into_iter().collect();
        self.deadlines.remove(&(left.deadline, worker.to_owned()));
        for item in &items {
            self.requeue_item(worker, *item);
        }
        items
    }

    /// Expires the leases of silent workers. Must be called at [`Leases::next_deadline`] at the latest.
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

    /// Returns the time at which the next worker counts as lost, unless it sends a message.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Reopens a committed item whose result was lost: it is leased again. Returns whether it was committed.
    pub fn reopen_item(&mut self, item: ItemId) -> bool {
        let committed = self.is_committed(item);
        if committed {
            // Late results need to know that it was leased before, not how often.
            self.unleased_items.insert(item, 1);
        }
        committed
    }

    /// Records a message of a worker.
    fn record_contact(&mut self, name: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        let known = self.workers.get(name).map(|worker| worker.attempt);
        match known {
            Some(current) if current > attempt => return Err(current),
            // The leases of the earlier start ended with it.
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
        let worker = self.workers.get_mut(name).expect("who asks was heard of");
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

    /// Returns the item that one other worker has held for longest. The scan skips the worker's own.
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

    /// Removes an item from a worker.
    fn remove_from_worker(&mut self, name: &str, item: ItemId) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.items.remove(&item);
        if worker.items.is_empty() {
            self.deadlines.remove(&(worker.deadline, name.to_owned()));
        }
    }

    /// Removes a holder of an item, which is requeued if that was the only one.
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

    /// Counts steps of linear scans, for the test of complexity.
    fn count_step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

#[cfg(test)]
mod tests;
