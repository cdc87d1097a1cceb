//! `godwit align`: aligns, sorts and marks the reads of a sample, and optionally calls variants.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use godwit_align::{AlignOptions, ReadsOptions, align, check_align, plan_align};
use godwit_call::CallOptions;
use godwit_cli::cli::{AlignArgs, LauncherName, TrimmerName};
use godwit_cli::failure::Failure;
use godwit_io::crypt4gh::{PublicKey, encrypted_path};
use godwit_model::ErrorKind;
use godwit_pipeline::JobOptions;
use godwit_pipeline::job_directory::has_unfinished_job;
use godwit_pipeline::job_report::JobReport;
use godwit_pipeline::python_step::PythonStepOptions;
use godwit_pipeline::reduce::{Format, RecalibrationOptions};
use godwit_recalibrate::QualityOptions;
use godwit_workflow::{align_and_call, check_calling};

use super::cluster_run::{ClusterRunOptions, planned_workers};
use super::{dry_run, input_path};
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Aligns the reads of a sample, calls variants if requested, and reports the outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    args.keys.load_keys()?;
    let recipients = args.recipients.read_keys()?;
    if args.recalibrate.is_empty() && args.quality.options() != QualityOptions::default() {
        let problem = "the options of recalibrated qualities require --recalibrate with known variants";
        return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
    }
    if args.call.is_some() && !recipients.is_empty() {
        let problem =
            "callers read the BAM unencrypted, so --call and --c4gh-recipient exclude each other; omit one of them";
        return Err(Failure::new(ErrorKind::Usage, problem.to_owned()));
    }
    // Reject contradictory values before a cluster job is submitted.
    args.metrics.job_metrics()?;
    if args.dry_run && args.cluster.on != Some(LauncherName::Slurm) {
        if let Some(calling) = calling_options(args)? {
            check_calling(&align_options(args, &recipients)?, &calling)?;
        }
        let plan = plan_align(
            &align_options(args, &recipients)?,
            planned_workers(&args.cluster, &args.common),
            &progress,
            &cancelled,
        )?;
        progress.clear();
        return dry_run::print_plan(&plan, args.common.json);
    }
    let cluster_run = ClusterRunOptions {
        cluster: &args.cluster,
        common: &args.common,
        dry_run: args.dry_run,
        job_directory: args.out.join("slurm"),
        job_name: args.sample.clone(),
        job_count: if args.call.is_some() { 2 } else { 1 },
        reads_stdin: args.lanes.iter().flatten().any(|file| file.as_os_str() == "-"),
        resume: args.resume,
    };
    let check = || check_before_submission(args, &recipients, &progress, &cancelled);
    let is_busy = || has_unfinished_job(&args.out).is_err();
    let Some(head) = cluster_run.dispatch(&progress, &cancelled, check, is_busy)? else { return Ok(()) };
    let cluster = head.cluster_options(&args.cluster)?;
    let mut options = align_options(args, &recipients)?;
    // If SLURM has restarted the job, resume the work of its earlier attempt.
    options.resume |= head.is_restart();
    let Some(calling) = calling_options(args)? else {
        let report = align(&options, cluster.as_ref(), &progress, &cancelled)?;
        head.write_finished_marker()?;
        report_outcome(args, &report, &progress);
        return Ok(());
    };
    let aligned = |report: &JobReport| report_outcome(args, report, &progress);
    let done = align_and_call(&options, &calling, cluster.as_ref(), aligned, &progress, &cancelled)?;
    head.write_finished_marker()?;
    super::call::report_outcome(&done.calling, &done.vcf, &progress);
    Ok(())
}

/// Checks inputs and options before a SLURM job is submitted.
fn check_before_submission(
    args: &AlignArgs,
    recipients: &[PublicKey],
    progress: &Progress,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let options = align_options(args, recipients)?;
    if let Some(calling) = calling_options(args)? {
        match check_calling(&options, &calling) {
            // The hosts of the job may have the caller, for example after `module load`.
            Err(error) if !error.is_missing_program() => return Err(error.into()),
            _ => {}
        }
    }
    check_align(&options, planned_workers(&args.cluster, &args.common), progress, cancelled)?;
    progress.clear();
    Ok(())
}

