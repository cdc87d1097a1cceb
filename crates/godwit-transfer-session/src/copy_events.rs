//! The events that a copy reports to its observer, and the summary of a copy.

use serde::{Deserialize, Serialize};

/// The action that a copy would take on an entry (dry run). Its serialised name is printed and is read by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlannedAction {
    /// A file would be copied from its start.
    #[serde(rename = "copy")]
    Copy,
    /// A partial copy of a file at the destination would be resumed.
    #[serde(rename = "go on with")]
    Resume,
    /// A directory would be created.
    #[serde(rename = "make")]
    Make,
    /// An entry at the destination would be removed.
    #[serde(rename = "remove")]
    Remove,
}

impl PlannedAction {
    /// Returns the serialised name of the action.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use godwit_transfer_session::copy_events::PlannedAction;
    ///
    /// assert_eq!(PlannedAction::Remove.name(), "remove");
    /// assert_eq!(serde_json::to_value(PlannedAction::Resume)?, PlannedAction::Resume.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Resume => "go on with",
            Self::Make => "make",
            Self::Remove => "remove",
        }
    }
}

/// An event that a copy reports to its observer.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_transfer_session::copy_events::CopyEvent;
///
/// let event = CopyEvent::Copied { path: "run7/a.bam".to_owned(), bytes: 4096, blake3: String::new() };
/// let line = serde_json::to_string(&event)?;
/// assert_eq!(line, r#"{"event":"copied","path":"run7/a.bam","bytes":4096,"blake3":""}"#);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CopyEvent {
    /// The copy has compared source and destination, and starts to transfer blocks.
    Started {
        /// Number of files to be copied.
        files: usize,
        /// Number of files that are up to date: size and modification time match.
        #[serde(rename = "same")]
        up_to_date_files: usize,
        /// Bytes of the files to be copied.
        bytes: u64,
        /// Bytes of the files to be copied that an earlier, interrupted run has already transferred.
        #[serde(rename = "kept_bytes")]
        resumed_bytes: u64,
        /// Number of connections at the start of the copy.
        streams: u32,
        /// Number of servers that send or receive the files.
        servers: usize,
        /// Round-trip time to the first server, milliseconds.
        rtt_ms: f64,
    },
    /// The progress of the copy; reported every 250 ms.
    #[serde(rename = "copying")]
    Progress {
        /// Bytes that are at the destination, including those of an earlier run.
        bytes: u64,
        /// Bytes of all files to be copied.
        #[serde(rename = "of")]
        total_bytes: u64,
        /// Throughput over the last 3 s, bytes per second.
        bytes_per_s: u64,
        /// Estimated remaining time at this throughput, seconds; `None` if the throughput is 0.
        eta_s: Option<u64>,
        /// Number of TCP segments that this host retransmitted.
        retransmits: u64,
        /// Number of blocks that were received damaged.
        damaged: u64,
        /// Number of connections over which blocks are requested.
        #[serde(default)]
        streams: u32,
    },
    /// A dry run found an entry that a copy would copy, create or remove.
    #[serde(rename = "would")]
    DryRunAction {
        /// The action that the copy would take.
        #[serde(rename = "what")]
        action: PlannedAction,
        /// Path of the entry, below the destination.
        path: String,
        /// Size of the file, bytes; 0 for an entry that would be removed.
        bytes: u64,
    },
    /// The progress of the delta copy of one genome.
    #[serde(rename = "packing")]
    DeltaProgress {
        /// Path of the file, below the destination.
        path: String,
        /// Bytes of the file that were packed or unpacked so far.
        bytes: u64,
        /// Size of the file, bytes.
        #[serde(rename = "of")]
        total_bytes: u64,
    },
    /// A genome was copied with delta compression.
    #[serde(rename = "unpacked")]
    DeltaCopied {
        /// Path of the file, below the destination.
        path: String,
        /// Size of the file, bytes.
        bytes: u64,
        /// Bytes sent over the network to copy the file.
        sent_bytes: u64,
    },
    /// The number of bytes that delta compression saved; reported once, at the end of the copy.
    #[serde(rename = "saved")]
    DeltaSavings {
        /// Number of files that were copied with delta compression.
        files: usize,
        /// Size of the files that were copied with delta compression, bytes.
        bytes: u64,
        /// Bytes sent over the network for the files with delta compression.
        sent_bytes: u64,
        /// Bytes that were saved: the size of the files less the bytes sent, or 0 if more bytes were sent.
        saved_bytes: u64,
    },
    /// A file is complete at the destination and has its final name.
    Copied {
        /// Path of the file, below the destination.
        path: String,
        /// Size of the file, bytes.
        bytes: u64,
        /// BLAKE3 of the file, hexadecimal; empty for a file of one block.
        blake3: String,
    },
    /// An entry was not copied, although others were. Reported at the end of the copy.
    NotCopied {
        /// Path of the entry, below the destination.
        path: String,
        /// The reason, for the user.
        #[serde(rename = "why")]
        reason: String,
    },
    /// A warning for the user.
    Warning {
        /// The text of the warning.
        message: String,
    },
}

/// An observer that receives the events of a copy.
///
/// # Examples
///
/// ```
/// use std::sync::Mutex;
///
/// use godwit_transfer_session::copy_events::{CopyEvent, CopyObserver};
///
/// #[derive(Default)]
/// struct Warnings(Mutex<Vec<String>>);
///
/// impl CopyObserver for Warnings {
///     fn on_event(&self, event: &CopyEvent) {
///         if let CopyEvent::Warning { message } = event {
///             self.0.lock().unwrap().push(message.clone());
///         }
///     }
/// }
///
/// let warnings = Warnings::default();
/// warnings.on_event(&CopyEvent::Warning { message: "no checksum is listed for a.bam".to_owned() });
/// assert_eq!(warnings.0.into_inner().unwrap(), ["no checksum is listed for a.bam"]);
/// ```
pub trait CopyObserver: Send + Sync {
    /// Receives an event while the copy is running.
    fn on_event(&self, event: &CopyEvent);
}

/// Counts of a finished copy.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use godwit_transfer_session::copy_events::CopySummary;
///
/// let summary = CopySummary { files: 3, up_to_date_files: 1, bytes: 4096, ..CopySummary::default() };
/// let json = serde_json::to_value(summary)?;
/// assert_eq!(json["files"], 3);
/// assert_eq!(json["same"], 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CopySummary {
    /// Number of files that were copied.
    pub files: usize,
    /// Number of files that were up to date and were not copied.
    #[serde(rename = "same")]
    pub up_to_date_files: usize,
    /// Number of entries that were removed at the destination because the source lacks them.
    #[serde(rename = "removed")]
    pub removed_files: usize,
    /// Size of the copied files before compression, bytes, including `resumed_bytes`.
    pub bytes: u64,
    /// Bytes of the copied files that an earlier, interrupted run had already transferred.
    #[serde(rename = "kept_bytes")]
    pub resumed_bytes: u64,
    /// Number of the copied files that were sent with delta compression.
    #[serde(rename = "packed_files")]
    pub delta_files: usize,
    /// Size of the files that were sent with delta compression, bytes.
    #[serde(rename = "packed_bytes")]
    pub delta_bytes: u64,
    /// Bytes sent over the network for the files with delta compression.
    #[serde(rename = "packed_sent_bytes")]
    pub delta_sent_bytes: u64,
    /// Number of symbolic links that were skipped because of the link policy.
    #[serde(default)]
    pub skipped_links: usize,
    /// Number of blocks that were received damaged and fetched again.
    #[serde(rename = "damaged")]
    pub damaged_blocks: u64,
    /// Duration of the copy, seconds.
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
