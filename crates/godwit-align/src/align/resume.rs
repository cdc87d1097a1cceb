//! Opens and closes the job directory of an alignment.

use std::sync::Arc;

use godwit_engines::aligner::BlockDependence;
use godwit_model::ErrorKind;
use godwit_pipeline::job_directory::{self, JobDirectory, JobDirectoryState};
use godwit_pipeline::job_report::JobReport;
use godwit_pipeline::manifest::{self, Manifest};
use godwit_pipeline::observer::{Event, Observer, report_kept_checkpoints};
use godwit_pipeline::reduce::Outputs;
use godwit_pipeline::{ClusterRun, FingerprintEntry, PipelineError};

use super::AlignOptions;

/// The state of the job directory at the start of an alignment.
pub(super) enum ResumeState {
    /// A new or stopped job, with the checkpoints of the work that is already done.
    Unfinished(Box<JobDirectory>),
    /// A complete job: the outputs exist and are those of this command.
    Complete(Box<JobReport>),
}

/// Opens the directory of the job to resume, or of a new job.
pub(super) fn open_job_directory(
    options: &AlignOptions,
    outputs: &Outputs,
    fingerprint: &[FingerprintEntry],
    over_nodes: Option<ClusterRun>,
    observer: &dyn Observer,
) -> Result<ResumeState, PipelineError> {
    let journal = options.out.join(job_directory::DIRECTORY_NAME).join("journal");
    if options.resume
        && !journal.exists()
        && let Some(manifest) = complete_manifest(options, outputs)?
    {
        job_directory::check_fingerprint(&options.out, &manifest.fingerprint, fingerprint)?;
        return Ok(ResumeState::Complete(Box::new(JobReport::from_manifest(&manifest))));
    }
    // In a cluster run, the next head may run on another host, which shares the output directory but not the local
    // scratch directory.
    let temp = options.job.temp.as_deref().filter(|_| over_nodes.is_none());
    let temporary_names = outputs.temporary_names();
    // An aligner that may keep state from read to read has to align a lane from its start.
    let resume = options.resume && options.aligner.block_dependence() == BlockDependence::Independent;
    let open = || JobDirectory::open(&options.out, temp, fingerprint, &temporary_names, over_nodes.clone(), resume);
    let job_directory = match open()? {
        JobDirectoryState::Open(run) => run,
        JobDirectoryState::Complete => match (complete_manifest(options, outputs)?, open) {
            (Some(manifest), _) => return Ok(ResumeState::Complete(Box::new(JobReport::from_manifest(&manifest)))),
            // The job was complete, but an output file was removed afterwards, so start a new job.
            (None, again) => match again()? {
                JobDirectoryState::Open(run) => run,
                JobDirectoryState::Complete => {
                    return Err(PipelineError::CountMismatch { items: "run directories", expected: 1, actual: 0 });
                }
            },
        },
    };
    if job_directory.dropped_blocks() > 0 {
        let why = match options.resume {
            true => "this aligner must align a lane from its first read to its last",
            false => "--resume keeps them",
        };
        let message = format!("{} aligned blocks of a stopped job are removed; {why}", job_directory.dropped_blocks());
        observer.event(&Event::Warning { message });
    }
    let (blocks, partitions) = job_directory.finished_counts();
    // In a cluster run, the finished blocks are not known yet: the workers report their slices when they join.
    if blocks > 0 && job_directory.cluster_run().is_none() {
        observer.event(&Event::Resumed { blocks, partitions });
    }
    Ok(ResumeState::Unfinished(job_directory))
}

/// Returns the manifest of the output directory, if all files that it lists exist.
fn complete_manifest(options: &AlignOptions, outputs: &Outputs) -> Result<Option<Manifest>, PipelineError> {
    let path = outputs.path_with_suffix(manifest::MANIFEST_SUFFIX);
    match Manifest::read(&path) {
        Ok(manifest) => Ok(manifest.filter(|manifest| manifest.is_complete(&options.out))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PipelineError::file("read", path)(error)),
    }
}

/// Removes the job directory if the job is complete, has no checkpoints, or failed with an internal error. Otherwise
/// keeps the directory and reports its path to the user.
pub(super) fn close_job_directory(
    outcome: Result<JobReport, PipelineError>,
    job_directory: Arc<JobDirectory>,
    outputs: &Outputs,
    observer: &dyn Observer,
) -> Result<JobReport, PipelineError> {
    let path = outputs.stem.with_file_name(job_directory::DIRECTORY_NAME);
    let keep = job_directory.has_checkpoints();
    let run = Arc::into_inner(job_directory);
    match outcome {
        Ok(report) => {
            run.into_iter().for_each(JobDirectory::remove);
            Ok(report)
        }
        Err(error) if keep && error.kind() != ErrorKind::Bug => Err(report_kept_checkpoints(error, path, observer)),
        Err(error) => {
            run.into_iter().for_each(|run| run.discard(&outputs.temporary_names()));
            Err(error)
        }
    }
}
