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
mod partition;
mod picard;
mod qc;
mod ranks;
mod recalibration;
mod sink;
mod step_partition;
mod write;

pub use bam_tail::{BamTail, UnfinishedBam};
pub use collector::{Collector, ReduceOptions, RemoteBlock, WritingOptions};
pub use distributed_output::{
    CompressedPart, OutputAssembler, OutputPaths, PartBuilder, PartBuilderOptions, PartLocations,
};
pub use outputs::{Format, OutputFiles, Outputs};
pub use picard::{PicardInputs, PicardMetricsRequest};
pub use qc::{Qc, ReferenceWindows, check_metrics_reference, open_reference};
pub use ranks::{RankedPart, file_ranks, rank_wanted_records};
pub use recalibration::{
    BaseCounter, BaseRecalibration, RecalibrationOptions, check_known_sites, read_recalibration_groups,
};
pub use write::{JobMonitor, MarkedRuns, UnpublishedOutputs};
