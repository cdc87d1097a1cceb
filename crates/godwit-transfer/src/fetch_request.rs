//! The request by which a client makes a server fetch files from other servers.

use serde::{Deserialize, Serialize};

use crate::file_listing::LinkPolicy;
use crate::tcp_tuning::CopyMode;

/// A request to the destination server to fetch files from source servers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FetchRequest {
    /// Name of the fetch, with which the client requests its events.
    #[serde(rename = "name")]
    pub(crate) copy_id: String,
    /// URL of each source, and the delegation token for reading it.
    pub(crate) sources: Vec<(String, String)>,
    /// Destination as the user wrote it, below the root of the destination server.
    pub(crate) destination: String,
    pub(crate) mode: CopyMode,
    pub(crate) bits_per_s: Option<u64>,
    pub(crate) streams: Option<u32>,
    #[serde(rename = "compress")]
    pub(crate) compression: CompressionKind,
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) sync: bool,
    #[serde(rename = "patience_s")]
    pub(crate) idle_timeout_s: u64,
    #[serde(default)]
    #[serde(rename = "links")]
    pub(crate) link_policy: LinkPolicy,
    /// True if the response has a second message that lists the entries that could not be copied. If false, the first
    /// such entry fails the request.
    #[serde(default)]
    #[serde(rename = "each")]
    pub(crate) per_entry_errors: bool,
}

/// Compression of blocks in transit. For delta compression, the references of the two servers are used.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CompressionKind {
    None,
    Zstd,
    Delta,
}
