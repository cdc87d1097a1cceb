//! Lists that share their beginnings: what each path has included, excluded, and where it was in sync.

use super::ForEach;

/// Number of a node of a [`History`]; a list is the number of its last node.
pub(super) type NodeId = u32;

/// The empty list.
pub(super) const EMPTY: NodeId = 0;

/// Number of nodes that are held before those that no path needs are removed.
const FIRST_COLLECTION_NODES: usize = 1 << 20;

/// Nodes of lists; a node follows the node from which it was made.
#[derive(Debug)]
pub(super) struct History {
    nodes: Vec<(NodeId, u32)>,
    collect_at: usize,
}

impl History {
    pub(super) fn new() -> Self {
        Self { nodes: vec![(EMPTY, 0)], collect_at: FIRST_COLLECTION_NODES }
    }

    /// Returns the list with a value after its last one.
    pub(super) fn push(&mut self, list: NodeId, value: u32) -> NodeId {
        self.nodes.push((list, value));
        (self.nodes.len() - 1) as NodeId
    }

    /// Returns the values of a list in their order.
    pub(super) fn values(&self, mut list: NodeId) -> Vec<u32> {
        let mut values = Vec::new();
        while list != EMPTY {
            let (before, value) = self.nodes[list as usize];
            values.push(value);
            list = before;
        }
        values.reverse();
        values
    }

    /// Returns whether enough nodes were added since the last collection that another one pays.
    pub(super) fn is_collection_due(&self) -> bool {
        self.nodes.len() >= self.collect_at
    }

    /// Removes the nodes that no list of `lists` needs, and updates the lists.
    pub(super) fn collect(&mut self, lists: &mut ForEach<NodeId>) {
        let mut numbers: Vec<NodeId> = vec![EMPTY; self.nodes.len()];
        lists(&mut |list| numbers[*list as usize] = 1);
        for node in (1..self.nodes.len()).rev() {
            if numbers[node] != EMPTY {
                numbers[self.nodes[node].0 as usize] = 1;
            }
        }
        numbers[EMPTY as usize] = EMPTY;
        let mut count = 1;
        for node in 1..self.nodes.len() {
            if numbers[node] != EMPTY {
                let (before, value) = self.nodes[node];
                self.nodes[count] = (numbers[before as usize], value);
                numbers[node] = count as NodeId;
                count += 1;
            }
        }
        self.nodes.truncate(count);
        self.collect_at = FIRST_COLLECTION_NODES.max(2 * count);
        lists(&mut |list| *list = numbers[*list as usize]);
    }
}
