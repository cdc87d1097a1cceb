use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const STRAGGLER_AGE: Duration = Duration::from_secs(30);
const A: WorkerId = WorkerId(0);
const B: WorkerId = WorkerId(1);
const C: WorkerId = WorkerId(2);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn leases_with_items(count: u64) -> Leases {
    let mut leases = Leases::new(STRAGGLER_AGE);
    leases.add_items(count);
    leases.close();
    leases
}

/// Requests an item for `worker` and returns its number; `None` if no item is available.
fn lease_item_number(leases: &mut Leases, worker: WorkerId, now: u64) -> Option<u64> {
    leases.request_item(worker, seconds(now)).map(|lease| lease.item.0)
}

fn first_commit() -> CommitResult {
    CommitResult::First { other_workers: Vec::new() }
}

fn committed_count(leases: &Leases) -> u64 {
    leases.next_number - (leases.unleased_items.len() + leases.leased_items.len()) as u64
}

#[test]
fn items_are_leased_once_in_order_and_then_all_are_finished() {
    let mut leases = leases_with_items(3);
    let leased = [(A, 0), (B, 0), (A, 1), (B, 1)].map(|(worker, now)| lease_item_number(&mut leases, worker, now));
    assert_eq!(leased, [Some(0), Some(1), Some(2), None]);
    for (worker, number) in [(A, 2), (B, 1), (A, 0)] {
        assert!(!leases.is_finished());
        assert_eq!(leases.commit_item(worker, ItemId(number)), first_commit());
    }
    assert!(leases.is_finished() && committed_count(&leases) == 3);
    assert_eq!(leases.request_item(B, seconds(3)), None);
}

#[test]
fn an_item_that_does_not_suit_a_worker_waits_for_another_one() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, A, 0), Some(0));
    assert!(leases.return_item(A, ItemId(0)), "it failed there");
    let others = |item: ItemId| item != ItemId(0);
    let next = leases.request_suitable_item(A, others, seconds(1));
    assert_eq!(next, Some(Lease { item: ItemId(1), lease_count: 1 }));
    assert_eq!(leases.request_suitable_item(A, others, seconds(2)), None);
    let again = leases.request_suitable_item(B, |_| true, seconds(2));
    assert_eq!(again, Some(Lease { item: ItemId(0), lease_count: 2 }));
    // The item is now old enough, but it is not leased to a worker that it does not suit.
    leases.set_straggler_age(seconds(3));
    assert_eq!(leases.request_suitable_item(A, others, seconds(9)), None);
    let third = leases.request_suitable_item(A, |_| true, seconds(9));
    assert_eq!(third, Some(Lease { item: ItemId(0), lease_count: 3 }));
}

#[test]
fn a_worker_waits_while_items_may_still_be_added() {
    let mut leases = Leases::new(STRAGGLER_AGE);
    assert_eq!(lease_item_number(&mut leases, A, 0), None);
    assert_eq!(leases.add_items(2), 0..2);
    assert_eq!(lease_item_number(&mut leases, A, 0), Some(0));
    assert_eq!(leases.add_items(1), 2..3);
    assert_eq!((leases.unleased_count(), leases.leased_items.len(), committed_count(&leases)), (2, 1, 0));
    assert!(!leases.is_finished());
}

#[test]
fn the_items_of_a_lost_worker_are_leased_again_before_new_ones() {
    let mut leases = leases_with_items(4);
    let leased = [A, A, B].map(|worker| lease_item_number(&mut leases, worker, 0));
    assert_eq!(leased, [Some(0), Some(1), Some(2)]);
    assert_eq!(leases.remove_worker(A), [ItemId(0), ItemId(1)]);
    assert_eq!(leases.remove_worker(A), []);
    assert_eq!(leases.request_item(C, seconds(19)), Some(Lease { item: ItemId(0), lease_count: 2 }));
    let rest = [C, C, C].map(|worker| lease_item_number(&mut leases, worker, 19));
    assert_eq!(rest, [Some(1), Some(3), None]);
}

#[test]
fn a_result_that_comes_after_the_lease_counts_if_it_is_the_first() {
    let mut leases = leases_with_items(2);
    assert_eq!([A, A].map(|worker| lease_item_number(&mut leases, worker, 0)), [Some(0), Some(1)]);
    leases.remove_worker(A);
    assert_eq!(leases.commit_item(A, ItemId(0)), first_commit());
    assert_eq!(lease_item_number(&mut leases, B, 12), Some(1));
    assert_eq!(leases.commit_item(A, ItemId(1)), CommitResult::First { other_workers: vec![B] });
    assert_eq!(leases.commit_item(B, ItemId(1)), CommitResult::Late);
    assert!(leases.is_finished());
}

