//! The choice of a node: events and the time in, a node out; no sockets, no clock.
//!
//! Reports are always old: a hundred clients that begin at once all see nodes without load, and would all choose the same one. A
//! [`Picker`] therefore counts every grant by itself until a report of the node it went to says that it came, or until it is so old that
//! nobody will come any more. What is reported and what is counted here never overlap, so that a report in the middle of a burst changes
//! nothing.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A number that a client draws at random, by which a grant is known again.
pub type GrantId = u64;

/// How long a grant counts that no report speaks of: its client is gone, or knows nothing of grants.
const GRANT_LIFETIME: Duration = Duration::from_secs(10);
/// Grants that are remembered; past it the oldest are forgotten.
const MOST_GRANTS: usize = 65_536;
/// A node with nothing left still has this share: one that nobody ever asks is never seen to be free again.
const LEAST_LEFT: f64 = 0.01;

/// By what a node is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The node with the fewest connections.
    Connections,
    /// By processors that have nothing to do.
    Cpu,
    /// By what the network has left.
    Throughput,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::Connections, Self::Cpu, Self::Throughput];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Connections => "connections",
            Self::Cpu => "cpu",
            Self::Throughput => "throughput",
        }
    }

    /// The policy of a word.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// What a node reports of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Connections over which it gives or takes data.
    pub connections: u32,
    /// Share of its processors that is busy, 0 to 1.
    pub cpu: f64,
    /// What it sends or receives, whichever is more, bytes a second.
    pub throughput: f64,
    /// What its network carries, bytes a second.
    pub capacity: f64,
}

impl Load {
    /// A node of which nothing is known: it has everything to give.
    pub const UNKNOWN: Self = Self { connections: 0, cpu: 0.0, throughput: 0.0, capacity: 1.0 };
}

/// Chooses among the nodes of a pool.
#[derive(Clone, Debug)]
pub struct Picker {
    policy: Policy,
    nodes: Vec<Node>,
    /// Where the search begins; of equals the first from here is taken.
    turn: usize,
    grants: HashMap<GrantId, Grant>,
    /// The same, the oldest first; some of them were settled since.
    by_age: VecDeque<(Duration, GrantId)>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    node: usize,
    given: Duration,
    /// Whether the node has reported it.
    settled: bool,
}

#[derive(Clone, Debug)]
struct Node {
    healthy: bool,
    load: Load,
    weight: u32,
    /// Streams given out that no report has counted.
    unreported: u32,
    /// What it is owed, in grants.
    credit: f64,
}

impl Picker {
    /// `nodes` nodes of equal weight, all healthy. The first stream goes to node `turn` if all are equal.
    ///
    /// # Panics
    /// If there is no node.
    pub fn new(policy: Policy, nodes: usize, turn: usize) -> Self {
        Self::weighted(policy, &vec![1; nodes], turn)
    }

    /// As [`Picker::new`], with nodes of which some are to have more than others.
    ///
    /// # Panics
    /// If there is no node.
    pub fn weighted(policy: Policy, weights: &[u32], turn: usize) -> Self {
        assert!(!weights.is_empty(), "a pool has nodes");
        let node = |weight: &u32| Node {
            healthy: true,
            load: Load::UNKNOWN,
            weight: (*weight).max(1),
            unreported: 0,
            credit: 0.0,
        };
        let nodes: Vec<Node> = weights.iter().map(node).collect();
        let turn = turn % nodes.len();
        Self { policy, nodes, turn, grants: HashMap::new(), by_age: VecDeque::new() }
    }

    /// What a node says of itself, and which grants have come to it; these are in its load.
    pub fn report(&mut self, node: usize, load: Load, come: &[GrantId]) {
        let found = &mut self.nodes[node];
        found.load = load;
        found.healthy = true;
        for id in come {
            let Some(grant) = self.grants.get_mut(id).filter(|grant| grant.node == node && !grant.settled) else {
                continue;
            };
            grant.settled = true;
            found.unreported = found.unreported.saturating_sub(1);
        }
    }

    /// A node that does not answer gets no streams until it reports again.
    pub fn lost(&mut self, node: usize) {
        self.nodes[node].healthy = false;
    }

    /// Whether it answered last time.
    pub fn is_healthy(&self, node: usize) -> bool {
        self.nodes[node].healthy
    }

    /// What a node reported last.
    pub fn load(&self, node: usize) -> Load {
        self.nodes[node].load
    }

    /// Grants that a node's reports do not speak of.
    pub fn unreported(&self, node: usize) -> u32 {
        self.nodes[node].unreported
    }

