//! `godwit search`: runs BLAST+, DIAMOND or MMseqs2 searches with several workers.

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use godwit_align::format_bytes;
use godwit_cli::cli::{CommonArgs, LauncherName, SearchArgs, SearchEngine, SearchWorkerArgs};
use godwit_cli::failure::{Failure, print, print_json};
use godwit_columnar::TableFormat;
use godwit_files::{AtomicFile, OutputTarget, parent_directory};
use godwit_model::ErrorKind;
use godwit_pipeline::host_resources;
use godwit_pipeline::observer::{Event, Observer};
use godwit_process::TemporaryItem;
use godwit_search::{
    LocalBackend, Search, SearchCommand, SearchError, SearchForecast, SearchObserver, SearchOptions, SearchProgram,
    SearchProgress, SearchScratch, SearchSummary, ToolSearch, search_on_workers,
};

use super::cluster_run::ClusterRunOptions;
use super::output_check::check_output;
use super::{scratch_directory, store_stream};
use crate::interruption;
use crate::plural::pluralize;
use crate::progress::Progress;

/// Default memory for the reports of all workers of a host, in bytes.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Default number of database ranges per worker for `--engine alias`, which runs an installed BLAST+ once for each
/// range.
const RANGES_PER_WORKER: usize = 4;
/// Part of the free memory of the host that is assumed for pages of the database: 3 of 4 bytes.
const CACHE_MEMORY_PARTS: (u64, u64) = (3, 4);
/// The reason why a search has only one worker.
const ONE_WORKER_REASON: &str = "-subject of blastn, and of any program from a pipe, is searched with one worker";
/// Minimum time between two progress messages.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Runs the search and reports the outcome.
pub fn run(args: &SearchArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    let mut command = SearchCommand::parse(&args.program)?;
    if args.engine == SearchEngine::Alias {
        command = command.with_aliases()?;
    }
    let shared = check_outputs(args, &command)?;
    let job_name = shared.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let cluster_run = ClusterRunOptions {
        cluster: &args.cluster,
        common: &args.common,
        dry_run: args.dry_run,
        job_directory: shared.with_file_name(format!("{job_name}.slurm")),
        job_name,
        job_count: 1,
        reads_stdin: false,
        resume: args.resume,
    };
    let check = || check_before_submission(args, &command, &progress, &cancelled);
    // Do not wait for an earlier attempt: each search writes its own temporary file and renames it when the output is
    // complete.
    let Some(head) = cluster_run.dispatch(&progress, &cancelled, check, || false)? else { return Ok(()) };
    let cluster = head.cluster_options(&args.cluster)?;
    let spooled = spool_queries(command.query_path.as_deref(), &scratch_directory(&args.common))?;
    let query = spooled.as_ref().map(|file| file.path().to_owned()).or_else(|| command.query_path.clone());
    let query = query.unwrap_or_default();
    check_inputs(args, &command, &query)?;
    let workers = worker_count(args, &mut command);
    if args.workers.is_some_and(|requested| usize::from(requested) > 1) && needs_one_worker(&command) {
        let message = format!("{ONE_WORKER_REASON}; build a database with makeblastdb to use more");
        progress.event(&Event::Warning { message });
    }
    // The temporary files of the preparation must exist until the end of the search.
    let scratch = scratch_directory(&args.common);
    let pieces = args.fragments.map_or_else(|| RANGES_PER_WORKER * workers.unwrap_or(1), |pieces| pieces as usize);
    let program = command.program.name();
    let prepared = SearchScratch::prepare(command.tool_search.as_mut(), program, &query, &scratch, pieces)?;
    let options = search_options(args, workers, command, prepared.directory().unwrap_or(&scratch));
    if args.dry_run {
        return print_forecast(&options, &query, &cancelled, args.common.json);
    }
    let (begun, last_report) = (Cell::new(None), Cell::new(Instant::now()));
    let step = |step: SearchProgress| {
        let (since, fraction) = begun.get().unwrap_or((Instant::now(), step.fraction));
        begun.set(Some((since, fraction)));
        if last_report.get().elapsed() >= PROGRESS_INTERVAL {
            last_report.set(Instant::now());
            progress.report(&progress_text(step, fraction, since.elapsed()));
        }
    };
    let plan = |forecast: &SearchForecast| progress.report(&forecast_text(forecast));
    let observer = SearchObserver { plan: &plan, progress: &step };
    let summary = match &cluster {
        Some(cluster) => {
            let warn = |message| progress.event(&Event::Warning { message });
            search_on_workers(&options, &query, workers, cluster, (&warn, &cancelled), &observer)?
        }
        None => {
            let place = LocalBackend::find_engine(&options, query.clone())?;
            Search::open(&options, &query, Box::new(place), &cancelled)?.run(&observer)?
        }
    };
    head.write_finished_marker()?;
    report_outcome(args, &options, &summary, &progress)
}

