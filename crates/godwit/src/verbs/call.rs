//! `godwit call`: variants by region.

use std::path::{Path, PathBuf};

use godwit_formats::crypt4gh::encrypted_name;
use godwit_pipeline::model::PloidyTable;
use godwit_pipeline::{CallOptions, CallReport, CallerChoice, call, is_call_busy};

use super::command_line;
use super::in_the_clear::InTheClear;
use super::spread::Spreadable;
use crate::cli::{CallArgs, CallingArgs, Common, Place};
use crate::failure::{Exit, Failure};
use crate::interruption;
use crate::progress::Progress;

/// Calls variants and tells the outcome.
pub fn run(args: &CallArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    args.keys.take()?;
    let mut options = options(args)?;
    if args.dry_run && args.place.on != Some(Place::Slurm) {
        let problem = "--dry-run of call shows the job of --on slurm, and here is none; leave it out".to_owned();
        return Err(Failure::new(Exit::Usage, problem));
    }
    let name = args.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let spreadable = Spreadable {
        place: &args.place,
        common: &args.common,
        dry_run: args.dry_run,
        directory: args.out.with_file_name(format!("{name}.slurm")),
        name,
        jobs: 1,
        reads_stdin: false,
    };
    let Some(lead) = spreadable.lead(&progress, &cancelled, || is_call_busy(&args.out))? else { return Ok(()) };
    let spread = lead.spread(&args.place)?;
    // SLURM started the job again: what its earlier start did is gone on with.
    options.resume |= lead.is_restart();
    let mut clear = InTheClear::beside(&args.out);
    for reads in options.reads.iter_mut().chain(&mut options.normal) {
        *reads = clear.file(reads)?;
    }
    let report = call(&options, spread.as_ref(), &progress, &cancelled)?;
    lead.finished()?;
    match options.recipients.is_empty() {
        true => tell(&report, &args.out, &progress),
        false => tell(&report, &encrypted_name(&args.out), &progress),
    }
    Ok(())
}

/// Tells the outcome.
pub(super) fn tell(report: &CallReport, out: &Path, progress: &Progress) {
    if report.already_complete {
        return progress.say(&format!("already complete: {}", out.display()));
    }
    let (records, regions, seconds) = (report.records, report.regions.len(), report.seconds);
    let regions = if regions == 1 { "1 region".to_owned() } else { format!("{regions} regions") };
    progress.say(&format!("{records} records from {regions} by {}, {seconds:.1} s", report.caller));
    progress.say(&format!("wrote {}", out.display()));
}

fn options(args: &CallArgs) -> Result<CallOptions, Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message.to_owned()));
    let (reads, caller) = match (&args.gvcfs[..], &args.caller) {
        ([], CallerChoice::GatkJoint) => return usage("--caller gatk-joint takes GVCFs: name them with --gvcfs"),
        ([], caller) => (&args.reads, caller.clone()),
        (_, CallerChoice::Bcftools | CallerChoice::GatkJoint) => (&args.gvcfs, CallerChoice::GatkJoint),
        _ => return usage("GVCFs are genotyped by GATK: leave --caller out, or say --caller gatk-joint"),
    };
    Ok(CallOptions {
        reference: args.reference.clone(),
        reads: reads.clone(),
        normal: args.normal.clone(),
        out: args.out.clone(),
        recipients: args.recipients.keys()?,
        resume: args.resume,
        memory_bytes: args.common.memory,
        ..calling(&args.calling, caller, &args.common)?
    })
}

/// How to call, whatever it is called from.
pub(super) fn calling(args: &CallingArgs, caller: CallerChoice, common: &Common) -> Result<CallOptions, Failure> {
    Ok(CallOptions {
        reference: PathBuf::new(),
        reads: Vec::new(),
        normal: None,
        out: PathBuf::new(),
        recipients: Vec::new(),
        caller,
        caller_args: args.caller_args.clone(),
        regions: args.regions.clone(),
        ploidy: args.ploidy.as_deref().map(|text| ploidy_table(text, args.sex.as_deref())).transpose()?,
        ploidy_name: args.ploidy.clone(),
        sex: args.sex.clone(),
        window_bases: args.grid_size,
        padding_bases: args.padding,
        threads: common.thread_count(),
        caller_threads: args.caller_threads as usize,
        memory_bytes: None,
        caller_memory_bytes: args.caller_memory,
        temp: common.temp.clone(),
        resume: false,
        program: "/proc/self/exe".into(),
        command: command_line(&common.configured),
        scanned: None,
    })
}

/// A table that is built in, or a file. Refuses a `sex` that it does not have.
pub(super) fn ploidy_table(text: &str, sex: Option<&str>) -> Result<PloidyTable, Failure> {
    let table = match PloidyTable::named(text) {
        Some(table) => table,
        None => {
            let content = std::fs::read_to_string(Path::new(text)).map_err(|error| {
                let known = "1, 2, X, Y, GRCh37 and GRCh38";
                Failure::new(
                    Exit::Machine,
                    format!("cannot read the ploidies in {text}: {error}; without a file: {known}"),
                )
            })?;
            PloidyTable::parse(&content)
                .map_err(|error| Failure::new(Exit::Input, format!("cannot use the ploidies in {text}: {error}")))?
        }
    };
    if let Some(sex) = sex {
        table.check_sex(sex).map_err(|error| Failure::new(Exit::Usage, format!("cannot use --sex: {error}")))?;
    }
    Ok(table)
}
