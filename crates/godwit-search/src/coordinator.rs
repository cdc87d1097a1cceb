//! A search from its command line to its file.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime};

use crate::aside::{Aside, no_directory};
use crate::bulk;
use crate::hits::{self, HitsFile, RowLog};
use crate::jobs::{BatchJob, RangeJob, SliceJob, unasked};
use crate::journal::{self, Cut, Finished, Identity, Journal, Kept, Line};
use crate::layout::Layout;
use crate::plan::{Circumstances, Plan, cut_by_weight};
use crate::protocol::{Answer, Batch, HeaderLine, Ready, Request, Stages};
use crate::summary::{CpuSeconds, Summary, WallSeconds};
use crate::work::{Crew, Output};
use crate::{BulkSearch, Place, SearchCommand, SearchError};

/// The format whose header names what is in the body.
const SAM: u32 = 17;
/// Parts for each worker that the queries of a batch are reported in.
const SLICES_PER_WORKER: usize = 2;
/// Pieces of the queries for each worker, where each piece is a run of a tool: the fewer, the less often the database is read.
const PIECES_PER_WORKER: u32 = 2;
/// What the summary of a search over aliases says.
const WHY_NOT_IDENTICAL: &str = "each range was searched by a run of its own, which keeps a limited number of subjects of a query before \
                                 the traceback: for queries with more hits than that, all runs together can find better ones than one run";
/// Endings of the files of a volume that hold sequences and their index.
const VOLUME_ENDINGS: [&str; 6] = [".pin", ".psq", ".phr", ".nin", ".nsq", ".nhr"];
/// Bytes of reports that a worker may hold in memory, whatever it is told.
const MIN_REPORT_BYTES: u64 = 16 << 20;

/// How to search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// The program and its options.
    pub command: SearchCommand,
    /// Ranges to cut the database into; `None`: as the plan sees fit.
    pub fragments: Option<u32>,
    /// Processes that search on each machine, at least 1.
    pub workers: usize,
    /// Bytes that all reports may hold in memory before they go to a scratch file.
    pub memory_bytes: u64,
    /// Where scratch files go.
    pub scratch: PathBuf,
    /// Warnings of the engine are passed on to stderr.
    pub tells: bool,
    /// A table of all hits, `.parquet` or `.arrow`.
    pub hits: Option<PathBuf>,
    /// Goes on where a stopped search with the same output ended.
    pub resumes: bool,
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Queries whose reports are made.
    pub queries: u64,
    /// Queries in all.
    pub of: u64,
    /// How much of the search is done, 0 to 1: queries whose reports are made, and the part of the database that those at hand
    /// were searched in.
    pub share: f64,
}

impl Step {
    pub(crate) fn new(queries: u64, of: u64, at_hand: f64) -> Self {
        let share = ((queries as f64 + at_hand) / of.max(1) as f64).min(1.0);
        Self { queries, of: of.max(queries), share }
    }
}

/// A search; see the module.
pub struct Search<'a> {
    options: &'a SearchOptions,
    crew: Crew<'a>,
    ready: Ready,
    plan: Plan,
    /// What the search is of, and how it is cut up, to be compared by a later one.
    identity: Identity,
    cut: Cut,
    journal: Option<Journal>,
    finished: Finished,
    volumes: Vec<(PathBuf, u64, Option<SystemTime>)>,
    done: Counts,
    table: Option<HitsFile>,
    seconds: WallSeconds,
    engine: String,
    /// Queries in all, about.
    queries: u64,
}

#[derive(Default)]
struct Counts {
    queries: u64,
    batches: u32,
    slices: u64,
    /// Batches that an earlier search had finished.
    resumed: u32,
    hits_bytes: u64,
    dropped: u64,
    hits: Option<u64>,
    /// Of reports, where batches are whole.
    places: Vec<Kept>,
    lines: Vec<HeaderLine>,
}

