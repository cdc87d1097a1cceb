//! Where processes run, how they find each other, and which worker has which work.
//!
//! A [`launcher`] starts one command on several workers: processes of this host, hosts reached by ssh, an allocation of
//! SLURM. The processes connect by a [`rendezvous`] file in a shared directory. [`Leases`] assigns numbered items of work to
//! workers that join, leave and fail; a [`Scheduler`] starts whole samples on hosts. Neither uses a clock or a socket.
//!
//! What the processes do, and the messages between them, are not part of this crate.

pub mod address;
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

pub use error::FleetError;
pub use launcher::{JobHandle, JobOutcome, JobSpec, JobStatus, Launcher};
pub use leases::Leases;
pub use rendezvous::{Rendezvous, Token};
pub use scheduler::Scheduler;

/// The version in scripts and rendezvous files, which workers compare.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
