//! The main job: FASTQ lanes in, one sorted and marked BAM out, in one process beside the aligner's.

mod engine;
mod feed;
mod header;
mod identity;
mod lanes;
pub(crate) mod plan;
mod read_names;
mod resume;
mod spread;
mod trim;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt16Type};
use arrow_array::{BinaryArray, RecordBatch};
use godwit_engines::EngineError;
use godwit_engines::aligner::{AlignedBlock, AlignerChoice, BlockReader, BlockWriter};
use godwit_formats::fastq::LaneOptions;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::BlockSignatures;
use godwit_model::{DuplicateCounts, Genome, SortKey, flags};

use crate::aligner_selection::{Place, SelectedAligner};
use crate::error::PipelineError;
use crate::job::JobOptions;
use crate::journal::Fact;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::read_groups::ReadGroups;
use crate::reduce::{Collector, Follower, Format, Opened, Outputs, Reduced, Watched};
use crate::reference;
use crate::run_directory::RunDirectory;
use crate::run_report::{InputFile, Publication, ResumedWork, RunReport, Stage, check_distinct};
use crate::scratch::create_private_directory;
use crate::spread::Spread;
use crate::step::Step;

use engine::{Engine, FoundEngine};
use feed::{FeedLane, FeedReport, Feeder};
use header::LaneGroups;
use lanes::Lane;
pub use lanes::ReadsOptions;
pub use spread::ExchangeReport;
use spread::{HeadOfRun, SpreadJob};

/// What to align and how.
#[derive(Clone, Debug)]
pub struct AlignOptions {
    /// The reference, with its index beside it.
    pub reference: PathBuf,
    /// Files of each lane: one, or read 1 and read 2. Standard input has the name [`godwit_formats::bgzf::STDIN`].
    pub lanes: Vec<Vec<PathBuf>>,
    /// How reads come.
    pub reads: ReadsOptions,
    /// `@RG` lines: none, one for all lanes, or one for each. `\t` stands for a tab.
    pub read_groups: Vec<String>,
    /// Names the output and fills `SM` of read groups that are made.
    pub sample: String,
    /// Output directory; made where it is missing.
    pub out: PathBuf,
    /// Formats of the records, at least one.
    pub formats: Vec<Format>,
    /// What `markdup` has too.
    pub job: JobOptions,
    /// Bases per block: bwa's `-K`.
    pub block_bases: u64,
    /// The aligner.
    pub aligner: AlignerChoice,
    /// Options of a named aligner that change records.
    pub aligner_args: Vec<String>,
    /// Relax the FASTQ reader.
    pub lenient: bool,
    /// Go on with a run that was stopped.
    pub resume: bool,
}

