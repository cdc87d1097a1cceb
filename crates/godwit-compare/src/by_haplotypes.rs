//! Comparison by haplotypes, with output files that are published together.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use godwit_files::{AtomicDirectory, AtomicSet};
use godwit_haplotypes::{HaplotypeComparison, HaplotypeError, HaplotypeOptions, compare_haplotypes};
use godwit_pipeline::PipelineError;

use super::accuracy_page::AccuracyPage;

/// Name of the report page in the output directory.
const PAGE_FILE: &str = "report.html";

/// Compares a call set with a truth set by haplotypes. Writes the files of the output mode and a report page into a new
/// directory at `out`; `None` to write no files. The directory appears when the comparison is complete.
///
/// # Errors
/// [`PipelineError::Options`] if `out` has files; [`PipelineError::Haplotypes`] if a file is invalid or cannot be compared; [`PipelineError::File`] if the directory
/// cannot be written; [`PipelineError::Interrupted`] if the flag is set.
pub fn compare_by_haplotypes(
    options: &HaplotypeOptions,
    out: Option<&Path>,
    cancelled: &AtomicBool,
) -> Result<HaplotypeComparison, PipelineError> {
    let has_files = |path: &&Path| fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
    if let Some(path) = out.filter(has_files) {
        let problem = format!("{} exists and has files; name another directory, or remove it", path.display());
        return Err(PipelineError::Options { problem });
    }
    let create = |path: &Path| AtomicDirectory::create(path).map_err(PipelineError::file("create", path));
    let directory = out.map(create).transpose()?;
    let path = directory.as_ref().map(AtomicDirectory::temporary_path);
    let report = compare_haplotypes(options, path, cancelled).map_err(|error| match error {
        HaplotypeError::Cancelled => PipelineError::Interrupted,
        error => PipelineError::from(error).or_interrupted(cancelled),
    })?;
    if let Some(directory) = directory {
        let page = AccuracyPage { options, comparison: &report }.to_html();
        let path = directory.temporary_path().join(PAGE_FILE);
        fs::write(&path, page).map_err(PipelineError::file("write", &path))?;
        let mut files = AtomicSet::default();
        files.add_directory(directory);
        files.publish().map_err(|(path, source)| PipelineError::file("write", path)(source))?;
    }
    Ok(report)
}
