//! The events by which a running job reports its progress.

use std::path::PathBuf;
use std::time::Duration;

use godwit_process::RESUME_ADVICE;
use serde::{Deserialize, Serialize};

use crate::PipelineError;

/// Sample name in events of workflow steps that process all samples together.
pub const ALL_SAMPLES: &str = "all samples";

/// A step of a workflow. The name of the step is used in events, reports and outcome files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkflowStep {
    /// Reads are downloaded from a remote server.
    Fetch,
    /// Reads are aligned.
    #[default]
    Align,
    /// Base qualities are recalibrated.
    Recalibrate,
    /// Variants are called.
    Call,
    /// The GVCFs of all samples are genotyped jointly.
    Genotype,
    /// Variants are filtered.
    Filter,
    /// Outputs are uploaded to a remote server.
    Store,
}

impl WorkflowStep {
    /// Returns the name of the step, which is also its serialised form.
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

/// The state of a sample in a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleState {
    /// The first step of the sample has started.
    Started,
    /// All steps of the sample are finished.
    Done,
    /// A step failed, and the sample is not processed again.
    Failed,
}

impl SampleState {
    /// Returns the name of the state, which is also its serialised form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// An event of a job. Its serialised form is a line of the `--json` output.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A stage of the job started.
    Stage {
        /// Name of the stage, for people.
        name: &'static str,
    },
    /// A part of the input was read.
    Reading {
        /// Number of bytes of all input files that were read so far.
        bytes: u64,
        /// Size of all input files, bytes; `None` if it is unknown.
        total_bytes: Option<u64>,
        /// Number of reads that were read so far.
        reads: u64,
    },
    /// A block was aligned.
    Aligned {
        /// Number of the lane, 0-based.
        lane: u16,
        /// Number of the block within the lane, 0-based.
        block: u32,
        /// Number of reads aligned so far, over all lanes.
        reads: u64,
        /// Fraction of the input that is aligned, 0 to 1; `None` if it is unknown.
        fraction: Option<f64>,
    },
    /// The job resumes the work of an earlier process.
    Resumed {
        /// Number of blocks that are not aligned again.
        blocks: usize,
        /// Number of partitions that are not written again.
        partitions: usize,
    },
    /// A partition was written.
    Written {
        /// Number of partitions written so far.
        partitions: usize,
        /// Number of all partitions.
        #[serde(rename = "of")]
        total: usize,
    },
    /// Variant calling resumes the work of an earlier process.
    CallResumed {
        /// Number of regions that are not called again.
        regions: usize,
    },
    /// Variants of a region were called.
    Called {
        /// Number of regions called so far, including those of an earlier process.
        regions: usize,
        /// Number of all regions.
        #[serde(rename = "of")]
        total: usize,
        /// Number of variant records in the called regions.
        records: u64,
    },
    /// A step of a workflow started.
    Step {
        /// Name of the sample, or [`ALL_SAMPLES`].
        sample: String,
        /// The step that started.
        step: WorkflowStep,
    },
    /// A step of a workflow was finished.
    StepDone {
        /// Name of the sample, or [`ALL_SAMPLES`].
        sample: String,
        /// The step that finished.
        step: WorkflowStep,
        /// Wall time of the step, seconds. If an earlier process finished the step, the time in that process.
        seconds: f64,
    },
    /// The state of a sample changed.
    Sample {
        /// Name of the sample, or [`ALL_SAMPLES`].
        sample: String,
        /// The new state of the sample. The reason of a failure is reported separately, as a warning.
        state: SampleState,
        /// The host on which the sample is processed; `None`: this process.
        #[serde(rename = "node")]
        host: Option<String>,
    },
    /// A pass of base quality recalibration finished a slice of the reads.
    Recalibrated {
        /// Number of the pass: 1 counts base qualities, 2 changes them.
        #[serde(rename = "step")]
        pass: u8,
        /// Number of slices that finished this pass so far, including those of an earlier process.
        slices: usize,
        /// Number of records in these slices.
        records: u64,
    },
    /// A warning for the user.
    Warning {
        /// The text of the warning.
        message: String,
    },
}

/// A receiver of events. Several threads call it at the same time.
pub trait Observer: Sync {
    /// Receives an event.
    fn event(&self, event: &Event);
}

/// Returns a function that reports warnings to an observer.
pub fn warning_sink<'r>(observer: &'r dyn Observer) -> Box<dyn Fn(String) + 'r> {
    Box::new(move |message| observer.event(&Event::Warning { message }))
}

/// Reports to the user that a failed job keeps its checkpoints in `job_directory`. Returns the error of the job; that of an
/// interruption names the directory itself, so that no warning is necessary.
pub fn report_kept_checkpoints(error: PipelineError, job_directory: PathBuf, observer: &dyn Observer) -> PipelineError {
    if matches!(error, PipelineError::Interrupted) {
        return PipelineError::InterruptedResumable { job_directory };
    }
    let message = format!("the checkpoints are in {}: {RESUME_ADVICE}", job_directory.display());
    observer.event(&Event::Warning { message });
    error
}

/// An observer that ignores all events.
pub struct NullObserver;

impl Observer for NullObserver {
    fn event(&self, _: &Event) {}
}

/// Returns a duration in seconds, rounded to milliseconds, for reports.
pub fn rounded_seconds(duration: Duration) -> f64 {
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
