//! What a running job tells whoever watches it.

use std::time::Duration;

use serde::Serialize;

/// Of whom a step is that all samples go through together.
pub const ALL_SAMPLES: &str = "all samples";

/// One thing that happened. Serialised as the events of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A stage began.
    Stage {
        /// Its name, a few words.
        name: &'static str,
    },
    /// Input was read.
    Reading {
        /// Bytes of all input files read so far.
        bytes: u64,
        /// Bytes of all input files, where known.
        total_bytes: Option<u64>,
        /// Reads handed on so far.
        reads: u64,
    },
    /// A block came back from the aligner.
    Aligned {
        /// 0-based lane.
        lane: u16,
        /// 0-based block of the lane.
        block: u32,
        /// Reads aligned so far, over all lanes.
        reads: u64,
        /// Share of the input that is aligned, 0 to 1, where known.
        fraction: Option<f64>,
    },
    /// The run goes on where an earlier process was stopped.
    Resumed {
        /// Blocks that are not aligned again.
        blocks: usize,
        /// Partitions that are not written again.
        partitions: usize,
    },
    /// A partition was written.
    Written {
        /// Partitions written so far.
        partitions: usize,
        /// Partitions in all.
        of: usize,
    },
    /// Calling goes on where an earlier process was stopped.
    CallResumed {
        /// Regions that are not called again.
        regions: usize,
    },
    /// A region was called.
    Called {
        /// Regions called so far, by an earlier process too.
        regions: usize,
        /// Regions in all.
        of: usize,
        /// Records in them.
        records: u64,
    },
    /// A step of a workflow began.
    Step {
        /// The sample, or [`ALL_SAMPLES`].
        sample: String,
        /// Which step.
        step: &'static str,
    },
    /// A step of a workflow was finished.
    StepDone {
        /// The sample, or [`ALL_SAMPLES`].
        sample: String,
        /// Which step.
        step: String,
        /// Wall time, of an earlier start where it was done then.
        seconds: f64,
    },
    /// The work on a sample began or ended.
    Sample {
        /// Its name, or [`ALL_SAMPLES`].
        sample: String,
        /// `started` or `done`; one that failed is told of as a warning.
        state: &'static str,
        /// On which node; `None`: in this process.
        node: Option<String>,
    },
    /// A slice of the reads went through a step of recalibration.
    Recalibrated {
        /// 1: its qualities were counted; 2: they were changed.
        step: u8,
        /// Slices that went through this step so far, by an earlier process too.
        slices: usize,
        /// Records in them.
        records: u64,
    },
    /// Something the user should know.
    Warning {
        /// What.
        message: String,
    },
}

/// Watches a job. Called from several threads.
pub trait Observer: Sync {
    /// Takes an event.
    fn event(&self, event: &Event);
}

/// Watches nothing.
pub struct Silent;

impl Observer for Silent {
    fn event(&self, _: &Event) {}
}

/// Seconds with milliseconds, as numbers in reports.
pub(crate) fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
