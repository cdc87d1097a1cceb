//! Who works on what: numbered items of work, handed to named workers for a time.
//!
//! In: what workers say, and the time. Out: what to tell them. Nothing here reads a clock or a socket, so that a
//! simulation can run it as it is. Times are counted from any one moment.
//!
//! - Items are handed out in the order of their numbers. What comes back is handed out before what is new.
//! - A worker that is silent for a lease's length is taken for dead, and its items are handed out again. It may come back.
//! - When nothing is left to hand out, items that take long are handed to a second worker. The first commit wins, whoever it
//!   comes from, for any two results of an item are the same bytes.
//! - A worker that was started again has a higher attempt. What is said by a lower one is refused.
//!
//! It does *not* know what an item is, nor where its result lies: one whose result was lost is [reopened](Leases::reopen).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::time::Duration;

/// Number of an item, from 0 on in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(pub u64);

/// Which start of a worker speaks. Higher ones replace lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt(pub u64);

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Silence after which a worker is taken for dead. Several heartbeats' worth.
    pub lease: Duration,
    /// Age of a lease from which on an idle worker may get its item too.
    pub straggler_after: Duration,
}

/// What a worker gets that asks for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This item.
    Work {
        /// Its number.
        item: ItemId,
        /// How often it was handed out, this time included. An item that kills whoever takes it has a high one.
        issue: u32,
        /// Until when the worker has to be heard of again.
        deadline: Duration,
    },
    /// Nothing now. Ask again when something changed, or at that time.
    Wait {
        /// When an item may become free without anybody saying anything.
        until: Option<Duration>,
    },
    /// All items are committed, and no more will come.
    Finished,
    /// A later start of this worker was heard of.
    Fenced {
        /// Its attempt.
        current: Attempt,
    },
}

/// What becomes of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    /// It is the item's result.
    First {
        /// Others that work on it, and may stop.
        others: Vec<String>,
    },
    /// The item had one already. Throw this one away.
    Late,
    /// A later start of this worker was heard of. Throw it away.
    Fenced {
        /// Its attempt.
        current: Attempt,
    },
    /// The item was never handed out: somebody is confused.
    NeverIssued,
}

/// A worker that was silent for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Its name.
    pub worker: String,
    /// The items it had, in order; those nobody else works on will be handed out again.
    pub items: Vec<ItemId>,
}

/// The state of all items and workers.
pub struct Leases {
    terms: Terms,
    /// Items are numbered below this.
    end: u64,
    closed: bool,
    /// Items to be handed out, and how often they were. Those below `end` that are neither here nor in `out` are committed.
    queue: BTreeMap<ItemId, u32>,
    /// Items somebody works on.
    out: BTreeMap<ItemId, Out>,
    /// Those one worker works on, oldest first.
    single: BTreeSet<(Duration, ItemId)>,
    workers: HashMap<String, Worker>,
    /// Workers that hold items, by the end of their patience.
    deadlines: BTreeSet<(Duration, String)>,
    #[cfg(test)]
    steps: u64,
}

/// An item that was handed out.
struct Out {
    /// To one or two workers.
    holders: Vec<String>,
    issue: u32,
    /// When it was handed out first.
    since: Duration,
}

struct Worker {
    attempt: Attempt,
    deadline: Duration,
    items: BTreeSet<ItemId>,
}