impl<'a> Search<'a> {
    /// Starts the workers, which open database and queries. `query` is the file that they read.
    ///
    /// # Errors
    /// [`SearchError`]: no engine, options it does not take, a database or queries it cannot read.
    pub fn open(
        options: &'a SearchOptions,
        query: &Path,
        place: Box<dyn Place + 'a>,
        cancelled: &'a AtomicBool,
    ) -> Result<Self, SearchError> {
        let begun = Instant::now();
        options.hits.as_deref().map(hits::format_of).transpose()?;
        let engine = place.engine();
        let (queries, letters) = weigh(query)?;
        let is_bulk = options.command.bulk.is_some();
        if is_bulk && options.hits.is_some() {
            let problem =
                "DIAMOND and MMseqs2 write tables of their own; leave it out, or search with a program of BLAST+";
            return Err(SearchError::Unsupported { option: "--hits".into(), problem });
        }
        let before = options.command.out.as_deref().filter(|_| options.resumes).and_then(Journal::cut);
        let known = Circumstances {
            fragments: options.fragments,
            workers: place.workers() as u32,
            query_letters: letters,
            batch_letters: 0,
        };
        let line: String = options.command.words.iter().flat_map(|word| [word.as_str(), " "]).collect();
        let share = (options.memory_bytes / options.workers as u64).max(MIN_REPORT_BYTES);
        let tables = options.command.bulk.as_ref().and_then(|bulk| bulk.tables.as_ref());
        let ranges = tables.map(|tables| tables.ranges.len() as u32);
        let wanted = match (Plan::choose(known), &before) {
            (_, Some(before)) if options.fragments.is_none() && ranges.is_none() => before.parts,
            _ if ranges.is_some() => ranges.unwrap_or(1),
            _ if is_bulk => options.fragments.unwrap_or(known.workers * PIECES_PER_WORKER),
            (Plan::Database { fragments }, _) => fragments,
            (Plan::Queries, _) => 1,
        };
        let scratch = options.scratch.as_os_str().as_encoded_bytes();
        let fields = if options.hits.is_some() { hits::fields() } else { String::new() };
        let greeting = Request::new(b'I').u32(wanted).u64(share).text(scratch).text(line.as_bytes());
        let greeting = greeting.text(fields.as_bytes());
        let (crew, ready) = Crew::gather(place, greeting, options.command.program.name(), cancelled)?;
        let plan = match Plan::choose(Circumstances { batch_letters: ready.batch_size.max(0) as u64, ..known }) {
            _ if is_bulk => Plan::Queries,
            Plan::Queries if !ready.batch_sizes_vary => Plan::Queries,
            _ => Plan::Database { fragments: ready.ranges.len() as u32 },
        };
        let plan = before.filter(|_| options.fragments.is_none()).map_or(plan, |before| before.plan);
        let volumes = stamps(&ready.volumes);
        let seconds = WallSeconds { start_up: begun.elapsed().as_secs_f64(), ..WallSeconds::default() };
        let identity = identity(options, query, &engine, &volumes)?;
        let (cut, journal, finished) = (Cut { plan, parts: wanted }, None, Finished::default());
        let (done, table) = (Counts::default(), None);
        Ok(Self {
            options,
            crew,
            ready,
            plan,
            identity,
            cut,
            journal,
            finished,
            volumes,
            done,
            table,
            seconds,
            engine,
            queries,
        })
    }

    /// Searches, and writes the output. `step` hears how far it is.
    ///
    /// # Errors
    /// [`SearchError`]; then there is no output, and what was there before still is. What was finished is kept beside it, where a later
    /// search may go on with that.
    pub fn run(mut self, step: &dyn Fn(Step)) -> Result<Summary, SearchError> {
        let begun = Instant::now();
        let searched = self.search(step);
        let journal = self.journal.take();
        let bytes = match (searched, journal) {
            (Ok(bytes), journal) => {
                if let Some(journal) = journal {
                    journal.remove();
                }
                bytes
            }
            (Err(error), Some(journal)) if error.may_be_resumed() => {
                let kept = journal.leave();
                return Err(if let SearchError::Interrupted { .. } = error {
                    SearchError::Interrupted { kept }
                } else {
                    error
                });
            }
            // Another search's work is not ours to throw away.
            (Err(error), None) => return Err(error),
            (Err(error), Some(journal)) => {
                journal.remove();
                return Err(error);
            }
        };
        self.seconds.total = self.seconds.start_up + begun.elapsed().as_secs_f64();
        self.summarize(bytes)
    }