/// Runs as a worker process, which searches pieces of the queries with an installed tool for its parent process.
pub fn run_worker(args: &SearchWorkerArgs) -> Result<(), Failure> {
    let wrong =
        |error| Failure::new(ErrorKind::Usage, format!("{} is not a search that godwit can run: {error}", args.search));
    let search: ToolSearch = serde_json::from_str(&args.search).map_err(wrong)?;
    if !godwit_search::serve_tool_worker(&search, &args.query) {
        // The worker has already sent the reason to the parent process.
        std::process::exit(ErrorKind::Engine.exit_code());
    }
    Ok(())
}

/// Checks inputs and options before a SLURM job is submitted. The job itself checks the database and the options of an
/// installed DIAMOND, MMseqs2 or BLAST+, which takes long for a large database.
fn check_before_submission(
    args: &SearchArgs,
    command: &SearchCommand,
    progress: &Progress,
    cancelled: &AtomicBool,
) -> Result<(), Failure> {
    let query = command.query_path.clone().unwrap_or_default();
    check_inputs(args, command, &query)?;
    if command.tool_search.is_some() {
        return Ok(());
    }
    let options = search_options(args, Some(1), command.clone(), &scratch_directory(&args.common));
    let options = SearchOptions { prints_warnings: false, ..options };
    let opened = LocalBackend::find_engine(&options, query.clone())
        .and_then(|place| Search::open(&options, &query, Box::new(place), cancelled).map(drop));
    match opened {
        // The hosts of the job may have the engine, for example after `module load`.
        Err(SearchError::Engine(error)) if error.is_missing_program() => Ok(()),
        // The hosts of the job may have the database on their disks, or in another directory of `BLASTDB`.
        Err(error) if error.is_missing_database() => {
            let message =
                format!("the database is not found on this host; the job will look for it on its hosts ({error})");
            progress.event(&Event::Warning { message });
            Ok(())
        }
        opened => Ok(opened?),
    }
}

/// Checks the options for outputs and queries, and whether the outputs can be written. Returns the path of the output,
/// or an empty path for stdout.
fn check_outputs(args: &SearchArgs, command: &SearchCommand) -> Result<PathBuf, Failure> {
    let usage = |message: &str| Err(Failure::new(ErrorKind::Usage, message.to_owned()));
    if args.dry_run && !matches!(args.cluster.on, None | Some(LauncherName::Slurm)) {
        return usage(
            "--dry-run shows the job of --on slurm, or the plan of a search on this host; omit --on or --dry-run",
        );
    }
    if args.dry_run && args.cluster.on.is_none() && command.tool_search.is_some() {
        return usage("--dry-run cannot predict a search with an installed program; omit --dry-run");
    }
    if args.dry_run && args.cluster.on.is_none() && command.subject_path.is_some() {
        return usage("--dry-run cannot predict a search of -subject; omit --dry-run");
    }
    if args.cluster.on.is_some() && needs_one_worker(command) {
        return usage(&format!("{ONE_WORKER_REASON}; omit --on, or build a database with makeblastdb"));
    }
    if args.resume && command.output_path.is_none() {
        return usage("the checkpoint of a search is beside its output; --resume requires -out FILE");
    }
    if (args.resume || args.cluster.on.is_some()) && command.output_path.as_deref().is_some_and(is_stream) {
        return usage(
            "--resume and --on write files beside the output; -out must be a file, not a device, pipe or socket",
        );
    }
    if let Some(hits) = &args.hits {
        if TableFormat::from_path(hits).is_none() {
            let name = hits.display();
            return usage(&format!("--hits {name} has no known format; end the name with .parquet or .arrow"));
        }
        if is_stream(hits) {
            let name = hits.display();
            return usage(&format!("--hits {name} cannot be a device, pipe or socket; write to a file"));
        }
    }
    let outputs: Vec<(&str, &Path)> =
        [(output_option(command.program), &command.output_path), ("--hits", &args.hits), ("--summary", &args.summary)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
            .collect();
    for (at, (option, path)) in outputs.iter().enumerate() {
        if !is_device(path) && outputs[..at].iter().any(|(_, other)| is_same_path(other, path)) {
            return usage(&format!("{option} names the file of another output; use different names"));
        }
        check_writable(path)?;
    }
    check_inputs_remain(&outputs, command)?;
    if args.cluster.on.is_some() && command.query_path.as_deref().is_some_and(is_read_once) {
        return usage("workers read the queries: with --on, -query must be a file that all hosts have");
    }
    match (args.cluster.on, &command.query_path, &command.output_path) {
        (None, _, out) => Ok(out.clone().unwrap_or_default()),
        (Some(_), Some(_), Some(out)) => Ok(out.clone()),
        _ => usage("workers read and write shared files: --on requires -query FILE and -out FILE"),
    }
}

/// Returns the option of the search program that names its output.
fn output_option(program: SearchProgram) -> &'static str {
    match program {
        SearchProgram::Mmseqs => "OUT",
        SearchProgram::Diamond => "--out",
        _ => "-out",
    }
}

