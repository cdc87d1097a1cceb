//! The output files of a job that writes one file beside its job directory: which files exist before the job, the job
//! directory with its checkpoints, and the manifest and the report that are published with the output.

use std::path::{Path, PathBuf};

use godwit_files::{AtomicSet, check_available};
use godwit_model::ErrorKind;
use godwit_pipeline::job_directory::check_fingerprint;
use godwit_pipeline::manifest::{self, Manifest, checksummed_entry};
use godwit_pipeline::observer::{Event, Observer, report_kept_checkpoints};
use godwit_pipeline::scratch::create_private_directory;
use godwit_pipeline::{FingerprintEntry, PipelineError};

use super::checkpoint::{CallDirectoryState, CallJobDirectory};
use super::vcf_assembly::add_json_file;

fn manifest_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}{}", out.display(), manifest::MANIFEST_SUFFIX))
}

/// Returns the path of the report of a job that writes one file.
pub fn report_path(out: &Path) -> PathBuf {
    PathBuf::from(format!("{}.run.json", out.display()))
}

/// Checks, before hours of work, that the output and its sidecar files can be created under their final names.
///
/// # Errors
/// [`PipelineError::File`] if a directory has one of these names, or another process writes the file.
pub(crate) fn check_output_available(out: &Path) -> Result<(), PipelineError> {
    for suffix in ["", ".tbi", ".csi", ".bai", ".run.json", manifest::MANIFEST_SUFFIX] {
        let path = PathBuf::from(format!("{}{suffix}", out.display()));
        check_available(&path).map_err(PipelineError::file("write", &path))?;
    }
    Ok(())
}

/// Returns the manifest if `resume` is true and all outputs of the same command already exist.
pub(crate) fn complete_manifest(
    out: &Path,
    resume: bool,
    fingerprint: &[FingerprintEntry],
) -> Result<Option<Manifest>, PipelineError> {
    if !resume || CallJobDirectory::path_of(out).join("journal").exists() {
        return Ok(None);
    }
    let path = manifest_path(out);
    let manifest = match Manifest::read(&path) {
        Ok(manifest) => manifest,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(PipelineError::file("read", path)(error)),
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let Some(manifest) = manifest.filter(|manifest| manifest.is_complete(directory)) else { return Ok(None) };
    check_fingerprint(directory, &manifest.fingerprint, fingerprint)?;
    Ok(Some(manifest))
}

/// The state in which an earlier process left the job.
pub(super) enum CallResumeState {
    /// An unfinished job, with the checkpoints of finished regions.
    Unfinished(Box<CallJobDirectory>),
    /// A complete job; its outputs exist.
    Complete {
        /// Number of records in the output.
        records: u64,
    },
}

/// Options that decide which checkpoints are used.
#[derive(Clone, Copy)]
pub(super) struct ResumeOptions {
    /// True to use the checkpoints of a stopped job.
    pub(super) resume: bool,
    /// Number of regions that this process has called itself or has already reported as resumed.
    pub(super) own_regions: usize,
}

/// Creates the directories of an output and of scratch files.
pub(super) fn create_directories(out: &Path, temp: Option<&Path>) -> Result<(), PipelineError> {
    let directory = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    for directory in directory.into_iter().chain(temp) {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    Ok(())
}

/// Creates the directories of an output and of scratch files, opens the job directory and reports its checkpoints.
pub(super) fn open_call_directory(
    out: &Path,
    temp: Option<&Path>,
    ResumeOptions { resume, own_regions }: ResumeOptions,
    fingerprint: &[FingerprintEntry],
    observer: &dyn Observer,
) -> Result<CallResumeState, PipelineError> {
    create_directories(out, temp)?;
    if let Some(Manifest { records, .. }) = complete_manifest(out, resume, fingerprint)? {
        return Ok(CallResumeState::Complete { records });
    }
    let job_directory = match CallJobDirectory::open(out, fingerprint, resume)? {
        CallDirectoryState::Open(run) => run,
        CallDirectoryState::Complete => {
            let lost = PipelineError::CountMismatch { items: "files", expected: 1, actual: 0 };
            return complete_manifest(out, resume, fingerprint)?
                .map_or(Err(lost), |done| Ok(CallResumeState::Complete { records: done.records }));
        }
    };
    if !resume {
        warn_dropped_regions(&job_directory, "--resume keeps them", observer);
    }
    let before = job_directory.finished_regions.len().saturating_sub(own_regions);
    if before > 0 {
        observer.event(&Event::CallResumed { regions: before });
    }
    Ok(CallResumeState::Unfinished(job_directory))
}

/// Warns that regions of an earlier process are dropped, and why.
pub(super) fn warn_dropped_regions(job_directory: &CallJobDirectory, why: &str, observer: &dyn Observer) {
    if job_directory.dropped_regions > 0 {
        let message = format!("{} called regions of a stopped job are removed; {why}", job_directory.dropped_regions);
        observer.event(&Event::Warning { message });
    }
}

/// Removes the job directory after success, after an internal error, or without checkpoints. Otherwise reports its path
/// to the user.
pub(super) fn close_call_directory<R>(
    outcome: Result<R, PipelineError>,
    job_directory: CallJobDirectory,
    out: &Path,
    observer: &dyn Observer,
) -> Result<R, PipelineError> {
    let path = CallJobDirectory::path_of(out);
    match outcome {
        Err(error) if error.kind() != ErrorKind::Bug && job_directory.has_checkpoints() => {
            Err(report_kept_checkpoints(error, path, observer))
        }
        outcome => {
            job_directory.remove();
            outcome
        }
    }
}

/// Writes the manifest of the files in `staged` and adds it to them. `records` is the number of records in the output.
pub(crate) fn add_manifest(
    verb: &str,
    out: &Path,
    records: u64,
    fingerprint: &[FingerprintEntry],
    staged: &mut AtomicSet,
) -> Result<(), PipelineError> {
    let mut files = Vec::new();
    for file in staged.files() {
        let mut entry = checksummed_entry(file).map_err(PipelineError::file("read", file.path()))?;
        entry.records = (file.path() == out).then_some(records);
        files.push(entry);
    }
    let manifest = Manifest {
        godwit: env!("CARGO_PKG_VERSION").into(),
        verb: verb.into(),
        fingerprint: fingerprint.to_vec(),
        records,
        files,
        ..Manifest::default()
    };
    add_json_file(staged, &manifest_path(out), &manifest)
}

/// Writes the report, and renames all files to their final names.
pub(super) fn publish_outputs(
    job_directory: &CallJobDirectory,
    out: &Path,
    mut staged: AtomicSet,
    report: &impl serde::Serialize,
) -> Result<(), PipelineError> {
    add_json_file(&mut staged, &report_path(out), report)?;
    job_directory.record_publish(&mut staged).map_err(PipelineError::file("write the journal of", out))?;
    staged.publish().map_err(|(path, source)| PipelineError::File { action: "name", path, source })
}
