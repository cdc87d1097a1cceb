//! Runs a search: starts the workers, distributes their work, and writes the output file.

mod database_search;
mod search_identity;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use godwit_files::{FileStamp, OutputTarget};

use self::search_identity::{database_file_stamps, first_changed_file, search_identity};
use crate::database_ranges::DatabaseRanges;
use crate::database_volumes::DatabaseVolumes;
use crate::hits::{self, HitsFile, RowLog};
use crate::output_file::{OutputFile, resolve_output};
use crate::output_offsets::OutputOffsets;
use crate::search_checkpoint::{
    CheckpointEntry, FileExtent, ResumeState, SearchCheckpoint, SearchIdentity, SearchPartition,
};
use crate::search_forecast::{self, ForecastInputs};
use crate::search_plan::{PlanInputs, SearchPlan, join_ranges, joined_range_count};
use crate::search_worker_pool::{ReportOutput, SearchWorkerPool};
use crate::summary::{CpuSeconds, SearchForecast, SearchObserver, SearchProgress, SearchSummary, WallSeconds};
use crate::work_items::{BatchItems, unexpected_response};
use crate::worker_protocol::{HeaderLine, InitResponse, ProtocolFrame, Response, StageSeconds};
use crate::{SearchError, SearchOptions, SearchProgram, WorkerBackend, tool_search};

/// Number of the SAM format in `-outfmt`. The SAM header depends on the reports, so it is written last.
const SAM_FORMAT: u32 = 17;
/// Number of pieces of the queries per worker. DIAMOND or MMseqs2 runs once for each piece and reads the whole
/// database.
const PIECES_PER_WORKER: u32 = 2;
/// The reason in the summary of a search over alias files why the output may differ from that of one program run.
const NOT_IDENTICAL_REASON: &str = "each range was searched separately with a limited number of subjects of a query \
                                 before the traceback: for queries with more hits than that, all runs together can \
                                 find better ones than one run";
/// Maximum size of a range of a database that exceeds the memory, as a fraction of the memory for the database: the
/// current range and the next one take half of it, and the kernel keeps the other half for what it has not yet removed.
const RANGES_IN_MEMORY: u64 = 4;
/// Maximum size of a range in any case, bytes: a search that is killed loses the work of each worker on one batch in a
/// range, some minutes for this size.
const MAX_RANGE_BYTES: u64 = 1 << 30;
/// Number of letters of a query with which blastn takes about as long as the other programs: it compares only words that
/// the queries contain, so that the number of queries changes little.
const BLASTN_PAIRS_PER_LETTER: u64 = 100;
/// Minimum memory for reports in a worker, bytes, even if [`SearchOptions::memory_bytes`] is smaller.
const MIN_REPORT_MEMORY_BYTES: u64 = 16 << 20;

/// A search whose workers have opened the database and the queries.
pub struct Search<'a> {
    options: &'a SearchOptions,
    workers: SearchWorkerPool<'a>,
    init_response: InitResponse,
    plan: SearchPlan,
    /// Identity of the search. A resumed search must have the same identity and partition as the stopped one.
    identity: SearchIdentity,
    partition: SearchPartition,
    ranges: DatabaseRanges,
    /// Size of the letters of the database on disk, bytes; 0 if the layout of the database is not known.
    database_bytes: u64,
    forecast: Option<SearchForecast>,
    checkpoint: Option<SearchCheckpoint>,
    resume_state: ResumeState,
    database_files: Vec<(PathBuf, FileStamp)>,
    counts: SearchCounts,
    hits_file: Option<HitsFile>,
    seconds: WallSeconds,
    engine_name: String,
    /// Approximate total number of queries, and of their letters.
    query_count: u64,
    query_letters: u64,
}

#[derive(Default)]
struct SearchCounts {
    queries: u64,
    batches: u32,
    passes: u32,
    slices: u64,
    /// Number of batches that an earlier search finished.
    resumed_batches: u32,
    hits_bytes: u64,
    dropped_subjects: u64,
    hits: Option<u64>,
    /// Extents of the reports in the output, if each worker searches whole batches of queries.
    report_extents: Vec<FileExtent>,
    header_lines: Vec<HeaderLine>,
}

