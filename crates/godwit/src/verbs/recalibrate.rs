//! `godwit recalibrate`: recalibrates base qualities.

use godwit_call::{RecalibrateOptions, recalibrate};
use godwit_cli::cli::RecalibrateArgs;
use godwit_cli::command_line;
use godwit_cli::failure::Failure;

use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Recalibrates base qualities and reports the outcome.
pub fn run(args: &RecalibrateArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let options = RecalibrateOptions {
        reference: args.reference.clone(),
        reads: args.reads.clone(),
        known_sites: args.known_sites.clone(),
        out: args.out.clone(),
        engine: args.engine.into(),
        quality: args.quality.options(),
        slice_records: args.slice_records,
        threads: args.common.thread_count(),
        memory_bytes: args.common.memory,
        gatk_memory_bytes: args.gatk_memory,
        temp: args.common.temp.clone(),
        resume: args.resume,
        godwit_program: "/proc/self/exe".into(),
        command: command_line(&args.common.configured_flags),
        scanned_reference: None,
    };
    let report = recalibrate(&options, &progress, &interruption::flag())?;
    if report.already_complete {
        progress.report(&format!("already complete: {}", args.out.display()));
        return Ok(());
    }
    let (records, slices) = (pluralize(report.records, "record"), pluralize(report.slices as u64, "slice"));
    progress.report(&format!("{records} in {slices} recalibrated, {:.1} s", report.seconds));
    progress.report(&format!("wrote {}", args.out.display()));
    Ok(())
}
