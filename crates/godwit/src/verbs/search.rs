//! `godwit search`: the command line of a search by several workers.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_formats::columnar::TableFormat;
use godwit_formats::with_causes;
use godwit_pipeline::{PipelineError, search_on_nodes};
use godwit_process::Temporary;
use godwit_search::{
    Blame, BulkSearch, LocalPlace, Prepared, Search, SearchCommand, SearchError, SearchOptions, Step, Summary,
};

use super::scratch_of;
use super::spread::Spreadable;
use crate::cli::{Common, Place, SearchArgs, SearchEngine, SearchWorkerArgs};
use crate::failure::{Exit, Failure};
use crate::interruption;
use crate::progress::Progress;

/// Bytes of reports that are held in memory where nothing is said.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Ranges of the database for each worker that searches them by runs of their own, where nothing is said.
const RANGES_PER_WORKER: usize = 4;
/// Time between words on how far it is.
const BETWEEN_STEPS: Duration = Duration::from_secs(10);

/// Searches, and tells what was done.
pub fn run(args: &SearchArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = interruption::flag();
    let mut command = SearchCommand::parse(&args.program)?;
    if args.engine == SearchEngine::Alias {
        command = command.with_aliases()?;
    }
    let shared = check_place(args, &command)?;
    let name = shared.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let spreadable = Spreadable {
        place: &args.place,
        common: &args.common,
        dry_run: args.dry_run,
        directory: shared.with_file_name(format!("{name}.slurm")),
        name,
        jobs: 1,
        reads_stdin: false,
    };
    // Each search writes a file of its own, and the last one to end names it.
    let Some(lead) = spreadable.lead(&progress, &cancelled, || false)? else { return Ok(()) };
    let spread = lead.spread(&args.place)?;
    let spooled = if command.query.is_none() { Some(spool(&scratch_of(&args.common))?) } else { None };
    let query = command.query.clone().or_else(|| spooled.as_ref().map(|file| file.path().to_owned()));
    let query = query.unwrap_or_default();
    check_query(&query, command.bulk.is_some() && args.engine == SearchEngine::Exact)?;
    let workers = workers(args, &mut command);
    // What it made for this search is there until the end of it.
    let scratch = scratch_of(&args.common);
    let pieces = args.fragments.map_or_else(|| RANGES_PER_WORKER * workers.unwrap_or(1), |pieces| pieces as usize);
    let prepared = Prepared::new(&mut command, &query, &scratch, pieces)?;
    let options = options(args, workers, command, prepared.scratch().unwrap_or(&scratch));
    let (begun, told) = (Instant::now(), Cell::new(Instant::now()));
    let step = |step: Step| {
        if told.get().elapsed() >= BETWEEN_STEPS {
            told.set(Instant::now());
            progress.say(&how_far(step, begun.elapsed()));
        }
    };
    let summary = match &spread {
        Some(spread) => search_on_nodes(&options, &query, workers, spread, (&progress, &cancelled), &step)?,
        None => {
            let place = LocalPlace::find(&options, query.clone())?;
            Search::open(&options, &query, Box::new(place), &cancelled)?.run(&step)?
        }
    };
    lead.finished()?;
    tell(args, &options, &summary, &progress)
}

/// Searches pieces of queries, as another process asks.
pub fn work(args: &SearchWorkerArgs) -> Result<(), Failure> {
    let wrong = |error| Failure::new(Exit::Usage, format!("{} is no search: {error}", args.search));
    let search: BulkSearch = serde_json::from_str(&args.search).map_err(wrong)?;
    if !godwit_search::serve(&search, &args.query) {
        // Whoever asked was told why.
        std::process::exit(Exit::Engine as i32);
    }
    Ok(())
}

/// The output, which nodes have to see, and the queries.
fn check_place(args: &SearchArgs, command: &SearchCommand) -> Result<PathBuf, Failure> {
    let usage = |message: &str| Err(Failure::new(Exit::Usage, message.to_owned()));
    if args.dry_run && args.place.on != Some(Place::Slurm) {
        return usage("--dry-run of search shows the job of --on slurm, and here is none; leave it out");
    }
    if args.resume && command.out.is_none() {
        return usage("what a search has finished is kept beside its output; give -out FILE with --resume");
    }
    if let Some(hits) = &args.hits {
        if TableFormat::of(hits).is_none() {
            let name = hits.display();
            return usage(&format!("--hits {name} is not written: name the format by its ending, .parquet or .arrow"));
        }
        if [&command.out, &args.summary].into_iter().flatten().any(|other| is_same_place(other, hits)) {
            return usage("--hits names the file of another output; give each output a name of its own");
        }
    }
    match (args.place.on, &command.query, &command.out) {
        (None, _, out) => Ok(out.clone().unwrap_or_default()),
        (Some(_), Some(_), Some(out)) => Ok(out.clone()),
        _ => usage("nodes read and write files that all of them see: give -query FILE and -out FILE with --on"),
    }
}

/// Whether two outputs would have one name.
fn is_same_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let directory = absolute.parent().and_then(|directory| directory.canonicalize().ok());
        directory.map_or(absolute.clone(), |directory| directory.join(absolute.file_name().unwrap_or_default()))
    };
    place(one) == place(other)
}

/// How far a search is, and how long it may still take: as long as what is done took, by its share.
fn how_far(step: Step, elapsed: Duration) -> String {
    let done = format!("{} of {} queries done", step.queries, step.of);
    if step.share <= 0.0 {
        return done;
    }
    let left = elapsed.as_secs_f64() * (1.0 - step.share) / step.share;
    format!("{done}, {:.0} % of the search, about {} left", 100.0 * step.share, in_words(left))
}