/// Runs the main job and returns its report, which is also in `run.json`. With `spread` other processes align and write.
///
/// What it does is kept in a run directory until the outputs have their names, so that another run with
/// [`AlignOptions::resume`] can go on after whatever stopped this one.
///
/// # Errors
/// [`PipelineError`]; no output has its name then.
pub fn align(
    options: &AlignOptions,
    spread: Option<&Spread>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunReport, PipelineError> {
    align_followed(options, spread, None, observer, cancelled)
}

/// As [`align`], with someone who works on the BAM while it is written.
pub(crate) fn align_followed(
    options: &AlignOptions,
    spread: Option<&Spread>,
    follower: Option<&dyn Follower>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunReport, PipelineError> {
    let started = Instant::now();
    options.job.check()?;
    if spread.is_some() {
        spread::check(options)?;
    }
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (inputs, outputs) = checked_inputs(options)?;
    observer.event(&Event::Stage { name: "checking the index" });
    let place = match spread {
        None => Place::Here { processes: 1 },
        Some(spread) if spread.one_machine => Place::Here { processes: u64::from(spread.nodes) },
        Some(_) => Place::Elsewhere,
    };
    let engine = FoundEngine::find(options, place)?;
    // Workers select for themselves, and `run.json` has what each of them used.
    let selected = engine.selected().filter(|_| spread.is_none()).and_then(SelectedAligner::note);
    for message in engine::note(&options.aligner).into_iter().chain(selected) {
        observer.event(&Event::Warning { message });
    }
    let checked = Instant::now();
    let trimmer = trim::checked_version(&options.reads)?;
    let planned = lanes::plan(options, cancelled)?;
    let groups = LaneGroups::new(options, &planned)?;
    for message in groups.warnings() {
        observer.event(&Event::Warning { message: message.clone() });
    }
    let step = Step::of(&options.job, spread.is_none(), cancelled)?;
    let facts = identity::facts(options, &groups, trimmer.as_deref(), step.as_ref(), &engine)?;
    let lanes = PlannedLanes { planned, groups, trimmer, step };
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    for directory in [&options.out, temp] {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    let run = match resume::open(options, &outputs, &facts, spread.map(spread::over_nodes).transpose()?, observer)? {
        resume::Found::Work(run) => Arc::from(run),
        resume::Found::Complete(report) => return Ok(*report),
    };
    let outputs = &outputs;
    let job = AlignJob {
        options,
        spread,
        follower,
        inputs,
        outputs,
        lanes,
        engine,
        facts,
        observer,
        cancelled,
        started,
        checked,
    };
    let outcome = job.run(memory, temp, &run);
    resume::close(outcome, run, outputs, observer)
}

/// What is read, as it was found before anything was aligned.
struct PlannedLanes {
    planned: Vec<Lane>,
    groups: LaneGroups,
    /// Version of the trimmer, where there is one.
    trimmer: Option<String>,
    /// What looks at records before they are written.
    step: Option<Step>,
}

impl PlannedLanes {
    /// Lanes that can be read but once.
    fn read_once(&self) -> BTreeSet<u16> {
        let lanes = self.planned.iter().enumerate();
        lanes.filter(|(_, lane)| lane.is_read_once()).map(|(number, _)| number as u16).collect()
    }
}

/// What is to be done, once it is known to make sense.
struct AlignJob<'r> {
    options: &'r AlignOptions,
    spread: Option<&'r Spread<'r>>,
    follower: Option<&'r dyn Follower>,
    inputs: Vec<InputFile>,
    outputs: &'r Outputs,
    lanes: PlannedLanes,
    engine: FoundEngine,
    facts: Vec<Fact>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
    started: Instant,
    checked: Instant,
}

impl AlignJob<'_> {
    fn run(self, memory: MemoryPlan, temp: &Path, run: &Arc<RunDirectory>) -> Result<RunReport, PipelineError> {
        let Self { options, follower, mut inputs, outputs, lanes, engine, facts, observer, .. } = self;
        let (cancelled, started, checked) = (self.cancelled, self.started, self.checked);
        let mut opened = outputs.open(self.spread.is_none())?;
        observer.event(&Event::Stage { name: "aligning" });
        let mut head = match self.spread {
            Some(spread) => Some(HeadOfRun::open(spread, options, &lanes, run, observer, cancelled)?),
            None => None,
        };
        let PlannedLanes { planned, groups, trimmer, step } = lanes;
        let mut engine = match &mut head {
            Some(head) => engine.elsewhere(head.first_hello()?),
            None => engine.open(options)?,
        };
        let header = header::of_run(&engine, &groups, options, trimmer.as_deref())?;
        opened.prepare(outputs, &header, options.job.compared_with(Some(&options.reference)), temp)?;
        let stem = outputs.stem.file_name().unwrap_or_default().to_string_lossy();
        run.show(&stem, &header).map_err(PipelineError::file("write into the run directory in", &options.out))?;
        let read_groups =
            ReadGroups::new(&header.read_groups().map_err(|source| header::invalid("the read groups", source))?)?;
        let reduce_options = options.job.reduce_options(memory, temp, Some(&options.reference), step.clone());
        let collector = Collector::new(reduce_options, &read_groups, cancelled, Some(run.clone()))?;
        let lanes = groups.feed_lanes(planned, &read_groups);
        let lane_libraries = lanes.iter().map(|lane| lane.membership.library).collect();
        let progress = SharedProgress::default();
        progress.bytes_total.store(feed::input_bytes(&lanes, options), Ordering::Relaxed);
        let (groups, read_groups, genome) = (&groups, &read_groups, &engine.hello().genome.clone());
        let watched = Watched { follower, observer, cancelled };
        let given =
            Given { options, groups, read_groups, header: &header, genome, outputs, run, watched, observer, cancelled };
        let worked = match head {
            Some(head) => {
                let job = SpreadJob { given, spool: &head.spool(), lane_libraries, progress };
                job.run(head, lanes, collector, opened)?
            }
            None => {
                let aligning = AlignRun { given, collector, lane_libraries, progress };
                aligning.run(lanes, &mut engine, opened)?
            }
        };
        let Worked { mut fed, mut reduced, aligned, exchange } = worked;
        for input in &mut inputs {
            input.blake3 = fed.checksums.remove(&input.path);
            input.read_from = fed.read_from.remove(&input.path);
        }
        reduced.staged.append(std::mem::take(&mut fed.reports));
        let resumed = ResumedWork { blocks: fed.blocks_before, partitions: reduced.kept_partitions };
        let stages = stages(&fed, &reduced, (checked - started).as_secs_f64(), (aligned - checked).as_secs_f64());
        let aligner = engine.report(options, exchange.as_ref());
        let report = RunReport::new("align", &options.job.command, (&aligner.name, &aligner.version))
            .aligner(aligner.clone())
            .engine("fastp", trimmer.as_deref())
            .stepped(step.as_ref(), reduced.dropped)
            .inputs(inputs)
            .stages(stages)
            .reduced(&reduced, started.elapsed())
            .ran(options.job.threads, resumed, started.elapsed())
            .exchanged(exchange);
        follower.map_or(Ok(()), |follower| follower.written(&reduced.staged))?;
        report.publish(
            reduced,
            &Publication {
                outputs,
                json: options.out.join("run.json"),
                page: options.out.join("report.html"),
                sample: options.sample.clone(),
                reference: Some(&options.reference),
                identity: &facts,
                run: Some(run),
            },
        )
    }
}

/// What is read and what is to be written, checked against each other.
fn checked_inputs(options: &AlignOptions) -> Result<(Vec<InputFile>, Outputs), PipelineError> {
    let inputs = input_files(options)?;
    let outputs = Outputs {
        stem: options.out.join(&options.sample),
        formats: options.formats.clone(),
        reference: Some(options.reference.clone()),
        step: options.job.step.is_some(),
        recipients: options.job.recipients.clone(),
    };
    outputs.check_recipients()?;
    check_distinct(&inputs, &outputs.paths())?;
    outputs.check_names(&[options.out.join("run.json"), options.out.join("report.html")])?;
    if options.job.metrics || options.formats.contains(&Format::Cram) {
        reference::check_access(&options.reference)?;
    }
    Ok((inputs, outputs))
}

fn input_files(options: &AlignOptions) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::of("the reference", &options.reference)?];
    for file in options.lanes.iter().flatten() {
        inputs.push(InputFile::of("the reads", file)?);
    }
    Ok(inputs)
}

