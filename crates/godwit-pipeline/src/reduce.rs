//! The reduce half: runs and signatures in, sorted and marked records out, in every format asked for, with
//! indexes and statistics.
//!
//! `align` and `markdup` share it. Blocks go in as they come; nothing is written before every block is in, because the
//! best pair of a duplicate set may be in the last one.

mod annotate;
mod apart;
mod by_partition;
mod collector;
mod follow;
mod outputs;
mod partition;
mod qc;
mod ranks;
mod seal;
mod sink;
mod stepped;
mod write;

pub(crate) use apart::{Gathering, MadePart, PartMaker, PartMakerOptions, PartPlaces, Places};
pub use collector::{BlockElsewhere, Collector, ReduceOptions, WritingOptions};
pub(crate) use follow::{BegunBam, Follower};
pub use outputs::{Format, Opened, Outputs};
pub use qc::Qc;
pub(crate) use qc::check_compared;
pub(crate) use ranks::{RankedPart, places, ranks};
pub(crate) use write::{Decided, Watched};
pub use write::{Reduced, Segment};

use serde::{Deserialize, Serialize};

/// What becomes of duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// FLAG 0x400 is set on them and cleared on all others.
    Mark,
    /// They are left out.
    Remove,
    /// Optical duplicates are left out, others marked (`REMOVE_SEQUENCING_DUPLICATES`).
    RemoveOptical,
    /// They are not looked for; FLAG stays as it is.
    None,
}

impl DuplicatePolicy {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Remove => "remove",
            Self::RemoveOptical => "remove-optical",
            Self::None => "none",
        }
    }
}
