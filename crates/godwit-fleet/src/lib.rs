//! Starts the processes of a cluster job, connects workers to the head, and assigns work to workers.
//!
//! A [`launcher`] starts one command on several workers: as processes on this host, on hosts reached by ssh, or in an
//! allocation of SLURM. The workers find the head by a [`rendezvous`] file in a shared directory. [`Leases`] assigns
//! numbered work items to workers that join, leave and fail. A [`Scheduler`] starts whole samples on hosts. [`Leases`]
//! and [`Scheduler`] do not use a clock or a socket.
//!
//! The work of the processes, and the messages between them, are not part of this crate.

pub mod address;
mod allocation;
mod attempts;
pub mod cohort_simulation;
mod error;
mod interface_addresses;
pub mod launcher;
pub mod leases;
mod private_files;
pub mod rendezvous;
pub mod scheduler;
mod shell_quoting;

pub use allocation::Allocation;
pub use error::FleetError;
pub use launcher::{JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
pub use leases::{Leases, WorkerId};
pub use rendezvous::{Rendezvous, Token};
pub use scheduler::Scheduler;

/// Version of godwit in scripts and rendezvous files. A worker compares it with its own version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prefix of the line with which godwit reports its error on standard error. Launchers find the error in the logs of
/// workers by it.
pub const ERROR_PREFIX: &str = "godwit: error: ";