#[test]
fn an_idle_worker_gets_the_oldest_item_of_another_once() {
    let (mut leases, slow, idle, third) = (leases_with_items(2), A, B, C);
    assert_eq!(lease_item_number(&mut leases, slow, 0), Some(0));
    assert_eq!(lease_item_number(&mut leases, slow, 5), Some(1));
    assert_eq!(lease_item_number(&mut leases, idle, 29), None);
    assert_eq!(lease_item_number(&mut leases, slow, 30), None, "not its own");
    assert_eq!(lease_item_number(&mut leases, idle, 30), Some(0));
    assert_eq!(lease_item_number(&mut leases, third, 31), None, "no third copy");
    assert_eq!(leases.commit_item(idle, ItemId(0)), CommitResult::First { other_workers: vec![slow] });
    assert_eq!(leases.commit_item(slow, ItemId(0)), CommitResult::Late);
    // When one of two workers that hold an item is lost, the other one keeps the item.
    assert_eq!(lease_item_number(&mut leases, idle, 35), Some(1));
    assert_eq!(leases.remove_worker(slow), [ItemId(1)]);
    assert_eq!((leases.unleased_count(), leases.leased_items.len()), (0, 1));
    leases.remove_worker(idle);
    assert_eq!((leases.unleased_count(), leases.leased_items.len()), (1, 0));
}

#[test]
fn items_can_be_returned_and_results_can_be_lost() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, A, 0), Some(0));
    assert!(leases.return_item(A, ItemId(0)));
    assert!(!leases.return_item(A, ItemId(0)));
    assert_eq!(lease_item_number(&mut leases, B, 1), Some(0), "before what is new");
    assert!(!leases.reopen_item(ItemId(0)) && !leases.reopen_item(ItemId(1)) && !leases.reopen_item(ItemId(2)));
    assert_eq!(leases.commit_item(B, ItemId(0)), first_commit());
    assert!(leases.is_committed(ItemId(0)) && leases.reopen_item(ItemId(0)) && !leases.is_committed(ItemId(0)));
    assert_eq!(lease_item_number(&mut leases, B, 2), Some(0));
}

#[test]
fn items_marked_committed_are_never_leased() {
    let mut leases = leases_with_items(3);
    assert!(leases.mark_committed(ItemId(1)) && !leases.mark_committed(ItemId(1)) && !leases.mark_committed(ItemId(7)));
    assert_eq!([A, A].map(|worker| lease_item_number(&mut leases, worker, 0)), [Some(0), Some(2)]);
    assert!(!leases.mark_committed(ItemId(0)), "it was handed out");
    assert!(leases.is_committed(ItemId(1)) && !leases.is_finished());
    assert_eq!(leases.commit_item(A, ItemId(0)), first_commit());
    assert_eq!(leases.commit_item(A, ItemId(2)), first_commit());
    assert!(leases.is_finished());
}

#[test]
fn results_of_items_that_were_never_leased_are_refused() {
    let mut leases = leases_with_items(1);
    assert_eq!(leases.commit_item(A, ItemId(0)), CommitResult::NeverLeased);
    assert_eq!(leases.commit_item(A, ItemId(1)), CommitResult::NeverLeased);
    assert_eq!(committed_count(&leases), 0);
}

/// SplitMix64, a pseudorandom number generator (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Simulated workers, which are slow, are lost, and return items at random.
struct SimulatedWorkers {
    random: Random,
    leases: Leases,
    /// Number of commits with [`CommitResult::First`] for each item.
    commits: BTreeMap<ItemId, u32>,
    /// Future events: time in ms (in `Reverse`, so that the earliest is first), worker, and event.
    events: BinaryHeap<std::cmp::Reverse<(u64, WorkerId, Event)>>,
    items: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request,
    Done(ItemId),
    Returned(ItemId),
    Lost,
}

