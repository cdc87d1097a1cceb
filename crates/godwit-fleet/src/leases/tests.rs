use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const TIMEOUTS: LeaseTimeouts =
    LeaseTimeouts { lease_duration: Duration::from_secs(10), straggler_age: Duration::from_secs(30) };
const FIRST_ATTEMPT: Attempt = Attempt(0);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn leases_with_items(count: u64) -> Leases {
    let mut leases = Leases::new(TIMEOUTS);
    leases.add_items(count);
    leases.close();
    leases
}

/// Requests an item for `worker` and returns its number. Fails if no item is leased.
fn lease_item_number(leases: &mut Leases, worker: &str, now: u64) -> u64 {
    match leases.request_item(worker, FIRST_ATTEMPT, seconds(now)) {
        LeaseResponse::Lease { item, .. } => item.0,
        other => panic!("{worker} got {other:?}"),
    }
}

fn first_commit() -> CommitResult {
    CommitResult::First { other_workers: Vec::new() }
}

#[test]
fn items_are_leased_once_in_order_and_then_all_are_finished() {
    let mut leases = leases_with_items(3);
    assert_eq!(
        [
            lease_item_number(&mut leases, "a", 0),
            lease_item_number(&mut leases, "b", 0),
            lease_item_number(&mut leases, "a", 1)
        ],
        [0, 1, 2]
    );
    assert_eq!(leases.request_item("b", FIRST_ATTEMPT, seconds(1)), LeaseResponse::Wait { until: Some(seconds(11)) });
    for (worker, number) in [("a", 2), ("b", 1), ("a", 0)] {
        assert!(!leases.is_finished());
        assert_eq!(leases.commit_item(worker, FIRST_ATTEMPT, ItemId(number), seconds(2)), first_commit());
    }
    assert!(leases.is_finished() && leases.committed_count() == 3);
    assert_eq!(leases.request_item("b", FIRST_ATTEMPT, seconds(3)), LeaseResponse::Finished);
    assert_eq!(leases.next_deadline(), None, "no worker has a lease");
}

#[test]
fn an_item_that_does_not_suit_a_worker_waits_for_another_one() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 0);
    assert!(leases.return_item("a", FIRST_ATTEMPT, ItemId(0), seconds(1)), "it failed there");
    let others = |item: ItemId| item != ItemId(0);
    let next = leases.request_suitable_item("a", FIRST_ATTEMPT, others, seconds(1));
    assert_eq!(next, LeaseResponse::Lease { item: ItemId(1), lease_count: 1, deadline: seconds(11) });
    assert_eq!(
        leases.request_suitable_item("a", FIRST_ATTEMPT, others, seconds(2)),
        LeaseResponse::Wait { until: Some(seconds(12)) }
    );
    let again = leases.request_suitable_item("b", FIRST_ATTEMPT, |_| true, seconds(2));
    assert_eq!(again, LeaseResponse::Lease { item: ItemId(0), lease_count: 2, deadline: seconds(12) });
    // The item is now old enough, but it is not leased again to a worker that already holds it.
    leases.set_straggler_age(seconds(3));
    assert_eq!(
        leases.request_suitable_item("a", FIRST_ATTEMPT, others, seconds(9)),
        LeaseResponse::Wait { until: Some(seconds(12)) }
    );
    let third = leases.request_suitable_item("a", FIRST_ATTEMPT, |_| true, seconds(9));
    assert_eq!(third, LeaseResponse::Lease { item: ItemId(0), lease_count: 3, deadline: seconds(19) });
}

#[test]
fn a_worker_waits_while_items_may_still_be_added() {
    let mut leases = Leases::new(TIMEOUTS);
    assert_eq!(leases.request_item("a", FIRST_ATTEMPT, seconds(0)), LeaseResponse::Wait { until: None });
    assert_eq!(leases.add_items(2), 0..2);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 0);
    assert_eq!(leases.add_items(1), 2..3);
    assert_eq!((leases.unleased_count(), leases.leased_count(), leases.committed_count()), (2, 1, 0));
}