impl Leases {
    /// No items, no workers.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            end: 0,
            closed: false,
            queue: BTreeMap::new(),
            out: BTreeMap::new(),
            single: BTreeSet::new(),
            workers: HashMap::new(),
            deadlines: BTreeSet::new(),
            #[cfg(test)]
            steps: 0,
        }
    }

    /// Adds that many items. Returns their numbers.
    pub fn add(&mut self, count: u64) -> Range<u64> {
        let added = self.end..self.end.saturating_add(count);
        self.end = added.end;
        self.queue.extend(added.clone().map(|number| (ItemId(number), 0)));
        added
    }

    /// An item that was added and never handed out has a result already, from before. Returns whether it was there.
    pub fn settle(&mut self, item: ItemId) -> bool {
        self.queue.get(&item) == Some(&0) && self.queue.remove(&item).is_some()
    }

    /// Says that no more items will be added.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Items that wait to be handed out.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Items somebody works on.
    pub fn outstanding(&self) -> usize {
        self.out.len()
    }

    /// Items with a result.
    pub fn committed(&self) -> u64 {
        self.end - (self.queue.len() + self.out.len()) as u64
    }

    /// Whether every item has a result and no more will come.
    pub fn is_finished(&self) -> bool {
        self.closed && self.queue.is_empty() && self.out.is_empty()
    }

    /// Whether the item has a result.
    pub fn is_committed(&self, item: ItemId) -> bool {
        item.0 < self.end && !self.queue.contains_key(&item) && !self.out.contains_key(&item)
    }

    /// From now on items that are that old may be given to a second worker: what is old may be known only when some are done.
    pub fn set_straggler_after(&mut self, age: Duration) {
        self.terms.straggler_after = age;
    }

    /// A worker asks for work. It may hold several items at a time.
    pub fn ask(&mut self, worker: &str, attempt: Attempt, now: Duration) -> Answer {
        self.ask_for(worker, attempt, |_| true, now)
    }

    /// As [`Leases::ask`], for a worker that not every item suits: one that failed there may do better elsewhere.
    pub fn ask_for(&mut self, worker: &str, attempt: Attempt, suits: impl Fn(ItemId) -> bool, now: Duration) -> Answer {
        if let Err(current) = self.hear(worker, attempt, now) {
            return Answer::Fenced { current };
        }
        let waiting = self.queue.iter().find(|(item, _)| suits(**item)).map(|(item, issued)| (*item, *issued));
        if let Some((item, issued)) = waiting {
            self.queue.remove(&item);
            return self.hand_out(worker, item, issued + 1, now);
        }
        if self.is_finished() {
            return Answer::Finished;
        }
        match self.oldest_of_others(worker, suits) {
            Some((since, item)) if since.saturating_add(self.terms.straggler_after) <= now => {
                let issued = self.out.get(&item).map_or(0, |out| out.issue);
                self.hand_out(worker, item, issued + 1, now)
            }
            straggler => {
                let ripe = straggler.map(|(since, _)| since.saturating_add(self.terms.straggler_after));
                Answer::Wait { until: ripe.into_iter().chain(self.next_deadline()).min() }
            }
        }
    }

    /// A worker says that it lives, which is good for all its items. Anything else it says is as good.
    ///
    /// # Errors
    /// The attempt of a later start of this worker, if one was heard of.
    pub fn heartbeat(&mut self, worker: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        self.hear(worker, attempt, now)
    }

    /// A worker says that the result of an item is safe.
    pub fn commit(&mut self, worker: &str, attempt: Attempt, item: ItemId, now: Duration) -> Commit {
        if let Err(current) = self.hear(worker, attempt, now) {
            return Commit::Fenced { current };
        }
        if item.0 >= self.end || self.queue.get(&item) == Some(&0) {
            return Commit::NeverIssued;
        }
        if self.queue.remove(&item).is_some() {
            return Commit::First { others: Vec::new() };
        }
        let Some(out) = self.out.remove(&item) else { return Commit::Late };
        self.single.remove(&(out.since, item));
        for holder in &out.holders {
            self.drop_item(holder, item);
        }
        Commit::First { others: out.holders.into_iter().filter(|holder| holder != worker).collect() }
    }

    /// A worker gives an item back that it cannot do. Returns whether it had it.
    pub fn give_back(&mut self, worker: &str, attempt: Attempt, item: ItemId, now: Duration) -> bool {
        if self.hear(worker, attempt, now).is_err() || !self.holds(worker, item) {
            return false;
        }
        self.drop_item(worker, item);
        self.take_back(worker, item);
        true
    }

    /// A worker goes, by itself or because somebody saw it die. Its items are handed out again. Attempts below its last one
    /// stay fenced.
    pub fn leave(&mut self, worker: &str) -> Vec<ItemId> {
        let Some(left) = self.workers.get_mut(worker) else { return Vec::new() };
        let items: Vec<ItemId> = std::mem::take(&mut left.items).into_iter().collect();
        self.deadlines.remove(&(left.deadline, worker.to_owned()));
        for item in &items {
            self.take_back(worker, *item);
        }
        items
    }

    /// Takes back what workers hold that were silent for too long. To be called at [`Leases::next_deadline`] at the latest.
    pub fn expire(&mut self, now: Duration) -> Vec<Expired> {
        let mut expired = Vec::new();
        while let Some((deadline, worker)) = self.deadlines.first().cloned() {
            self.count_step();
            if deadline > now {
                break;
            }
            let items = self.leave(&worker);
            expired.push(Expired { worker, items });
        }
        expired
    }

    /// When the next worker is taken for dead, unless it is heard of.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// The result of a committed item was lost: it is handed out again. Returns whether it was committed.
    pub fn reopen(&mut self, item: ItemId) -> bool {
        let committed = self.is_committed(item);
        if committed {
            // That it was handed out before matters for results that come late; how often does not.
            self.queue.insert(item, 1);
        }
        committed
    }

    /// Takes note of a worker's sign of life.
    fn hear(&mut self, name: &str, attempt: Attempt, now: Duration) -> Result<(), Attempt> {
        let known = self.workers.get(name).map(|worker| worker.attempt);
        match known {
            Some(current) if current > attempt => return Err(current),
            // What the earlier start had, died with it.
            Some(current) if current < attempt => drop(self.leave(name)),
            _ => {}
        }
        let deadline = now.saturating_add(self.terms.lease);
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

    fn hand_out(&mut self, name: &str, item: ItemId, issue: u32, now: Duration) -> Answer {
        let worker = self.workers.get_mut(name).expect("who asks was heard of");
        worker.items.insert(item);
        let deadline = worker.deadline;
        self.deadlines.insert((deadline, name.to_owned()));
        let out = self.out.entry(item).or_insert_with(|| Out { holders: Vec::new(), issue, since: now });
        out.issue = issue;
        out.holders.push(name.to_owned());
        let key = (out.since, item);
        if out.holders.len() == 1 {
            self.single.insert(key);
        } else {
            self.single.remove(&key);
        }
        Answer::Work { item, issue, deadline }
    }

    /// The item that one other worker has had for longest. Of the worker's own, at most as many are passed over as it has.
    fn oldest_of_others(&mut self, name: &str, suits: impl Fn(ItemId) -> bool) -> Option<(Duration, ItemId)> {
        let own = &self.workers.get(name)?.items;
        let passed = self.single.iter().take_while(|(_, item)| own.contains(item) || !suits(*item)).count();
        #[cfg(test)]
        {
            self.steps += passed as u64;
        }
        self.single.iter().nth(passed).copied()
    }

    fn holds(&self, name: &str, item: ItemId) -> bool {
        self.workers.get(name).is_some_and(|worker| worker.items.contains(&item))
    }

    /// The worker has the item no longer.
    fn drop_item(&mut self, name: &str, item: ItemId) {
        let Some(worker) = self.workers.get_mut(name) else { return };
        worker.items.remove(&item);
        if worker.items.is_empty() {
            self.deadlines.remove(&(worker.deadline, name.to_owned()));
        }
    }

    /// The item has this holder no longer, and goes back to the queue if that was the only one.
    fn take_back(&mut self, name: &str, item: ItemId) {
        self.count_step();
        let Some(out) = self.out.get_mut(&item) else { return };
        out.holders.retain(|holder| holder != name);
        if out.holders.is_empty() {
            let (since, issue) = (out.since, out.issue);
            self.single.remove(&(since, item));
            self.out.remove(&item);
            self.queue.insert(item, issue);
        } else {
            self.single.insert((out.since, item));
        }
    }

    /// Counts what is looked at one by one, for the test of how the work grows.
    fn count_step(&mut self) {
        #[cfg(test)]
        {
            self.steps += 1;
        }
    }
}

#[cfg(test)]
mod tests;
