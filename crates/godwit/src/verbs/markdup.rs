//! `godwit markdup`: sorts aligned reads from any aligner, and marks duplicates.

use godwit_align::{MarkdupOptions, markdup, plan_markdup};
use godwit_cli::cli::{JobMetrics, MarkdupArgs};
use godwit_cli::failure::Failure;
use godwit_io::crypt4gh::{FILE_SUFFIX, encrypted_path};
use godwit_pipeline::JobOptions;

use super::{align, dry_run, input_path};
use crate::interruption;
use crate::progress::Progress;

/// Sorts the reads of a file, marks duplicates, and reports the outcome.
pub fn run(args: &MarkdupArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    args.keys.load_keys()?;
    let options = MarkdupOptions {
        input: input_path(&args.input),
        out: args.out.clone(),
        formats: args.format.iter().map(|format| (*format).into()).collect(),
        reference: args.reference.clone(),
        job: JobOptions {
            recipients: args.recipients.read_keys()?,
            ..args.common.job_options(&args.marking, JobMetrics::new(&args.metrics, &args.lists))
        },
    };
    if args.dry_run {
        let plan = plan_markdup(&options, &progress, &interruption::flag())?;
        progress.clear();
        return dry_run::print_plan(&plan, args.common.json);
    }
    let report = markdup(&options, &progress, &interruption::flag())?;
    let is_named =
        args.recipients.c4gh_recipient.is_empty() || args.out.to_str().is_some_and(|out| out.ends_with(FILE_SUFFIX));
    let out = if is_named { args.out.clone() } else { encrypted_path(&args.out) };
    if report.already_complete {
        progress.report(&format!("already complete: {}", out.display()));
        return Ok(());
    }
    progress.report(&align::outcome_line(&report));
    progress.report(&format!("wrote {}", out.display()));
    Ok(())
}