#[test]
fn heartbeats_keep_all_items_of_a_worker_and_silence_loses_them() {
    let mut leases = leases_with_items(4);
    let _ = (
        lease_item_number(&mut leases, "a", 0),
        lease_item_number(&mut leases, "a", 0),
        lease_item_number(&mut leases, "b", 0),
    );
    leases.heartbeat("a", FIRST_ATTEMPT, seconds(9)).unwrap();
    assert_eq!(leases.next_deadline(), Some(seconds(10)));
    assert_eq!(leases.expire_workers(seconds(10)), [ExpiredWorker { name: "b".into(), items: vec![ItemId(2)] }]);
    assert_eq!(leases.expire_workers(seconds(18)), []);
    let lost = ExpiredWorker { name: "a".into(), items: vec![ItemId(0), ItemId(1)] };
    assert_eq!(leases.expire_workers(seconds(19)), [lost]);
    let again = leases.request_item("c", FIRST_ATTEMPT, seconds(19));
    assert_eq!(again, LeaseResponse::Lease { item: ItemId(0), lease_count: 2, deadline: seconds(29) });
    assert_eq!(
        [
            lease_item_number(&mut leases, "c", 19),
            lease_item_number(&mut leases, "c", 19),
            lease_item_number(&mut leases, "c", 19)
        ],
        [1, 2, 3]
    );
}

#[test]
fn a_result_that_comes_after_the_lease_counts_if_it_is_the_first() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 0);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 1);
    leases.expire_workers(seconds(10));
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(0), seconds(11)), first_commit());
    assert_eq!(lease_item_number(&mut leases, "b", 12), 1);
    assert_eq!(
        leases.commit_item("a", FIRST_ATTEMPT, ItemId(1), seconds(13)),
        CommitResult::First { other_workers: vec!["b".into()] }
    );
    assert_eq!(leases.commit_item("b", FIRST_ATTEMPT, ItemId(1), seconds(14)), CommitResult::Late);
    assert!(leases.is_finished());
}

#[test]
fn an_idle_worker_gets_the_oldest_item_of_another_once() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, "slow", 0), 0);
    assert_eq!(lease_item_number(&mut leases, "slow", 5), 1);
    leases.heartbeat("slow", FIRST_ATTEMPT, seconds(29)).unwrap();
    assert_eq!(
        leases.request_item("idle", FIRST_ATTEMPT, seconds(29)),
        LeaseResponse::Wait { until: Some(seconds(30)) }
    );
    assert_eq!(
        leases.request_item("slow", FIRST_ATTEMPT, seconds(30)),
        LeaseResponse::Wait { until: Some(seconds(40)) },
        "not its own"
    );
    assert_eq!(lease_item_number(&mut leases, "idle", 30), 0);
    assert_eq!(
        leases.request_item("third", FIRST_ATTEMPT, seconds(31)),
        LeaseResponse::Wait { until: Some(seconds(35)) },
        "no third copy"
    );
    assert_eq!(
        leases.commit_item("idle", FIRST_ATTEMPT, ItemId(0), seconds(32)),
        CommitResult::First { other_workers: vec!["slow".into()] }
    );
    assert_eq!(leases.commit_item("slow", FIRST_ATTEMPT, ItemId(0), seconds(33)), CommitResult::Late);
    // When one of two workers that hold an item is lost, the other one keeps the item.
    assert_eq!(lease_item_number(&mut leases, "idle", 35), 1);
    assert_eq!(leases.remove_worker("slow"), [ItemId(1)]);
    assert_eq!((leases.unleased_count(), leases.leased_count()), (0, 1));
    leases.remove_worker("idle");
    assert_eq!((leases.unleased_count(), leases.leased_count()), (1, 0));
}

#[test]
fn a_later_start_fences_the_earlier_one_and_takes_over_at_once() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 0);
    let later = Attempt(1);
    let again = leases.request_item("a", later, seconds(1));
    assert_eq!(again, LeaseResponse::Lease { item: ItemId(0), lease_count: 2, deadline: seconds(11) });
    assert_eq!(leases.request_item("a", FIRST_ATTEMPT, seconds(2)), LeaseResponse::Fenced { current: later });
    assert_eq!(leases.heartbeat("a", FIRST_ATTEMPT, seconds(2)), Err(later));
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(0), seconds(2)), CommitResult::Fenced { current: later });
    assert!(!leases.return_item("a", FIRST_ATTEMPT, ItemId(0), seconds(2)));
    assert_eq!(leases.next_deadline(), Some(seconds(11)), "the earlier start keeps nothing alive");
    leases.remove_worker("a");
    assert_eq!(leases.heartbeat("a", FIRST_ATTEMPT, seconds(3)), Err(later), "nor does it come back");
    assert_eq!(leases.commit_item("a", later, ItemId(0), seconds(3)), first_commit());
}

