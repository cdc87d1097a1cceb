//! The shuffle scheduler of a cluster run, unchanged, in a simulation: workers that align, fetch and write in simulated
//! time, a network with delay and loss, and faults drawn from a seed. Nothing here depends on a real clock, so a seed
//! that fails fails again.
//!
//! The simulation checks that every run ends, with every part in the file once at its offset, made of every block; that a
//! worker writes a part only when it holds all its slices; that no worker is assigned more than its limits; and that
//! blocks are aligned again only where a worker was lost or slow.

mod cluster_simulation;
mod cluster_timing;
mod copy_simulation;
mod ledger_benchmark;
mod random;

pub use cluster_simulation::{Faults, Outcome, Scenario, run};
pub use cluster_timing::{ClusterCosts, ClusterTiming, predict_cluster_run};
pub use copy_simulation::{CopyOutcome, simulate_copy};
pub use ledger_benchmark::{LedgerTimings, time_ledger};
