//! Selects a pool member for each client. This module uses neither sockets nor a clock: its caller passes in events and
//! the current time.
//!
//! Load reports of members are always slightly old. If a hundred clients started at once, all would be sent to the
//! member that was idle in the last report. [`LoadBalancer`] therefore adds each lease to the load of its member, until
//! the member reports that the client has connected, or until the lease expires. No client is counted twice, so a
//! report during a burst does not distort the selection.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::lease_header::MemberLeaseId;

/// Time after which a lease no longer counts if its member has not reported the connection of the client. The client
/// may have ended, or may not support leases.
const MEMBER_LEASE_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum number of stored leases; if there are more, the oldest are dropped.
const MAX_MEMBER_LEASES: usize = 65_536;
/// Minimum free fraction that is assumed for a member. Even a saturated member thus receives a few requests.
const MIN_CAPACITY_SHARE: f64 = 0.01;

/// The policy by which the load balancer selects a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancingPolicy {
    /// Each member in turn, by weight.
    RoundRobin,
    /// The member with the fewest connections relative to its weight.
    Connections,
    /// In proportion to the idle fraction of the processors of each member.
    Cpu,
    /// In proportion to the free network capacity of each member.
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

    /// Returns the policy with this name; `None` for unknown names.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::pool::BalancingPolicy;
    ///
    /// assert_eq!(BalancingPolicy::from_name("round-robin"), Some(BalancingPolicy::RoundRobin));
    /// assert_eq!(BalancingPolicy::from_name("random"), None);
    /// ```
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The load that a member reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of connections that transfer data.
    pub connections: u32,
    /// Busy fraction of the processors of the member, 0 to 1.
    pub cpu: f64,
    /// The larger of sent and received bytes per second.
    pub bytes_per_s: f64,
    /// Network capacity of the member, bytes per second.
    pub capacity_bytes_per_s: f64,
}

impl Load {
    /// The load that is assumed for a member before its first report.
    pub const UNKNOWN: Self = Self { connections: 0, cpu: 0.0, bytes_per_s: 0.0, capacity_bytes_per_s: 1.0 };
}

/// A load balancer over the members of a pool.
#[derive(Clone, Debug)]
pub struct LoadBalancer {
    policy: BalancingPolicy,
    members: Vec<MemberEntry>,
    /// Index of the member at which the selection starts. Of equally loaded members, the first one from here is
    /// selected.
    next_index: usize,
    leases: HashMap<MemberLeaseId, MemberLeaseEntry>,
    /// Grant times of leases, the oldest first. Some of these leases have been removed since.
    leases_by_age: VecDeque<(Duration, MemberLeaseId)>,
}

#[derive(Clone, Copy, Debug)]
struct MemberLeaseEntry {
    member: usize,
    granted_at: Duration,
    /// True if the member has reported that the client of the lease has connected.
    is_reported: bool,
}

#[derive(Clone, Debug)]
struct MemberEntry {
    is_healthy: bool,
    load: Load,
    weight: u32,
    /// Number of leases for which the member has not yet reported a connection.
    unreported_leases: u32,
    /// Credit of the member in the weighted round robin, in leases.
    credit: f64,
}

impl LoadBalancer {
    /// Creates a balancer over `nodes` healthy members of equal weight. Of equally loaded members, member `turn` is
    /// selected first.
    ///
    /// # Panics
    /// If there is no member.
    pub fn new(policy: BalancingPolicy, nodes: usize, turn: usize) -> Self {
        Self::with_weights(policy, &vec![1; nodes], turn)
    }

