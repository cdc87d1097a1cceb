//! `godwit run`: processes the samples of a sample sheet from FASTQ to variants.

use std::path::PathBuf;
use std::sync::Arc;

use godwit_cli::cli::{MarkingArgs, RunArgs};
use godwit_cli::failure::Failure;
use godwit_model::ErrorKind;
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::Observer;
use godwit_workflow::{SampleHosts, StorageMonitor, WorkflowOptions, run_sample, run_workflow};

use super::call::read_ploidy_table;
use super::cluster_run::is_restart;
use super::mounted_inputs::MountedInputs;
use super::remote_file_transfer::RemoteFileTransfer;
use super::sample_jobs::SampleJobLauncher;
use super::storage_pool_monitor::StoragePoolMonitor;
use crate::dashboard::Dashboard;
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Runs the workflow for all samples, or for one sample with `--one-sample`, and reports the outcome.
pub fn run(mut args: RunArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    args.keys.load_keys()?;
    let inputs = MountedInputs::start(&mut args)?;
    let pool = args.access.pool.as_deref().filter(|_| args.one_sample.is_none());
    let storage = pool.map(|file| StoragePoolMonitor::start(file, &args.access)).transpose()?;
    let options = WorkflowOptions {
        reference: args.reference.clone(),
        sample_sheet: args.samples.clone(),
        out: args.out.clone(),
        workflow: args.workflow.into(),
        job: args.common.job_options(&MarkingArgs::default(), args.metrics.job_metrics()?),
        block_bases: args.block_bases,
        aligner: args.aligner.clone(),
        caller: args.caller.clone(),
        caller_args: args.caller_args.clone(),
        ploidy: args.ploidy.as_deref().map(|text| read_ploidy_table(text, None)).transpose()?,
        ploidy_name: args.ploidy.clone(),
        known_sites: args.known_sites.clone(),
        snp_resources: args.resources.snp_resource.clone(),
        indel_resources: args.resources.indel_resource.clone(),
        max_region_bases: args.max_region_bases,
        caller_memory_bytes: args.caller_memory,
        remote_files: Some(Arc::new(RemoteFileTransfer::new(
            args.access.clone(),
            args.common.json,
            args.common.thread_count(),
        ))),
        store_address: args.store.clone(),
        input_addresses: inputs.addresses().clone(),
        storage_monitor: storage.clone().map(|storage| storage as Arc<dyn StorageMonitor>),
        // If SLURM has restarted the job of this sample, resume the work of the earlier attempt.
        resume: args.resume || (args.one_sample.is_some() && is_restart()),
    };
    let cancelled = interruption::flag();
    if let Some(sample) = &args.one_sample {
        return Ok(run_sample(&options, sample, &job_directory()?, &progress, &cancelled)?);
    }
    let launcher = args.cluster.on.map(|place| SampleJobLauncher::new(&args, place)).transpose()?;
    let nodes = launcher.as_ref().map(|launcher| launcher as &dyn SampleHosts);
    let dashboard = args.dashboard.map(|port| Dashboard::open(port, &progress, storage)).transpose()?;
    let observer: &dyn Observer = match &dashboard {
        Some(dashboard) => dashboard,
        None => &progress,
    };
    let report = run_workflow(&options, nodes, observer, &cancelled);
    drop(dashboard);
    let report = match (report, &launcher) {
        (Err(PipelineError::Interrupted), Some(launcher)) => return Err(launcher.interruption_failure()),
        (report, _) => report?,
    };
    for step in &report.step_hours {
        progress.report(&format!("{}: {:.4} hours", step.step.name(), step.hours));
    }
    if let Some(how) = &report.filter_method {
        progress.report(&format!("variants were filtered by {how}"));
    }
    let samples = pluralize(report.samples.len() as u64, "sample");
    let seconds = if report.hosts > 0 { report.wall_seconds } else { report.seconds };
    progress.report(&format!("{samples}, {seconds:.1} s, {:.1} genomes per day", report.genomes_per_day));
    progress.report(&format!("wrote {}", args.out.join("report.html").display()));
    Ok(())
}

/// Returns the path of the job directory, in which the head of the run expects the outcome of this sample.
fn job_directory() -> Result<PathBuf, Failure> {
    let missing = || {
        let problem = "--one-sample is for jobs that `godwit run --on` starts; GODWIT_JOB_DIRECTORY is not set";
        Failure::new(ErrorKind::Usage, problem.to_owned())
    };
    std::env::var_os("GODWIT_JOB_DIRECTORY").map(PathBuf::from).ok_or_else(missing)
}