impl<'a> Search<'a> {
    /// Starts the workers, which open the database and the queries. `query` is the path of the file of the queries.
    ///
    /// # Errors
    /// [`SearchError`] if the engine is missing or rejects an option, or if the database or the queries cannot be read.
    pub fn open(
        options: &'a SearchOptions,
        query: &Path,
        place: Box<dyn WorkerBackend + 'a>,
        cancelled: &'a AtomicBool,
    ) -> Result<Self, SearchError> {
        let begun = Instant::now();
        reject_unsupported_options(options)?;
        let engine_name = place.engine_name();
        let (query_count, letters) = count_queries_and_letters(query)?;
        let is_bulk = options.command.tool_search.is_some();
        let before = if options.resume { read_stopped_partition(options) } else { None };
        let known = known_plan_inputs(options, place.worker_count() as u32, letters);
        let wanted = requested_ranges(options, known, before.as_ref());
        let decides_ranges = !is_bulk && options.range_count.is_none() && before.is_none();
        let range_bytes = options.cache_bytes.filter(|_| decides_ranges).map_or(0, max_range_bytes);
        let greeting = init_request(options, wanted, range_bytes);
        let (workers, mut init_response) =
            SearchWorkerPool::start_all(place, greeting, options.command.program.name(), cancelled)?;
        let database = DatabaseVolumes::open(&init_response.volumes).filter(|_| !is_bulk).unwrap_or_default();
        let database_bytes = database.total_bytes();
        let exceeds = |hosts: u64| options.cache_bytes.is_some_and(|bytes| database_bytes > bytes * hosts);
        let hosts = u64::from(workers.backend().host_counts().0.max(1));
        let inputs = PlanInputs {
            batch_letters: init_response.fixed_batch_letters(),
            database_letters: init_response.ranges.iter().map(|(.., letters)| letters).sum(),
            exceeds_memory: exceeds(1),
            has_groups: exceeds(hosts),
            min_ranges: match database_bytes {
                // The size of a range in bytes is not known.
                0 if range_bytes > 0 => init_response.ranges.len() as u32,
                bytes => bytes.checked_div(range_bytes).map_or(1, |ranges| ranges as u32 + 1),
            },
            ..known
        };
        let plan = choose_plan(options, inputs, before.as_ref(), &mut init_response.ranges);
        let ranges = DatabaseRanges::new(&init_response.ranges, &database, exceeds(hosts));
        let database_files = database_file_stamps(&options.command, &init_response.volumes);
        let seconds = WallSeconds { start_up: begun.elapsed().as_secs_f64(), ..WallSeconds::default() };
        let identity = search_identity(options, query, &engine_name, &database_files)?;
        let (partition, checkpoint, resume_state) =
            (SearchPartition { plan, parts: init_response.requested_ranges }, None, ResumeState::default());
        let (counts, hits_file) = (SearchCounts::default(), None);
        Ok(Self {
            options,
            workers,
            init_response,
            plan,
            identity,
            partition,
            ranges,
            database_bytes,
            forecast: None,
            checkpoint,
            resume_state,
            database_files,
            counts,
            hits_file,
            seconds,
            engine_name,
            query_count,
            query_letters: letters,
        })
    }

    /// Predicts the work and the duration of the search: reads the end of the database and searches a sample of it, which
    /// takes seconds. Returns `None` if nothing can be predicted: the search is empty or uses an external tool.
    ///
    /// # Errors
    /// [`SearchError`] if the sample cannot be searched.
    pub fn forecast(&mut self) -> Result<Option<&SearchForecast>, SearchError> {
        if self.forecast.is_none() && !self.init_response.queries_are_empty && self.database_bytes > 0 {
            let inputs = ForecastInputs {
                options: self.options,
                ranges: &self.ranges,
                cuts: &self.init_response.ranges,
                batch_letters: self.init_response.batch_size.max(0) as u64,
                database_bytes: self.database_bytes,
                query_count: self.query_count,
                query_letters: self.query_letters,
                group_queries: self.ranges.exceeds_memory.then(|| self.group_queries()),
                batch_sizes_vary: self.init_response.batch_sizes_vary,
            };
            self.forecast = search_forecast::forecast_search(&inputs, &mut self.workers)?;
        }
        Ok(self.forecast.as_ref())
    }

