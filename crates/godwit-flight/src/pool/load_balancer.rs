//! The choice of a pool member: events and the time go in, a member is returned; no sockets, no clock.
//!
//! Reports are always old: a hundred clients that start at once all see members without load, and would all choose the same
//! one. [`LoadBalancer`] therefore counts every lease itself, until a report of its member confirms the arrival, or until
//! the lease expires. Reported and counted leases never overlap, so that a report in the middle of a burst changes nothing.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A random number drawn by a client, which identifies a lease.
pub type MemberLeaseId = u64;

/// Time for which a lease counts without a report of its arrival: its client has ended, or does not know leases.
const MEMBER_LEASE_LIFETIME: Duration = Duration::from_secs(10);
/// Most leases that are stored; beyond it the oldest are dropped.
const MAX_MEMBER_LEASES: usize = 65_536;
/// A saturated member keeps this fraction: a member without requests would never be seen to be free again.
const MIN_CAPACITY_SHARE: f64 = 0.01;

/// The policy by which a member is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancingPolicy {
    /// Members in turn.
    RoundRobin,
    /// The member with the fewest connections.
    Connections,
    /// By the idle fraction of the processors.
    Cpu,
    /// By the free capacity of the network.
    Throughput,
}

impl BalancingPolicy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::Connections, Self::Cpu, Self::Throughput];

    /// Returns the name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Connections => "connections",
            Self::Cpu => "cpu",
            Self::Throughput => "throughput",
        }
    }

    /// Returns the policy of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The load that a member reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Connections that carry data.
    pub connections: u32,
    /// Busy fraction of its processors, 0 to 1.
    pub cpu: f64,
    /// Bytes a second that it sends or receives, whichever is more.
    pub bytes_per_s: f64,
    /// Capacity of its network, bytes a second.
    pub capacity_bytes_per_s: f64,
}

impl Load {
    /// The load of a member before its first report: none.
    pub const UNKNOWN: Self = Self { connections: 0, cpu: 0.0, bytes_per_s: 0.0, capacity_bytes_per_s: 1.0 };
}

/// A balancer over the members of a pool.
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    policy: BalancingPolicy,
    members: Vec<MemberEntry>,
    /// Start of the search; of equal members the first from here is chosen.
    next_index: usize,
    leases: HashMap<MemberLeaseId, MemberLeaseEntry>,
    /// The leases by age, the oldest first; some of them have ended since.
    leases_by_age: VecDeque<(Duration, MemberLeaseId)>,
}

#[derive(Clone, Copy, Debug)]
struct MemberLeaseEntry {
    member: usize,
    granted_at: Duration,
    /// True if the member has reported its arrival.
    is_reported: bool,
}

#[derive(Clone, Debug)]
struct MemberEntry {
    is_healthy: bool,
    load: Load,
    weight: u32,
    /// Leases whose arrival was not reported.
    unreported_leases: u32,
    /// Credit of the weighted round robin, in leases.
    credit: f64,
}

