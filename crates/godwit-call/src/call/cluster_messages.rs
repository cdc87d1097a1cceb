//! The messages that the head of variant calling and its workers exchange.

use std::path::PathBuf;

use godwit_cluster::{JobMessages, NoTicket};
use godwit_fleet::leases::ItemId;
use godwit_model::ErrorKind;
use godwit_model::region_grid::CallingRegion;
use godwit_pipeline::FingerprintEntry;
use serde::{Deserialize, Serialize};

use super::CallerBudget;
use super::stall::{RegionStall, StallRule};

/// The messages of variant calling.
pub(crate) enum CallMessages {}

impl JobMessages for CallMessages {
    const NAME: &'static str = "call";
    type Task = CallTask;
    type Command = CallCommand;
    type Event = CallEvent;
    type Upload = CalledRegion;
    type Ticket = NoTicket;
}

/// The task of a worker that calls variants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallTask {
    pub(super) reference: PathBuf,
    /// Input files, without that of the normal sample.
    pub(super) reads: Vec<PathBuf>,
    pub(super) normal: Option<PathBuf>,
    /// Value of `--caller`.
    pub(super) caller: String,
    pub(super) caller_args: String,
    pub(super) budget: CallerBudget,
    pub(super) stall_rule: Option<StallRule>,
    /// Bases before and after a piece of a region that the caller also reads.
    pub(super) padding_bases: u32,
    /// Directory for scratch files on workers that were started without a scratch directory of their own.
    pub(super) scratch: PathBuf,
    /// The godwit program, which decodes CRAM in a process of its own.
    pub(super) godwit_program: PathBuf,
}

/// A command from the head to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub(crate) enum CallCommand {
    /// Call variants in a region.
    CallRegion {
        /// Number of the work item that the region is.
        item: ItemId,
        region: Box<CallingRegion>,
        /// Ploidy of the sample in the region; `None` for the default of the caller.
        ploidy: Option<u8>,
    },
    /// Cancel the calling of a region, because another worker has already returned the result.
    CancelRegion {
        /// Number of the work item that the region is.
        item: ItemId,
    },
}

/// An event that a worker reports to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum CallEvent {
    /// The worker has found its variant caller and can call regions.
    Ready {
        /// Number of regions that the worker calls concurrently.
        callers: usize,
        /// Caller and input files of the worker, which must be those of the head.
        fingerprint: Vec<FingerprintEntry>,
    },
    /// The worker has room for one more region.
    WorkRequested,
    /// The variant caller of the worker failed on a region.
    CallFailed {
        /// Number of the work item that the region is.
        item: ItemId,
        /// Error message, with the command of the variant caller and its last output.
        message: String,
        /// Kind of the error, which decides the exit code of the job.
        kind: ErrorKind,
    },
}

/// The calls of a region, which a worker uploads. Data: the VCF header, and the lines of the variant records that the
/// region owns.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CalledRegion {
    /// Number of the work item that the region is.
    pub(super) item: ItemId,
    /// Number of variant records.
    pub(super) records: u64,
    /// Wall time of the variant caller, seconds.
    pub(super) seconds: f64,
    /// The region or its pieces, where the variant caller stalled.
    pub(super) stalls: Vec<RegionStall>,
}
