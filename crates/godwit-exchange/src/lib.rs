//! The shuffle of a cluster run: blocks of reads are sent to workers, sorted slices of their records are exchanged between
//! workers, and partitions of the genome are written by their owners.
//!
//! [`ShuffleScheduler`] decides all of it, without a socket or a clock: events and the time go in, actions are returned.
//! [`HeadEndpoint`] and [`WorkerEndpoint`] are the two ends of the network that carries them, on Arrow Flight: small
//! messages on a connection of their own, so that data never delays a keep-alive. The content of slices, and how they are
//! made, stored and merged, belongs to `godwit-pipeline`. Regions to call, and frames of search workers, travel the same
//! way; `godwit_fleet::Leases` assigns them.

pub mod bytes_batch;
mod download_source;
mod error;
mod head_endpoint;
mod shuffle_scheduler;
mod worker_endpoint;
mod worker_messages;

pub use download_source::{DownloadBatches, DownloadSource};
pub use error::ExchangeError;
pub use godwit_flight::FlightError;
pub use head_endpoint::{CommandSender, HeadEndpoint, HeadEvent};
pub use shuffle_scheduler::{
    BytesPerFile, MAX_FILES, ShardId, ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler, WorkerId,
};
pub use worker_endpoint::{ClusterCredentials, DownloadReader as Downloading, WorkerEndpoint};
pub use worker_messages::{Command, DownloadTicket, WorkerEvent, WorkerUpload};