/// Seconds as minutes or hours, where they are as many.
fn in_words(seconds: f64) -> String {
    match seconds.round() as u64 {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Tells the outcome.
fn tell(args: &SearchArgs, options: &SearchOptions, summary: &Summary, progress: &Progress) -> Result<(), Failure> {
    if let Some(path) = &args.summary {
        write_summary(summary, path)?;
    }
    let shares = &summary.cpu_seconds;
    progress.say(&format!(
        "{} queries in {} batches, {} workers, {:.1} s ({:.1} s of processors: search {:.1}, traceback {:.1}, format {:.1})",
        summary.queries, summary.batches, summary.workers, summary.seconds.total, shares.total, shares.search, shares.traceback,
        shares.format,
    ));
    if let Some(out) = &options.command.out {
        progress.say(&format!("wrote {} ({} bytes)", out.display(), summary.bytes));
    }
    if let Some(why) = summary.why_not_identical {
        progress.say(&format!("the output is most likely that of one pass, but not certainly: {why}"));
    }
    if let (Some(path), Some(rows)) = (&options.hits, summary.hits) {
        progress.say(&format!("wrote {} ({rows} hits)", path.display()));
    }
    Ok(())
}

/// Workers of each machine that were asked for. The threads of a tool are each worker's own, and share the machine's where nothing
/// is said of them.
fn workers(args: &SearchArgs, command: &mut SearchCommand) -> Option<usize> {
    let asked = args.workers.map(usize::from);
    let Some(bulk) = &mut command.bulk else { return asked.or(command.threads) };
    if args.engine == SearchEngine::Alias {
        return Some(asked.or(command.threads).unwrap_or_else(|| args.common.thread_count()));
    }
    let workers = asked.unwrap_or(1);
    bulk.threads = command.threads.unwrap_or_else(|| (args.common.thread_count() / workers).max(1));
    Some(workers)
}

fn options(args: &SearchArgs, workers: Option<usize>, command: SearchCommand, scratch: &Path) -> SearchOptions {
    SearchOptions {
        fragments: args.fragments,
        workers: workers.unwrap_or_else(|| args.common.thread_count()),
        memory_bytes: args.common.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        scratch: scratch.to_owned(),
        tells: tells(&args.common),
        hits: args.hits.clone(),
        resumes: args.resume,
        command,
    }
}

/// With events stderr takes only what programs can read.
fn tells(common: &Common) -> bool {
    !common.json && !common.quiet
}

/// Queries from standard input, which every worker reads from its beginning.
fn spool(scratch: &Path) -> Result<Temporary<tempfile::NamedTempFile>, Failure> {
    let copied = Temporary::create(|| tempfile::Builder::new().prefix("godwit-queries-").tempfile_in(scratch))
        .and_then(|mut file| {
            std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
            file.flush()?;
            Ok(file)
        });
    let wrong = |error| Failure::new(Exit::Machine, format!("cannot keep queries in {}: {error}", scratch.display()));
    copied.map_err(wrong)
}

/// The programs take other files for sequences, or end with an empty report.
fn check_query(query: &PathBuf, begins_with_name: bool) -> Result<(), Failure> {
    let wrong = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", query.display()));
    let bytes = std::fs::read(query).map_err(wrong)?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None => {
            let message = format!("{} has no queries; give FASTA with at least one sequence", query.display());
            Err(Failure::new(Exit::Input, message))
        }
        Some(b'>') => Ok(()),
        Some(byte) if byte.is_ascii_alphabetic() && !begins_with_name => Ok(()),
        Some(_) if begins_with_name => {
            let message =
                format!("{} is not FASTA: it does not begin with >; unpack it, or make FASTA of it", query.display());
            Err(Failure::new(Exit::Input, message))
        }
        Some(_) => {
            let message = format!("{} is not FASTA: it begins with neither > nor a letter", query.display());
            Err(Failure::new(Exit::Input, message))
        }
    }
}

fn write_summary(summary: &Summary, path: &Path) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(summary).map(|text| text + "\n");
    let text = text.map_err(|error| Failure::new(Exit::Bug, format!("cannot write a summary: {error}")))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = Temporary::create(|| tempfile::NamedTempFile::new_in(directory)).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        let (file, _listed) = file.into_parts();
        file.persist(path).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display())))
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let error = match error {
            SearchError::Place(source) => match source.downcast::<PipelineError>() {
                Ok(error) => return (*error).into(),
                Err(source) => SearchError::Place(source),
            },
            error => error,
        };
        let exit = match error.blame() {
            Blame::Usage => Exit::Usage,
            Blame::Input => Exit::Input,
            Blame::Machine => Exit::Machine,
            Blame::Engine => Exit::Engine,
            Blame::Remote => Exit::Remote,
            Blame::Interrupted => Exit::Interrupted,
            Blame::Bug => Exit::Bug,
        };
        Self::new(exit, with_causes(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_takes_as_long_as_what_was_done_by_its_share() {
        let step = |queries, share| Step { queries, of: 40, share };
        assert_eq!(how_far(step(0, 0.0), Duration::from_secs(9)), "0 of 40 queries done");
        let quarter = "10 of 40 queries done, 25 % of the search, about 30 s left";
        assert_eq!(how_far(step(10, 0.25), Duration::from_secs(10)), quarter);
        assert!(how_far(step(1, 0.01), Duration::from_secs(100)).ends_with("about 2 h 45 min left"));
        assert!(how_far(step(20, 0.5), Duration::from_secs(300)).ends_with("about 5 min left"));
    }
}