    /// Searches what is left to do, and gives the output its name. Returns its size.
    fn search(&mut self, step: &dyn Fn(Step)) -> Result<u64, SearchError> {
        let aside = self.open_output()?;
        let mut output = Output { path: aside.path().to_owned(), layout: Layout::from(0) };
        let mut bytes = 0;
        if let Some(whole) = self.finished.whole {
            // An earlier search has written everything, and was stopped before it all had its name.
            let lines = self.take_up()?;
            self.done.lines = lines;
            bytes = whole;
        } else if !self.ready.queries_are_empty {
            let prolog = self.text(&Request::new(b'P'))?;
            aside.write_at(&prolog, 0)?;
            output.layout = Layout::from(prolog.len() as u64);
            match self.plan {
                Plan::Queries => self.split_queries(&mut output, step)?,
                Plan::Database { .. } => self.split_database(&mut output, step)?,
            }
            bytes = self.close(&aside, output.layout.end())?;
        }
        if let Some(path) = first_changed(&self.volumes) {
            return Err(SearchError::DatabaseChanged { path });
        }
        // The output comes last: where it is, everything is.
        let table = self.table.take().map(HitsFile::finish).transpose()?;
        if let Some(journal) = self.journal.as_mut().filter(|_| self.finished.whole.is_none()) {
            aside.sync()?;
            journal.say(&Line::Whole { bytes })?;
        }
        if let Some(whole) = table {
            self.done.hits = Some(whole.rows);
            whole.commit()?;
        }
        if aside.path().exists() {
            aside.commit(bytes)?;
        }
        Ok(bytes)
    }

    /// Makes the files that the search writes, or opens those of an earlier one.
    fn open_output(&mut self) -> Result<Aside, SearchError> {
        let options = self.options;
        let aside = match &options.command.out {
            None => Aside::create(None, &options.scratch, None)?,
            Some(out) => {
                no_directory(out)?;
                let (journal, finished) = Journal::open(out, options.resumes, &self.identity, &self.cut)?;
                self.finished = finished;
                Aside::kept(self.journal.insert(journal).path("output"), out)
            }
        };
        if let Some(path) = &options.hits {
            let log = match &self.journal {
                Some(journal) => RowLog::named(&journal.path("rows"))?,
                None => RowLog::unnamed(&options.scratch)?,
            };
            self.table = Some(HitsFile::create(path, log, options.command.program.name(), &self.engine)?);
        }
        Ok(aside)
    }

    /// Counts the batches that an earlier search has finished, from the first on, and has their rows in the table. Returns their lines for
    /// the header.
    fn take_up(&mut self) -> Result<Vec<HeaderLine>, SearchError> {
        let mut lines = Vec::new();
        for batch in self.finished.batches.values() {
            self.done.queries += u64::from(batch.queries);
            self.done.batches += 1;
            lines.extend(batch.lines.iter().cloned());
            for rows in &batch.rows {
                if let Some(table) = &mut self.table {
                    table.restore(self.done.slices, *rows)?;
                }
                self.done.slices += 1;
            }
        }
        Ok(lines)
    }

    /// Writes what follows the reports, and what of the beginning could not be known before. Returns the size of the output.
    fn close(&mut self, aside: &Aside, end: u64) -> Result<u64, SearchError> {
        if let Some(bulk) = self.options.command.bulk.as_ref().filter(|bulk| bulk.tables.is_some()) {
            let tables = self.done.places.iter().map(|place| {
                let mut table = File::open(aside.path())?;
                table.seek(SeekFrom::Start(place.offset))?;
                Ok(BufReader::new(table.take(place.bytes)))
            });
            aside.rewrite(|to| bulk::merge(bulk, tables.collect::<std::io::Result<_>>()?, to))?;
            self.done.queries = self.queries;
            return aside.bytes();
        }
        let epilog = self.text(&Request::new(b'Z').u32(self.done.queries as u32))?;
        aside.write_at(&epilog, end)?;
        let end = end + epilog.len() as u64;
        if self.options.command.format != SAM {
            return Ok(end);
        }
        let mut seen = HashSet::new();
        let lines = std::mem::take(&mut self.done.lines);
        let request = lines
            .into_iter()
            .filter(|(name, _)| seen.insert(name.clone()))
            .fold(Request::new(b'F'), |request, (name, line)| request.text(&name).text(&line));
        let header = self.text(&request)?;
        aside.prepend(&header)?;
        Ok(end + header.len() as u64)
    }

