use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use proptest::prelude::*;

use super::*;

const TERMS: Terms = Terms { lease: Duration::from_secs(10), straggler_after: Duration::from_secs(30) };
const FIRST: Attempt = Attempt(0);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn with_items(count: u64) -> Leases {
    let mut leases = Leases::new(TERMS);
    leases.add(count);
    leases.close();
    leases
}

/// The item that is handed out, which has to be one.
fn item(leases: &mut Leases, worker: &str, now: u64) -> u64 {
    match leases.ask(worker, FIRST, seconds(now)) {
        Answer::Work { item, .. } => item.0,
        other => panic!("{worker} got {other:?}"),
    }
}

fn alone() -> Commit {
    Commit::First { others: Vec::new() }
}

#[test]
fn items_are_handed_out_once_in_order_and_then_all_is_finished() {
    let mut leases = with_items(3);
    assert_eq!([item(&mut leases, "a", 0), item(&mut leases, "b", 0), item(&mut leases, "a", 1)], [0, 1, 2]);
    assert_eq!(leases.ask("b", FIRST, seconds(1)), Answer::Wait { until: Some(seconds(11)) });
    for (worker, number) in [("a", 2), ("b", 1), ("a", 0)] {
        assert!(!leases.is_finished());
        assert_eq!(leases.commit(worker, FIRST, ItemId(number), seconds(2)), alone());
    }
    assert!(leases.is_finished() && leases.committed() == 3);
    assert_eq!(leases.ask("b", FIRST, seconds(3)), Answer::Finished);
    assert_eq!(leases.next_deadline(), None, "nobody holds anything");
}

#[test]
fn an_item_that_does_not_suit_a_worker_waits_for_another_one() {
    let mut leases = with_items(2);
    assert_eq!(item(&mut leases, "a", 0), 0);
    assert!(leases.give_back("a", FIRST, ItemId(0), seconds(1)), "it failed there");
    let others = |item: ItemId| item != ItemId(0);
    let next = leases.ask_for("a", FIRST, others, seconds(1));
    assert_eq!(next, Answer::Work { item: ItemId(1), issue: 1, deadline: seconds(11) });
    assert_eq!(leases.ask_for("a", FIRST, others, seconds(2)), Answer::Wait { until: Some(seconds(12)) });
    let again = leases.ask_for("b", FIRST, |_| true, seconds(2));
    assert_eq!(again, Answer::Work { item: ItemId(0), issue: 2, deadline: seconds(12) });
    // Old by now, it is still not for that worker; nor is its own.
    leases.set_straggler_after(seconds(3));
    assert_eq!(leases.ask_for("a", FIRST, others, seconds(9)), Answer::Wait { until: Some(seconds(12)) });
    let third = leases.ask_for("a", FIRST, |_| true, seconds(9));
    assert_eq!(third, Answer::Work { item: ItemId(0), issue: 3, deadline: seconds(19) });
}

#[test]
fn a_worker_waits_while_items_may_still_be_added() {
    let mut leases = Leases::new(TERMS);
    assert_eq!(leases.ask("a", FIRST, seconds(0)), Answer::Wait { until: None });
    assert_eq!(leases.add(2), 0..2);
    assert_eq!(item(&mut leases, "a", 0), 0);
    assert_eq!(leases.add(1), 2..3);
    assert_eq!((leases.waiting(), leases.outstanding(), leases.committed()), (2, 1, 0));
}

#[test]
fn heartbeats_keep_all_items_of_a_worker_and_silence_loses_them() {
    let mut leases = with_items(4);
    let _ = (item(&mut leases, "a", 0), item(&mut leases, "a", 0), item(&mut leases, "b", 0));
    leases.heartbeat("a", FIRST, seconds(9)).unwrap();
    assert_eq!(leases.next_deadline(), Some(seconds(10)));
    assert_eq!(leases.expire(seconds(10)), [Expired { worker: "b".into(), items: vec![ItemId(2)] }]);
    assert_eq!(leases.expire(seconds(18)), []);
    let lost = Expired { worker: "a".into(), items: vec![ItemId(0), ItemId(1)] };
    assert_eq!(leases.expire(seconds(19)), [lost]);
    let again = leases.ask("c", FIRST, seconds(19));
    assert_eq!(again, Answer::Work { item: ItemId(0), issue: 2, deadline: seconds(29) });
    assert_eq!([item(&mut leases, "c", 19), item(&mut leases, "c", 19), item(&mut leases, "c", 19)], [1, 2, 3]);
}