    /// Creates a balancer as [`LoadBalancer::new`] does, with a weight for each member.
    ///
    /// # Panics
    /// If there is no member.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::pool::{BalancingPolicy, LoadBalancer};
    ///
    /// let mut balancer = LoadBalancer::with_weights(BalancingPolicy::RoundRobin, &[1, 2, 1], 0);
    /// let mut streams = [0; 3];
    /// for member in (0..40).filter_map(|_| balancer.open_stream()) {
    ///     streams[member] += 1;
    /// }
    /// assert_eq!(streams, [10, 20, 10]);
    /// ```
    pub fn with_weights(policy: BalancingPolicy, weights: &[u32], turn: usize) -> Self {
        assert!(!weights.is_empty(), "a pool has members");
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

    /// Records the load that a member reports. `arrived_leases` are leases whose clients have connected and are
    /// included in this load.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::pool::{BalancingPolicy, Load, LoadBalancer};
    ///
    /// let mut balancer = LoadBalancer::new(BalancingPolicy::Connections, 2, 0);
    /// balancer.record_report(0, Load { connections: 10, ..Load::UNKNOWN }, &[]);
    /// assert_eq!(balancer.open_stream(), Some(1));
    /// assert_eq!(balancer.load(0).connections, 10);
    /// ```
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

    /// Marks a member as lost. The member is not selected until it reports its load again.
    ///
    /// # Examples
    ///
    /// ```
    /// use godwit_flight::pool::{BalancingPolicy, Load, LoadBalancer};
    ///
    /// let mut balancer = LoadBalancer::new(BalancingPolicy::RoundRobin, 2, 0);
    /// balancer.mark_lost(0);
    /// assert_eq!((balancer.open_stream(), balancer.open_stream()), (Some(1), Some(1)));
    /// balancer.record_report(0, Load::UNKNOWN, &[]);
    /// assert!(balancer.is_healthy(0));
    /// ```
    pub fn mark_lost(&mut self, member: usize) {
        self.members[member].is_healthy = false;
    }

    /// Returns whether a member is healthy: it has not been marked as lost since its last report.
    pub fn is_healthy(&self, member: usize) -> bool {
        self.members[member].is_healthy
    }

    /// Returns the load in the last report of a member.
    pub fn load(&self, member: usize) -> Load {
        self.members[member].load
    }

    /// Returns the number of leases for which a member has not yet reported a connection.
    pub(crate) fn unreported_leases(&self, member: usize) -> u32 {
        self.members[member].unreported_leases
    }

    /// Selects a member for a client. Returns this member, followed by the other healthy members by increasing load;
    /// `None` if no member outside `avoid` is healthy. A repeated request with the same `id` returns the same member
    /// and is counted once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use godwit_flight::pool::{BalancingPolicy, LoadBalancer};
    ///
    /// let (mut balancer, now) = (LoadBalancer::new(BalancingPolicy::Connections, 2, 0), Duration::ZERO);
    /// assert_eq!(balancer.lease_member(now, 7, &[]), Some(vec![0, 1]));
    /// assert_eq!(balancer.lease_member(now, 8, &[]), Some(vec![1, 0]));
    /// // The first client repeats its request, and then reports that it cannot reach the member.
    /// assert_eq!(balancer.lease_member(now, 7, &[]), Some(vec![0, 1]));
    /// assert_eq!(balancer.lease_member(now, 7, &[0]), Some(vec![1]));
    /// ```
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

    /// Returns `first`, followed by the other healthy members by increasing load, without counting a lease.
    pub(crate) fn order_from(&self, first: usize, avoid: &[usize]) -> Vec<usize> {
        let count = self.members.len();
        let others = (1..count).map(|step| (first + step) % count);
        let mut others: Vec<usize> =
            others.filter(|member| self.members[*member].is_healthy && !avoid.contains(member)).collect();
        // The sort is stable, so equally loaded members stay in their order after `first`.
        others.sort_by(|one, other| self.relative_load(*one).total_cmp(&self.relative_load(*other)));
        others.insert(0, first);
        others
    }

    /// Selects a member for a new stream, which is counted until [`Self::close_stream`]; `None` if no member is
    /// healthy. This method is for callers that see the end of every stream, such as a simulation.
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
            // Of equally loaded members, `min_by` returns the first.
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

    /// Selects the member with the largest credit. For each lease, every member gains credit in proportion to its free
    /// capacity, and the selected member loses one (smooth weighted round robin, nginx 1.3.1). Leases between two
    /// reports are thus distributed by the capacities in the last report.
    fn choose_by_credit(&mut self, fit: &[usize]) -> Option<usize> {
        let all: f64 = fit.iter().map(|member| self.free_capacity(*member)).sum();
        for member in fit {
            self.members[*member].credit += self.free_capacity(*member) / all;
        }
        let member = *fit.iter().reduce(|best, node| {
            // Treat nearly equal credits as equal, because sums of fractions such as 1/3 have rounding errors.
            if self.members[*node].credit > self.members[*best].credit + 1e-9 { node } else { best }
        })?;
        self.members[member].credit -= 1.0;
        Some(member)
    }

    /// Returns the free capacity of a member times its weight, comparable between members of the same pool.
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

    /// Returns the number of streams relative to the free capacity of a member, if the member received one more stream.
    fn relative_load(&self, member: usize) -> f64 {
        let MemberEntry { load, unreported_leases, .. } = &self.members[member];
        let reported = if self.policy == BalancingPolicy::Connections { load.connections } else { 0 };
        f64::from(reported + unreported_leases + 1) / self.free_capacity(member)
    }

    /// Drops expired leases, and the oldest leases if there are too many.
    fn expire_leases(&mut self, now: Duration) {
        while let Some((given, id)) = self.leases_by_age.front().copied() {
            if now.saturating_sub(given) < MEMBER_LEASE_LIFETIME && self.leases_by_age.len() < MAX_MEMBER_LEASES {
                break;
            }
            self.leases_by_age.pop_front();
            // Keep a lease that was granted again later; `leases_by_age` has another entry for it.
            if self.leases.get(&id).is_some_and(|lease| lease.granted_at == given) {
                self.remove_lease(id);
            }
        }
    }

    fn remove_lease(&mut self, id: MemberLeaseId) {
        if let Some(lease) = self.leases.remove(&id).filter(|grant| !grant.is_reported) {
            self.close_stream(lease.member);
        }
    }
}
