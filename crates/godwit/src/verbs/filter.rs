//! `godwit filter`: filters variants with GATK.

use godwit_call::{FilterOptions, filter};
use godwit_cli::cli::FilterArgs;
use godwit_cli::command_line;
use godwit_cli::failure::Failure;

use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Filters variants and reports the outcome.
pub fn run(args: &FilterArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let options = FilterOptions {
        reference: args.reference.clone(),
        variants: args.variants.clone(),
        out: args.out.clone(),
        snp_resources: args.resources.snp_resource.clone(),
        indel_resources: args.resources.indel_resource.clone(),
        gatk_memory_bytes: args.gatk_memory,
        resume: args.resume,
        command: command_line(&args.common.configured_flags),
        scanned_reference: None,
    };
    let report = filter(&options, &progress, &interruption::flag())?;
    if report.already_complete {
        progress.report(&format!("already complete: {}", args.out.display()));
        return Ok(());
    }
    let records = pluralize(report.records, "record");
    progress.report(&format!("{records} filtered by {}, {:.1} s", report.method, report.seconds));
    progress.report(&format!("wrote {}", args.out.display()));
    Ok(())
}
