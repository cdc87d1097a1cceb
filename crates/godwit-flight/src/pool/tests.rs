use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::*;

const START: Duration = Duration::ZERO;

/// Streams that each node gets of a burst, before anyone reports.
fn burst(picker: &mut Picker, nodes: usize, streams: usize) -> Vec<usize> {
    let mut each = vec![0; nodes];
    for _ in 0..streams {
        each[picker.pick().expect("some are healthy")] += 1;
    }
    each
}

/// Shares that are no whole numbers come out so but for one.
fn is_near(each: &[usize], expected: &[usize]) -> bool {
    each.iter().zip(expected).all(|(found, expected)| found.abs_diff(*expected) <= 1)
}

fn spread(each: &[usize]) -> usize {
    each.iter().max().unwrap() - each.iter().min().unwrap()
}

#[test]
fn a_burst_spreads_over_nodes_that_all_report_nothing_to_do() {
    for policy in Policy::ALL {
        for nodes in [1, 3, 7] {
            let each = burst(&mut Picker::new(policy, nodes, 2), nodes, 120);
            assert!(spread(&each) <= 1, "{policy:?}: {each:?}");
        }
    }
}

#[test]
fn heavy_nodes_get_as_much_more_as_they_weigh() {
    for policy in Policy::ALL {
        let each = burst(&mut Picker::weighted(policy, &[1, 2, 1], 0), 3, 120);
        assert!(is_near(&each, &[30, 60, 30]), "{policy:?}: {each:?}");
    }
}

#[test]
fn a_busy_node_gets_less_than_a_quarter() {
    let mut by_cpu = Picker::new(Policy::Cpu, 3, 0);
    by_cpu.report(1, Load { cpu: 0.9, ..Load::UNKNOWN }, &[]);
    assert!(is_near(&burst(&mut by_cpu, 3, 210), &[100, 10, 100]));
    let mut by_network = Picker::new(Policy::Throughput, 3, 0);
    for node in 0..3 {
        by_network.report(node, Load { capacity: if node == 2 { 5e8 } else { 1e9 }, ..Load::UNKNOWN }, &[]);
    }
    assert!(is_near(&burst(&mut by_network, 3, 100), &[40, 40, 20]));
}

#[test]
fn streams_that_others_opened_count() {
    let mut picker = Picker::new(Policy::Connections, 3, 0);
    picker.report(0, Load { connections: 10, ..Load::UNKNOWN }, &[]);
    assert_eq!(burst(&mut picker, 3, 20), [0, 10, 10]);
    assert_eq!(burst(&mut picker, 3, 3), [1, 1, 1]);
}

#[test]
fn a_node_that_was_lost_comes_back_when_it_reports() {
    for policy in Policy::ALL {
        let mut picker = Picker::new(policy, 3, 0);
        picker.lost(0);
        assert_eq!(burst(&mut picker, 3, 6), [0, 3, 3], "{policy:?}");
        picker.lost(1);
        picker.lost(2);
        assert_eq!((picker.pick(), picker.grant(START, 1, &[])), (None, None));
        picker.report(0, Load::UNKNOWN, &[]);
        assert_eq!(picker.grant(START, 1, &[]), Some(vec![0]), "{policy:?}");
        // It does not get all that it missed.
        for node in [1, 2] {
            picker.report(node, Load { connections: 1, ..Load::UNKNOWN }, &[]);
        }
        let again = burst(&mut Picker::clone(&picker), 3, 30);
        assert!(again[0] <= 13, "{policy:?}: {again:?}");
    }
}

#[test]
fn a_request_that_is_made_again_has_the_same_answer_and_counts_once() {
    for policy in Policy::ALL {
        let mut picker = Picker::new(policy, 3, 0);
        let first = picker.grant(START, 7, &[]).unwrap();
        assert_eq!(first.len(), 3);
        for _ in 0..5 {
            assert_eq!(picker.grant(START, 7, &[]).unwrap()[0], first[0]);
        }
        assert_eq!((0..3).map(|node| picker.unreported(node)).sum::<u32>(), 1);
        // Whoever did not find the node gets another one, and the first is not counted any more.
        let other = picker.grant(START, 7, &[first[0]]).unwrap();
        assert!(!other.contains(&first[0]));
        assert_eq!((picker.unreported(first[0]), picker.unreported(other[0])), (0, 1), "{policy:?}");
    }
}

#[test]
fn grants_count_until_they_are_reported_or_old() {
    let mut picker = Picker::new(Policy::Connections, 2, 0);
    for id in 0..10 {
        picker.grant(START, id, &[]).unwrap();
    }
    assert_eq!((picker.unreported(0), picker.unreported(1)), (5, 5));
    // Three of its five have come; one of them is told twice, and one is another node's.
    picker.report(0, Load { connections: 3, ..Load::UNKNOWN }, &[0, 2, 4, 4, 1]);
    assert_eq!((picker.unreported(0), picker.unreported(1)), (2, 5));
    let later = Duration::from_secs(11);
    picker.grant(later, 99, &[1]).unwrap();
    assert_eq!((picker.unreported(0), picker.unreported(1)), (1, 0));
}

/// Numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31) % bound
    }
}