#[test]
fn a_result_that_comes_after_the_lease_counts_if_it_is_the_first() {
    let mut leases = with_items(2);
    assert_eq!(item(&mut leases, "a", 0), 0);
    assert_eq!(item(&mut leases, "a", 0), 1);
    leases.expire(seconds(10));
    assert_eq!(leases.commit("a", FIRST, ItemId(0), seconds(11)), alone());
    assert_eq!(item(&mut leases, "b", 12), 1);
    assert_eq!(leases.commit("a", FIRST, ItemId(1), seconds(13)), Commit::First { others: vec!["b".into()] });
    assert_eq!(leases.commit("b", FIRST, ItemId(1), seconds(14)), Commit::Late);
    assert!(leases.is_finished());
}

#[test]
fn an_idle_worker_gets_the_oldest_item_of_another_once() {
    let mut leases = with_items(2);
    assert_eq!(item(&mut leases, "slow", 0), 0);
    assert_eq!(item(&mut leases, "slow", 5), 1);
    leases.heartbeat("slow", FIRST, seconds(29)).unwrap();
    assert_eq!(leases.ask("idle", FIRST, seconds(29)), Answer::Wait { until: Some(seconds(30)) });
    assert_eq!(leases.ask("slow", FIRST, seconds(30)), Answer::Wait { until: Some(seconds(40)) }, "not its own");
    assert_eq!(item(&mut leases, "idle", 30), 0);
    assert_eq!(leases.ask("third", FIRST, seconds(31)), Answer::Wait { until: Some(seconds(35)) }, "no third copy");
    assert_eq!(leases.commit("idle", FIRST, ItemId(0), seconds(32)), Commit::First { others: vec!["slow".into()] });
    assert_eq!(leases.commit("slow", FIRST, ItemId(0), seconds(33)), Commit::Late);
    // When one of two dies, the other keeps the item.
    assert_eq!(item(&mut leases, "idle", 35), 1);
    assert_eq!(leases.leave("slow"), [ItemId(1)]);
    assert_eq!((leases.waiting(), leases.outstanding()), (0, 1));
    leases.leave("idle");
    assert_eq!((leases.waiting(), leases.outstanding()), (1, 0));
}

#[test]
fn a_later_start_fences_the_earlier_one_and_takes_over_at_once() {
    let mut leases = with_items(2);
    assert_eq!(item(&mut leases, "a", 0), 0);
    let later = Attempt(1);
    let again = leases.ask("a", later, seconds(1));
    assert_eq!(again, Answer::Work { item: ItemId(0), issue: 2, deadline: seconds(11) });
    assert_eq!(leases.ask("a", FIRST, seconds(2)), Answer::Fenced { current: later });
    assert_eq!(leases.heartbeat("a", FIRST, seconds(2)), Err(later));
    assert_eq!(leases.commit("a", FIRST, ItemId(0), seconds(2)), Commit::Fenced { current: later });
    assert!(!leases.give_back("a", FIRST, ItemId(0), seconds(2)));
    assert_eq!(leases.next_deadline(), Some(seconds(11)), "the earlier start keeps nothing alive");
    leases.leave("a");
    assert_eq!(leases.heartbeat("a", FIRST, seconds(3)), Err(later), "nor does it come back");
    assert_eq!(leases.commit("a", later, ItemId(0), seconds(3)), alone());
}

#[test]
fn items_can_be_given_back_and_results_can_be_lost() {
    let mut leases = with_items(2);
    assert_eq!(item(&mut leases, "a", 0), 0);
    assert!(leases.give_back("a", FIRST, ItemId(0), seconds(1)));
    assert!(!leases.give_back("a", FIRST, ItemId(0), seconds(1)));
    assert_eq!(item(&mut leases, "b", 1), 0, "before what is new");
    assert!(!leases.reopen(ItemId(0)) && !leases.reopen(ItemId(1)) && !leases.reopen(ItemId(2)));
    assert_eq!(leases.commit("b", FIRST, ItemId(0), seconds(2)), alone());
    assert!(leases.is_committed(ItemId(0)) && leases.reopen(ItemId(0)) && !leases.is_committed(ItemId(0)));
    assert_eq!(item(&mut leases, "b", 2), 0);
}

