//! The reduce phase: it takes the sorted runs and duplicate signatures of all blocks, and writes sorted records with
//! marked duplicates in every requested format, with indexes and statistics.
//!
//! `align` and `markdup` share this phase. Blocks are added in any order. No output is written before the last block is
//! added, because the best pair of a duplicate set may be in that block.

mod annotate;
mod bam_tail;
mod collector;
mod distributed_output;
mod file_completion;
mod outputs;
mod parallel_partitions;
mod partition;
mod qc;
mod ranks;
mod sink;
mod step_partition;
mod write;

pub(crate) use bam_tail::{BamTail, UnfinishedBam};
pub use collector::{Collector, ReduceOptions, RemoteBlock, WritingOptions};
pub(crate) use distributed_output::{
    CompressedPart, OutputAssembler, OutputPaths, PartBuilder, PartBuilderOptions, PartLocations,
};
pub use outputs::{Format, OutputFiles, Outputs};
pub use qc::Qc;
pub(crate) use qc::check_metrics_reference;
pub(crate) use ranks::{RankedPart, file_ranks, rank_wanted_records};
pub(crate) use write::{JobMonitor, MarkedRuns};
pub use write::{Segment, UnpublishedOutputs};

use serde::{Deserialize, Serialize};

/// The treatment of duplicate records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DuplicatePolicy {
    /// FLAG 0x400 is set on duplicates and cleared on all other records.
    Mark,
    /// Duplicates are removed.
    Remove,
    /// Optical duplicates are removed; other duplicates are marked (Picard's `REMOVE_SEQUENCING_DUPLICATES`).
    RemoveOptical,
    /// Duplicates are not searched, and the FLAG of records is not changed.
    None,
}

impl DuplicatePolicy {
    /// Returns the name of the policy in the options of the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mark => "mark",
            Self::Remove => "remove",
            Self::RemoveOptical => "remove-optical",
            Self::None => "none",
        }
    }
}
