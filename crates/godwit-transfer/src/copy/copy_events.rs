//! The events of a copy and its summary.

use serde::{Deserialize, Serialize};

/// The action that a copy would take on an entry. The serialised names are printed and read by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlannedAction {
    /// A file would be copied from its start.
    #[serde(rename = "copy")]
    Copy,
    /// A copy of a file would be resumed.
    #[serde(rename = "go on with")]
    Resume,
    /// A directory would be made.
    #[serde(rename = "make")]
    Make,
    /// An entry would be removed.
    #[serde(rename = "remove")]
    Remove,
}

impl PlannedAction {
    /// Returns the serialised name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Resume => "go on with",
            Self::Make => "make",
            Self::Remove => "remove",
        }
    }
}

/// An event of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// The work of the copy is known.
    Started {
        /// Files to be copied.
        files: usize,
        /// Files that are up to date, by size and time.
        #[serde(rename = "same")]
        up_to_date_files: usize,
        /// Bytes of the files to be copied.
        bytes: u64,
        /// Bytes of these files that an earlier run has copied.
        #[serde(rename = "kept_bytes")]
        resumed_bytes: u64,
        /// Number of connections.
        streams: u32,
        /// Number of servers.
        servers: usize,
        /// Round-trip time, milliseconds.
        rtt_ms: f64,
    },
    /// The progress of the copy.
    #[serde(rename = "copying")]
    Progress {
        /// Bytes that are at the destination.
        bytes: u64,
        /// Bytes of all files.
        #[serde(rename = "of")]
        total_bytes: u64,
        /// Recent rate, bytes per second.
        bytes_per_s: u64,
        /// Remaining time at that rate, s.
        eta_s: Option<u64>,
        /// TCP segments that this host retransmitted.
        retransmits: u64,
        /// Blocks that were received damaged.
        damaged: u64,
        /// Number of connections with requests.
        #[serde(default)]
        streams: u32,
    },
    /// An entry would be copied, made or removed (dry run).
    #[serde(rename = "would")]
    DryRunAction {
        /// The action.
        #[serde(rename = "what")]
        action: PlannedAction,
        /// Path below the destination.
        path: String,
        /// Size, bytes.
        bytes: u64,
    },
    /// The progress of a delta copy of a genome.
    #[serde(rename = "packing")]
    DeltaProgress {
        /// Path below the destination.
        path: String,
        /// Bytes of the file that are done.
        bytes: u64,
        /// Size of the file, bytes.
        #[serde(rename = "of")]
        total_bytes: u64,
    },
    /// A genome was copied with delta compression.
    #[serde(rename = "unpacked")]
    DeltaCopied {
        /// Path below the destination.
        path: String,
        /// Size, bytes.
        bytes: u64,
        /// Bytes sent.
        sent_bytes: u64,
    },
    /// The bytes that delta compression saved, at the end.
    #[serde(rename = "saved")]
    DeltaSavings {
        /// Number of files.
        files: usize,
        /// Their size, bytes.
        bytes: u64,
        /// Bytes sent for them.
        sent_bytes: u64,
        /// The difference, bytes.
        saved_bytes: u64,
    },
    /// A file was committed.
    Copied {
        /// Path below the destination.
        path: String,
        /// Size, bytes.
        bytes: u64,
        /// BLAKE3 of the file; empty for a file of one block.
        blake3: String,
    },
    /// An entry was not copied, unlike others. Reported at the end.
    NotCopied {
        /// Path below the destination.
        path: String,
        /// The reason.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A warning for the user.
    Warning {
        /// The text.
        message: String,
    },
}

/// An observer of a copy.
pub trait CopyObserver: Send + Sync {
    /// Receives an event.
    fn on_event(&self, event: &CopyEvent);
}

/// Counts of a copy.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CopySummary {
    /// Files that were copied.
    pub files: usize,
    /// Files that were up to date.
    #[serde(rename = "same")]
    pub up_to_date_files: usize,
    /// Files that were removed.
    #[serde(rename = "removed")]
    pub removed_files: usize,
    /// Size of the copied files, bytes. Except for resumed bytes, all were received, before compression.
    pub bytes: u64,
    /// Bytes that an earlier run had copied.
    #[serde(rename = "kept_bytes")]
    pub resumed_bytes: u64,
    /// Number of the copied files with delta compression.
    #[serde(rename = "packed_files")]
    pub delta_files: usize,
    /// Their size, bytes.
    #[serde(rename = "packed_bytes")]
    pub delta_bytes: u64,
    /// Bytes sent for them.
    #[serde(rename = "packed_sent_bytes")]
    pub delta_sent_bytes: u64,
    /// Links that were skipped, by the link policy.
    #[serde(default)]
    pub skipped_links: usize,
    /// Blocks that were received damaged and fetched again.
    #[serde(rename = "damaged")]
    pub damaged_blocks: u64,
    /// Duration, s.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planned_actions_have_the_names_of_earlier_versions() {
        for (action, name) in [
            (PlannedAction::Copy, "copy"),
            (PlannedAction::Resume, "go on with"),
            (PlannedAction::Make, "make"),
            (PlannedAction::Remove, "remove"),
        ] {
            assert_eq!((action.name(), serde_json::to_value(action).unwrap()), (name, name.into()));
            assert_eq!(serde_json::from_value::<PlannedAction>(name.into()).unwrap(), action);
        }
    }
}