#[test]
fn items_can_be_returned_and_results_can_be_lost() {
    let mut leases = leases_with_items(2);
    assert_eq!(lease_item_number(&mut leases, "a", 0), 0);
    assert!(leases.return_item("a", FIRST_ATTEMPT, ItemId(0), seconds(1)));
    assert!(!leases.return_item("a", FIRST_ATTEMPT, ItemId(0), seconds(1)));
    assert_eq!(lease_item_number(&mut leases, "b", 1), 0, "before what is new");
    assert!(!leases.reopen_item(ItemId(0)) && !leases.reopen_item(ItemId(1)) && !leases.reopen_item(ItemId(2)));
    assert_eq!(leases.commit_item("b", FIRST_ATTEMPT, ItemId(0), seconds(2)), first_commit());
    assert!(leases.is_committed(ItemId(0)) && leases.reopen_item(ItemId(0)) && !leases.is_committed(ItemId(0)));
    assert_eq!(lease_item_number(&mut leases, "b", 2), 0);
}

#[test]
fn items_marked_committed_are_never_leased() {
    let mut leases = leases_with_items(3);
    assert!(leases.mark_committed(ItemId(1)) && !leases.mark_committed(ItemId(1)) && !leases.mark_committed(ItemId(7)));
    assert_eq!([lease_item_number(&mut leases, "a", 0), lease_item_number(&mut leases, "a", 0)], [0, 2]);
    assert!(!leases.mark_committed(ItemId(0)), "it was handed out");
    assert!(leases.is_committed(ItemId(1)) && !leases.is_finished());
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(0), seconds(1)), first_commit());
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(2), seconds(1)), first_commit());
    assert!(leases.is_finished());
}

#[test]
fn results_of_items_that_were_never_leased_are_refused() {
    let mut leases = leases_with_items(1);
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(0), seconds(0)), CommitResult::NeverLeased);
    assert_eq!(leases.commit_item("a", FIRST_ATTEMPT, ItemId(1), seconds(0)), CommitResult::NeverLeased);
    assert_eq!(leases.committed_count(), 0);
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

/// Simulated workers, which are slow, fail, hang, resume and restart at random.
struct SimulatedWorkers {
    random: Random,
    leases: Leases,
    /// Number of commits with [`CommitResult::First`] for each item.
    commits: BTreeMap<ItemId, u32>,
    /// Future events: time in ms (in `Reverse`, so that the earliest is first), index of the worker, and event.
    events: BinaryHeap<std::cmp::Reverse<(u64, usize, Event)>>,
    attempts: Vec<u64>,
    items: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request(u64),
    Done(u64, ItemId),
    Heartbeat(u64),
}

