//! The state of the storage that a workflow reads from and writes to, over time.

use std::fmt::Debug;

use serde::Serialize;

/// The state of a storage pool at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StorageSnapshot {
    /// Time since the start of the workflow, seconds.
    pub seconds: f64,
    /// All members, in the order of the pool.
    #[serde(rename = "nodes")]
    pub members: Vec<StoragePoolMember>,
}

/// The state of a member of a storage pool at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoragePoolMember {
    /// Its address.
    pub location: String,
    /// True if it answers.
    #[serde(rename = "healthy")]
    pub is_healthy: bool,
    /// Number of connections with data transfers.
    pub connections: u64,
    /// Rate of sent or received data, whichever is higher, bytes/s.
    pub bytes_per_s: f64,
}

/// A monitor of a storage pool during a workflow.
pub trait StorageMonitor: Debug + Send + Sync {
    /// Returns all snapshots since the start.
    fn snapshots(&self) -> Vec<StorageSnapshot>;
}