impl SimulatedWorkers {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (items, workers) = (random.below(60), 1 + random.below(8) as u32);
        let leases = leases_with_items(items);
        let events = (0..workers).map(|worker| std::cmp::Reverse((0, WorkerId(worker), Event::Request))).collect();
        Self { random, leases, commits: BTreeMap::new(), events, items }
    }

    fn push_event(&mut self, now: u64, delay: u64, worker: WorkerId, event: Event) {
        self.events.push(std::cmp::Reverse((now + delay, worker, event)));
    }

    /// Processes all events. Worker 0 never fails, so that all items are committed in the end.
    fn run(&mut self) {
        let mut turns = 0;
        while let Some(std::cmp::Reverse((now, worker, event))) = self.events.pop() {
            turns += 1;
            assert!(turns < 1_000_000, "it goes on for ever");
            match event {
                Event::Request => self.request_item(now, worker),
                Event::Done(item) => self.commit_item(now, worker, item),
                Event::Returned(item) => {
                    self.leases.return_item(worker, item);
                    self.push_event(now, 0, worker, Event::Request);
                }
                Event::Lost => drop(self.leases.remove_worker(worker)),
            }
            self.check_invariants();
        }
    }

    fn request_item(&mut self, now: u64, worker: WorkerId) {
        let waiting = self.leases.unleased_count();
        match self.leases.request_item(worker, Duration::from_millis(now)) {
            Some(lease) => self.simulate_item(now, worker, lease.item),
            None if self.leases.is_finished() => {}
            None => {
                assert_eq!(waiting, 0, "no worker waits while there is work");
                self.push_event(now, 1000, worker, Event::Request);
            }
        }
    }

    /// Chooses at random how a worker processes an item, and adds the resulting events.
    fn simulate_item(&mut self, now: u64, worker: WorkerId, item: ItemId) {
        let luck = if worker == WorkerId(0) { 0 } else { self.random.below(10) };
        let normal = 500 + self.random.below(4000);
        match luck {
            // The worker is lost, and works again either much later or immediately. A late result may arrive.
            8 | 9 => {
                let delay = if luck == 8 { 20_000 } else { 100 };
                self.push_event(now, 50, worker, Event::Lost);
                self.push_event(now, delay, worker, Event::Request);
                self.push_event(now, delay + 50, worker, Event::Done(item));
            }
            7 => self.push_event(now, normal, worker, Event::Returned(item)),
            // The worker is slow.
            5 | 6 => self.push_event(now, 60_000, worker, Event::Done(item)),
            _ => self.push_event(now, normal, worker, Event::Done(item)),
        }
    }

    fn commit_item(&mut self, now: u64, worker: WorkerId, item: ItemId) {
        match self.leases.commit_item(worker, item) {
            CommitResult::First { other_workers } => {
                assert!(!other_workers.contains(&worker));
                *self.commits.entry(item).or_default() += 1;
            }
            CommitResult::Late => {}
            CommitResult::NeverLeased => panic!("it was handed out"),
        }
        self.push_event(now, 0, worker, Event::Request);
    }

    /// Checks the invariants of the leases, which must hold after every event.
    fn check_invariants(&self) {
        let leases = &self.leases;
        assert_eq!(committed_count(leases), self.commits.len() as u64);
        for (item, out) in &leases.leased_items {
            assert!((1..=2).contains(&out.workers.len()) && !leases.unleased_items.contains_key(item));
            assert!(out.workers.iter().all(|holder| leases.held_items[holder].contains(item)));
            assert_eq!(leases.single_holder_items.contains(&(out.first_leased_at, *item)), out.workers.len() == 1);
        }
        let held: usize = leases.held_items.values().map(BTreeSet::len).sum();
        assert_eq!(held, leases.leased_items.values().map(|out| out.workers.len()).sum::<usize>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whatever_workers_do_every_item_is_committed_exactly_once(seed in any::<u64>()) {
        let mut schedule = SimulatedWorkers::new(seed);
        schedule.run();
        prop_assert!(schedule.leases.is_finished());
        prop_assert_eq!(schedule.commits.len() as u64, schedule.items);
        prop_assert!(schedule.commits.values().all(|count| *count == 1));
    }
}

#[test]
fn a_hundred_thousand_items_take_a_few_steps_each() {
    const ITEMS: u64 = 100_000;
    const WORKERS: u64 = 64;
    let mut leases = leases_with_items(ITEMS);
    let start = Instant::now();
    let mut held: Vec<Vec<ItemId>> = vec![Vec::new(); WORKERS as usize];
    let mut random = Random(7);
    let mut now = Duration::ZERO;
    while !leases.is_finished() {
        let worker = random.below(WORKERS) as usize;
        let id = WorkerId(worker as u32);
        now += Duration::from_micros(200);
        held[worker].extend(leases.request_item(id, now).map(|lease| lease.item));
        // With a probability of 1/50, the worker is removed and loses all its items. Otherwise it holds at most four
        // items.
        if random.below(50) == 0 {
            leases.remove_worker(id);
            held[worker].clear();
        }
        while held[worker].len() > 3 || (leases.unleased_count() == 0 && !held[worker].is_empty()) {
            leases.commit_item(id, held[worker].remove(0));
        }
    }
    let per_item = start.elapsed().as_secs_f64() * 1e6 / ITEMS as f64;
    eprintln!(
        "{ITEMS} items, {WORKERS} workers: {per_item:.2} us and {:.2} steps an item",
        leases.steps as f64 / ITEMS as f64
    );
    assert!(leases.steps < 4 * ITEMS, "{} steps", leases.steps);
    assert_eq!(committed_count(&leases), ITEMS);
}
