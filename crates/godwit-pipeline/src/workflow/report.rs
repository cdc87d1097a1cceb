//! `run.json` and `report.html` of a workflow.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sample_sheet::SheetSample;
use super::storage_monitor::StorageSnapshot;
use crate::atomic_files::write_atomically;
use crate::error::PipelineError;
use crate::observer::WorkflowStep;
use crate::report_page::WorkflowPage;

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
    /// Start time, UTC.
    #[serde(rename = "started")]
    pub started_at: String,
    /// Name of the workflow.
    pub workflow: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Samples in the order of the sheet.
    pub samples: Vec<SampleOutcome>,
    /// Finished steps of the whole cohort.
    pub cohort: Vec<StepTime>,
    /// The error that stopped the steps of the cohort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_error: Option<String>,
    /// Skipped steps, with the reason.
    #[serde(rename = "left_out")]
    pub skipped_steps: Vec<String>,
    /// The method of variant filtering, if variants were filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "filters")]
    pub filter_method: Option<String>,
    /// Hours of each step, over all samples.
    #[serde(rename = "hours")]
    pub step_hours: Vec<StepHours>,
    /// Wall time of all steps, seconds, including steps that an earlier process finished.
    pub seconds: f64,
    /// Finished samples per day of this work, by the formula beside it.
    pub genomes_per_day: f64,
    /// The formula of `genomes_per_day`.
    #[serde(rename = "genomes_per_day_is")]
    pub genomes_per_day_formula: &'static str,
    /// Number of hosts that ran samples; 0: this process ran one sample after the other.
    #[serde(rename = "nodes")]
    pub hosts: usize,
    /// Number of samples that each host runs at a time.
    #[serde(rename = "per_node")]
    pub samples_per_host: usize,
    /// Wall time of this process, seconds.
    pub wall_seconds: f64,
    /// Snapshots of the storage pool over that time, if there is a pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageSnapshot>,
}

/// The formula for samples that run one after the other.
const GENOMES_PER_DAY_SEQUENTIAL: &str =
    "samples done x 86400 / seconds, the time of all steps, those of earlier starts included";
/// The formula for samples that run at the same time.
const GENOMES_PER_DAY_PARALLEL: &str =
    "samples of which this start did a step and that are done x 86400 / wall_seconds";

/// The result of a sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SampleOutcome {
    /// Its name.
    pub sample: String,
    /// Number of lanes.
    pub lanes: usize,
    /// Finished steps.
    pub steps: Vec<StepTime>,
    /// The error of the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The host that ran it last; `None`: this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "node")]
    pub host: Option<String>,
    /// Attempts that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "tries")]
    pub failed_attempts: Vec<FailedAttempt>,
}

/// A failed attempt to run a sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The host.
    #[serde(rename = "node")]
    pub host: String,
    /// The error.
    pub cause: String,
}

impl SampleOutcome {
    /// Makes the result of a sample without finished steps.
    pub(super) fn new(sample: &SheetSample) -> Self {
        Self { sample: sample.name.clone(), lanes: sample.lanes.len(), ..Self::default() }
    }

    /// Reports whether all steps are finished, some of them by this start of the workflow.
    fn is_done_by_this_start(&self) -> bool {
        self.error.is_none() && self.steps.iter().any(|step| !step.is_resumed)
    }
}

/// A finished step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepTime {
    /// The step.
    pub step: WorkflowStep,
    /// Wall time, seconds.
    pub seconds: f64,
    /// Records written.
    pub records: u64,
    /// Size of the files that it read and wrote, without the reference, bytes; for a resumed step, their present size.
    pub file_bytes: u64,
    /// True if an earlier process finished it.
    #[serde(rename = "done_before")]
    pub is_resumed: bool,
}

/// Time of a step over all samples.
#[derive(Clone, Debug, Serialize)]
pub struct StepHours {
    /// The step.
    pub step: WorkflowStep,
    /// Wall time, hours.
    pub hours: f64,
}

impl WorkflowReport {
    /// Computes the totals. `nodes`: number of hosts, and number of samples that each runs at a time.
    pub(super) fn compute_totals(&mut self, nodes: Option<(usize, usize)>, wall: Duration) {
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
        (self.hosts, self.samples_per_host) = nodes.unwrap_or_default();
        (self.genomes_per_day, self.genomes_per_day_formula) = match nodes {
            None => (per_day(done, seconds), GENOMES_PER_DAY_SEQUENTIAL),
            Some(_) => {
                let new = self.samples.iter().filter(|sample| sample.is_done_by_this_start()).count();
                (per_day(new, self.wall_seconds), GENOMES_PER_DAY_PARALLEL)
            }
        };
        self.step_hours = hours;
    }

    /// Returns the names of failed samples, and of the cohort, with the reasons.
    pub(super) fn failures(&self) -> Vec<(String, String)> {
        let samples = self.samples.iter().filter_map(|sample| Some((sample.sample.clone(), sample.error.clone()?)));
        samples.chain(self.cohort_error.iter().map(|error| ("the cohort".to_owned(), error.clone()))).collect()
    }

    /// Writes `run.json` and `report.html`.
    ///
    /// # Errors
    /// [`PipelineError::File`] if a file cannot be written.
    pub(super) fn write(&self, out: &Path, reference: &Path) -> Result<(), PipelineError> {
        let write = |name: &str, bytes: &[u8]| {
            let path = out.join(name);
            write_atomically(&path, bytes).map_err(PipelineError::file("write", &path))
        };
        let text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other);
        write("run.json", &text.map_err(PipelineError::file("write", out))?)?;
        let page = WorkflowPage { report: self, reference: &reference.to_string_lossy() };
        write("report.html", page.to_html().as_bytes())
    }
}

/// Returns the wall time in the report of a job, seconds.
pub(super) fn read_seconds(path: &Path) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    report.get("seconds")?.as_f64()
}
