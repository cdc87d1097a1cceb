//! `godwit align`: the main job.

use godwit_pipeline::{AlignOptions, RunReport, align, plan_align};

use super::{cancel_on_signal, plan};
use crate::cli::AlignArgs;
use crate::failure::Failure;
use crate::progress::Progress;

/// Runs the main job and tells its outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    if args.dry_run {
        let plan = plan_align(&options(args), &progress)?;
        progress.clear();
        return plan::tell(&plan, args.common.json);
    }
    let report = align(&options(args), &progress, &cancel_on_signal()?)?;
    if report.already_complete {
        progress.say(&format!("already complete: {}", args.out.display()));
        return Ok(());
    }
    progress.say(&outcome(&report));
    progress.say(&format!("wrote {}", args.out.join(format!("{}.bam", args.sample)).display()));
    Ok(())
}

/// One line about a report.
pub fn outcome(report: &RunReport) -> String {
    let percent = report.duplicates as f64 * 100.0 / (report.records + report.removed).max(1) as f64;
    format!("{} records, {} duplicates ({percent:.2}%), {:.1} s", report.records, report.duplicates, report.seconds)
}

fn options(args: &AlignArgs) -> AlignOptions {
    AlignOptions {
        reference: args.reference.clone(),
        lanes: args.lanes.clone(),
        read_groups: args.read_group.clone(),
        sample: args.sample.clone(),
        out: args.out.clone(),
        job: args.common.job(&args.marking),
        block_bases: args.block_bases,
        aligner_args: args.aligner_args.split_whitespace().map(str::to_owned).collect(),
        lenient: args.lenient,
        resume: args.resume,
    }
}