impl SimulatedWorkers {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (items, workers) = (random.below(60), 1 + random.below(8) as usize);
        let mut leases = Leases::new(TIMEOUTS);
        leases.add_items(items);
        leases.close();
        let events = (0..workers).map(|worker| std::cmp::Reverse((0, worker, Event::Request(0)))).collect();
        Self { random, leases, commits: BTreeMap::new(), events, attempts: vec![0; workers], items }
    }

    fn push_event(&mut self, now: u64, delay: u64, worker: usize, event: Event) {
        self.events.push(std::cmp::Reverse((now + delay, worker, event)));
    }

    /// Processes all events. Worker 0 never fails, so that all items are committed in the end.
    fn run(&mut self) {
        let mut turns = 0;
        while let Some(std::cmp::Reverse((now, worker, event))) = self.events.pop() {
            turns += 1;
            assert!(turns < 1_000_000, "it goes on for ever");
            self.leases.expire_workers(Duration::from_millis(now));
            match event {
                Event::Request(attempt) => self.request_item(now, worker, attempt),
                Event::Done(attempt, item) => self.commit_item(now, worker, attempt, item),
                Event::Heartbeat(attempt) => {
                    let name = worker.to_string();
                    let heard = self.leases.heartbeat(&name, Attempt(attempt), Duration::from_millis(now));
                    assert_eq!(heard.is_ok(), attempt == self.attempts[worker]);
                }
            }
            self.check_invariants();
        }
    }

    fn request_item(&mut self, now: u64, worker: usize, attempt: u64) {
        let waiting = self.leases.unleased_count();
        match self.leases.request_item(&worker.to_string(), Attempt(attempt), Duration::from_millis(now)) {
            LeaseResponse::Lease { item, .. } => self.simulate_item(now, worker, attempt, item),
            LeaseResponse::Wait { until } => {
                assert_eq!(waiting, 0, "no worker waits while there is work");
                let until = until.expect("a worker waits only while another one works").as_millis() as u64;
                assert!(until > now);
                self.push_event(now, (until - now).min(1000), worker, Event::Request(attempt));
            }
            LeaseResponse::Finished => {}
            LeaseResponse::Fenced { current } => assert!(current.0 > attempt),
        }
    }

    /// Chooses at random how a worker processes an item, and adds the resulting events.
    fn simulate_item(&mut self, now: u64, worker: usize, attempt: u64, item: ItemId) {
        let luck = if worker == 0 { 0 } else { self.random.below(10) };
        let normal = 500 + self.random.below(4000);
        match luck {
            // The worker fails, and restarts either much later or immediately.
            8 | 9 => {
                self.attempts[worker] += 1;
                let delay = if luck == 8 { 20_000 } else { 100 };
                self.push_event(now, delay, worker, Event::Request(attempt + 1));
                self.push_event(now, delay + 50, worker, Event::Done(attempt, item));
            }
            // The worker hangs and sends no heartbeats, but commits the item later.
            7 => self.push_event(now, 25_000, worker, Event::Done(attempt, item)),
            // The worker is slow, but sends heartbeats.
            5 | 6 => {
                (1..12).for_each(|beat| self.push_event(now, beat * 5000, worker, Event::Heartbeat(attempt)));
                self.push_event(now, 60_000, worker, Event::Done(attempt, item));
            }
            _ => self.push_event(now, normal, worker, Event::Done(attempt, item)),
        }
    }

    fn commit_item(&mut self, now: u64, worker: usize, attempt: u64, item: ItemId) {
        let name = worker.to_string();
        let fenced = attempt < self.attempts[worker];
        match self.leases.commit_item(&name, Attempt(attempt), item, Duration::from_millis(now)) {
            CommitResult::First { other_workers } => {
                assert!(!fenced && !other_workers.contains(&name));
                *self.commits.entry(item).or_default() += 1;
            }
            CommitResult::Late => assert!(!fenced),
            CommitResult::Fenced { .. } => return assert!(fenced),
            CommitResult::NeverLeased => panic!("it was handed out"),
        }
        self.push_event(now, 0, worker, Event::Request(attempt));
    }

    /// Checks the invariants of the leases, which must hold after every event.
    fn check_invariants(&self) {
        let leases = &self.leases;
        assert_eq!(leases.committed_count(), self.commits.len() as u64);
        for (item, out) in &leases.leased_items {
            assert!((1..=2).contains(&out.workers.len()) && !leases.unleased_items.contains_key(item));
            assert!(out.workers.iter().all(|holder| leases.worker_holds_item(holder, *item)));
            assert_eq!(leases.single_holder_items.contains(&(out.first_leased_at, *item)), out.workers.len() == 1);
        }
        let held: usize = leases.workers.values().map(|worker| worker.items.len()).sum();
        assert_eq!(held, leases.leased_items.values().map(|out| out.workers.len()).sum::<usize>());
        let holding = leases.workers.iter().filter(|(_, worker)| !worker.items.is_empty());
        let deadlines: BTreeSet<_> = holding.map(|(name, worker)| (worker.deadline, name.clone())).collect();
        assert_eq!(leases.deadlines, deadlines);
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
        let name = format!("worker-{worker}");
        now += Duration::from_micros(200);
        leases.expire_workers(now);
        match leases.request_item(&name, FIRST_ATTEMPT, now) {
            LeaseResponse::Lease { item, .. } => held[worker].push(item),
            LeaseResponse::Wait { .. } | LeaseResponse::Finished => {}
            LeaseResponse::Fenced { .. } => unreachable!("no worker starts again"),
        }
        // With a probability of 1/50, the worker is removed and loses all its items. Otherwise it holds at most four
        // items.
        if random.below(50) == 0 {
            leases.remove_worker(&name);
            held[worker].clear();
        }
        while held[worker].len() > 3 || (leases.unleased_count() == 0 && !held[worker].is_empty()) {
            leases.commit_item(&name, FIRST_ATTEMPT, held[worker].remove(0), now);
        }
    }
    let per_item = start.elapsed().as_secs_f64() * 1e6 / ITEMS as f64;
    eprintln!(
        "{ITEMS} items, {WORKERS} workers: {per_item:.2} us and {:.2} steps an item",
        leases.steps as f64 / ITEMS as f64
    );
    assert!(leases.steps < 4 * ITEMS, "{} steps", leases.steps);
    assert_eq!(leases.committed_count(), ITEMS);
}
