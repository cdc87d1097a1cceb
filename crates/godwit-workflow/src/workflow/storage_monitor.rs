//! Monitoring of the storage from which a workflow downloads reads and to which it uploads outputs.

use std::fmt::Debug;

use serde::Serialize;

/// The state of a storage pool at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StorageSnapshot {
    /// Time since the start of the workflow, seconds.
    pub seconds: f64,
    /// State of each member, in the order of the pool.
    #[serde(rename = "nodes")]
    pub members: Vec<StoragePoolMember>,
}

/// The state of a member of a storage pool at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoragePoolMember {
    /// Address of the member.
    pub location: String,
    /// True if the member answers health checks.
    #[serde(rename = "healthy")]
    pub is_healthy: bool,
    /// Number of connections that are transferring data.
    pub connections: u64,
    /// Rate of sent or of received data, whichever is higher, bytes/s.
    pub bytes_per_s: f64,
}

/// A monitor of a storage pool, which runs during a workflow.
pub trait StorageMonitor: Debug + Send + Sync {
    /// Returns all snapshots since the start of the workflow.
    fn snapshots(&self) -> Vec<StorageSnapshot>;
}
