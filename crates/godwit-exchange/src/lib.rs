//! The shuffle of a cluster run. The head sends blocks of reads to workers for alignment. Workers exchange sorted
//! slices of the aligned records. Each partition of the genome is written by the worker that owns it.
//!
//! [`ShuffleScheduler`] decides which worker does what, without sockets or a clock: the caller passes events and the
//! time, and receives actions. [`HeadEndpoint`] and [`WorkerEndpoint`] exchange the messages and data of head and
//! workers over Arrow Flight. Small messages have a connection of their own, so that data transfers never delay a
//! keep-alive.
//!
//! The content of slices, and their creation, storage and merging, belong to `godwit-pipeline`. The endpoints also
//! carry the regions of variant calling and the frames of search workers; `godwit_fleet::Leases` assigns these.

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
