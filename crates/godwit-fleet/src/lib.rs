//! Where processes run, how they find each other, and who works on what.
//!
//! A [`launcher`] starts the same command on some nodes: processes of this machine, machines reached by ssh, an allocation
//! of SLURM. The processes meet through a [`rendezvous`] file in a directory they all see. [`Leases`] hands numbered work
//! to workers that come, go and die, a [`Scheduler`] starts whole samples on nodes; they know neither clock nor socket.
//!
//! What the processes do, and what they say to each other, is none of this crate's business.

pub mod address;
mod attempts;
mod error;
pub mod launcher;
pub mod leases;
pub mod plan;
mod private;
mod quote;
pub mod rendezvous;
pub mod scheduler;
mod system;

pub use error::FleetError;
pub use launcher::{Ending, JobHandle, JobSpec, JobStatus, Launcher};
pub use leases::Leases;
pub use rendezvous::{Rendezvous, Token};
pub use scheduler::Scheduler;

/// The version that scripts and rendezvous files name, and that workers compare.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
