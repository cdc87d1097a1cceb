//! `godwit markdup`: the reduce half on reads aligned elsewhere.

use godwit_pipeline::{JobOptions, MarkdupOptions, markdup, plan_markdup};

use super::{align, dry_run, or_stdin};
use crate::cli::MarkdupArgs;
use crate::failure::Failure;
use crate::interruption;
use crate::progress::Progress;

/// Sorts and marks a file and tells the outcome.
pub fn run(args: &MarkdupArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    args.keys.take()?;
    let options = MarkdupOptions {
        input: or_stdin(&args.input),
        out: args.out.clone(),
        formats: args.format.iter().map(|format| (*format).into()).collect(),
        reference: args.reference.clone(),
        job: JobOptions { recipients: args.recipients.keys()?, ..args.common.job(&args.marking, args.metrics) },
    };
    if args.dry_run {
        let plan = plan_markdup(&options, &progress, &interruption::flag())?;
        progress.clear();
        return dry_run::tell(&plan, args.common.json);
    }
    let report = markdup(&options, &progress, &interruption::flag())?;
    progress.say(&align::outcome(&report));
    Ok(())
}
