//! `godwit call`: calls variants, region by region.

use std::path::{Path, PathBuf};

use godwit_call::{CallOptions, CallReport, StallRule, call, check_call, is_call_running};
use godwit_cli::cli::{CallArgs, CallingArgs, CommonArgs, LauncherName};
use godwit_cli::command_line;
use godwit_cli::failure::Failure;
use godwit_engines::caller::CallerChoice;
use godwit_io::crypt4gh::encrypted_path;
use godwit_model::ErrorKind;
use godwit_model::PloidyTable;

use super::cluster_run::ClusterRunOptions;
use super::decrypted_files::DecryptedFiles;
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Calls variants and reports the outcome.
pub fn run(args: &CallArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    args.keys.load_keys()?;
    let mut options = call_options(args)?;
    if args.dry_run && args.cluster.on != Some(LauncherName::Slurm) {
        let problem = "--dry-run of call shows the job of --on slurm, which is not given; omit --dry-run".to_owned();
        return Err(Failure::new(ErrorKind::Usage, problem));
    }
    let job_name = args.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let cluster_run = ClusterRunOptions {
        cluster: &args.cluster,
        common: &args.common,
        dry_run: args.dry_run,
        job_directory: args.out.with_file_name(format!("{job_name}.slurm")),
        job_name,
        job_count: 1,
        reads_stdin: false,
        resume: args.resume,
    };
    let check = || check_before_submission(&options);
    let is_busy = || is_call_running(&args.out);
    let Some(head) = cluster_run.dispatch(&progress, &cancelled, check, is_busy)? else { return Ok(()) };
    let cluster = head.cluster_options(&args.cluster)?;
    // If SLURM has restarted the job, resume the work of its earlier attempt.
    options.resume |= head.is_restart();
    let mut clear = DecryptedFiles::beside_output(&args.out);
    for reads in options.reads.iter_mut().chain(&mut options.normal) {
        *reads = clear.decrypted_path(reads)?;
    }
    let report = call(&options, cluster.as_ref(), &progress, &cancelled)?;
    head.write_finished_marker()?;
    match options.recipients.is_empty() {
        true => report_outcome(&report, &args.out, &progress),
        false => report_outcome(&report, &encrypted_path(&args.out), &progress),
    }
    Ok(())
}

/// Checks inputs and options before a SLURM job is submitted. Encrypted reads are not decrypted for this.
fn check_before_submission(options: &CallOptions) -> Result<(), Failure> {
    let mut reads = options.reads.iter().chain(&options.normal);
    if reads.any(|reads| DecryptedFiles::is_encrypted(reads)) {
        return Ok(());
    }
    Ok(check_call(options)?)
}

/// Reports the outcome of variant calling on stderr.
pub(super) fn report_outcome(report: &CallReport, out: &Path, progress: &Progress) {
    if report.already_complete {
        return progress.report(&format!("already complete: {}", out.display()));
    }
    let records = pluralize(report.records, "record");
    let regions = pluralize(report.regions.len() as u64, "region");
    progress.report(&format!("{records} from {regions} by {}, {:.1} s", report.caller, report.seconds));
    let set_apart = report.regions_set_apart();
    if !set_apart.is_empty() {
        let regions = pluralize(set_apart.len() as u64, "region");
        progress.report(&format!("{regions} without records, because the caller stalled: {}", set_apart.join(", ")));
    }
    progress.report(&format!("wrote {}", out.display()));
}

fn call_options(args: &CallArgs) -> Result<CallOptions, Failure> {
    let usage = |message: &str| Err(Failure::new(ErrorKind::Usage, message.to_owned()));
    let (reads, caller) = match (&args.gvcfs[..], &args.caller) {
        ([], Some(CallerChoice::GatkJoint)) => {
            return usage("--caller gatk-joint requires gVCFs: name them with --gvcfs");
        }
        ([], caller) => (&args.reads, caller.clone().unwrap_or_default()),
        (_, None | Some(CallerChoice::GatkJoint)) => (&args.gvcfs, CallerChoice::GatkJoint),
        _ => return usage("gVCFs are genotyped by GATK: omit --caller, or use --caller gatk-joint"),
    };
    Ok(CallOptions {
        reference: args.reference.clone(),
        reads: reads.clone(),
        normal: args.normal.clone(),
        out: args.out.clone(),
        recipients: args.recipients.read_keys()?,
        resume: args.resume,
        memory_bytes: args.common.memory,
        ..calling_options(&args.calling, caller, &args.common)?
    })
}

/// Converts the options of variant calling that `godwit align` and `godwit call` share.
pub(super) fn calling_options(
    args: &CallingArgs,
    caller: CallerChoice,
    common: &CommonArgs,
) -> Result<CallOptions, Failure> {
    Ok(CallOptions {
        reference: PathBuf::new(),
        reads: Vec::new(),
        normal: None,
        out: PathBuf::new(),
        recipients: Vec::new(),
        caller,
        caller_args: args.caller_args.clone(),
        regions: args.regions.clone(),
        ploidy: args.ploidy.as_deref().map(|text| read_ploidy_table(text, args.sex.as_deref())).transpose()?,
        ploidy_name: args.ploidy.clone(),
        sex: args.sex.clone(),
        max_region_bases: args.max_region_bases,
        padding_bases: args.padding,
        threads: common.thread_count(),
        caller_threads: args.caller_threads as usize,
        memory_bytes: None,
        caller_memory_bytes: args.caller_memory,
        stall_rule: args.stall_after.map(|time_limit| StallRule { time_limit, min_piece_bases: args.stall_piece }),
        temp: common.temp.clone(),
        resume: false,
        godwit_program: "/proc/self/exe".into(),
        command: command_line(&common.configured_flags),
        scanned_reference: None,
    })
}

/// Returns the built-in ploidy table with this name, or reads the table from the file with this path. Rejects a `sex`
/// that the table does not contain.
pub(super) fn read_ploidy_table(text: &str, sex: Option<&str>) -> Result<PloidyTable, Failure> {
    let table = match PloidyTable::built_in(text) {
        Some(table) => table,
        None => {
            let content = std::fs::read_to_string(Path::new(text)).map_err(|error| {
                let known = "1, 2, X, Y, GRCh37 and GRCh38";
                Failure::new(
                    ErrorKind::Machine,
                    format!("cannot read the ploidy table {text}: {error}; built-in tables: {known}"),
                )
            })?;
            PloidyTable::parse(&content).map_err(|error| {
                Failure::new(ErrorKind::Input, format!("cannot use the ploidy table {text}: {error}"))
            })?
        }
    };
    if let Some(sex) = sex {
        table.check_sex(sex).map_err(|error| Failure::new(ErrorKind::Usage, format!("cannot use --sex: {error}")))?;
    }
    Ok(table)
}
