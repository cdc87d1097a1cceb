//! `godwit align`: the main job.

use godwit_pipeline::{AlignOptions, Format, RunReport, align};

use super::cancel_on_signal;
use crate::cli::AlignArgs;
use crate::failure::Failure;
use crate::progress::Progress;

/// Runs the main job and tells its outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let report = align(&options(args), &progress, &cancel_on_signal()?)?;
    progress.say(&outcome(&report));
    for format in formats(args) {
        let path = args.out.join(format!("{}.{}", args.sample, format.extension()));
        progress.say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// One line about a report.
pub fn outcome(report: &RunReport) -> String {
    let percent = report.duplicates as f64 * 100.0 / (report.records + report.removed).max(1) as f64;
    format!("{} records, {} duplicates ({percent:.2}%), {:.1} s", report.records, report.duplicates, report.seconds)
}

/// The formats asked for, each once, in their own order.
fn formats(args: &AlignArgs) -> Vec<Format> {
    let asked: Vec<Format> = args.format.iter().map(|format| (*format).into()).collect();
    Format::ALL.into_iter().filter(|format| asked.contains(format)).collect()
}

fn options(args: &AlignArgs) -> AlignOptions {
    AlignOptions {
        reference: args.reference.clone(),
        lanes: args.lanes.clone(),
        read_groups: args.read_group.clone(),
        sample: args.sample.clone(),
        out: args.out.clone(),
        formats: formats(args),
        job: args.common.job(&args.marking),
        block_bases: args.block_bases,
        aligner_args: args.aligner_args.split_whitespace().map(str::to_owned).collect(),
        lenient: args.lenient,
    }
}