/// Rejects an output that is a file of the queries, subjects or database.
fn check_inputs_remain(outputs: &[(&str, &Path)], command: &SearchCommand) -> Result<(), Failure> {
    // Most outputs do not exist; listing the files of a large database is not needed then.
    if !outputs.iter().any(|(_, path)| path.exists()) {
        return Ok(());
    }
    let inputs = command.input_files();
    outputs.iter().try_for_each(|(option, path)| check_output(option, path, &inputs))
}

/// Checks that this process may write an output.
fn check_writable(path: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::new(ErrorKind::Machine, format!("cannot write {}: {error}", path.display()));
    match OutputTarget::resolve(path).map_err(failed)? {
        OutputTarget::File(file) => host_resources::check_writable(parent_directory(&file)).map_err(failed),
        OutputTarget::Stream => Ok(()),
    }
}

/// Returns whether an output is written directly to a device, pipe or socket.
fn is_stream(path: &Path) -> bool {
    OutputTarget::resolve(path).is_ok_and(|target| target == OutputTarget::Stream)
}

/// Returns whether a path names a device such as /dev/null, which several outputs may name.
fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_char_device())
}

/// Returns whether two outputs are the same file, also if one is a symbolic link to the other.
fn is_same_path(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let file = match OutputTarget::resolve(path) {
            Ok(OutputTarget::File(file)) => file,
            _ => path.to_owned(),
        };
        let absolute = std::path::absolute(&file).unwrap_or(file);
        let directory = absolute.parent().and_then(|directory| directory.canonicalize().ok());
        directory.map_or(absolute.clone(), |directory| directory.join(absolute.file_name().unwrap_or_default()))
    };
    place(one) == place(other)
}

/// Prints the plan of a search on this host and its predicted duration, as text or as JSON.
fn print_forecast(options: &SearchOptions, query: &Path, cancelled: &AtomicBool, json: bool) -> Result<(), Failure> {
    let place = LocalBackend::find_engine(options, query.to_owned())?;
    let mut search = Search::open(options, query, Box::new(place), cancelled)?;
    match search.forecast()? {
        Some(forecast) if json => print_json(forecast),
        Some(forecast) => print(&format!("{}\n", forecast_text(forecast))),
        None => print("plan: nothing to predict, because the queries cannot be searched by ranges of the database\n"),
    }
}

/// Formats a forecast as one line.
fn forecast_text(forecast: &SearchForecast) -> String {
    let cache = forecast
        .cache_memory_bytes
        .map_or_else(String::new, |bytes| format!(", {} of memory for it", format_bytes(bytes)));
    let rate =
        forecast.read_bytes_per_s.map_or_else(String::new, |rate| format!(" at {}/s", format_bytes(rate as u64)));
    format!(
        "plan: database of {} ({} in the page cache{cache}), {}, {} over it with {}; reading {}{rate} takes {}, searching \
         {}, reports {}; about {} in all",
        format_bytes(forecast.database_bytes),
        format_bytes(forecast.cached_bytes),
        pluralize(forecast.range_count.into(), "range"),
        pluralize(forecast.passes, "pass"),
        pluralize(forecast.queries, "query"),
        format_bytes(forecast.read_bytes),
        duration_text(forecast.read_s),
        duration_text(forecast.search_s),
        duration_text(forecast.report_s),
        duration_text(forecast.total_s),
    )
}

/// Formats the progress of a search, and the remaining time. `first_fraction` is the finished fraction of the search
/// `elapsed` ago; it includes what an earlier search finished.
fn progress_text(step: SearchProgress, first_fraction: f64, elapsed: Duration) -> String {
    let done = format!("{} of {} done", step.reported_queries, pluralize(step.total_queries, "query"));
    if step.fraction <= first_fraction {
        return done;
    }
    let left = elapsed.as_secs_f64() * (1.0 - step.fraction) / (step.fraction - first_fraction);
    format!("{done}, {:.0} % of the search, about {} left", 100.0 * step.fraction, duration_text(left))
}