    /// A node for a request, and the other healthy ones behind it in the order in which they would be taken; nothing where none is
    /// healthy, those to `avoid` apart. A request that is made again has the same answer, and is counted once.
    pub fn grant(&mut self, now: Duration, id: GrantId, avoid: &[usize]) -> Option<Vec<usize>> {
        self.forget(now);
        if let Some(grant) = self.grants.get(&id).copied() {
            if self.nodes[grant.node].healthy && !avoid.contains(&grant.node) {
                return Some(self.order(grant.node, avoid));
            }
            self.withdraw(id);
        }
        let node = self.choose(avoid)?;
        self.nodes[node].unreported += 1;
        self.grants.insert(id, Grant { node, given: now, settled: false });
        self.by_age.push_back((now, id));
        Some(self.order(node, avoid))
    }

    /// The order of healthy nodes for somebody who is at the first of them; nothing is counted.
    pub fn order(&self, first: usize, avoid: &[usize]) -> Vec<usize> {
        let count = self.nodes.len();
        let others = (1..count).map(|step| (first + step) % count);
        let mut others: Vec<usize> = others.filter(|node| self.nodes[*node].healthy && !avoid.contains(node)).collect();
        // Stable: of equals, the one that comes first after the first.
        others.sort_by(|one, other| self.crowding(*one).total_cmp(&self.crowding(*other)));
        others.insert(0, first);
        others
    }

    /// A node for a new stream, until [`Self::ended`] says that it is over; `None` where none is healthy. For whoever sees the
    /// end of every stream, as a simulation does.
    pub fn pick(&mut self) -> Option<usize> {
        let node = self.choose(&[])?;
        self.nodes[node].unreported += 1;
        Some(node)
    }

    /// A stream that [`Self::pick`] gave to this node is over.
    pub fn ended(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.unreported = node.unreported.saturating_sub(1);
    }

    fn choose(&mut self, avoid: &[usize]) -> Option<usize> {
        let count = self.nodes.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let fit: Vec<usize> = in_turn.filter(|node| self.nodes[*node].healthy && !avoid.contains(node)).collect();
        let node = match self.policy {
            // Of equals, `min_by` gives the first.
            Policy::Connections => *fit.iter().min_by(|a, b| self.crowding(**a).total_cmp(&self.crowding(**b)))?,
            Policy::RoundRobin | Policy::Cpu | Policy::Throughput => self.next_in_turn(&fit)?,
        };
        self.turn = (node + 1) % count;
        Some(node)
    }

    /// Each is owed its share of a grant, the one that is owed most gets it: nodes take turns as their shares are, those with small ones spread
    /// among the others (the smooth weighted round robin of nginx 1.3.1). Shares follow reports; a burst between two reports is spread by them.
    fn next_in_turn(&mut self, fit: &[usize]) -> Option<usize> {
        let all: f64 = fit.iter().map(|node| self.left(*node)).sum();
        for node in fit {
            self.nodes[*node].credit += self.left(*node) / all;
        }
        let node = *fit.iter().reduce(|best, node| {
            // Sums of thirds are not quite equal; of those that are nearly so, the first one.
            if self.nodes[*node].credit > self.nodes[*best].credit + 1e-9 { node } else { best }
        })?;
        self.nodes[node].credit -= 1.0;
        Some(node)
    }

    /// What a node has to give, in comparison with others.
    fn left(&self, node: usize) -> f64 {
        let Node { load, weight, .. } = &self.nodes[node];
        let left = match self.policy {
            Policy::RoundRobin | Policy::Connections => 1.0,
            Policy::Cpu => (1.0 - load.cpu).max(LEAST_LEFT),
            Policy::Throughput => (load.capacity - load.throughput).max(load.capacity * LEAST_LEFT),
        };
        left * f64::from(*weight)
    }

    /// Streams for each of what a node has to give, with one more.
    fn crowding(&self, node: usize) -> f64 {
        let Node { load, unreported, .. } = &self.nodes[node];
        let reported = if self.policy == Policy::Connections { load.connections } else { 0 };
        f64::from(reported + unreported + 1) / self.left(node)
    }

    /// Forgets what is too old, and what is too much.
    fn forget(&mut self, now: Duration) {
        while let Some((given, id)) = self.by_age.front().copied() {
            if now.saturating_sub(given) < GRANT_LIFETIME && self.by_age.len() < MOST_GRANTS {
                break;
            }
            self.by_age.pop_front();
            // One that was given anew since has a later entry of its own.
            if self.grants.get(&id).is_some_and(|grant| grant.given == given) {
                self.withdraw(id);
            }
        }
    }

    fn withdraw(&mut self, id: GrantId) {
        if let Some(grant) = self.grants.remove(&id).filter(|grant| !grant.settled) {
            let node = &mut self.nodes[grant.node];
            node.unreported = node.unreported.saturating_sub(1);
        }
    }
}
