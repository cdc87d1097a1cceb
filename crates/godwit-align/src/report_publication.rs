//! The publication of a job: the report page, the manifest and the report get their names together with the outputs.

use std::path::{Path, PathBuf};

use godwit_pipeline::FingerprintEntry;
use godwit_pipeline::PipelineError;
use godwit_pipeline::job_directory::JobDirectory;
use godwit_pipeline::job_report::{JobReport, OutputFile};
use godwit_pipeline::manifest;
use godwit_pipeline::reduce::{Format, Outputs, UnpublishedOutputs};
use godwit_pipeline::report_page::ReportPage;

/// Paths and names with which a job publishes its report.
pub struct ReportDestination<'p> {
    /// Paths of the data files that the job wrote.
    pub outputs: &'p Outputs,
    /// Path of `run.json`.
    pub json_path: PathBuf,
    /// Path of the report page.
    pub html_path: PathBuf,
    /// Name of the sample; if it is unknown, the name of the file.
    pub sample: String,
    /// Path of the reference; `None` if no reference is given.
    pub reference: Option<&'p Path>,
    /// The values on which the content of the outputs depends.
    pub fingerprint: &'p [FingerprintEntry],
    /// The job directory; `None` for a job that cannot be resumed.
    pub job_directory: Option<&'p JobDirectory>,
}

/// Writes the report page (with metrics), the manifest and the report into the directory of the outputs, then
/// publishes all files.
///
/// # Errors
/// A [`PipelineError::File`], in which case no output is published.
pub(crate) fn publish_report(
    mut report: JobReport,
    mut reduced: UnpublishedOutputs,
    publication: &ReportDestination,
) -> Result<JobReport, PipelineError> {
    let ReportDestination { outputs, json_path, html_path, fingerprint, job_directory, .. } = publication;
    // The report page and the report contain times. The manifest does not, so that equal jobs have equal manifests.
    let manifest = reduced
        .to_manifest(&report.verb, fingerprint, &outputs.path(Format::Bam))
        .map_err(|(path, source)| PipelineError::File { action: "read", path, source })?;
    if let Some(html) = render_page(&report, &reduced, publication) {
        reduced.files.write_file(html_path, html.as_bytes()).map_err(PipelineError::file("write", html_path))?;
        let name = html_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        report.outputs.push(OutputFile { name, bytes: html.len() as u64 });
    }
    let staged = &mut reduced.files;
    let manifest_path = outputs.path_with_suffix(manifest::MANIFEST_SUFFIX);
    for (path, text) in
        [(&manifest_path, serde_json::to_vec_pretty(&manifest)), (json_path, serde_json::to_vec_pretty(&report))]
    {
        let text = text.map_err(std::io::Error::other);
        text.and_then(|text| staged.write_file(path, &text)).map_err(PipelineError::file("write", path))?;
    }
    // Output directories are renamed one by one. If the job stops between two renames, the next run writes all
    // outputs again. Therefore only outputs without directories are recorded as complete.
    if let Some(run) = job_directory
        && staged.directories().is_empty()
    {
        run.record_publish(staged).map_err(PipelineError::file("write the journal of", json_path))?;
    }
    for path in &reduced.unwritten_metrics {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(PipelineError::file("remove", path)(error));
            }
            _ => {}
        }
    }
    reduced.files.publish().map_err(|(path, source)| PipelineError::File { action: "publish", path, source })?;
    Ok(report)
}

/// Returns the report page as HTML; `None` if no metrics were collected.
fn render_page(report: &JobReport, reduced: &UnpublishedOutputs, publication: &ReportDestination) -> Option<String> {
    let (qc, key_numbers) = (reduced.qc.as_ref()?, report.key_numbers.as_ref()?);
    let reference = publication.reference.map(|path| path.to_string_lossy());
    let page = ReportPage {
        sample: &publication.sample,
        reference: reference.as_deref(),
        report,
        key_numbers,
        qc,
        duplicate_metrics: reduced.duplicate_metrics.as_ref(),
    };
    Some(page.to_html())
}
