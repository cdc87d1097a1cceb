//! Copies of files over long fat networks. Every block is verified before it is written, copies resume where they stopped,
//! and other traffic keeps its bandwidth.
//!
//! [`delta`] packs genomes as their differences from a reference; only the differences are sent.

pub mod blake3_tree;
pub mod delta;
pub mod file_listing;
pub mod location;
pub mod ranges;
pub mod rate_control;
pub mod selection;
pub mod socket_options;
pub mod tcp_tuning;
pub mod transfer_session;

mod abort_on_drop;
mod block_reader;
mod checksum_lists;
mod control_client;
mod copy;
mod copy_plan;
mod copy_protocol;
mod delegation_tokens;
mod delta_transfer;
mod error;
mod file_receiver;
mod file_service;
mod journal;
mod path_text;
mod prefetch_plan;
mod relay;
mod stream_task;
mod third_party_copy;
mod write_back;

pub use control_client::Credentials;
pub use copy::{Compression, CopyEvent, CopyObserver, CopyOptions, CopySummary, PlannedAction, copy};
pub use delta_transfer::reference_store::ReferenceStore;
pub use error::TransferError;
pub use file_listing::LinkPolicy;
pub use file_service::{DirectoryFileService, FileServiceOptions};
pub use relay::{RELAY_CACHE_MIN_BYTES, RelayCache};
