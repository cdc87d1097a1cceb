//! `godwit align`: the main job.

use godwit_pipeline::{AlignOptions, Format, ReadsOptions, RunReport, align, has_stopped_run, plan_align};

use super::spread::{Spreadable, planned};
use super::{cancel_on_signal, or_stdin, plan};
use crate::cli::{AlignArgs, Place, Switch, TrimmerName};
use crate::failure::Failure;
use crate::progress::Progress;

/// Runs the main job and tells its outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = cancel_on_signal()?;
    if args.dry_run && args.place.on != Some(Place::Slurm) {
        let plan = plan_align(&options(args), planned(&args.place, &args.common), &progress, &cancelled)?;
        progress.clear();
        return plan::tell(&plan, args.common.json);
    }
    let spreadable = Spreadable {
        place: &args.place,
        common: &args.common,
        dry_run: args.dry_run,
        directory: args.out.join("slurm"),
        name: args.sample.clone(),
        reads_stdin: args.lanes.iter().flatten().any(|file| file.as_os_str() == "-"),
    };
    let is_busy = || has_stopped_run(&args.out).is_err();
    let Some(lead) = spreadable.lead(&progress, &cancelled, is_busy)? else { return Ok(()) };
    let spread = lead.spread(&args.place)?;
    let mut options = options(args);
    // SLURM started the job again: what its earlier start did is gone on with.
    options.resume |= lead.is_restart();
    let report = align(&options, spread.as_ref(), &progress, &cancelled)?;
    lead.finished()?;
    if report.already_complete {
        progress.say(&format!("already complete: {}", args.out.display()));
        return Ok(());
    }
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
        lanes: args.lanes.iter().map(|files| files.iter().map(|file| or_stdin(file)).collect()).collect(),
        reads: reads(args),
        read_groups: args.read_group.clone(),
        sample: args.sample.clone(),
        out: args.out.clone(),
        formats: formats(args),
        job: args.common.job(&args.marking, args.metrics == Switch::On),
        block_bases: args.block_bases,
        aligner: args.aligner.clone(),
        aligner_args: aligner_args(args),
        lenient: args.lenient,
        resume: args.resume,
    }
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