    fn split_queries(&mut self, output: &mut Output, step: &dyn Fn(Step)) -> Result<(), SearchError> {
        let begun = Instant::now();
        let batches = std::mem::take(&mut self.finished.batches);
        for batch in batches.values() {
            if let (Some(table), [rows]) = (&mut self.table, batch.rows.as_slice()) {
                table.restore(batch.number, *rows)?;
            }
        }
        self.done.resumed = batches.len() as u32;
        let count = batches.values().find(|batch| batch.last).map(|last| last.number + 1);
        let (size, of, table) = (self.ready.batch_size, self.queries, self.table.as_mut());
        let mut job = BatchJob { size, batches, of, step, table, journal: self.journal.as_mut() };
        self.crew.run(&mut job, count, Some(output))?;
        self.done.queries = job.queries();
        self.done.batches = job.batches.len() as u32;
        let (lines, places): (Vec<_>, Vec<_>) =
            job.batches.into_values().map(|batch| (batch.lines, batch.reports)).unzip();
        self.done.lines = lines.into_iter().flatten().collect();
        self.done.places = places.into_iter().flatten().collect();
        self.seconds.search += begun.elapsed().as_secs_f64();
        Ok(())
    }

    fn split_database(&mut self, output: &mut Output, step: &dyn Fn(Step)) -> Result<(), SearchError> {
        let mut sizes = vec![self.ready.batch_size];
        let mut extensions: Vec<i32> = Vec::new();
        // Those that were finished by an earlier search come first, for one batch is reported after another.
        let finished = (0..).map_while(|number| self.finished.batches.remove(&number)).collect::<Vec<_>>();
        self.finished.batches = finished.iter().map(|batch| (batch.number, batch.clone())).collect();
        self.done.lines = self.take_up()?;
        self.done.resumed = finished.len() as u32;
        for number in 0.. {
            let (found, is_last) = match finished.get(number as usize) {
                Some(batch) => {
                    let end = batch.reports.last().map_or(output.layout.end(), |report| report.offset + report.bytes);
                    output.layout = Layout::from(end);
                    (batch.extensions, batch.last)
                }
                None => self.search_batch(number, &sizes, output, step)?,
            };
            step(Step::new(self.done.queries, self.queries, 0.0));
            if is_last {
                return Ok(());
            }
            if self.ready.batch_sizes_vary {
                extensions.push(found as i32);
                match self.crew.ask(0, &Request::new(b'M').numbers(&extensions))? {
                    Answer::Size(size) => sizes.push(size),
                    other => return Err(unasked(&other)),
                }
            }
        }
        Ok(())
    }

    /// Searches and reports a batch. Returns the extensions that this took, and whether there is no other.
    fn search_batch(
        &mut self,
        number: u32,
        sizes: &[i32],
        output: &mut Output,
        step: &dyn Fn(Step),
    ) -> Result<(i64, bool), SearchError> {
        let open = Request::new(b'B').u32(number).numbers(sizes);
        let batch = self.open_batch(&open)?;
        if batch.queries == 0 {
            return Ok((0, true));
        }
        let (before, of) = (self.done.queries, self.queries);
        let tell = |share: f64| step(Step::new(before, of, share * f64::from(batch.queries)));
        let ranges_done = std::mem::take(&mut self.finished.ranges);
        let mut ranges = RangeJob::new(&self.ready, (number, batch), open.clone(), &tell, self.journal.as_mut());
        ranges.restore(ranges_done)?;
        if !batch.alone {
            let begun = Instant::now();
            let count = ranges.count();
            self.crew.run(&mut ranges, Some(count), None)?;
            // Everybody waits for a range, and hears now that there is none.
            (0..self.crew.count()).for_each(|worker| self.crew.tell(worker, &Request::new(b'E')));
            self.seconds.search += begun.elapsed().as_secs_f64();
        }
        let begun = Instant::now();
        let (hits, extensions) = (std::mem::take(&mut ranges.hits), ranges.extensions());
        self.done.dropped += ranges.dropped;
        drop(ranges);
        let mut reported = self.report(batch, &hits, open, output)?;
        self.seconds.report += begun.elapsed().as_secs_f64();
        self.done.queries += u64::from(batch.queries);
        self.done.batches += 1;
        if let Some(journal) = &mut self.journal {
            (reported.number, reported.extensions) = (u64::from(number), extensions);
            journal.say(&Line::Batch(reported))?;
        }
        Ok((extensions, batch.last))
    }

