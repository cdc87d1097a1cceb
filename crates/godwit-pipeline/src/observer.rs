//! The events that a running job reports.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The sample name of steps that process all samples together.
pub const ALL_SAMPLES: &str = "all samples";

/// A step of a workflow. Its name is in events, reports and files of outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowStep {
    /// Reads are copied from a server.
    Fetch,
    /// Reads are aligned.
    #[default]
    Align,
    /// Base qualities are recalibrated.
    Recalibrate,
    /// Variants are called.
    Call,
    /// GVCFs are genotyped together.
    Genotype,
    /// Variants are filtered.
    Filter,
    /// Outputs are copied to a server.
    Store,
}

impl WorkflowStep {
    /// Returns the name, which is also its serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Align => "align",
            Self::Recalibrate => "recalibrate",
            Self::Call => "call",
            Self::Genotype => "genotype",
            Self::Filter => "filter",
            Self::Store => "store",
        }
    }
}

/// The state of a sample of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleState {
    /// The work on it began.
    Started,
    /// All its steps are done.
    Done,
    /// A step failed, and the sample is not retried.
    Failed,
}

impl SampleState {
    /// Returns the name, which is also its serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// An event of a job. Serialised as the events of `--json`.
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
        /// Reads passed on so far.
        reads: u64,
    },
    /// A block was aligned.
    Aligned {
        /// 0-based lane.
        lane: u16,
        /// 0-based block of the lane.
        block: u32,
        /// Reads aligned so far, over all lanes.
        reads: u64,
        /// Fraction of the input that is aligned, 0 to 1, where known.
        fraction: Option<f64>,
    },
    /// The job resumes the work of an earlier process.
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
        #[serde(rename = "of")]
        total: usize,
    },
    /// Calling resumes the work of an earlier process.
    CallResumed {
        /// Regions that are not called again.
        regions: usize,
    },
    /// A region was called.
    Called {
        /// Regions called so far, including those of an earlier process.
        regions: usize,
        /// Regions in all.
        #[serde(rename = "of")]
        total: usize,
        /// Variant records in the called regions.
        records: u64,
    },
    /// A step of a workflow began.
    Step {
        /// The sample, or [`ALL_SAMPLES`].
        sample: String,
        /// The step.
        step: WorkflowStep,
    },
    /// A step of a workflow was finished.
    StepDone {
        /// The sample, or [`ALL_SAMPLES`].
        sample: String,
        /// The step.
        step: WorkflowStep,
        /// Wall time, seconds; that of an earlier process if the step finished there.
        seconds: f64,
    },
    /// The work on a sample began or ended.
    Sample {
        /// Its name, or [`ALL_SAMPLES`].
        sample: String,
        /// Its state. The reason of a failure is reported as a warning.
        state: SampleState,
        /// The host; `None`: this process.
        #[serde(rename = "node")]
        host: Option<String>,
    },
    /// A slice of the reads went through a pass of recalibration.
    Recalibrated {
        /// 1: qualities were counted; 2: qualities were changed.
        #[serde(rename = "step")]
        pass: u8,
        /// Slices that finished this pass so far, including those of an earlier process.
        slices: usize,
        /// Records in these slices.
        records: u64,
    },
    /// A warning for the user.
    Warning {
        /// The text.
        message: String,
    },
}

/// A receiver of events. Called from several threads.
pub trait Observer: Sync {
    /// Receives an event.
    fn event(&self, event: &Event);
}

/// An observer that ignores all events.
pub struct NullObserver;

impl Observer for NullObserver {
    fn event(&self, _: &Event) {}
}

/// Returns seconds, rounded to milliseconds, for reports.
pub(crate) fn rounded_seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_steps_and_states_are_those_of_earlier_versions() {
        for (step, name) in [
            (WorkflowStep::Fetch, "fetch"),
            (WorkflowStep::Align, "align"),
            (WorkflowStep::Recalibrate, "recalibrate"),
            (WorkflowStep::Call, "call"),
            (WorkflowStep::Genotype, "genotype"),
            (WorkflowStep::Filter, "filter"),
            (WorkflowStep::Store, "store"),
        ] {
            assert_eq!((step.name(), serde_json::to_value(step).unwrap()), (name, name.into()));
            assert_eq!(serde_json::from_value::<WorkflowStep>(name.into()).unwrap(), step);
        }
        for (state, name) in
            [(SampleState::Started, "started"), (SampleState::Done, "done"), (SampleState::Failed, "failed")]
        {
            assert_eq!((state.name(), serde_json::to_value(state).unwrap()), (name, name.into()));
        }
        let event = Event::Sample { sample: "a".to_owned(), state: SampleState::Done, host: None };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"event":"sample","sample":"a","state":"done","node":null}"#);
    }
}
