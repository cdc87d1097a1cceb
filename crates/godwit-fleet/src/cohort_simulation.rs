//! Simulation of a cohort on a facility: hours, genomes per day, bottlenecks.
//!
//! [`simulate`] runs the steps of every sample of a cohort. A sample has a slot on a compute host from its first step to its
//! last, assigned by the [`Scheduler`](crate::Scheduler) of real runs. A step computes for some hours, then moves files to
//! or from shared storage: a [`StorageBalancer`] assigns a storage server, whose network, and the disks behind all servers,
//! are shared fairly by all streams. The result is deterministic.
//!
//! The costs of steps are derived from measured hours: [`Workload::from_measurements`].

mod shared_storage;
mod simulation;
mod workload;

pub use simulation::{SimulationResult, simulate};
pub use workload::{Measurement, Workload, WorkloadStep, published_workload};

/// A policy that assigns storage servers.
pub trait StorageBalancer {
    /// Returns the 0-based index of the storage server for a new stream.
    fn assign_server(&mut self) -> usize;
    /// Records that a stream of this server ended.
    fn release_server(&mut self, node: usize);
}

/// A balancer that uses the first storage server only, as where all clients know one address.
#[derive(Debug)]
pub struct SingleServerBalancer;

impl StorageBalancer for SingleServerBalancer {
    fn assign_server(&mut self) -> usize {
        0
    }

    fn release_server(&mut self, _: usize) {}
}

/// The compute hosts and storage servers of a facility.
#[derive(Clone, Debug, PartialEq)]
pub struct Facility {
    /// Number of compute hosts.
    pub compute_hosts: usize,
    /// Samples that a compute host runs at a time.
    pub samples_per_host: usize,
    /// Number of storage servers.
    pub storage_servers: usize,
    /// Throughput of a storage server's disks, as a fraction of that of its network.
    pub disk_network_ratio: f64,
}

#[cfg(test)]
mod tests;
