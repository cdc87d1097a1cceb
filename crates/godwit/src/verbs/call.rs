//! `godwit call`: variants by region.

use std::path::Path;

use godwit_pipeline::model::PloidyTable;
use godwit_pipeline::{CallOptions, CallerChoice, call};

use super::{cancel_on_signal, command_line};
use crate::cli::CallArgs;
use crate::failure::{Exit, Failure};
use crate::progress::Progress;

/// Calls variants and tells the outcome.
pub fn run(args: &CallArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let options = options(args)?;
    let report = call(&options, &progress, &*cancel_on_signal()?)?;
    if report.already_complete {
        progress.say(&format!("already complete: {}", args.out.display()));
        return Ok(());
    }
    let (records, regions, seconds) = (report.records, report.regions.len(), report.seconds);
    let regions = if regions == 1 { "1 region".to_owned() } else { format!("{regions} regions") };
    progress.say(&format!("{records} records from {regions} by {}, {seconds:.1} s", report.caller));
    progress.say(&format!("wrote {}", args.out.display()));
    Ok(())
}

fn options(args: &CallArgs) -> Result<CallOptions, Failure> {
    let ploidy = args.ploidy.as_deref().map(|text| ploidy(text, args.sex.as_deref())).transpose()?;
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
        caller,
        caller_args: args.caller_args.clone(),
        regions: args.regions.clone(),
        ploidy,
        ploidy_name: args.ploidy.clone(),
        sex: args.sex.clone(),
        window_bases: args.grid_size,
        padding_bases: args.padding,
        threads: args.common.thread_count(),
        caller_threads: args.caller_threads as usize,
        memory_bytes: args.common.memory,
        caller_memory_bytes: args.caller_memory,
        temp: args.common.temp.clone(),
        resume: args.resume,
        program: "/proc/self/exe".into(),
        command: command_line(&args.common.configured),
    })
}

/// A table that is built in, or a file.
fn ploidy(text: &str, sex: Option<&str>) -> Result<PloidyTable, Failure> {
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
