//! `godwit metrics`: Picard's metrics of a BAM in one pass.

use godwit_align::{PicardMetricsOptions, collect_picard_metrics};
use godwit_cli::cli::MetricsArgs;
use godwit_cli::failure::Failure;

use super::input_path;
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Computes the requested metrics, and reports the number of files.
pub fn run(args: &MetricsArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let options = PicardMetricsOptions {
        bam: input_path(&args.input),
        reference: args.reference.clone(),
        out: args.out.clone(),
        request: args.lists.request(&args.metrics).unwrap_or_default(),
        threads: args.common.thread_count(),
    };
    let report = collect_picard_metrics(&options, &progress, &interruption::flag())?;
    let (records, files) = (pluralize(report.records, "record"), pluralize(report.files.len() as u64, "file"));
    progress.report(&format!("{records}: wrote {files} of metrics to {}", args.out.display()));
    Ok(())
}