#[test]
fn what_is_settled_is_never_handed_out() {
    let mut leases = with_items(3);
    assert!(leases.settle(ItemId(1)) && !leases.settle(ItemId(1)) && !leases.settle(ItemId(7)));
    assert_eq!([item(&mut leases, "a", 0), item(&mut leases, "a", 0)], [0, 2]);
    assert!(!leases.settle(ItemId(0)), "it was handed out");
    assert!(leases.is_committed(ItemId(1)) && !leases.is_finished());
    assert_eq!(leases.commit("a", FIRST, ItemId(0), seconds(1)), alone());
    assert_eq!(leases.commit("a", FIRST, ItemId(2), seconds(1)), alone());
    assert!(leases.is_finished());
}

#[test]
fn results_of_items_that_nobody_was_given_are_refused() {
    let mut leases = with_items(1);
    assert_eq!(leases.commit("a", FIRST, ItemId(0), seconds(0)), Commit::NeverIssued);
    assert_eq!(leases.commit("a", FIRST, ItemId(1), seconds(0)), Commit::NeverIssued);
    assert_eq!(leases.committed(), 0);
}

/// Numbers from a seed (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195).
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

/// Workers that are slow, die, hang, come back as they were, and are started again.
struct Schedule {
    random: Random,
    leases: Leases,
    /// First commits of each item.
    commits: BTreeMap<ItemId, u32>,
    /// What will happen: `Reverse` of time in ms, then the worker and what it holds.
    events: BinaryHeap<std::cmp::Reverse<(u64, usize, Event)>>,
    attempts: Vec<u64>,
    items: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ask(u64),
    Done(u64, ItemId),
    Beat(u64),
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (items, workers) = (random.below(60), 1 + random.below(8) as usize);
        let mut leases = Leases::new(TERMS);
        leases.add(items);
        leases.close();
        let events = (0..workers).map(|worker| std::cmp::Reverse((0, worker, Event::Ask(0)))).collect();
        Self { random, leases, commits: BTreeMap::new(), events, attempts: vec![0; workers], items }
    }

    fn after(&mut self, now: u64, delay: u64, worker: usize, event: Event) {
        self.events.push(std::cmp::Reverse((now + delay, worker, event)));
    }

    /// Runs until nothing happens any more. Worker 0 is faithful, so that an end is possible.
    fn run(&mut self) {
        let mut turns = 0;
        while let Some(std::cmp::Reverse((now, worker, event))) = self.events.pop() {
            turns += 1;
            assert!(turns < 1_000_000, "it goes on for ever");
            self.leases.expire(Duration::from_millis(now));
            match event {
                Event::Ask(attempt) => self.ask(now, worker, attempt),
                Event::Done(attempt, item) => self.done(now, worker, attempt, item),
                Event::Beat(attempt) => {
                    let name = worker.to_string();
                    let heard = self.leases.heartbeat(&name, Attempt(attempt), Duration::from_millis(now));
                    assert_eq!(heard.is_ok(), attempt == self.attempts[worker]);
                }
            }
            self.check();
        }
    }

    fn ask(&mut self, now: u64, worker: usize, attempt: u64) {
        let waiting = self.leases.waiting();
        match self.leases.ask(&worker.to_string(), Attempt(attempt), Duration::from_millis(now)) {
            Answer::Work { item, .. } => self.work(now, worker, attempt, item),
            Answer::Wait { until } => {
                assert_eq!(waiting, 0, "nobody waits while there is work");
                let until = until.expect("somebody works, or nobody would wait").as_millis() as u64;
                assert!(until > now);
                self.after(now, (until - now).min(1000), worker, Event::Ask(attempt));
            }
            Answer::Finished => {}
            Answer::Fenced { current } => assert!(current.0 > attempt),
        }
    }

    /// What becomes of an item depends on luck.
    fn work(&mut self, now: u64, worker: usize, attempt: u64, item: ItemId) {
        let luck = if worker == 0 { 0 } else { self.random.below(10) };
        let normal = 500 + self.random.below(4000);
        match luck {
            // Dies, and is started again much later, or at once.
            8 | 9 => {
                self.attempts[worker] += 1;
                let delay = if luck == 8 { 20_000 } else { 100 };
                self.after(now, delay, worker, Event::Ask(attempt + 1));
                self.after(now, delay + 50, worker, Event::Done(attempt, item));
            }
            // Hangs without a sign of life, then goes on as if nothing had been.
            7 => self.after(now, 25_000, worker, Event::Done(attempt, item)),
            // Slow, but alive.
            5 | 6 => {
                (1..12).for_each(|beat| self.after(now, beat * 5000, worker, Event::Beat(attempt)));
                self.after(now, 60_000, worker, Event::Done(attempt, item));
            }
            _ => self.after(now, normal, worker, Event::Done(attempt, item)),
        }
    }

    fn done(&mut self, now: u64, worker: usize, attempt: u64, item: ItemId) {
        let name = worker.to_string();
        let fenced = attempt < self.attempts[worker];
        match self.leases.commit(&name, Attempt(attempt), item, Duration::from_millis(now)) {
            Commit::First { others } => {
                assert!(!fenced && !others.contains(&name));
                *self.commits.entry(item).or_default() += 1;
            }
            Commit::Late => assert!(!fenced),
            Commit::Fenced { .. } => return assert!(fenced),
            Commit::NeverIssued => panic!("it was handed out"),
        }
        self.after(now, 0, worker, Event::Ask(attempt));
    }

    /// What holds at every moment.
    fn check(&self) {
        let leases = &self.leases;
        assert_eq!(leases.committed(), self.commits.len() as u64);
        for (item, out) in &leases.out {
            assert!((1..=2).contains(&out.holders.len()) && !leases.queue.contains_key(item));
            assert!(out.holders.iter().all(|holder| leases.holds(holder, *item)));
            assert_eq!(leases.single.contains(&(out.since, *item)), out.holders.len() == 1);
        }
        let held: usize = leases.workers.values().map(|worker| worker.items.len()).sum();
        assert_eq!(held, leases.out.values().map(|out| out.holders.len()).sum::<usize>());
        let holding = leases.workers.iter().filter(|(_, worker)| !worker.items.is_empty());
        let deadlines: BTreeSet<_> = holding.map(|(name, worker)| (worker.deadline, name.clone())).collect();
        assert_eq!(leases.deadlines, deadlines);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whatever_workers_do_every_item_is_committed_exactly_once(seed in any::<u64>()) {
        let mut schedule = Schedule::new(seed);
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
    let mut leases = with_items(ITEMS);
    let start = Instant::now();
    let mut held: Vec<Vec<ItemId>> = vec![Vec::new(); WORKERS as usize];
    let mut random = Random(7);
    let mut now = Duration::ZERO;
    while !leases.is_finished() {
        let worker = random.below(WORKERS) as usize;
        let name = format!("worker-{worker}");
        now += Duration::from_micros(200);
        leases.expire(now);
        match leases.ask(&name, FIRST, now) {
            Answer::Work { item, .. } => held[worker].push(item),
            Answer::Wait { .. } | Answer::Finished => {}
            Answer::Fenced { .. } => unreachable!("nobody starts again"),
        }
        // One in fifty asks is by a worker that loses all it has; the others hold four items at most.
        if random.below(50) == 0 {
            leases.leave(&name);
            held[worker].clear();
        }
        while held[worker].len() > 3 || (leases.waiting() == 0 && !held[worker].is_empty()) {
            leases.commit(&name, FIRST, held[worker].remove(0), now);
        }
    }
    let per_item = start.elapsed().as_secs_f64() * 1e6 / ITEMS as f64;
    eprintln!(
        "{ITEMS} items, {WORKERS} workers: {per_item:.2} us and {:.2} steps an item",
        leases.steps as f64 / ITEMS as f64
    );
    assert!(leases.steps < 4 * ITEMS, "{} steps", leases.steps);
    assert_eq!(leases.committed(), ITEMS);
}
