//! Opening and closing the run directory around the main job.

use std::sync::Arc;

use godwit_engines::aligner::Identity;

use super::AlignOptions;
use crate::error::{Blame, PipelineError};
use crate::journal::{Fact, OverNodes};
use crate::manifest::{self, Manifest};
use crate::observer::{Event, Observer};
use crate::reduce::Outputs;
use crate::run_directory::{self, Opened, RunDirectory};
use crate::run_report::RunReport;

/// What there is to do.
pub(super) enum Found {
    /// A run, with what is done of it already.
    Work(Box<RunDirectory>),
    /// Nothing: the outputs are there and are those of this command.
    Complete(Box<RunReport>),
}

/// Finds the run that is to be gone on with, or starts one.
pub(super) fn open(
    options: &AlignOptions,
    outputs: &Outputs,
    facts: &[Fact],
    over_nodes: Option<OverNodes>,
    observer: &dyn Observer,
) -> Result<Found, PipelineError> {
    let journal = options.out.join(run_directory::NAME).join("journal");
    if options.resume
        && !journal.exists()
        && let Some(manifest) = finished(options, outputs)?
    {
        run_directory::compare(&options.out, &manifest.identity, facts)?;
        return Ok(Found::Complete(Box::new(RunReport::of_complete(&manifest))));
    }
    // The next head may be on another machine, which sees the output directory, but not the disks of this one.
    let temp = options.job.temp.as_deref().filter(|_| over_nodes.is_none());
    let aside = outputs.aside_names();
    // An aligner that may keep something from read to read has to see a lane from its start.
    let resume = options.resume && options.aligner.identity() == Identity::AcrossBlocks;
    let open = || RunDirectory::open(&options.out, temp, facts, &aside, over_nodes.clone(), resume);
    let run = match open()? {
        Opened::Run(run) => run,
        Opened::Complete => match (finished(options, outputs)?, open) {
            (Some(manifest), _) => return Ok(Found::Complete(Box::new(RunReport::of_complete(&manifest)))),
            // Somebody removed an output after it had its name.
            (None, again) => match again()? {
                Opened::Run(run) => run,
                Opened::Complete => return Err(PipelineError::Lost { what: "run directories", taken: 1, written: 0 }),
            },
        },
    };
    if run.dropped_blocks() > 0 {
        let why = match options.resume {
            true => "this aligner has to see a lane from its first read to its last",
            false => "with --resume they would have been kept",
        };
        let message = format!("{} aligned blocks of a run that was stopped are dropped; {why}", run.dropped_blocks());
        observer.event(&Event::Warning { message });
    }
    let (blocks, partitions) = run.finished();
    // Over nodes it is known later what they still have.
    if blocks > 0 && run.over_nodes().is_none() {
        observer.event(&Event::Resumed { blocks, partitions });
    }
    Ok(Found::Work(run))
}

/// The manifest of outputs that are all there.
fn finished(options: &AlignOptions, outputs: &Outputs) -> Result<Option<Manifest>, PipelineError> {
    let path = outputs.beside(manifest::SUFFIX);
    match Manifest::read(&path) {
        Ok(manifest) => Ok(manifest.filter(|manifest| manifest.is_complete(&options.out))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PipelineError::file("read", path)(error)),
    }
}

/// Removes the directory of a run that is whole, or that left nothing; keeps all others and says so.
pub(super) fn close(
    outcome: Result<RunReport, PipelineError>,
    run: Arc<RunDirectory>,
    outputs: &Outputs,
    observer: &dyn Observer,
) -> Result<RunReport, PipelineError> {
    let path = outputs.stem.with_file_name(run_directory::NAME);
    let keep = run.has_work();
    let run = Arc::into_inner(run);
    match outcome {
        Ok(report) => {
            run.into_iter().for_each(RunDirectory::remove);
            Ok(report)
        }
        Err(error) if keep && error.blame() != Blame::Bug => match error {
            PipelineError::Interrupted => Err(PipelineError::Paused { run: path }),
            error => {
                let message =
                    format!("what was done is kept in {}: add --resume to the same command to go on", path.display());
                observer.event(&Event::Warning { message });
                Err(error)
            }
        },
        Err(error) => {
            run.into_iter().for_each(|run| run.discard(&outputs.aside_names()));
            Err(error)
        }
    }
}