impl LoadBalancer {
    /// Creates a balancer over `nodes` healthy members of equal weight. Among equals, member `turn` is the first.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(policy: BalancingPolicy, nodes: usize, turn: usize) -> Self {
        Self::with_weights(policy, &vec![1; nodes], turn)
    }

    /// Creates a balancer as [`LoadBalancer::new`] does, with weights.
    ///
    /// # Panics
    /// If there is no member.
    pub fn with_weights(policy: BalancingPolicy, weights: &[u32], turn: usize) -> Self {
        assert!(!weights.is_empty(), "a pool has nodes");
        let new_entry = |weight: &u32| MemberEntry {
            is_healthy: true,
            load: Load::UNKNOWN,
            weight: (*weight).max(1),
            unreported_leases: 0,
            credit: 0.0,
        };
        let members: Vec<MemberEntry> = weights.iter().map(new_entry).collect();
        let next_index = turn % members.len();
        Self { policy, members, next_index, leases: HashMap::new(), leases_by_age: VecDeque::new() }
    }

    /// Records a member's report: its load, which includes these arrived leases.
    pub fn record_report(&mut self, member: usize, load: Load, arrived_leases: &[MemberLeaseId]) {
        let found = &mut self.members[member];
        found.load = load;
        found.is_healthy = true;
        for id in arrived_leases {
            let Some(lease) = self.leases.get_mut(id).filter(|grant| grant.member == member && !grant.is_reported)
            else {
                continue;
            };
            lease.is_reported = true;
            found.unreported_leases = found.unreported_leases.saturating_sub(1);
        }
    }

    /// Marks a member as lost: it receives no streams until it reports again.
    pub fn mark_lost(&mut self, member: usize) {
        self.members[member].is_healthy = false;
    }

    /// Reports whether a member answered last time.
    pub fn is_healthy(&self, member: usize) -> bool {
        self.members[member].is_healthy
    }

    /// Returns the load in a member's last report.
    pub fn load(&self, member: usize) -> Load {
        self.members[member].load
    }

    /// Returns the number of a member's leases whose arrival was not reported.
    pub fn unreported_leases(&self, member: usize) -> u32 {
        self.members[member].unreported_leases
    }

    /// Returns the member for a request, followed by the other healthy ones by increasing load; `None` where none but those
    /// to `avoid` is healthy. A repeated request gets the same member, and is counted once.
    pub fn lease_member(&mut self, now: Duration, id: MemberLeaseId, avoid: &[usize]) -> Option<Vec<usize>> {
        self.expire_leases(now);
        if let Some(lease) = self.leases.get(&id).copied() {
            if self.members[lease.member].is_healthy && !avoid.contains(&lease.member) {
                return Some(self.order_from(lease.member, avoid));
            }
            self.remove_lease(id);
        }
        let member = self.choose_member(avoid)?;
        self.members[member].unreported_leases += 1;
        self.leases.insert(id, MemberLeaseEntry { member, granted_at: now, is_reported: false });
        self.leases_by_age.push_back((now, id));
        Some(self.order_from(member, avoid))
    }

    /// Returns the order of healthy members for a client that uses `first`; nothing is counted.
    pub fn order_from(&self, first: usize, avoid: &[usize]) -> Vec<usize> {
        let count = self.members.len();
        let others = (1..count).map(|step| (first + step) % count);
        let mut others: Vec<usize> =
            others.filter(|member| self.members[*member].is_healthy && !avoid.contains(member)).collect();
        // The sort is stable: of equals, the one that follows `first` sooner.
        others.sort_by(|one, other| self.relative_load(*one).total_cmp(&self.relative_load(*other)));
        others.insert(0, first);
        others
    }

    /// Returns a member for a new stream, which counts until [`Self::close_stream`]; `None` where none is healthy. For
    /// callers that see the end of every stream, such as a simulation.
    pub fn open_stream(&mut self) -> Option<usize> {
        let member = self.choose_member(&[])?;
        self.members[member].unreported_leases += 1;
        Some(member)
    }

    /// Ends a stream that [`Self::open_stream`] assigned to this member.
    pub fn close_stream(&mut self, member: usize) {
        let member = &mut self.members[member];
        member.unreported_leases = member.unreported_leases.saturating_sub(1);
    }

    fn choose_member(&mut self, avoid: &[usize]) -> Option<usize> {
        let count = self.members.len();
        let in_turn = (0..count).map(|step| (self.next_index + step) % count);
        let fit: Vec<usize> =
            in_turn.filter(|member| self.members[*member].is_healthy && !avoid.contains(member)).collect();
        let member = match self.policy {
            // Of equals, `min_by` returns the first.
            BalancingPolicy::Connections => {
                *fit.iter().min_by(|a, b| self.relative_load(**a).total_cmp(&self.relative_load(**b)))?
            }
            BalancingPolicy::RoundRobin | BalancingPolicy::Cpu | BalancingPolicy::Throughput => {
                self.choose_by_credit(&fit)?
            }
        };
        self.next_index = (member + 1) % count;
        Some(member)
    }

    /// Chooses the member with the largest credit; each lease adds a member's fraction of the free capacity to its credit
    /// (smooth weighted round robin, nginx 1.3.1). Fractions follow reports; they distribute a burst between two.
    fn choose_by_credit(&mut self, fit: &[usize]) -> Option<usize> {
        let all: f64 = fit.iter().map(|member| self.free_capacity(*member)).sum();
        for member in fit {
            self.members[*member].credit += self.free_capacity(*member) / all;
        }
        let member = *fit.iter().reduce(|best, node| {
            // Sums of thirds are not quite equal; of nearly equal ones, the first.
            if self.members[*node].credit > self.members[*best].credit + 1e-9 { node } else { best }
        })?;
        self.members[member].credit -= 1.0;
        Some(member)
    }

    /// Returns the free capacity of a member, relative to others.
    fn free_capacity(&self, member: usize) -> f64 {
        let MemberEntry { load, weight, .. } = &self.members[member];
        let left = match self.policy {
            BalancingPolicy::RoundRobin | BalancingPolicy::Connections => 1.0,
            BalancingPolicy::Cpu => (1.0 - load.cpu).max(MIN_CAPACITY_SHARE),
            BalancingPolicy::Throughput => {
                (load.capacity_bytes_per_s - load.bytes_per_s).max(load.capacity_bytes_per_s * MIN_CAPACITY_SHARE)
            }
        };
        left * f64::from(*weight)
    }

    /// Returns the streams per free capacity of a member, including one more.
    fn relative_load(&self, member: usize) -> f64 {
        let MemberEntry { load, unreported_leases, .. } = &self.members[member];
        let reported = if self.policy == BalancingPolicy::Connections { load.connections } else { 0 };
        f64::from(reported + unreported_leases + 1) / self.free_capacity(member)
    }

    /// Drops leases that are too old, or too many.
    fn expire_leases(&mut self, now: Duration) {
        while let Some((given, id)) = self.leases_by_age.front().copied() {
            if now.saturating_sub(given) < MEMBER_LEASE_LIFETIME && self.leases_by_age.len() < MAX_MEMBER_LEASES {
                break;
            }
            self.leases_by_age.pop_front();
            // A lease that was renewed since has a later entry of its own.
            if self.leases.get(&id).is_some_and(|lease| lease.granted_at == given) {
                self.remove_lease(id);
            }
        }
    }

    fn remove_lease(&mut self, id: MemberLeaseId) {
        if let Some(lease) = self.leases.remove(&id).filter(|grant| !grant.is_reported) {
            let member = &mut self.members[lease.member];
            member.unreported_leases = member.unreported_leases.saturating_sub(1);
        }
    }
}
