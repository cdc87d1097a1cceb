//! How long a cohort takes on a facility: hours, genomes per day, what is short.
//!
//! [`simulate`] lets every sample of a cohort go through its steps. A sample has a slot on a compute node from its first
//! step to its last, which the [`Scheduler`](crate::Scheduler) of real runs gives it. A step computes for some hours, then moves files to or from shared storage: it asks a
//! [`Balancer`] for a storage node, and shares that node's network and the disks behind all nodes fairly with whoever else is
//! moving. Nothing is drawn at random: the same question has the same answer.
//!
//! What steps cost comes from measured hours: [`Workload::fit`].

mod shared_storage;
mod simulate;
mod workload;

pub use simulate::{Outcome, simulate};
pub use workload::{Column, Step, Workload, published};

/// Chooses storage nodes.
pub trait Balancer {
    /// A storage node for a stream that begins, counted from 0.
    fn grant(&mut self) -> usize;
    /// A stream of this node ended.
    fn ended(&mut self, node: usize);
}

/// Every stream goes through the first storage node, as where all clients know one address.
#[derive(Debug)]
pub struct OneForAll;

impl Balancer for OneForAll {
    fn grant(&mut self) -> usize {
        0
    }

    fn ended(&mut self, _: usize) {}
}

/// What there is to compute on and to store in.
#[derive(Clone, Debug, PartialEq)]
pub struct Facility {
    /// Compute nodes.
    pub nodes: usize,
    /// Samples that a compute node works on at a time.
    pub samples_per_node: usize,
    /// Storage nodes.
    pub storage_nodes: usize,
    /// What the disks of one storage node carry, as a share of what its network does.
    pub disk_share: f64,
}

#[cfg(test)]
mod tests;