/// Formats a duration in seconds, minutes or hours, depending on its length.
fn duration_text(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Reports the outcome of the search, and writes the summary if `--summary` is given.
fn report_outcome(
    args: &SearchArgs,
    options: &SearchOptions,
    summary: &SearchSummary,
    progress: &Progress,
) -> Result<(), Failure> {
    if let Some(path) = &args.summary {
        write_summary(summary, path)?;
    }
    if summary.queries == 0 && summary.bytes == 0 {
        progress.event(&Event::Warning { message: "there are no queries, so the output is empty".to_owned() });
    }
    let shares = &summary.cpu_seconds;
    progress.report(&format!(
        "{} in {}, {}, {:.1} s (CPU time {:.1} s: search {:.1}, traceback {:.1}, format {:.1})",
        pluralize(summary.queries, "query"),
        pluralize(summary.batches.into(), "batch"),
        pluralize(summary.workers.into(), "worker"),
        summary.seconds.total,
        shares.total,
        shares.search,
        shares.traceback,
        shares.format,
    ));
    if let Some(forecast) = &summary.forecast {
        let (planned, taken) = (duration_text(forecast.total_s), duration_text(summary.seconds.total));
        progress.report(&format!("the plan predicted {planned}, the search took {taken}"));
    }
    if let Some(out) = &options.command.output_path {
        progress.report(&format!("wrote {} ({})", out.display(), pluralize(summary.bytes, "byte")));
    }
    if let Some(why) = summary.not_identical_reason {
        progress.report(&format!("the output is probably, but not certainly, identical to that of one run: {why}"));
    }
    if let (Some(path), Some(rows)) = (&options.hits_path, summary.hit_rows) {
        progress.report(&format!("wrote {} ({})", path.display(), pluralize(rows, "hit")));
    }
    Ok(())
}

/// Returns whether one worker must search all batches of queries: blastn chooses the size of a batch by the results of
/// earlier ones, and `-subject` is not cut into ranges; subjects from a pipe can be read only once.
fn needs_one_worker(command: &SearchCommand) -> bool {
    command.subject_path.as_deref().is_some_and(|path| command.program == SearchProgram::Blastn || is_read_once(path))
}

/// Returns the requested number of workers per host. Also sets the number of threads with which each worker runs
/// DIAMOND or MMseqs2; by default, the workers of a host share its threads equally.
fn worker_count(args: &SearchArgs, command: &mut SearchCommand) -> Option<usize> {
    if needs_one_worker(command) {
        return Some(1);
    }
    let requested = args.workers.map(usize::from);
    let Some(bulk) = &mut command.tool_search else { return requested.or(command.threads) };
    if args.engine == SearchEngine::Alias {
        return Some(requested.or(command.threads).unwrap_or_else(|| args.common.thread_count()));
    }
    let workers = requested.unwrap_or(1);
    bulk.threads = command.threads.unwrap_or_else(|| (args.common.thread_count() / workers).max(1));
    Some(workers)
}

fn search_options(args: &SearchArgs, workers: Option<usize>, command: SearchCommand, scratch: &Path) -> SearchOptions {
    SearchOptions {
        range_count: args.fragments,
        workers: workers.unwrap_or_else(|| args.common.thread_count()),
        memory_bytes: args.common.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        cache_bytes: args.cache_memory.or_else(|| {
            let (part, of) = CACHE_MEMORY_PARTS;
            host_resources::free_memory_bytes().map(|bytes| bytes / of * part)
        }),
        scratch_directory: scratch.to_owned(),
        prints_warnings: prints_messages(&args.common),
        hits_path: args.hits.clone(),
        resume: args.resume,
        command,
    }
}

/// Returns whether messages are printed as text; with `--json`, stderr must contain only JSON.
fn prints_messages(common: &CommonArgs) -> bool {
    !common.json && !common.quiet
}

/// Copies queries from standard input (`None`) or from a pipe to a temporary file, because every worker reads all of them.
/// Returns `None` for a path that can be read several times.
fn spool_queries(
    query: Option<&Path>,
    scratch: &Path,
) -> Result<Option<TemporaryItem<tempfile::NamedTempFile>>, Failure> {
    let mut source: Box<dyn Read> = match query {
        None => Box::new(std::io::stdin().lock()),
        Some(path) if is_read_once(path) => {
            let wrong = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display()));
            Box::new(std::fs::File::open(path).map_err(wrong)?)
        }
        Some(_) => return Ok(None),
    };
    let wrong =
        |error| Failure::new(ErrorKind::Machine, format!("cannot store queries in {}: {error}", scratch.display()));
    store_stream(&mut *source, "godwit-queries-", scratch).map(Some).map_err(wrong)
}