    /// Has every worker open a batch. They all see the same.
    fn open_batch(&mut self, open: &Request) -> Result<Batch, SearchError> {
        let answers = self.crew.ask_all(open)?;
        match answers.first() {
            Some(Answer::Batch(batch)) => Ok(*batch),
            Some(other) => Err(unasked(other)),
            None => Err(SearchError::Protocol { problem: "there are no workers".into() }),
        }
    }

    /// Has owners write the reports on a batch, and returns where they are.
    fn report(
        &mut self,
        batch: Batch,
        hits: &[Vec<Vec<u8>>],
        open: Request,
        output: &mut Output,
    ) -> Result<journal::Batch, SearchError> {
        let queries = batch.queries as usize;
        let cuts = if batch.whole || batch.alone {
            vec![0, queries]
        } else {
            let weights: Vec<u64> = hits.iter().map(|hits| hits.iter().map(|hits| hits.len() as u64).sum()).collect();
            cut_by_weight(&weights, self.crew.count() * SLICES_PER_WORKER)
        };
        let slices: Vec<(usize, usize)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let lines = vec![Vec::new(); slices.len()];
        let count = slices.len() as u64;
        let places = vec![(Kept { offset: 0, bytes: 0, checksum: 0 }, None); slices.len()];
        let (table, before) = (self.table.as_mut(), self.done.slices);
        let mut job = SliceJob { slices, batch, hits, lines, places, open, sent_bytes: 0, table, before };
        let mut layout = Output { path: output.path.clone(), layout: Layout::from(output.layout.end()) };
        self.crew.run(&mut job, Some(count), Some(&mut layout))?;
        output.layout = Layout::from(layout.layout.end());
        self.done.slices += count;
        self.done.hits_bytes += job.sent_bytes;
        let lines: Vec<HeaderLine> = job.lines.into_iter().flatten().collect();
        self.done.lines.extend(lines.iter().cloned());
        let (reports, rows): (Vec<Kept>, Vec<Option<Kept>>) = job.places.into_iter().unzip();
        let rows = rows.into_iter().flatten().collect();
        Ok(journal::Batch { number: 0, queries: batch.queries, last: batch.last, extensions: 0, reports, rows, lines })
    }

    /// A text that any worker can make.
    fn text(&mut self, request: &Request) -> Result<Vec<u8>, SearchError> {
        match self.crew.ask(0, request)? {
            Answer::Text(text) => Ok(text),
            other => Err(unasked(&other)),
        }
    }

    fn summarize(mut self, bytes: u64) -> Result<Summary, SearchError> {
        let mut stages = Vec::new();
        for answer in self.crew.ask_last(&Request::new(b'S'))? {
            match answer {
                Answer::Stages(found) => stages.push(found),
                other => return Err(unasked(&other)),
            }
        }
        (0..self.crew.count()).for_each(|worker| self.crew.tell(worker, &Request::new(b'Q')));
        let is_merged = self.options.command.bulk.as_ref().is_some_and(|bulk| bulk.tables.is_some());
        let (nodes, lost_nodes) = self.crew.place().nodes();
        let sum = |of: fn(&Stages) -> f64| stages.iter().map(of).sum::<f64>();
        let (search, traceback, format) = (sum(|s| s.search), sum(|s| s.traceback), sum(|s| s.format));
        let total = sum(|s| s.total) + own_cpu_seconds();
        let started: u64 = stages.iter().map(|stages| stages.ranges_started).sum();
        let range_starts = sum(|s| s.range_starts);
        let busiest = stages.iter().map(|stages| stages.search).fold(0.0, f64::max);
        Ok(Summary {
            program: self.options.command.program.name(),
            engine: self.engine,
            identical: !is_merged,
            why_not_identical: is_merged.then_some(WHY_NOT_IDENTICAL),
            plan: self.plan,
            fragments: match self.plan {
                Plan::Queries if is_merged => self.cut.parts,
                Plan::Queries => 1,
                Plan::Database { fragments } => fragments,
            },
            workers: self.crew.count() as u32,
            nodes,
            lost_nodes,
            queries: self.done.queries,
            batches: self.done.batches,
            bytes,
            hits_bytes: self.done.hits_bytes,
            dropped_subjects: self.done.dropped,
            hits: self.done.hits,
            resumed_batches: self.done.resumed,
            restarts: self.crew.restarts,
            seconds: self.seconds,
            cpu_seconds: CpuSeconds { search, traceback, format, other: total - search - traceback - format, total },
            imbalance: if search > 0.0 { busiest * stages.len() as f64 / search } else { 1.0 },
            range_start_milliseconds: (started > 0).then(|| 1e3 * range_starts / started as f64),
            worker_memory_bytes: stages.iter().map(|stages| stages.memory_bytes).max().unwrap_or(0),
        })
    }
}

