//! The report of a workflow: `run.json` and the page `report.html`.

use std::path::Path;
use std::time::Duration;

use godwit_files::write_atomically;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::WorkflowStep;
use serde::{Deserialize, Serialize};

use super::cohort_page::cohort_page;
use super::sample_sheet::SheetSample;
use super::storage_monitor::StorageSnapshot;
use super::workflow_page::WorkflowPage;

/// Name of the cohort page in the output directory.
const COHORT_PAGE: &str = "cohort.html";
const SECONDS_PER_DAY: f64 = 86_400.0;
const SECONDS_PER_HOUR: f64 = 3_600.0;

/// The report of a workflow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkflowReport {
    /// Version of godwit.
    pub godwit: String,
    /// The subcommand of godwit, `run`.
    pub verb: &'static str,
    /// The command line of the workflow.
    pub command: Vec<String>,
    /// Start time, UTC, for example `2026-11-21T02:34:16Z`.
    #[serde(rename = "started")]
    pub started_at: String,
    /// Name of the workflow on the command line.
    pub workflow: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// Outcome of each sample, in the order of the sheet.
    pub samples: Vec<SampleOutcome>,
    /// Finished steps of the whole cohort, for example joint genotyping.
    pub cohort: Vec<StepTime>,
    /// The error that stopped the steps of the cohort; `None` if no such error occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cohort_error: Option<String>,
    /// Messages about skipped steps, with the reason.
    #[serde(rename = "left_out")]
    pub skipped_steps: Vec<String>,
    /// The method of variant filtering; `None` if variants were not filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "filters")]
    pub filter_method: Option<String>,
    /// Hours of each step, summed over all samples.
    #[serde(rename = "hours")]
    pub step_hours: Vec<StepHours>,
    /// Sum of the wall times of all steps, seconds, including steps that an earlier process finished.
    pub seconds: f64,
    /// Number of finished samples per day, computed with `genomes_per_day_formula`.
    pub genomes_per_day: f64,
    /// The formula of `genomes_per_day`.
    #[serde(rename = "genomes_per_day_is")]
    pub genomes_per_day_formula: &'static str,
    /// Number of hosts that processed samples; 0 if this process processed one sample after the other.
    #[serde(rename = "nodes")]
    pub hosts: usize,
    /// Number of samples that each host processes at the same time.
    #[serde(rename = "per_node")]
    pub samples_per_host: usize,
    /// Wall time of this process, seconds.
    pub wall_seconds: f64,
    /// Snapshots of the storage pool during this process; empty if there is no pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageSnapshot>,
}

/// The formula of `genomes_per_day` for samples that are processed one after the other.
const GENOMES_PER_DAY_SEQUENTIAL: &str =
    "finished samples x 86400 / seconds, the time of all steps including those of earlier starts";
/// The formula of `genomes_per_day` for samples that are processed at the same time.
const GENOMES_PER_DAY_PARALLEL: &str = "finished samples with a step in this start x 86400 / wall_seconds";

/// The outcome of a sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SampleOutcome {
    /// Name of the sample.
    pub sample: String,
    /// Number of lanes of the sample.
    pub lanes: usize,
    /// Finished steps of the sample.
    pub steps: Vec<StepTime>,
    /// The error that stopped the sample; `None` if all steps are finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Name of the host that processed the sample last; `None`: this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "node")]
    pub host: Option<String>,
    /// Failed attempts to process the sample.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[serde(rename = "tries")]
    pub failed_attempts: Vec<FailedAttempt>,
}

/// A failed attempt to process a sample.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// Name of the host.
    #[serde(rename = "node")]
    pub host: String,
    /// The error message.
    pub cause: String,
}

impl SampleOutcome {
    /// Creates the outcome of a sample without finished steps.
    pub(super) fn new(sample: &SheetSample) -> Self {
        Self { sample: sample.name.clone(), lanes: sample.lanes.len(), ..Self::default() }
    }

    /// Reports whether all steps are finished and at least one of them was finished by this start of the workflow.
    fn is_done_by_this_start(&self) -> bool {
        self.error.is_none() && self.steps.iter().any(|step| !step.is_resumed)
    }
}

/// The time and size of a finished step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StepTime {
    /// The step that finished.
    pub step: WorkflowStep,
    /// Wall time of the step, seconds.
    pub seconds: f64,
    /// Number of records that the step wrote.
    pub records: u64,
    /// Size of the files that the step read and wrote, without the reference, bytes. For a step of an earlier process,
    /// the present size.
    pub file_bytes: u64,
    /// True if an earlier process finished the step.
    #[serde(rename = "done_before")]
    pub is_resumed: bool,
}

/// The time of a step, summed over all samples.
#[derive(Clone, Debug, Serialize)]
pub struct StepHours {
    /// The step to which the time belongs.
    pub step: WorkflowStep,
    /// Sum of the wall times, hours.
    pub hours: f64,
}

impl WorkflowReport {
    /// Computes the totals over all samples. `nodes`: the number of hosts, and the number of samples that each host
    /// processes at the same time. `wall`: the wall time of this process.
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

    /// Returns the names of the failed samples, each with the reason. A failure of the cohort steps is included.
    pub(super) fn failures(&self) -> Vec<(String, String)> {
        let samples = self.samples.iter().filter_map(|sample| Some((sample.sample.clone(), sample.error.clone()?)));
        samples.chain(self.cohort_error.iter().map(|error| ("the cohort".to_owned(), error.clone()))).collect()
    }

    /// Writes `run.json`, `report.html` and, if samples have metrics, `cohort.html` to the output directory.
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
        let cohort = cohort_page(self, out);
        match &cohort {
            Some(page) => write(COHORT_PAGE, page.as_bytes())?,
            None => remove_if_exists(&out.join(COHORT_PAGE))?,
        }
        let has_cohort_page = cohort.is_some();
        let page = WorkflowPage { report: self, reference: &reference.to_string_lossy(), has_cohort_page };
        write("report.html", page.to_html().as_bytes())
    }
}

pub(super) fn remove_if_exists(path: &Path) -> Result<(), PipelineError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(PipelineError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Returns the wall time in the report of a job, seconds; `None` if the report cannot be read.
pub(super) fn read_seconds(path: &Path) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    report.get("seconds")?.as_f64()
}