    /// Runs the search and writes the output. Reports the forecast to the observer before the search if the database
    /// exceeds the memory, and the progress after each finished piece of work.
    ///
    /// # Errors
    /// [`SearchError`] if the search fails; an existing output file is then unchanged. If a later search can resume,
    /// the finished work stays in the checkpoint directory beside the output.
    pub fn run(mut self, observer: &SearchObserver<'_>) -> Result<SearchSummary, SearchError> {
        let begun = Instant::now();
        if self.ranges.exceeds_memory
            && let Some(forecast) = self.forecast()?
        {
            (observer.plan)(forecast);
        }
        let searched = self.search_and_commit(observer.progress);
        let journal = self.checkpoint.take();
        let bytes = match (searched, journal) {
            (Ok(bytes), journal) => {
                if let Some(journal) = journal {
                    journal.remove();
                }
                bytes
            }
            (Err(error), Some(journal)) if error.is_resumable() => {
                let is_resumable = journal.keep_for_resume();
                return Err(if let SearchError::Interrupted { .. } = error {
                    SearchError::Interrupted { is_resumable }
                } else {
                    error
                });
            }
            // This search has not opened a checkpoint, so an existing one belongs to another search and stays.
            (Err(error), None) => return Err(error),
            (Err(error), Some(journal)) => {
                journal.remove();
                return Err(error);
            }
        };
        self.seconds.total = self.seconds.start_up + begun.elapsed().as_secs_f64();
        self.summarize(bytes)
    }

    /// Searches what is not in the checkpoint, and renames the output to its final name. Returns the size of the
    /// output.
    fn search_and_commit(&mut self, step: &dyn Fn(SearchProgress)) -> Result<u64, SearchError> {
        let mut output_file = self.open_output_files()?;
        let mut output =
            ReportOutput { path: output_file.temporary_path().to_owned(), offsets: OutputOffsets::starting_at(0) };
        let mut bytes = 0;
        if let Some(whole) = self.resume_state.output_bytes {
            // An earlier search has written the whole output, but stopped before it removed the checkpoint.
            let lines = self.restore_batches()?;
            self.counts.header_lines = lines;
            bytes = whole;
        } else if !self.init_response.queries_are_empty {
            let prolog = self.request_text(&ProtocolFrame::new(b'P'))?;
            output_file.write_at(&prolog, 0)?;
            output.offsets = OutputOffsets::starting_at(prolog.len() as u64);
            match self.plan {
                SearchPlan::Queries => self.search_query_batches(&mut output, step)?,
                SearchPlan::Database { .. } => self.search_database_ranges(&mut output, step)?,
            }
            bytes = self.finish_output(&mut output_file, output.offsets.known_end())?;
        }
        if let Some(path) = first_changed_file(&self.database_files) {
            return Err(SearchError::DatabaseChanged { path });
        }
        // The output is renamed after the table of hits: if the output exists, both are complete.
        let table = self.hits_file.take().map(HitsFile::finish).transpose()?;
        if let Some(journal) = self.checkpoint.as_mut().filter(|_| self.resume_state.output_bytes.is_none()) {
            output_file.sync()?;
            journal.append_entry(&CheckpointEntry::Complete { bytes })?;
        }
        if let Some(whole) = table {
            self.counts.hits = Some(whole.rows);
            whole.commit()?;
        }
        if !self.resume_state.is_published() {
            output_file.commit(bytes)?;
        }
        Ok(bytes)
    }

    /// Creates the output file and the log of hit rows, or opens those of the search that is resumed.
    fn open_output_files(&mut self) -> Result<OutputFile, SearchError> {
        let options = self.options;
        let out = options.command.output_path.as_deref();
        let output_file = match out.map(resolve_output).transpose()? {
            None | Some(OutputTarget::Stream) => OutputFile::create_for_stream(&options.scratch_directory, out)?,
            Some(OutputTarget::File(out)) => {
                let (journal, finished) =
                    SearchCheckpoint::open(&out, options.resume, &self.identity, &self.partition)?;
                self.resume_state = finished;
                let output = self.checkpoint.insert(journal).file_path("output");
                OutputFile::open_checkpoint(self.resume_state.unpublished_output.clone().unwrap_or(output), &out)
            }
        };
        if let Some(path) = options.hits_path.as_deref().filter(|_| !self.resume_state.is_published()) {
            let log = match &self.checkpoint {
                Some(journal) => RowLog::open_named(&journal.file_path("rows"))?,
                None => RowLog::create_unnamed(&options.scratch_directory)?,
            };
            self.hits_file = Some(HitsFile::create(path, log, options.command.program.name(), &self.engine_name)?);
        }
        Ok(output_file)
    }

