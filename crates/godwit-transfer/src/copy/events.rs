//! What a copy tells while it goes on, and at its end.

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

/// What happens while files are copied.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// It is known what is to be done.
    Started {
        /// Files to be copied.
        files: usize,
        /// Files that are there already, by size and time.
        same: usize,
        /// Bytes of the files to be copied.
        bytes: u64,
        /// Of these, what is there from before.
        kept_bytes: u64,
        /// Connections.
        streams: u32,
        /// Servers that files come from, or go to.
        servers: usize,
        /// Round-trip time, milliseconds.
        rtt_ms: f64,
    },
    /// How far it is.
    Copying {
        /// Bytes that are there.
        bytes: u64,
        /// Of so many.
        of: u64,
        /// Bytes a second lately.
        bytes_per_s: u64,
        /// Seconds to go at that rate.
        eta_s: Option<u64>,
        /// Segments sent again by this machine.
        retransmits: u64,
        /// Blocks that came damaged.
        damaged: u64,
        /// Connections that are asked for blocks.
        #[serde(default)]
        streams: u32,
    },
    /// A file would be copied, or removed.
    Would {
        /// The action.
        what: PlannedAction,
        /// Its path below the destination.
        path: String,
        /// Its size.
        bytes: u64,
    },
    /// A genome is being packed here and unpacked there, or the other way round.
    Packing {
        /// Its path below the destination.
        path: String,
        /// How far it is: bytes of the file.
        bytes: u64,
        /// Of so many.
        of: u64,
    },
    /// A genome came as what differs from a reference.
    Unpacked {
        /// Its path below the destination.
        path: String,
        /// Its size.
        bytes: u64,
        /// What was sent for it.
        sent_bytes: u64,
    },
    /// What sending differences saved, at the end.
    Saved {
        /// Files that came so.
        files: usize,
        /// Their bytes.
        bytes: u64,
        /// What was sent for them.
        sent_bytes: u64,
        /// The difference.
        saved_bytes: u64,
    },
    /// A file has its name.
    Copied {
        /// Its path below the destination.
        path: String,
        /// Its size.
        bytes: u64,
        /// Its BLAKE3; empty where it was one block.
        blake3: String,
    },
    /// An entry is not copied, while others are. Comes at the end.
    NotCopied {
        /// Its path below the destination.
        path: String,
        /// The reason.
        why: String,
    },
    /// Something that the user should know.
    Warning {
        /// What.
        message: String,
    },
}

/// Is told what happens.
pub trait CopyObserver: Send + Sync {
    /// Something happened.
    fn event(&self, event: &CopyEvent);
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CopySummary {
    /// Files that were copied.
    pub files: usize,
    /// Files that were there already.
    pub same: usize,
    /// Files that were removed.
    pub removed: usize,
    /// Bytes of them, but for what was there from before all of it came over the network, before compression.
    pub bytes: u64,
    /// Bytes that were there from before.
    pub kept_bytes: u64,
    /// Of the files, those that came as what differs from a reference.
    pub packed_files: usize,
    /// Bytes of these.
    pub packed_bytes: u64,
    /// Bytes that were sent for them.
    pub packed_sent_bytes: u64,
    /// Links that were skipped, because that was asked for.
    #[serde(default)]
    pub skipped_links: usize,
    /// Blocks that came damaged and were fetched again.
    pub damaged: u64,
    /// How long it took, seconds.
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