/// What happens in a world of clients and nodes, at a millisecond.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A client asks.
    Asks(u64),
    /// It asks again: its answer was slow.
    AsksAgain(u64),
    /// Its connection is made at the node that it was granted.
    Comes(u64, usize),
    /// A node looks at itself, and its report is on its way.
    Looks(usize),
    /// What it saw arrives.
    Reports(usize, u32, Vec<u64>),
    /// A node is lost: its clients ask again.
    Dies(usize),
    /// It is back.
    Returns(usize),
}

struct World {
    numbers: Numbers,
    picker: Picker,
    pending: BinaryHeap<Reverse<(u64, Happens)>>,
    /// Who is connected to each node.
    connected: Vec<Vec<u64>>,
    alive: Vec<bool>,
}

impl World {
    fn new(seed: u64, policy: Policy, nodes: usize) -> Self {
        let (picker, numbers) = (Picker::new(policy, nodes, 0), Numbers(seed));
        let mut world = Self {
            numbers,
            picker,
            pending: BinaryHeap::new(),
            connected: vec![Vec::new(); nodes],
            alive: vec![true; nodes],
        };
        for node in 0..nodes {
            let at = world.numbers.below(400);
            world.at(at, Happens::Looks(node));
        }
        world
    }

    fn at(&mut self, when: u64, what: Happens) {
        self.pending.push(Reverse((when, what)));
    }

    fn run(&mut self, until: u64, load: impl Fn(usize) -> Load) {
        while let Some(Reverse((now, what))) = self.pending.pop() {
            if now > until {
                return;
            }
            self.happens(now, what, &load);
        }
    }

    fn happens(&mut self, now: u64, what: Happens, load: &impl Fn(usize) -> Load) {
        match what {
            Happens::Asks(client) => {
                let dead: Vec<usize> = (0..self.alive.len()).filter(|node| !self.alive[*node]).collect();
                let granted = self.picker.grant(Duration::from_millis(now), client, &dead).expect("one is alive")[0];
                let slow = self.numbers.below(700);
                self.at(now + 5 + slow, Happens::Comes(client, granted));
                if slow.is_multiple_of(5) {
                    self.at(now + 1 + slow % 3, Happens::AsksAgain(client));
                }
            }
            Happens::AsksAgain(client) => {
                self.picker.grant(Duration::from_millis(now), client, &[]);
            }
            Happens::Comes(client, node) if self.alive[node] => self.connected[node].push(client),
            Happens::Comes(client, _) => self.at(now + 2, Happens::Asks(client)),
            Happens::Looks(node) => {
                if self.alive[node] {
                    let (count, come) = (self.connected[node].len() as u32, self.connected[node].clone());
                    let slow = self.numbers.below(60);
                    self.at(now + slow, Happens::Reports(node, count, come));
                }
                self.at(now + 400, Happens::Looks(node));
            }
            Happens::Reports(node, connections, come) => {
                if self.alive[node] {
                    self.picker.report(node, Load { connections, ..load(node) }, &come);
                }
            }
            Happens::Dies(node) => {
                self.alive[node] = false;
                self.picker.lost(node);
                for client in std::mem::take(&mut self.connected[node]) {
                    self.at(now + 1, Happens::Asks(client));
                }
            }
            Happens::Returns(node) => self.alive[node] = true,
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.connected.iter().map(Vec::len).collect()
    }
}

#[test]
fn bursts_of_clients_are_within_one_of_each_other_whenever_reports_come() {
    for policy in [Policy::RoundRobin, Policy::Connections] {
        for seed in 0..200 {
            let mut world = World::new(seed, policy, 3);
            for client in 0..120 {
                let at = 1000 + world.numbers.below(900);
                world.at(at, Happens::Asks(client));
            }
            world.run(4000, |_| Load::UNKNOWN);
            let counts = world.counts();
            assert_eq!(counts.iter().sum::<usize>(), 120);
            assert!(spread(&counts) <= 1, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn no_client_is_left_out_when_a_node_dies_and_new_ones_go_to_it_when_it_is_back() {
    for policy in Policy::ALL {
        for seed in 0..100 {
            let mut world = World::new(seed, policy, 3);
            for client in 0..120 {
                let at = 500 + world.numbers.below(6000);
                world.at(at, Happens::Asks(client));
            }
            world.at(2000, Happens::Dies(1));
            world.at(4000, Happens::Returns(1));
            world.run(9000, |_| Load::UNKNOWN);
            let counts = world.counts();
            assert_eq!(counts.iter().sum::<usize>(), 120, "{policy:?}, seed {seed}: {counts:?}");
            assert!(counts[1] > 0, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn a_burdened_node_gets_less_than_a_quarter_of_a_burst_whenever_reports_come() {
    let busy = |node: usize| Load { cpu: if node == 1 { 0.9 } else { 0.1 }, ..Load::UNKNOWN };
    let narrow = |node: usize| Load { capacity: if node == 1 { 6.25e8 } else { 1.25e9 }, ..Load::UNKNOWN };
    for seed in 0..200 {
        for (policy, load) in [(Policy::Cpu, &busy as &dyn Fn(usize) -> Load), (Policy::Throughput, &narrow)] {
            let mut world = World::new(seed, policy, 3);
            for client in 0..120 {
                let at = 1000 + world.numbers.below(900);
                world.at(at, Happens::Asks(client));
            }
            world.run(4000, load);
            let counts = world.counts();
            assert!(counts[1] * 4 < 120, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}
