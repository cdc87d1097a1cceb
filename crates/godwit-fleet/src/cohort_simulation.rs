//! Simulates a cohort of samples on a compute facility and computes hours, genomes per day and bottlenecks.
//!
//! [`simulate`] runs all steps of every sample of a cohort. The [`Scheduler`](crate::Scheduler), which real runs also
//! use, assigns a slot on a compute host to a sample for all of its steps. Each step computes for some hours and then
//! moves files to or from shared storage. A [`StorageBalancer`] assigns a storage server to this transfer. All
//! transfers share the networks of the storage servers, and the disks behind all servers, fairly. The result is
//! deterministic.
//!
//! [`Workload::from_measurements`] derives the costs of the steps from measured hours.

mod shared_storage;
mod simulation;
mod workload;

pub use simulation::{SimulationResult, simulate};
pub use workload::{Measurement, Workload, WorkloadStep, published_workload};

/// A policy that assigns a storage server to each transfer.
pub trait StorageBalancer {
    /// Returns the 0-based index of the storage server for a new transfer.
    fn assign_server(&mut self) -> usize;
    /// Records that a transfer through this storage server has ended.
    fn release_server(&mut self, node: usize);
}

/// A balancer that always assigns the first storage server, as if all clients used the same address.
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
    /// Number of samples that a compute host processes at a time.
    pub samples_per_host: usize,
    /// Number of storage servers.
    pub storage_servers: usize,
    /// Throughput of the disks of a storage server, as a fraction of the throughput of its network.
    pub disk_network_ratio: f64,
}

#[cfg(test)]
mod tests;
