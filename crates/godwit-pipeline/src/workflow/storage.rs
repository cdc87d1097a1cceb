//! What a run sees of the storage that its samples are read from and stored to, over time.

use std::fmt::Debug;

use serde::Serialize;

/// Storage nodes at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StorageMoment {
    /// Since the run began.
    pub seconds: f64,
    /// All of them, in the order of their pool.
    pub nodes: Vec<StorageNode>,
}

/// A storage node at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StorageNode {
    /// Where it is.
    pub location: String,
    /// Whether it is there.
    pub healthy: bool,
    /// Connections over which it gives or takes data.
    pub connections: u64,
    /// What it sends or receives, whichever is more.
    pub bytes_per_s: f64,
}

/// Looks after storage nodes while a run is under way.
pub trait WatchStorage: Debug + Send + Sync {
    /// How they were, from the beginning.
    fn moments(&self) -> Vec<StorageMoment>;
}