/// What a search is of.
fn identity(
    options: &SearchOptions,
    query: &Path,
    engine: &str,
    volumes: &[(PathBuf, u64, Option<SystemTime>)],
) -> Result<Identity, SearchError> {
    let command = &options.command;
    let mut hasher = blake3::Hasher::new();
    let read = File::open(query).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    read.map_err(|source| SearchError::File { action: "read", path: query.to_owned(), source })?;
    let words = match &command.bulk {
        Some(bulk) => bulk.told(),
        // The header has all words.
        None if command.format == SAM => command.words[1..].to_vec(),
        None => command.arguments.clone(),
    };
    let named = |bulk: &BulkSearch| {
        let files = bulk.database_files(&bulk.named).into_iter();
        files.filter_map(|path| stamp(&path).map(|(bytes, modified)| (path, bytes, modified))).collect::<Vec<_>>()
    };
    let files = command.bulk.as_ref().map_or_else(|| volumes.to_vec(), named);
    let since = |time: Option<SystemTime>| time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let nanoseconds = |time| since(time).map_or(0, |age| age.as_nanos());
    Ok(Identity {
        godwit: env!("CARGO_PKG_VERSION").to_owned(),
        engine: engine.to_owned(),
        options: std::iter::once(command.program.name().to_owned()).chain(words).collect(),
        queries: hasher.finalize().to_hex().to_string(),
        database: files.into_iter().map(|(path, bytes, modified)| (path, bytes, nanoseconds(modified))).collect(),
        rows: options.hits.is_some(),
    })
}

/// Sequences and letters of a FASTA file, about: all bytes of lines that are no names.
fn weigh(query: &Path) -> Result<(u64, u64), SearchError> {
    let bytes = std::fs::read(query);
    let bytes = bytes.map_err(|source| SearchError::File { action: "read", path: query.to_owned(), source })?;
    let is_name = |line: &&[u8]| line.first() == Some(&b'>');
    let lines = || bytes.split(|byte| *byte == b'\n');
    let letters = lines().filter(|line| !is_name(line)).map(|line| line.len() as u64).sum();
    Ok((lines().filter(is_name).count() as u64, letters))
}

/// The files of volumes, and those that are named themselves, with what changes when they are written to.
fn stamps(volumes: &[String]) -> Vec<(PathBuf, u64, Option<SystemTime>)> {
    let endings = || VOLUME_ENDINGS.into_iter().chain([""]);
    let paths =
        volumes.iter().flat_map(|volume| endings().map(move |ending| PathBuf::from(format!("{volume}{ending}"))));
    paths.filter_map(|path| stamp(&path).map(|(bytes, modified)| (path, bytes, modified))).collect()
}

fn stamp(path: &Path) -> Option<(u64, Option<SystemTime>)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.len(), found.modified().ok()))
}

fn first_changed(volumes: &[(PathBuf, u64, Option<SystemTime>)]) -> Option<PathBuf> {
    let changed = volumes.iter().find(|(path, bytes, modified)| stamp(path) != Some((*bytes, *modified)));
    changed.map(|(path, ..)| path.clone())
}

/// CPU time of this process so far.
fn own_cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = ticks.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}
