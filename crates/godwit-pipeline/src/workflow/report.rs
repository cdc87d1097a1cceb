//! `run.json` and `report.html` of a workflow.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sheet::SheetSample;
use super::storage::StorageMoment;
use crate::error::PipelineError;
use crate::observer::WorkflowStep;
use crate::report_page::WorkflowPage;
use crate::staging::write_whole;

const SECONDS_PER_DAY: f64 = 86_400.0;
const SECONDS_PER_HOUR: f64 = 3_600.0;

/// The report of a workflow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkflowReport {
    /// Version of godwit.
    pub godwit: String,
    /// The verb.
    pub verb: &'static str,
    /// The command line.
    pub command: Vec<String>,
    /// When it began, UTC.
    pub started: String,
    /// The word for the workflow.
    pub workflow: &'static str,
    /// Threads.
    pub threads: usize,
    /// Samples in the order of the sheet.
    pub samples: Vec<SampleOutcome>,
    /// Steps that all samples went through together.
    pub cohort: Vec<StepTime>,
    /// Why these were not finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_error: Option<String>,
    /// Steps that were left out, and why.
    pub left_out: Vec<String>,
    /// How variants were judged, where they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filters: Option<String>,
    /// Hours of each step, over all samples.
    pub hours: Vec<StepHours>,
    /// Wall time of all steps, seconds; steps that an earlier process finished count as long as they took then.
    pub seconds: f64,
    /// Samples that went through all steps, for each day of such work; how that is counted is said beside it.
    pub genomes_per_day: f64,
    /// The formula of `genomes_per_day`.
    pub genomes_per_day_is: &'static str,
    /// Nodes that samples were worked on; 0: one after the other, by the process that wrote this.
    pub nodes: usize,
    /// Samples that each of them took at a time.
    pub per_node: usize,
    /// From the start of this process to its end, seconds.
    pub wall_seconds: f64,
    /// Storage nodes over that time, where there is a pool of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageMoment>,
}

/// Of samples that are worked on one after the other.
const PER_DAY_ALONE: &str = "samples done x 86400 / seconds, the time of all steps, those of earlier starts included";
/// Of samples that are worked on at the same time.
const PER_DAY_ON_NODES: &str = "samples of which this start did a step and that are done x 86400 / wall_seconds";

/// A sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SampleOutcome {
    /// Its name.
    pub sample: String,
    /// Lanes of its reads.
    pub lanes: usize,
    /// Steps that were finished.
    pub steps: Vec<StepTime>,
    /// Why the next one was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Where it was worked on last, where that was a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Starts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tries: Vec<Try>,
}

/// A start of a sample that failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Try {
    /// On which node.
    pub node: String,
    /// Why.
    pub cause: String,
}

impl SampleOutcome {
    /// Of a sample of which nothing is done.
    pub(super) fn of(sample: &SheetSample) -> Self {
        Self { sample: sample.name.clone(), lanes: sample.lanes.len(), ..Self::default() }
    }

    /// Whether all steps are done, and some of them by this start of the run.
    fn is_new(&self) -> bool {
        self.error.is_none() && self.steps.iter().any(|step| !step.done_before)
    }
}

/// A step that was finished.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepTime {
    /// Which.
    pub step: WorkflowStep,
    /// Wall time.
    pub seconds: f64,
    /// Records written.
    pub records: u64,
    /// Bytes of the files it read and wrote, the reference apart; what an earlier process did counts as what is there now.
    pub file_bytes: u64,
    /// An earlier process did it.
    pub done_before: bool,
}

/// What a step took of all samples.
#[derive(Clone, Debug, Serialize)]
pub struct StepHours {
    /// Which.
    pub step: WorkflowStep,
    /// Wall time, hours.
    pub hours: f64,
}

impl WorkflowReport {
    /// Adds up. `nodes`: how many samples were worked on at a time, as nodes and what each of them took.
    pub(super) fn finish(&mut self, nodes: Option<(usize, usize)>, wall: Duration) {
        let steps: Vec<&StepTime> = self.samples.iter().flat_map(|sample| &sample.steps).chain(&self.cohort).collect();
        let mut hours: Vec<StepHours> = Vec::new();
        for step in &steps {
            let more = step.seconds / SECONDS_PER_HOUR;
            match hours.iter_mut().find(|known| known.step == step.step) {
                Some(known) => known.hours += more,
                None => hours.push(StepHours { step: step.step, hours: more }),
            }
        }
        let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
        let done = self.samples.iter().filter(|sample| sample.error.is_none()).count();
        let in_milliseconds = |seconds: f64| (seconds * 1000.0).round() / 1000.0;
        self.seconds = in_milliseconds(seconds);
        self.wall_seconds = in_milliseconds(wall.as_secs_f64());
        let per_day =
            |done: usize, seconds: f64| if seconds > 0.0 { done as f64 * SECONDS_PER_DAY / seconds } else { 0.0 };
        (self.nodes, self.per_node) = nodes.unwrap_or_default();
        (self.genomes_per_day, self.genomes_per_day_is) = match nodes {
            None => (per_day(done, seconds), PER_DAY_ALONE),
            Some(_) => {
                let new = self.samples.iter().filter(|sample| sample.is_new()).count();
                (per_day(new, self.wall_seconds), PER_DAY_ON_NODES)
            }
        };
        self.hours = hours;
    }

    /// Names of what failed, with the step and the reason.
    pub(super) fn failures(&self) -> Vec<(String, String)> {
        let samples = self.samples.iter().filter_map(|sample| Some((sample.sample.clone(), sample.error.clone()?)));
        samples.chain(self.cohort_error.iter().map(|error| ("the cohort".to_owned(), error.clone()))).collect()
    }

    /// Writes both files.
    ///
    /// # Errors
    /// [`PipelineError::File`].
    pub(super) fn write(&self, out: &Path, reference: &Path) -> Result<(), PipelineError> {
        let write = |name: &str, bytes: &[u8]| {
            let path = out.join(name);
            write_whole(&path, bytes).map_err(PipelineError::file("write", &path))
        };
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other);
        write("run.json", &text.map_err(PipelineError::file("write", out))?)?;
        let page = WorkflowPage { report: self, reference: &reference.to_string_lossy() };
        write("report.html", page.to_html().as_bytes())
    }
}

/// Seconds that a job's report says it took.
pub(super) fn seconds_in(path: &Path) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    report.get("seconds")?.as_f64()
}