    /// Counts the batches that an earlier search finished, and adds their rows to the table of hits. Returns the lines
    /// of these batches for the SAM header.
    fn restore_batches(&mut self) -> Result<Vec<HeaderLine>, SearchError> {
        let mut lines = Vec::new();
        for batch in self.resume_state.batches.values() {
            self.counts.queries += u64::from(batch.queries);
            self.counts.batches += 1;
            lines.extend(batch.header_lines.iter().cloned());
            for rows in &batch.rows {
                if let Some(table) = &mut self.hits_file {
                    table.restore_rows(self.counts.slices, *rows)?;
                }
                self.counts.slices += 1;
            }
        }
        Ok(lines)
    }

    /// Writes the epilog after the reports and, for SAM, the header before them; merges the tables of a search over
    /// alias files instead. Returns the size of the output.
    fn finish_output(&mut self, output_file: &mut OutputFile, end: u64) -> Result<u64, SearchError> {
        if let Some(bulk) = self.options.command.tool_search.as_ref().filter(|bulk| bulk.range_tables.is_some()) {
            let open = |output: &Path, place: &FileExtent| {
                let mut table = File::open(output)?;
                table.seek(SeekFrom::Start(place.offset))?;
                Ok(BufReader::new(table.take(place.bytes)))
            };
            output_file.rewrite(|output, to| {
                let tables = self.counts.report_extents.iter().map(|place| open(output, place));
                tool_search::merge_tables(bulk, tables.collect::<std::io::Result<_>>()?, to)
            })?;
            self.counts.queries = self.query_count;
            return output_file.file_bytes();
        }
        let epilog = self.request_text(&ProtocolFrame::new(b'Z').with_u32(self.counts.queries as u32))?;
        output_file.write_at(&epilog, end)?;
        let end = end + epilog.len() as u64;
        if self.options.command.format != SAM_FORMAT {
            return Ok(end);
        }
        let mut seen = HashSet::new();
        let lines = std::mem::take(&mut self.counts.header_lines);
        let request = lines
            .into_iter()
            .filter(|(name, _)| seen.insert(name.clone()))
            .fold(ProtocolFrame::new(b'F'), |request, (name, line)| request.with_text(&name).with_text(&line));
        let header = self.request_text(&request)?;
        output_file.prepend(&header, end)?;
        Ok(end + header.len() as u64)
    }