fn stages(fed: &FeedReport, reduced: &Reduced, checking_seconds: f64, aligning_seconds: f64) -> Vec<Stage> {
    vec![
        Stage { name: "check index", seconds: checking_seconds, rows: 0, bytes: 0 },
        Stage { name: "read", seconds: fed.seconds, rows: fed.reads, bytes: fed.bytes },
        Stage { name: "align and sort", seconds: aligning_seconds, rows: fed.records, bytes: reduced.spilled_bytes },
        Stage { name: "decide duplicates", seconds: reduced.deciding_seconds, rows: reduced.records, bytes: 0 },
        Stage { name: "write", seconds: reduced.writing_seconds, rows: reduced.records, bytes: reduced.written_bytes },
    ]
}

/// What the feeding thread tells the one that takes answers, for progress.
#[derive(Default)]
struct SharedProgress {
    bytes_total: AtomicU64,
    /// Bytes of input up to the end of each block that was fed and has not come back, oldest first. What takes the blocks bounds it.
    block_ends: Mutex<VecDeque<u64>>,
    feeding_done: AtomicBool,
}

impl SharedProgress {
    /// The share of the input that is aligned now that one more block came back, where it is known. Where blocks come back
    /// in another order than they were fed, it is that of as many in order.
    fn fraction_after_block(&self) -> Option<f64> {
        let total = self.bytes_total.load(Ordering::Relaxed);
        let end = self.block_ends.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        end.filter(|_| total > 0).map(|end| (end as f64 / total as f64).min(1.0))
    }
}

