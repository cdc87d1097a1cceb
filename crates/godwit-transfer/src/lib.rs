//! Files over long fat networks: every block verified before it is written, resumed where it stopped, fair to others.
//!
//! [`delta`] is what genomes differ in from a reference, which is what is left to send of them.

pub mod delta;
pub mod manifest;
pub mod pace;
pub mod place;
pub mod ranges;
pub mod select;
pub mod session;
pub mod socket_options;
pub mod tree;
pub mod tune;

mod ahead;
mod control;
mod copy;
mod error;
mod genomes;
mod grants;
mod inbox;
mod journal;
mod names;
mod plan;
mod protocol;
mod relay;
mod service;
mod source;
mod streams;
mod sums;
mod task;
mod third_party;
mod write_back;

pub use control::Credentials;
pub use copy::{Compression, CopyEvent, CopyObserver, CopyOptions, CopySummary, PlannedAction, copy};
pub use error::TransferError;
pub use genomes::references::References;
pub use manifest::Links;
pub use relay::{RELAY_CACHE_LEAST_BYTES, RelayCache};
pub use service::{Files, FilesOptions};
