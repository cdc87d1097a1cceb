//! `godwit align`: the main job.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use godwit_formats::with_causes;
use godwit_pipeline::{
    AlignOptions, Format, PipelineError, ReadsOptions, RunReport, align, has_stopped_run, plan_align, work,
};

use super::slurm_job::SlurmJob;
use super::spread::{Allocation, Nodes, planned};
use super::{cancel_on_signal, or_stdin, plan};
use crate::cli::{AlignArgs, Place, Switch, TrimmerName};
use crate::failure::Failure;
use crate::progress::Progress;

/// How long an earlier start of a job may take to be gone: servers of files hold the locks of a machine that lost its power for
/// a minute and a half.
const EARLIER_START: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs the main job and tells its outcome.
pub fn run(args: &AlignArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = cancel_on_signal()?;
    if args.dry_run && args.place.on == Some(Place::Slurm) {
        return super::print(&SlurmJob::new(args)?.render()?);
    }
    if args.dry_run {
        let plan = plan_align(&options(args), planned(args), &progress, &cancelled)?;
        progress.clear();
        return plan::tell(&plan, args.common.json);
    }
    if args.place.on == Some(Place::Slurm) {
        return SlurmJob::new(args)?.run(!args.place.slurm.no_wait, &progress, &cancelled);
    }
    let allocation = match args.place.on {
        Some(Place::Allocation) => Some(Allocation::from_environment()?),
        _ => None,
    };
    if let Some(allocation) = allocation.as_ref().filter(|allocation| allocation.node > 0) {
        return match work(&allocation.node_options(args), &cancelled) {
            Err(error @ PipelineError::Interrupted) => Err(error.into()),
            // The head goes on without this node, and it is the head that tells how the job ended.
            Err(error) => {
                progress.say(&format!("this node left the run: {}", with_causes(&error)));
                Ok(())
            }
            Ok(()) => Ok(()),
        };
    }
    let nodes = Nodes::new(args, allocation.clone())?;
    let spread = nodes.as_ref().map(|nodes| nodes.spread(args)).transpose()?;
    let mut options = options(args);
    if allocation.as_ref().is_some_and(Allocation::is_restart) {
        // SLURM started the job again: what its earlier start did is gone on with, when that has let go of it.
        options.resume = true;
        wait_for_earlier_start(&args.out, &progress, &cancelled);
    }
    let report = align(&options, spread.as_ref(), &progress, &cancelled)?;
    allocation.map_or(Ok(()), |allocation| allocation.finished())?;
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

/// Waits until no process works in the output directory; not for ever, for then it is refused, and that is told.
fn wait_for_earlier_start(out: &Path, progress: &Progress, cancelled: &AtomicBool) {
    let until = Instant::now() + EARLIER_START;
    let mut told = false;
    while has_stopped_run(out).is_err() && Instant::now() < until && !cancelled.load(Ordering::Relaxed) {
        if !told {
            progress.say("an earlier start of this job still works there; waiting for it to end");
            told = true;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
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