    fn search_query_batches(
        &mut self,
        output: &mut ReportOutput,
        report_progress: &dyn Fn(SearchProgress),
    ) -> Result<(), SearchError> {
        let begun = Instant::now();
        let batches = std::mem::take(&mut self.resume_state.batches);
        for batch in batches.values() {
            if let (Some(table), [rows]) = (&mut self.hits_file, batch.rows.as_slice()) {
                table.restore_rows(batch.number, *rows)?;
            }
        }
        self.counts.resumed_batches = batches.len() as u32;
        let count = batches.values().find(|batch| batch.is_last).map(|last| last.number + 1);
        let (batch_letters, total_queries, hits_file) = (
            Some(self.init_response.batch_size).filter(|_| !self.init_response.batch_sizes_vary),
            self.query_count,
            self.hits_file.as_mut(),
        );
        let mut job = BatchItems {
            batch_letters,
            batches,
            total_queries,
            report_progress,
            hits_file,
            checkpoint: self.checkpoint.as_mut(),
        };
        self.workers.process_items(&mut job, count, Some(output))?;
        self.counts.queries = job.reported_queries();
        self.counts.batches = job.batches.len() as u32;
        self.counts.passes = self.counts.batches - self.counts.resumed_batches;
        let (lines, places): (Vec<_>, Vec<_>) =
            job.batches.into_values().map(|batch| (batch.header_lines, batch.reports)).unzip();
        self.counts.header_lines = lines.into_iter().flatten().collect();
        self.counts.report_extents = places.into_iter().flatten().collect();
        self.seconds.search += begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns the prolog, the epilog or the SAM header, which any worker can format.
    fn request_text(&mut self, request: &ProtocolFrame) -> Result<Vec<u8>, SearchError> {
        match self.workers.request(0, request)? {
            Response::Text(text) => Ok(text),
            other => Err(unexpected_response(&other)),
        }
    }

    fn summarize(mut self, bytes: u64) -> Result<SearchSummary, SearchError> {
        let mut stages = Vec::new();
        for answer in self.workers.request_all_without_restart(&ProtocolFrame::new(b'S'))? {
            match answer {
                Response::Stages(found) => stages.push(found),
                other => return Err(unexpected_response(&other)),
            }
        }
        (0..self.workers.worker_count()).for_each(|worker| self.workers.send(worker, &ProtocolFrame::new(b'Q')));
        let is_merged = self.options.command.tool_search.as_ref().is_some_and(|bulk| bulk.range_tables.is_some());
        let (hosts, lost_hosts) = self.workers.backend().host_counts();
        let sum = |of: fn(&StageSeconds) -> f64| stages.iter().map(of).sum::<f64>();
        let (search, traceback, format) = (sum(|s| s.search), sum(|s| s.traceback), sum(|s| s.format));
        let total = sum(|s| s.total_seconds) + process_cpu_seconds();
        let started: u64 = stages.iter().map(|stages| stages.ranges_started).sum();
        let range_starts = sum(|s| s.range_starts);
        let busiest = stages.iter().map(|stages| stages.search).fold(0.0, f64::max);
        Ok(SearchSummary {
            program: self.options.command.program.name(),
            engine: self.engine_name,
            is_identical: !is_merged,
            not_identical_reason: is_merged.then_some(NOT_IDENTICAL_REASON),
            plan: self.plan,
            range_count: match self.plan {
                SearchPlan::Queries if is_merged => self.partition.parts,
                SearchPlan::Queries => 1,
                SearchPlan::Database { range_count } => range_count,
            },
            workers: self.workers.worker_count() as u32,
            hosts,
            lost_hosts,
            queries: self.counts.queries,
            batches: self.counts.batches,
            passes: self.counts.passes,
            bytes,
            hits_bytes: self.counts.hits_bytes,
            dropped_subjects: self.counts.dropped_subjects,
            hit_rows: self.counts.hits,
            resumed_batches: self.counts.resumed_batches,
            worker_restarts: self.workers.worker_restarts,
            seconds: self.seconds,
            cpu_seconds: CpuSeconds { search, traceback, format, other: total - search - traceback - format, total },
            imbalance: if search > 0.0 { busiest * stages.len() as f64 / search } else { 1.0 },
            forecast: self.forecast,
            range_start_milliseconds: (started > 0).then(|| 1e3 * range_starts / started as f64),
            worker_memory_bytes: stages.iter().map(|stages| stages.memory_bytes).max().unwrap_or(0),
        })
    }
}

/// Rejects options that the search of this command does not support.
fn reject_unsupported_options(options: &SearchOptions) -> Result<(), SearchError> {
    let unsupported = |option: &str, problem| Err(SearchError::Unsupported { option: option.to_owned(), problem });
    options.hits_path.as_deref().map(hits::table_format).transpose()?;
    if options.command.tool_search.is_some() && options.hits_path.is_some() {
        let problem = "DIAMOND and MMseqs2 write their own tables; omit it, or search with a program of BLAST+";
        return unsupported("--hits", problem);
    }
    if options.command.subject_path.is_some() && options.range_count.is_some() {
        return unsupported("--fragments", "the sequences of -subject are not cut into ranges; omit it");
    }
    Ok(())
}

/// Returns the maximum size of a range, given the memory for the database; both in bytes.
fn max_range_bytes(cache_bytes: u64) -> u64 {
    (cache_bytes / RANGES_IN_MEMORY).clamp(1, MAX_RANGE_BYTES)
}

/// Returns the partition of the stopped search with the same output; `None` if there is no checkpoint.
fn read_stopped_partition(options: &SearchOptions) -> Option<SearchPartition> {
    match resolve_output(options.command.output_path.as_deref()?).ok()? {
        OutputTarget::File(out) => SearchCheckpoint::read_partition(&out),
        OutputTarget::Stream => None,
    }
}

/// Returns the number of ranges of the database to request from the workers; for DIAMOND and MMseqs2, the number of pieces
/// of the queries. A stopped search that is resumed, `before`, keeps its number.
fn requested_ranges(options: &SearchOptions, known: PlanInputs, before: Option<&SearchPartition>) -> u32 {
    let tool_search = options.command.tool_search.as_ref();
    let tables = tool_search.and_then(|bulk| bulk.range_tables.as_ref());
    match (SearchPlan::choose(known), tables, before) {
        (_, Some(tables), _) => tables.ranges.len() as u32,
        (_, None, Some(before)) if options.range_count.is_none() => before.parts,
        _ if options.command.subject_path.is_some() => 1,
        _ if tool_search.is_some() => options.range_count.unwrap_or(known.workers * PIECES_PER_WORKER),
        (SearchPlan::Database { range_count }, ..) => range_count,
        (SearchPlan::Queries, ..) => 1,
    }
}

/// Returns what is known about a search before its workers have opened the database.
fn known_plan_inputs(options: &SearchOptions, workers: u32, query_letters: u64) -> PlanInputs {
    PlanInputs {
        requested_ranges: options.range_count,
        workers,
        query_letters,
        fixed_pairs: (options.command.program == SearchProgram::Blastn).then_some(BLASTN_PAIRS_PER_LETTER),
        ..PlanInputs::default()
    }
}

/// Chooses the plan of a search, and joins the ranges that the workers cut to those of the plan. A stopped search that is
/// resumed, `before`, keeps its plan.
fn choose_plan(
    options: &SearchOptions,
    inputs: PlanInputs,
    before: Option<&SearchPartition>,
    ranges: &mut Vec<(u32, u32, u64)>,
) -> SearchPlan {
    if options.command.tool_search.is_some() || options.command.subject_path.is_some() {
        return SearchPlan::Queries;
    }
    let before = before.filter(|_| options.range_count.is_none());
    let plan = before.map_or_else(|| SearchPlan::choose(inputs), |before| before.plan);
    let SearchPlan::Database { range_count } = plan else { return plan };
    let count = match (options.range_count, before) {
        (Some(_), _) => ranges.len() as u32,
        (None, Some(_)) => range_count,
        (None, None) => joined_range_count(ranges.len(), range_count),
    };
    *ranges = join_ranges(ranges, count);
    SearchPlan::Database { range_count: ranges.len() as u32 }
}

/// Returns the request with which a worker opens the database and the queries. `range_bytes` is the maximum size of a
/// range; 0 for no limit.
fn init_request(options: &SearchOptions, ranges: u32, range_bytes: u64) -> ProtocolFrame {
    let line: String = options.command.words.iter().flat_map(|word| [word.as_str(), " "]).collect();
    let share = (options.memory_bytes / options.workers as u64).max(MIN_REPORT_MEMORY_BYTES);
    let scratch = options.scratch_directory.as_os_str().as_encoded_bytes();
    let fields = if options.hits_path.is_some() { hits::row_field_names() } else { String::new() };
    let request = ProtocolFrame::new(b'I').with_u32(ranges).with_u64(range_bytes).with_u64(share);
    request.with_text(scratch).with_text(line.as_bytes()).with_text(fields.as_bytes())
}

/// Returns the number of sequences of a FASTA file, and the approximate number of letters: all bytes of sequence lines.
fn count_queries_and_letters(query: &Path) -> Result<(u64, u64), SearchError> {
    let bytes = std::fs::read(query);
    let bytes = bytes.map_err(|source| SearchError::File { action: "read", path: query.to_owned(), source })?;
    let is_name = |line: &&[u8]| line.first() == Some(&b'>');
    let lines = || bytes.split(|byte| *byte == b'\n');
    let letters = lines().filter(|line| !is_name(line)).map(|line| line.len() as u64).sum();
    Ok((lines().filter(is_name).count() as u64, letters))
}

/// Returns the CPU time of this process, seconds.
fn process_cpu_seconds() -> f64 {
    let ticks = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = ticks.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}