/// Returns the options of variant calling, if it is requested.
fn calling_options(args: &AlignArgs) -> Result<Option<CallOptions>, Failure> {
    match (&args.call, args.calling.first_explicit_option(&args.common.configured_flags)) {
        (None, Some(option)) => {
            Err(Failure::new(ErrorKind::Usage, format!("{option} applies to variant calling: add --call, or omit it")))
        }
        (None, None) => Ok(None),
        (Some(caller), _) => super::call::calling_options(&args.calling, caller.clone(), &args.common).map(Some),
    }
}

/// Reports the outcome of the alignment.
fn report_outcome(args: &AlignArgs, report: &JobReport, progress: &Progress) {
    if report.already_complete {
        return progress.report(&format!("already complete: {}", args.out.display()));
    }
    progress.report(&outcome_line(report));
    for format in formats(args) {
        let path = args.out.join(format!("{}.{}", args.sample, format.extension()));
        let path = if args.recipients.c4gh_recipient.is_empty() { path } else { encrypted_path(&path) };
        progress.report(&format!("wrote {}", path.display()));
    }
}

/// Formats the report of an alignment as one line for the user.
pub fn outcome_line(report: &JobReport) -> String {
    let percent = report.duplicates as f64 * 100.0 / (report.records + report.removed_duplicates).max(1) as f64;
    let dropped = report.python_step.as_ref().filter(|step| step.dropped_records > 0);
    let dropped =
        dropped.map_or(String::new(), |step| format!(", {} dropped by {}", step.dropped_records, step.function));
    let seconds = report.seconds;
    let (records, duplicates) = (pluralize(report.records, "record"), pluralize(report.duplicates, "duplicate"));
    format!("{records}, {duplicates} ({percent:.2}%){dropped}, {seconds:.1} s")
}

/// Returns the requested output formats in canonical order, each once.
fn formats(args: &AlignArgs) -> Vec<Format> {
    let requested: Vec<Format> = args.format.iter().map(|format| (*format).into()).collect();
    Format::ALL.into_iter().filter(|format| requested.contains(format)).collect()
}

fn align_options(args: &AlignArgs, recipients: &[PublicKey]) -> Result<AlignOptions, Failure> {
    Ok(AlignOptions {
        reference: args.reference.clone(),
        lanes: args.lanes.iter().map(|files| files.iter().map(|file| input_path(file)).collect()).collect(),
        reads: reads_options(args),
        read_groups: args.read_group.clone(),
        sample: args.sample.clone(),
        out: args.out.clone(),
        formats: formats(args),
        job: job_options(args, recipients)?,
        block_bases: args.block_bases,
        aligner: args.aligner.clone(),
        aligner_args: aligner_args(args),
        lenient: args.lenient,
        resume: args.resume,
    })
}

fn job_options(args: &AlignArgs, recipients: &[PublicKey]) -> Result<JobOptions, Failure> {
    let python_step =
        args.step.clone().map(|function| PythonStepOptions { function, python_path: args.python.clone() });
    let recalibration = (!args.recalibrate.is_empty()).then(|| RecalibrationOptions {
        // Workers of a cluster run may have other working directories.
        reference: absolute_path(&args.reference),
        known_sites: args.recalibrate.iter().map(|sites| absolute_path(sites)).collect(),
        quality: args.quality.options(),
    });
    Ok(JobOptions {
        python_step,
        recalibration,
        recipients: recipients.to_vec(),
        ..args.common.job_options(&args.marking, args.metrics.job_metrics()?)
    })
}

/// Returns the absolute path of a file; the path itself if the working directory is unknown.
fn absolute_path(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn reads_options(args: &AlignArgs) -> ReadsOptions {
    let input = &args.input;
    ReadsOptions {
        interleaved: input.interleaved,
        keep_tags: input.keep_tags.clone(),
        trim: input.trim.map(|TrimmerName::Fastp| split_words(&input.trim_args)),
    }
}

/// Returns the options for the aligner. If tags of the input are kept, they reach the aligner as FASTQ comments, so
/// `-C` is added, with which bwa copies comments to its records.
fn aligner_args(args: &AlignArgs) -> Vec<String> {
    let mut words = split_words(&args.aligner_args);
    if !args.input.keep_tags.is_empty() && !words.iter().any(|word| word == "-C") {
        words.push("-C".into());
    }
    words
}

fn split_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
