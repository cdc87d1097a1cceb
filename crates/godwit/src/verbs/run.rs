//! `godwit run`: many samples from FASTQ to variants.

use std::path::PathBuf;
use std::sync::Arc;

use godwit_pipeline::{Observer, SampleNodes, WatchStorage, WorkflowOptions, run_sample, run_workflow};

use super::call::ploidy_table;
use super::fetching::Fetching;
use super::run_nodes::RunNodes;
use super::spread::is_restart;
use super::storage_watch::StorageWatch;
use crate::cli::{MarkingArgs, RunArgs, Switch};
use crate::dashboard::Dashboard;
use crate::failure::{Exit, Failure};
use crate::interruption;
use crate::progress::Progress;

/// Runs the workflow and tells the outcome.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    args.keys.take()?;
    let pool = args.access.pool.as_deref().filter(|_| args.one_sample.is_none());
    let storage = pool.map(|file| StorageWatch::start(file, &args.access)).transpose()?;
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
        fetch: Some(Arc::new(Fetching::new(args.access.clone(), args.common.json, args.common.thread_count()))),
        store: args.store.clone(),
        storage: storage.clone().map(|storage| storage as Arc<dyn WatchStorage>),
        // What an earlier start of the same job did is gone on with.
        resume: args.resume || (args.one_sample.is_some() && is_restart()),
    };
    let cancelled = interruption::flag();
    if let Some(sample) = &args.one_sample {
        return Ok(run_sample(&options, sample, &job_directory()?, &progress, &cancelled)?);
    }
    let nodes = args.place.on.map(|place| RunNodes::new(args, place)).transpose()?;
    let nodes = nodes.as_ref().map(|nodes| nodes as &dyn SampleNodes);
    let dashboard = args.dashboard.map(|port| Dashboard::open(port, &progress, storage)).transpose()?;
    let observer: &dyn Observer = match &dashboard {
        Some(dashboard) => dashboard,
        None => &progress,
    };
    let report = run_workflow(&options, nodes, observer, &cancelled);
    drop(dashboard);
    let report = report?;
    for step in &report.hours {
        progress.say(&format!("{}: {:.4} hours", step.step.name(), step.hours));
    }
    if let Some(how) = &report.filters {
        progress.say(&format!("variants were judged by {how}"));
    }
    let samples =
        if report.samples.len() == 1 { "1 sample".to_owned() } else { format!("{} samples", report.samples.len()) };
    let seconds = if report.nodes > 0 { report.wall_seconds } else { report.seconds };
    progress.say(&format!("{samples}, {seconds:.1} s, {:.1} genomes a day", report.genomes_per_day));
    progress.say(&format!("wrote {}", args.out.join("report.html").display()));
    Ok(())
}

/// Where the process that leads the run looks for the outcome of a sample: the job's own directory.
fn job_directory() -> Result<PathBuf, Failure> {
    let missing = || {
        let problem = "--one-sample is for jobs that `godwit run --on` starts; GODWIT_JOB_DIRECTORY is not set";
        Failure::new(Exit::Usage, problem.to_owned())
    };
    std::env::var_os("GODWIT_JOB_DIRECTORY").map(PathBuf::from).ok_or_else(missing)
}
