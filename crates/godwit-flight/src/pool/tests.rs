use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::*;

const START: Duration = Duration::ZERO;

/// Opens many streams before any report arrives. Returns the number of streams that each member receives.
fn burst(balancer: &mut LoadBalancer, nodes: usize, streams: usize) -> Vec<usize> {
    let mut each = vec![0; nodes];
    for _ in 0..streams {
        each[balancer.open_stream().expect("some are healthy")] += 1;
    }
    each
}

/// Returns whether each member received the expected number of streams, with a tolerance of one because of rounding.
fn is_near(each: &[usize], expected: &[usize]) -> bool {
    each.iter().zip(expected).all(|(found, expected)| found.abs_diff(*expected) <= 1)
}

fn imbalance(each: &[usize]) -> usize {
    each.iter().max().unwrap() - each.iter().min().unwrap()
}

#[test]
fn a_burst_is_distributed_over_members_that_all_report_no_load() {
    for policy in BalancingPolicy::ALL {
        for nodes in [1, 3, 7] {
            let each = burst(&mut LoadBalancer::new(policy, nodes, 2), nodes, 120);
            assert!(imbalance(&each) <= 1, "{policy:?}: {each:?}");
        }
    }
}

#[test]
fn members_receive_streams_in_proportion_to_their_weight() {
    for policy in BalancingPolicy::ALL {
        let each = burst(&mut LoadBalancer::with_weights(policy, &[1, 2, 1], 0), 3, 120);
        assert!(is_near(&each, &[30, 60, 30]), "{policy:?}: {each:?}");
    }
}

#[test]
fn a_busy_member_receives_less_than_a_quarter() {
    let mut by_cpu = LoadBalancer::new(BalancingPolicy::Cpu, 3, 0);
    by_cpu.record_report(1, Load { cpu: 0.9, ..Load::UNKNOWN }, &[]);
    assert!(is_near(&burst(&mut by_cpu, 3, 210), &[100, 10, 100]));
    let mut by_network = LoadBalancer::new(BalancingPolicy::Throughput, 3, 0);
    for member in 0..3 {
        by_network.record_report(
            member,
            Load { capacity_bytes_per_s: if member == 2 { 5e8 } else { 1e9 }, ..Load::UNKNOWN },
            &[],
        );
    }
    assert!(is_near(&burst(&mut by_network, 3, 100), &[40, 40, 20]));
}

#[test]
fn reported_connections_count_as_load() {
    let mut balancer = LoadBalancer::new(BalancingPolicy::Connections, 3, 0);
    balancer.record_report(0, Load { connections: 10, ..Load::UNKNOWN }, &[]);
    assert_eq!(burst(&mut balancer, 3, 20), [0, 10, 10]);
    assert_eq!(burst(&mut balancer, 3, 3), [1, 1, 1]);
}

#[test]
fn a_lost_member_is_used_again_when_it_reports() {
    for policy in BalancingPolicy::ALL {
        let mut balancer = LoadBalancer::new(policy, 3, 0);
        balancer.mark_lost(0);
        assert_eq!(burst(&mut balancer, 3, 6), [0, 3, 3], "{policy:?}");
        balancer.mark_lost(1);
        balancer.mark_lost(2);
        assert_eq!((balancer.open_stream(), balancer.lease_member(START, 1, &[])), (None, None));
        balancer.record_report(0, Load::UNKNOWN, &[]);
        assert_eq!(balancer.lease_member(START, 1, &[]), Some(vec![0]), "{policy:?}");
        // The member that is back does not receive all streams that it missed.
        for member in [1, 2] {
            balancer.record_report(member, Load { connections: 1, ..Load::UNKNOWN }, &[]);
        }
        let again = burst(&mut LoadBalancer::clone(&balancer), 3, 30);
        assert!(again[0] <= 13, "{policy:?}: {again:?}");
    }
}

