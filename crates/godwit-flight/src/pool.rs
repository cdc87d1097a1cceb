//! Several nodes that give the same data: which one a stream goes to.
//!
//! In: what nodes report of themselves, now and then. Out: a node for each stream, by a [`Policy`]. Reports are always old: a
//! hundred clients that begin at once all see nodes without load, and would all choose the same one. A [`Picker`] therefore
//! counts what it gave out itself and no report speaks of yet, and clients that each have a picker of their own begin at different
//! nodes.

/// By what a node is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// One after the other.
    RoundRobin,
    /// The node with the fewest streams.
    Connections,
    /// By processors that have nothing to do.
    Cpu,
    /// By what the network has left.
    Throughput,
}

/// What a node reports of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Streams it serves.
    pub streams: u32,
    /// Share of its processors that is busy, 0 to 1.
    pub cpu: f64,
    /// What it sends and receives, bytes a second.
    pub throughput: f64,
    /// What its network carries, bytes a second.
    pub capacity: f64,
}

impl Load {
    /// A node of which nothing is known: it has everything to give.
    pub const UNKNOWN: Self = Self { streams: 0, cpu: 0.0, throughput: 0.0, capacity: 1.0 };
}

/// Chooses among the nodes of a pool.
#[derive(Clone, Debug)]
pub struct Picker {
    policy: Policy,
    nodes: Vec<Node>,
    /// Where the search begins; of equals the first from here is taken.
    turn: usize,
}

#[derive(Clone, Debug)]
struct Node {
    healthy: bool,
    load: Load,
    /// Streams given out that still go on and that no report has counted.
    unreported: u32,
    /// Streams given out that a report has counted.
    reported: u32,
}

/// A node with nothing left still has this share: one that nobody ever asks is never seen to be free again.
const LEAST_LEFT: f64 = 0.01;

impl Picker {
    /// `nodes` nodes, all healthy. The first stream goes to node `turn` if all are equal.
    ///
    /// # Panics
    /// If there is no node.
    pub fn new(policy: Policy, nodes: usize, turn: usize) -> Self {
        assert!(nodes > 0, "a pool has nodes");
        let node = Node { healthy: true, load: Load::UNKNOWN, unreported: 0, reported: 0 };
        Self { policy, nodes: vec![node; nodes], turn: turn % nodes }
    }

    /// What a node says of itself. It counts the streams that it was given before.
    pub fn report(&mut self, node: usize, load: Load) {
        let node = &mut self.nodes[node];
        node.load = load;
        node.healthy = true;
        node.reported += std::mem::take(&mut node.unreported);
    }

    /// A node that does not answer gets no streams until it reports again.
    pub fn lost(&mut self, node: usize) {
        self.nodes[node].healthy = false;
    }

    /// A node for a new stream; `None` where none is healthy.
    pub fn pick(&mut self) -> Option<usize> {
        let count = self.nodes.len();
        let mut in_turn = (0..count).map(|step| (self.turn + step) % count).filter(|node| self.nodes[*node].healthy);
        let node = match self.policy {
            Policy::RoundRobin => in_turn.next()?,
            // Of equals, `min_by` gives the first.
            _ => in_turn.min_by(|a, b| self.crowding(*a).total_cmp(&self.crowding(*b)))?,
        };
        self.nodes[node].unreported += 1;
        self.turn = (node + 1) % count;
        Some(node)
    }

    /// A stream that [`Self::pick`] gave to this node is over.
    pub fn ended(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        // Which of the two it was is not known; a report that comes soon says how many there are.
        if node.reported > 0 {
            node.reported -= 1;
            node.load.streams = node.load.streams.saturating_sub(1);
        } else {
            node.unreported = node.unreported.saturating_sub(1);
        }
    }

