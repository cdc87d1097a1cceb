//! `run.json` and `report.html` of a workflow.

use std::path::Path;

use serde::Serialize;

use crate::error::PipelineError;
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
    /// Samples that went through all steps, for each day of such work on this machine.
    pub genomes_per_day: f64,
}

/// A sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SampleOutcome {
    /// Its name.
    pub sample: String,
    /// Lanes of its reads.
    pub lanes: usize,
    /// Steps that were finished.
    pub steps: Vec<StepTime>,
    /// Why the next one was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A step that was finished.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StepTime {
    /// `align`, `recalibrate`, `call`, `genotype` or `filter`.
    pub step: &'static str,
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
    pub step: &'static str,
    /// Wall time, hours.
    pub hours: f64,
}

impl WorkflowReport {
    /// Adds up.
    pub(super) fn finish(&mut self) {
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
        self.seconds = (seconds * 1000.0).round() / 1000.0;
        self.genomes_per_day = if seconds > 0.0 { done as f64 * SECONDS_PER_DAY / seconds } else { 0.0 };
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