impl AlignOptions {
    /// How files of reads are read.
    fn lane_options(&self) -> LaneOptions {
        LaneOptions {
            block_bases: self.block_bases,
            decompress_threads: self.job.threads,
            lenient: self.lenient,
            ..LaneOptions::default()
        }
    }
}

/// What is settled before the first read is aligned.
#[derive(Clone, Copy)]
struct Given<'r> {
    options: &'r AlignOptions,
    groups: &'r LaneGroups,
    read_groups: &'r ReadGroups,
    header: &'r Header,
    genome: &'r Genome,
    outputs: &'r Outputs,
    run: &'r RunDirectory,
    watched: Watched<'r>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
}

/// What came of a run; the files still lack their names.
struct Worked {
    fed: FeedReport,
    reduced: Reduced,
    /// When the last block was aligned.
    aligned: Instant,
    /// Where nodes did it.
    exchange: Option<ExchangeReport>,
}

struct AlignRun<'r> {
    given: Given<'r>,
    collector: Collector,
    /// Index of the library of each lane.
    lane_libraries: Vec<u16>,
    progress: SharedProgress,
}

impl AlignRun<'_> {
    /// Aligns everything and writes the files.
    fn run(self, lanes: Vec<FeedLane>, engine: &mut Engine, opened: Opened) -> Result<Worked, PipelineError> {
        let fed = self.all_lanes(lanes, engine)?;
        let aligned = Instant::now();
        let Given { header, genome, outputs, watched, .. } = self.given;
        let reduced = self.collector.write(header, genome, outputs, opened, watched)?;
        Ok(Worked { fed, reduced, aligned, exchange: None })
    }

    /// Aligns all lanes, by one process or by one for each.
    fn all_lanes(&self, lanes: Vec<FeedLane>, engine: &mut Engine) -> Result<FeedReport, PipelineError> {
        let Given { options, groups, run, .. } = self.given;
        let lane_options = options.lane_options();
        let mut fed = FeedReport::default();
        let mut lanes = lanes.into_iter().enumerate();
        let lanes_at_once = engine.lanes_per_process(lanes.len());
        loop {
            let some: Vec<(usize, FeedLane)> = lanes.by_ref().take(lanes_at_once).collect();
            let Some((first, lane)) = some.first() else { break };
            let (writer, reader, child) = engine.start(options, groups, *first, &lane.lane)?;
            let feeder = Feeder { lanes: some, lane_options: lane_options.clone(), writer, options, run, before: fed };
            fed = self.exchange(feeder, reader, &child)?;
        }
        feed::check_kept(&fed, run)?;
        Ok(fed)
    }

    /// Feeds and takes at the same time, until both ends are done. The first failure stops the child, which ends the
    /// other side; it is the one reported.
    fn exchange(
        &self,
        feeder: Feeder<'_, BlockWriter>,
        reader: BlockReader,
        child: &godwit_engines::ChildHandle,
    ) -> Result<FeedReport, PipelineError> {
        let returned_before = feeder.before.reads - feeder.before.reads_before;
        self.progress.feeding_done.store(false, Ordering::Release);
        let (fed, taken) = std::thread::scope(|scope| {
            let feeding = scope.spawn(|| {
                let fed = feeder.run(&self.progress, self.given.cancelled);
                if fed.is_err() {
                    child.kill();
                }
                fed
            });
            let watching = scope.spawn(|| self.kill_when_cancelled(child));
            let taken = self.take_blocks(reader, returned_before);
            if taken.is_err() {
                child.kill();
            }
            let fed = feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.progress.feeding_done.store(true, Ordering::Release);
            watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (fed, taken)
        });
        if self.given.cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        let (mut fed, returned) = match (fed, taken) {
            (Err(feeding), Err(taking)) => return Err(root_cause(feeding, taking)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
            (Ok(fed), Ok(returned)) => (fed, returned),
        };
        child.wait()?;
        let due = fed.reads - fed.reads_before;
        if returned != due {
            return Err(PipelineError::Lost { what: "reads", taken: due, written: returned });
        }
        fed.records = self.collector.records();
        Ok(fed)
    }

    /// A child that is busy aligning does not notice a signal to its parent; this thread does.
    fn kill_when_cancelled(&self, child: &godwit_engines::ChildHandle) {
        while !self.progress.feeding_done.load(Ordering::Acquire) {
            if self.given.cancelled.load(Ordering::Relaxed) {
                child.kill();
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }

    /// Returns the number of reads that came back, those of earlier processes included.
    fn take_blocks(&self, mut reader: BlockReader, mut reads: u64) -> Result<u64, PipelineError> {
        while let Some(block) = reader.next_block()? {
            reads += block.reads;
            let id = block.id;
            self.take_block(block)?;
            let fraction = self.progress.fraction_after_block();
            self.given.observer.event(&Event::Aligned { lane: id.lane, block: id.ordinal, reads, fraction });
        }
        Ok(reads)
    }

    fn take_block(&self, block: AlignedBlock) -> Result<(), PipelineError> {
        let library = usize::from(self.lane_libraries[usize::from(block.id.lane)]);
        let mut counts = vec![DuplicateCounts::default(); library + 1];
        counts[library] = block.counts;
        let signatures = BlockSignatures { pairs: block.pairs, ends: block.ends, counts };
        let (chunks, keys) = records_and_keys(block.batches, block.records);
        self.collector.add_block(block.id, chunks, &keys, &signatures)
    }
}

/// The packed records of a block in the aligner's order, and their sort keys.
pub(crate) fn records_and_keys(batches: Vec<RecordBatch>, records: u64) -> (Vec<BinaryArray>, Vec<SortKey>) {
    let mut keys = Vec::with_capacity(records as usize);
    let mut chunks: Vec<BinaryArray> = Vec::with_capacity(batches.len());
    for batch in batches {
        // Columns as `schema::alignments` has them; the engine checked every batch against it.
        let (contigs, positions) =
            (batch.column(0).as_primitive::<Int32Type>(), batch.column(1).as_primitive::<Int32Type>());
        let flag = batch.column(2).as_primitive::<UInt16Type>();
        let places = contigs.values().iter().zip(positions.values()).zip(flag.values());
        keys.extend(
            places.map(|((contig, position), flag)| SortKey::new(*contig, *position, flag & flags::REVERSE != 0)),
        );
        chunks.push(batch.column(5).as_binary::<i32>().clone());
    }
    (chunks, keys)
}

/// Of the failures of both sides, the one that came first: whatever is not the engine's led godwit to stop the engine.
pub(crate) fn root_cause(feeding: PipelineError, taking: PipelineError) -> PipelineError {
    let stopped = |error: &PipelineError| matches!(error, PipelineError::Engine(error) if error.was_stopped());
    match (&feeding, &taking) {
        _ if stopped(&feeding) => taking,
        _ if stopped(&taking) => feeding,
        (PipelineError::Engine(_), PipelineError::Engine(EngineError::Died { .. })) => taking,
        (PipelineError::Engine(EngineError::Died { .. }), PipelineError::Engine(_)) => feeding,
        (PipelineError::Engine(_), _) => taking,
        _ => feeding,
    }
}