/// Returns whether a path can be read only once, or only by this process: a pipe, a socket, a terminal, or a path of an
/// open file such as /dev/stdin.
fn is_read_once(path: &Path) -> bool {
    let is_file = path.metadata().is_ok_and(|found| found.is_file() || found.is_dir());
    path.exists() && (!is_file || ["/dev/stdin", "/dev/fd", "/proc"].iter().any(|open| path.starts_with(open)))
}

/// Checks the files of queries and subjects.
fn check_inputs(args: &SearchArgs, command: &SearchCommand, query: &Path) -> Result<(), Failure> {
    let requires_queries = command.tool_search.is_some();
    check_query(query, requires_queries, requires_queries && args.engine == SearchEngine::Exact)?;
    check_subjects(command)
}

/// Rejects a file that is not FASTA, which the search programs might misread as a sequence, and a file without queries if
/// the program is not one of BLAST+, which write an empty output for it.
fn check_query(query: &Path, requires_queries: bool, begins_with_name: bool) -> Result<(), Failure> {
    let wrong = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", query.display()));
    let bytes = std::fs::read(query).map_err(wrong)?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None if !requires_queries => Ok(()),
        None => {
            let message = format!("{} has no queries; it must be FASTA with at least one sequence", query.display());
            Err(Failure::new(ErrorKind::Input, message))
        }
        Some(b'>') => Ok(()),
        Some(byte) if byte.is_ascii_alphabetic() && !begins_with_name => Ok(()),
        Some(_) if begins_with_name => {
            let message = format!(
                "{} is not FASTA: it does not start with >; decompress it, or convert it to FASTA",
                query.display()
            );
            Err(Failure::new(ErrorKind::Input, message))
        }
        Some(_) => {
            let message = format!("{} is not FASTA: it starts with neither > nor a letter", query.display());
            Err(Failure::new(ErrorKind::Input, message))
        }
    }
}

/// Rejects a file of subjects that cannot be read.
fn check_subjects(command: &SearchCommand) -> Result<(), Failure> {
    let Some(path) = command.subject_path.as_deref().filter(|path| !is_read_once(path)) else { return Ok(()) };
    let wrong = |error| Failure::new(ErrorKind::Machine, format!("cannot read {}: {error}", path.display()));
    std::fs::File::open(path).map(drop).map_err(wrong)
}

fn write_summary(summary: &SearchSummary, path: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(summary).map(|text| text + "\n");
    let text = text.map_err(|error| Failure::new(ErrorKind::Bug, format!("cannot write a summary: {error}")))?;
    let written = AtomicFile::create_unique(path, 0o600).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.commit()
    });
    written.map_err(|error| Failure::new(ErrorKind::Machine, format!("cannot write {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done_by_its_share() {
        let step = |reported_queries, fraction| SearchProgress { reported_queries, total_queries: 40, fraction };
        let text = |step, first, seconds| progress_text(step, first, Duration::from_secs(seconds));
        assert_eq!(text(step(0, 0.0), 0.0, 9), "0 of 40 queries done");
        let quarter = "10 of 40 queries done, 25 % of the search, about 30 s left";
        assert_eq!(text(step(10, 0.25), 0.0, 10), quarter);
        // An earlier search finished the first half.
        assert!(text(step(30, 0.75), 0.5, 10).ends_with("about 10 s left"));
        assert!(text(step(1, 0.01), 0.0, 100).ends_with("about 2 h 45 min left"));
        assert!(text(step(20, 0.5), 0.0, 300).ends_with("about 5 min left"));
    }

    #[test]
    fn a_forecast_names_what_is_read_and_how_long_it_takes() {
        let forecast = SearchForecast {
            database_bytes: 6 << 30,
            cached_bytes: 1 << 30,
            cache_memory_bytes: Some(2 << 30),
            range_count: 12,
            queries: 40,
            passes: 1,
            read_bytes: 5 << 30,
            read_bytes_per_s: Some(f64::from(128 << 20)),
            read_s: 40.0,
            search_s: 300.0,
            report_s: 3.0,
            report_s_per_subject: None,
            total_s: 306.0,
        };
        let text = forecast_text(&forecast);
        for words in ["12 ranges", "1 pass over it with 40 queries", "takes 40 s", "searching 5 min", "reports 3 s"] {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
}
