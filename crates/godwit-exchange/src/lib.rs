//! The shuffle of a cluster run: the decisions which worker aligns which block, stores which slice of the genome, and
//! writes which part of the output.
//!
//! [`ShuffleScheduler`] decides without sockets or a clock: the caller passes events and the time, and receives actions.
//! The messages and data of head and workers belong to `godwit-cluster`; the content of slices, and their creation,
//! storage and merging, belong to `godwit-pipeline`.

mod per_file;
mod shuffle_scheduler;

pub use godwit_fleet::WorkerId;
pub use per_file::PerFile;
pub use shuffle_scheduler::{ShardId, ShuffleAction, ShuffleEvent, ShuffleOptions, ShuffleScheduler};