#[test]
fn a_repeated_request_returns_the_same_lease_and_counts_once() {
    for policy in BalancingPolicy::ALL {
        let mut balancer = LoadBalancer::new(policy, 3, 0);
        let first = balancer.lease_member(START, 7, &[]).unwrap();
        assert_eq!(first.len(), 3);
        for _ in 0..5 {
            assert_eq!(balancer.lease_member(START, 7, &[]).unwrap()[0], first[0]);
        }
        assert_eq!((0..3).map(|member| balancer.unreported_leases(member)).sum::<u32>(), 1);
        // If the client did not reach the member, it is assigned to another one, and its first lease is not counted any
        // more.
        let other = balancer.lease_member(START, 7, &[first[0]]).unwrap();
        assert!(!other.contains(&first[0]));
        assert_eq!((balancer.unreported_leases(first[0]), balancer.unreported_leases(other[0])), (0, 1), "{policy:?}");
    }
}

#[test]
fn leases_count_until_they_are_reported_or_expired() {
    let mut balancer = LoadBalancer::new(BalancingPolicy::Connections, 2, 0);
    for id in 0..10 {
        balancer.lease_member(START, id, &[]).unwrap();
    }
    assert_eq!((balancer.unreported_leases(0), balancer.unreported_leases(1)), (5, 5));
    // Three of the five leases of member 0 are reported as arrived. Lease 4 is reported twice, and lease 1 belongs to
    // another member.
    balancer.record_report(0, Load { connections: 3, ..Load::UNKNOWN }, &[0, 2, 4, 4, 1]);
    assert_eq!((balancer.unreported_leases(0), balancer.unreported_leases(1)), (2, 5));
    let later = Duration::from_secs(11);
    balancer.lease_member(later, 99, &[1]).unwrap();
    assert_eq!((balancer.unreported_leases(0), balancer.unreported_leases(1)), (1, 0));
}

/// A pseudorandom number generator (splitmix64).
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31) % bound
    }
}

/// An event in the simulation of clients and members; its time is in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulationEvent {
    /// A client requests a lease.
    Request(u64),
    /// A client repeats its request because the response was slow.
    RepeatedRequest(u64),
    /// A client connects to its member.
    Connection(u64, usize),
    /// A member samples its load, and sends its report.
    Sample(usize),
    /// The report of a member arrives at the load balancer.
    Report(usize, u32, Vec<u64>),
    /// A member is lost, and its clients request a lease again.
    Failure(usize),
    /// A lost member is healthy again.
    Recovery(usize),
}

struct SimulatedPool {
    numbers: SplitMix64,
    picker: LoadBalancer,
    pending: BinaryHeap<Reverse<(u64, SimulationEvent)>>,
    /// The clients that are connected to each member.
    connected: Vec<Vec<u64>>,
    alive: Vec<bool>,
}

impl SimulatedPool {
    fn new(seed: u64, policy: BalancingPolicy, nodes: usize) -> Self {
        let (balancer, numbers) = (LoadBalancer::new(policy, nodes, 0), SplitMix64(seed));
        let mut world = Self {
            numbers,
            picker: balancer,
            pending: BinaryHeap::new(),
            connected: vec![Vec::new(); nodes],
            alive: vec![true; nodes],
        };
        for member in 0..nodes {
            let at = world.numbers.below(400);
            world.schedule(at, SimulationEvent::Sample(member));
        }
        world
    }

    fn schedule(&mut self, when: u64, event: SimulationEvent) {
        self.pending.push(Reverse((when, event)));
    }

    fn run(&mut self, until: u64, load: impl Fn(usize) -> Load) {
        while let Some(Reverse((now, what))) = self.pending.pop() {
            if now > until {
                return;
            }
            self.handle(now, what, &load);
        }
    }