    /// Streams for each of what a node has to give, with one more.
    fn crowding(&self, node: usize) -> f64 {
        let Node { load, unreported, .. } = &self.nodes[node];
        let more = f64::from(unreported + 1);
        match self.policy {
            Policy::RoundRobin => 0.0,
            Policy::Connections => f64::from(load.streams) + more,
            Policy::Cpu => more / (1.0 - load.cpu).max(LEAST_LEFT),
            Policy::Throughput => more / (load.capacity - load.throughput).max(load.capacity * LEAST_LEFT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: [Policy; 4] = [Policy::RoundRobin, Policy::Connections, Policy::Cpu, Policy::Throughput];

    /// Streams that each node gets of a burst, before anyone reports.
    fn burst(picker: &mut Picker, streams: usize) -> Vec<usize> {
        let mut each = vec![0; picker.nodes.len()];
        for _ in 0..streams {
            each[picker.pick().expect("some are healthy")] += 1;
        }
        each
    }

    #[test]
    fn a_burst_spreads_over_nodes_that_all_report_nothing_to_do() {
        for policy in POLICIES {
            for nodes in [1, 3, 7] {
                let each = burst(&mut Picker::new(policy, nodes, 2), 120);
                let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
                assert!(most - least <= 1, "{policy:?}: {each:?}");
            }
        }
    }

    #[test]
    fn clients_with_pickers_of_their_own_do_not_all_begin_at_one_node() {
        for policy in POLICIES {
            let mut each = [0; 3];
            for client in 0..120 {
                each[Picker::new(policy, 3, client).pick().unwrap()] += 1;
            }
            assert_eq!(each, [40; 3], "{policy:?}");
        }
    }

    #[test]
    fn a_busy_node_gets_less_than_a_quarter() {
        let mut by_cpu = Picker::new(Policy::Cpu, 3, 0);
        by_cpu.report(1, Load { cpu: 0.9, ..Load::UNKNOWN });
        assert_eq!(burst(&mut by_cpu, 210), [100, 10, 100]);
        let mut by_network = Picker::new(Policy::Throughput, 3, 0);
        for node in 0..3 {
            by_network.report(node, Load { capacity: if node == 2 { 5e8 } else { 1e9 }, ..Load::UNKNOWN });
        }
        assert_eq!(burst(&mut by_network, 100), [40, 40, 20]);
    }

    #[test]
    fn streams_that_others_opened_count() {
        let mut picker = Picker::new(Policy::Connections, 3, 0);
        picker.report(0, Load { streams: 10, ..Load::UNKNOWN });
        assert_eq!(burst(&mut picker, 20), [0, 10, 10]);
        assert_eq!(burst(&mut picker, 3), [1, 1, 1]);
        // Its report counts what it was given; what ends is no longer there.
        picker.report(0, Load { streams: 11, ..Load::UNKNOWN });
        picker.ended(0);
        picker.ended(1);
        assert_eq!(burst(&mut picker, 2), [1, 1, 0]);
    }

    #[test]
    fn a_node_that_was_lost_comes_back_when_it_reports() {
        for policy in POLICIES {
            let mut picker = Picker::new(policy, 3, 0);
            picker.lost(0);
            assert_eq!(burst(&mut picker, 6), [0, 3, 3], "{policy:?}");
            picker.lost(1);
            picker.lost(2);
            assert_eq!(picker.pick(), None);
            picker.report(0, Load::UNKNOWN);
            assert_eq!(picker.pick(), Some(0));
        }
    }

    #[test]
    fn streams_that_come_and_go_leave_nodes_even() {
        let mut picker = Picker::new(Policy::Connections, 3, 0);
        let mut open = std::collections::VecDeque::new();
        let mut each = [0_i32; 3];
        for round in 0..1000 {
            let node = picker.pick().unwrap();
            each[node] += 1;
            open.push_back(node);
            if round % 3 != 0 {
                let gone = open.pop_front().unwrap();
                picker.ended(gone);
                each[gone] -= 1;
            }
            if round % 50 == 0 {
                for (node, streams) in each.iter().enumerate() {
                    picker.report(node, Load { streams: u32::try_from(*streams).unwrap(), ..Load::UNKNOWN });
                }
            }
        }
        assert!(each.iter().max().unwrap() - each.iter().min().unwrap() <= 1, "{each:?}");
    }
}
