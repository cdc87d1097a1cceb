//! `godwit search`: a BLAST+ command line by several workers.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_formats::with_causes;
use godwit_search::{Blame, BlastCommand, Search, SearchError, SearchOptions, Summary};

use super::{cancel_on_signal, scratch_of};
use crate::cli::{Common, SearchArgs};
use crate::failure::{Exit, Failure};
use crate::progress::Progress;

/// Bytes of reports that are held in memory where nothing is said.
const DEFAULT_MEMORY_BYTES: u64 = 1 << 30;
/// Time between words on how far it is.
const BETWEEN_STEPS: Duration = Duration::from_secs(10);

/// Searches, and tells what was done.
pub fn run(args: &SearchArgs) -> Result<(), Failure> {
    let progress = Progress::new(&args.common);
    let cancelled = cancel_on_signal()?;
    let command = BlastCommand::parse(&args.program)?;
    let spooled = if command.query.is_none() { Some(spool(&scratch_of(&args.common))?) } else { None };
    let query = command.query.clone().or_else(|| spooled.as_ref().map(|file| file.path().to_owned()));
    let query = query.unwrap_or_default();
    check_query(&query)?;
    let options = options(args, command);
    let search = Search::open(&options, &query, &cancelled)?;
    let told = Cell::new(Instant::now());
    let summary = search.run(&|step| {
        if told.get().elapsed() >= BETWEEN_STEPS {
            told.set(Instant::now());
            progress.say(&format!("{} queries done", step.queries));
        }
    })?;
    if let Some(path) = &args.summary {
        write_summary(&summary, path)?;
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
    Ok(())
}

fn options(args: &SearchArgs, command: BlastCommand) -> SearchOptions {
    let asked = args.workers.map(usize::from).or(command.threads);
    SearchOptions {
        fragments: args.fragments,
        workers: asked.unwrap_or_else(|| args.common.thread_count()),
        memory_bytes: args.common.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        scratch: scratch_of(&args.common),
        tells: tells(&args.common),
        command,
    }
}

/// With events stderr takes only what programs can read.
fn tells(common: &Common) -> bool {
    !common.json && !common.quiet
}

/// Queries from standard input, which every worker reads from its beginning.
fn spool(scratch: &Path) -> Result<tempfile::NamedTempFile, Failure> {
    let copied = tempfile::Builder::new().prefix("godwit-queries-").tempfile_in(scratch).and_then(|mut file| {
        std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
        file.flush()?;
        Ok(file)
    });
    let wrong = |error| Failure::new(Exit::Machine, format!("cannot keep queries in {}: {error}", scratch.display()));
    copied.map_err(wrong)
}

/// The programs take other files for sequences, or end with an empty report.
fn check_query(query: &PathBuf) -> Result<(), Failure> {
    let wrong = |error| Failure::new(Exit::Machine, format!("cannot read {}: {error}", query.display()));
    let bytes = std::fs::read(query).map_err(wrong)?;
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    match first {
        None => {
            let message = format!("{} has no queries; give FASTA with at least one sequence", query.display());
            Err(Failure::new(Exit::Input, message))
        }
        Some(byte) if *byte == b'>' || byte.is_ascii_alphabetic() => Ok(()),
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
    let written = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.persist(path).map(drop).map_err(|error| error.error)
    });
    written.map_err(|error| Failure::new(Exit::Machine, format!("cannot write {}: {error}", path.display())))
}

impl From<SearchError> for Failure {
    fn from(error: SearchError) -> Self {
        let exit = match error.blame() {
            Blame::Usage => Exit::Usage,
            Blame::Input => Exit::Input,
            Blame::Machine => Exit::Machine,
            Blame::Engine => Exit::Engine,
            Blame::Interrupted => Exit::Interrupted,
            Blame::Bug => Exit::Bug,
        };
        Self::new(exit, with_causes(&error))
    }
}