    fn handle(&mut self, now: u64, event: SimulationEvent, load: &impl Fn(usize) -> Load) {
        match event {
            SimulationEvent::Request(client) => {
                let dead: Vec<usize> = (0..self.alive.len()).filter(|member| !self.alive[*member]).collect();
                let granted =
                    self.picker.lease_member(Duration::from_millis(now), client, &dead).expect("one is alive")[0];
                let slow = self.numbers.below(700);
                self.schedule(now + 5 + slow, SimulationEvent::Connection(client, granted));
                if slow.is_multiple_of(5) {
                    self.schedule(now + 1 + slow % 3, SimulationEvent::RepeatedRequest(client));
                }
            }
            SimulationEvent::RepeatedRequest(client) => {
                self.picker.lease_member(Duration::from_millis(now), client, &[]);
            }
            SimulationEvent::Connection(client, node) if self.alive[node] => self.connected[node].push(client),
            SimulationEvent::Connection(client, _) => self.schedule(now + 2, SimulationEvent::Request(client)),
            SimulationEvent::Sample(node) => {
                if self.alive[node] {
                    let (count, arrived_leases) = (self.connected[node].len() as u32, self.connected[node].clone());
                    let slow = self.numbers.below(60);
                    self.schedule(now + slow, SimulationEvent::Report(node, count, arrived_leases));
                }
                self.schedule(now + 400, SimulationEvent::Sample(node));
            }
            SimulationEvent::Report(node, connections, come) => {
                if self.alive[node] {
                    self.picker.record_report(node, Load { connections, ..load(node) }, &come);
                }
            }
            SimulationEvent::Failure(node) => {
                self.alive[node] = false;
                self.picker.mark_lost(node);
                for client in std::mem::take(&mut self.connected[node]) {
                    self.schedule(now + 1, SimulationEvent::Request(client));
                }
            }
            SimulationEvent::Recovery(node) => self.alive[node] = true,
        }
    }

    fn counts(&self) -> Vec<usize> {
        self.connected.iter().map(Vec::len).collect()
    }
}

#[test]
fn bursts_of_clients_are_balanced_within_one_whenever_reports_arrive() {
    for policy in [BalancingPolicy::RoundRobin, BalancingPolicy::Connections] {
        for seed in 0..200 {
            let mut world = SimulatedPool::new(seed, policy, 3);
            for client in 0..120 {
                let at = 1000 + world.numbers.below(900);
                world.schedule(at, SimulationEvent::Request(client));
            }
            world.run(4000, |_| Load::UNKNOWN);
            let counts = world.counts();
            assert_eq!(counts.iter().sum::<usize>(), 120);
            assert!(imbalance(&counts) <= 1, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn every_client_is_served_when_a_member_fails_and_new_clients_use_it_after_recovery() {
    for policy in BalancingPolicy::ALL {
        for seed in 0..100 {
            let mut world = SimulatedPool::new(seed, policy, 3);
            for client in 0..120 {
                let at = 500 + world.numbers.below(6000);
                world.schedule(at, SimulationEvent::Request(client));
            }
            world.schedule(2000, SimulationEvent::Failure(1));
            world.schedule(4000, SimulationEvent::Recovery(1));
            world.run(9000, |_| Load::UNKNOWN);
            let counts = world.counts();
            assert_eq!(counts.iter().sum::<usize>(), 120, "{policy:?}, seed {seed}: {counts:?}");
            assert!(counts[1] > 0, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}

#[test]
fn a_busy_member_receives_less_than_a_quarter_of_a_burst_whenever_reports_arrive() {
    let busy = |member: usize| Load { cpu: if member == 1 { 0.9 } else { 0.1 }, ..Load::UNKNOWN };
    let narrow =
        |member: usize| Load { capacity_bytes_per_s: if member == 1 { 6.25e8 } else { 1.25e9 }, ..Load::UNKNOWN };
    for seed in 0..200 {
        for (policy, load) in
            [(BalancingPolicy::Cpu, &busy as &dyn Fn(usize) -> Load), (BalancingPolicy::Throughput, &narrow)]
        {
            let mut world = SimulatedPool::new(seed, policy, 3);
            for client in 0..120 {
                let at = 1000 + world.numbers.below(900);
                world.schedule(at, SimulationEvent::Request(client));
            }
            world.run(4000, load);
            let counts = world.counts();
            assert!(counts[1] * 4 < 120, "{policy:?}, seed {seed}: {counts:?}");
        }
    }
}
