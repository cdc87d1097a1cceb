//! `godwit run`: many samples from FASTQ to variants.

use godwit_pipeline::{WorkflowOptions, run_workflow};

use super::call::ploidy_table;
use super::cancel_on_signal;
use crate::cli::{MarkingArgs, RunArgs, Switch};
use crate::failure::Failure;
use crate::progress::Progress;

/// Runs the workflow and tells the outcome.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let options = WorkflowOptions {
        reference: args.reference.clone(),
        sheet: args.samples.clone(),
        out: args.out.clone(),
        workflow: args.workflow.into(),
        job: args.common.job(&MarkingArgs::default(), args.metrics == Switch::On),
        block_bases: args.block_bases,
        aligner: args.aligner.clone(),
        caller: args.caller.clone(),
        caller_args: args.caller_args.clone(),
        ploidy: args.ploidy.as_deref().map(|text| ploidy_table(text, None)).transpose()?,
        ploidy_name: args.ploidy.clone(),
        known_sites: args.known_sites.clone(),
        snp_resources: args.resources.snp_resource.clone(),
        indel_resources: args.resources.indel_resource.clone(),
        window_bases: args.grid_size,
        caller_memory_bytes: args.caller_memory,
        resume: args.resume,
    };
    let report = run_workflow(&options, &progress, &cancel_on_signal()?)?;
    for step in &report.hours {
        progress.say(&format!("{}: {:.4} hours", step.step, step.hours));
    }
    if let Some(how) = &report.filters {
        progress.say(&format!("variants were judged by {how}"));
    }
    let samples =
        if report.samples.len() == 1 { "1 sample".to_owned() } else { format!("{} samples", report.samples.len()) };
    progress.say(&format!("{samples}, {:.1} s, {:.1} genomes a day", report.seconds, report.genomes_per_day));
    progress.say(&format!("wrote {}", args.out.join("report.html").display()));
    Ok(())
}
