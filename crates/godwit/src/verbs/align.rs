//! `godwit align`: the main job.

use godwit_formats::crypt4gh::{PublicKey, encrypted_name};
use godwit_pipeline::{
    AlignOptions, CallOptions, Format, JobOptions, ReadsOptions, RunReport, StepOptions, align, align_and_call,
    check_calling, has_stopped_run, plan_align,
};

use super::spread::{Spreadable, planned};
use super::{dry_run, or_stdin};
use crate::cli::{AlignArgs, Place, Switch, TrimmerName};
use crate::failure::{Exit, Failure};
use crate::interruption;
use crate::progress::Progress;

/// Runs the main job and tells its outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    args.keys.take()?;
    let recipients = args.recipients.keys()?;
    if args.call.is_some() && !recipients.is_empty() {
        let problem = "--call has callers read the BAM, which --c4gh-recipient encrypts; leave one of them out";
        return Err(Failure::new(Exit::Usage, problem.to_owned()));
    }
    if args.dry_run && args.place.on != Some(Place::Slurm) {
        if let Some(calling) = calling(args)? {
            check_calling(&options(args, &recipients), &calling)?;
        }
        let plan = plan_align(&options(args, &recipients), planned(&args.place, &args.common), &progress, &cancelled)?;
        progress.clear();
        return dry_run::tell(&plan, args.common.json);
    }
    let spreadable = Spreadable {
        place: &args.place,
        common: &args.common,
        dry_run: args.dry_run,
        directory: args.out.join("slurm"),
        name: args.sample.clone(),
        jobs: if args.call.is_some() { 2 } else { 1 },
        reads_stdin: args.lanes.iter().flatten().any(|file| file.as_os_str() == "-"),
    };
    let is_busy = || has_stopped_run(&args.out).is_err();
    let Some(lead) = spreadable.lead(&progress, &cancelled, is_busy)? else { return Ok(()) };
    let spread = lead.spread(&args.place)?;
    let mut options = options(args, &recipients);
    // SLURM started the job again: what its earlier start did is gone on with.
    options.resume |= lead.is_restart();
    let Some(calling) = calling(args)? else {
        let report = align(&options, spread.as_ref(), &progress, &cancelled)?;
        lead.finished()?;
        tell(args, &report, &progress);
        return Ok(());
    };
    let aligned = |report: &RunReport| tell(args, report, &progress);
    let done = align_and_call(&options, &calling, spread.as_ref(), aligned, &progress, &cancelled)?;
    lead.finished()?;
    super::call::tell(&done.called, &done.vcf, &progress);
    Ok(())
}

/// How variants are called, where they are.
fn calling(args: &AlignArgs) -> Result<Option<CallOptions>, Failure> {
    match (&args.call, args.calling.given(&args.common.configured)) {
        (None, Some(option)) => {
            Err(Failure::new(Exit::Usage, format!("{option} is about calling variants: add --call, or leave it out")))
        }
        (None, None) => Ok(None),
        (Some(caller), _) => super::call::calling(&args.calling, caller.clone(), &args.common).map(Some),
    }
}

/// Tells the outcome of the alignment.
fn tell(args: &AlignArgs, report: &RunReport, progress: &Progress) {
    if report.already_complete {
        return progress.say(&format!("already complete: {}", args.out.display()));
    }
    progress.say(&outcome(report));
    for format in formats(args) {
        let path = args.out.join(format!("{}.{}", args.sample, format.extension()));
        let path = if args.recipients.c4gh_recipient.is_empty() { path } else { encrypted_name(&path) };
        progress.say(&format!("wrote {}", path.display()));
    }
}

/// One line about a report.
pub fn outcome(report: &RunReport) -> String {
    let percent = report.duplicates as f64 * 100.0 / (report.records + report.removed).max(1) as f64;
    let dropped = report.step.as_ref().filter(|step| step.dropped > 0);
    let dropped = dropped.map_or(String::new(), |step| format!(", {} left out by {}", step.dropped, step.function));
    let seconds = report.seconds;
    format!("{} records, {} duplicates ({percent:.2}%){dropped}, {seconds:.1} s", report.records, report.duplicates)
}

/// The formats asked for, each once, in their own order.
fn formats(args: &AlignArgs) -> Vec<Format> {
    let asked: Vec<Format> = args.format.iter().map(|format| (*format).into()).collect();
    Format::ALL.into_iter().filter(|format| asked.contains(format)).collect()
}

fn options(args: &AlignArgs, recipients: &[PublicKey]) -> AlignOptions {
    AlignOptions {
        reference: args.reference.clone(),
        lanes: args.lanes.iter().map(|files| files.iter().map(|file| or_stdin(file)).collect()).collect(),
        reads: reads(args),
        read_groups: args.read_group.clone(),
        sample: args.sample.clone(),
        out: args.out.clone(),
        formats: formats(args),
        job: job(args, recipients),
        block_bases: args.block_bases,
        aligner: args.aligner.clone(),
        aligner_args: aligner_args(args),
        lenient: args.lenient,
        resume: args.resume,
    }
}

fn job(args: &AlignArgs, recipients: &[PublicKey]) -> JobOptions {
    let step = args.step.clone().map(|function| StepOptions { function, python: args.python.clone() });
    JobOptions { step, recipients: recipients.to_vec(), ..args.common.job(&args.marking, args.metrics == Switch::On) }
}

fn reads(args: &AlignArgs) -> ReadsOptions {
    let input = &args.input;
    ReadsOptions {
        interleaved: input.interleaved,
        keep_tags: input.keep_tags.clone(),
        trim: input.trim.map(|TrimmerName::Fastp| words(&input.trim_args)),
    }
}

/// Kept tags travel as comments, which bwa puts into records with `-C`.
fn aligner_args(args: &AlignArgs) -> Vec<String> {
    let mut words = words(&args.aligner_args);
    if !args.input.keep_tags.is_empty() && !words.iter().any(|word| word == "-C") {
        words.push("-C".into());
    }
    words
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
