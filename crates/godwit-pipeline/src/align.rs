//! The main job: FASTQ lanes in, one sorted and marked BAM out, in one process beside the aligner's.

mod feed;
mod header;
mod identity;
pub(crate) mod plan;
mod read_names;
mod resume;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use arrow_array::BinaryArray;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, UInt16Type};
use godwit_engines::EngineError;
use godwit_engines::aligner::bwa::BwaOptions;
use godwit_engines::aligner::{AlignedBlock, Aligner, BlockReader};
use godwit_formats::fastq::LaneOptions;
use godwit_kernels::markdup::BlockSignatures;
use godwit_model::{BlockId, DuplicateCounts, SortKey, flags};

use crate::error::PipelineError;
use crate::job::JobOptions;
use crate::journal::Fact;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::read_groups::ReadGroups;
use crate::reduce::{Collector, Outputs, Reduced};
use crate::reference::current_index;
use crate::run_directory::RunDirectory;
use crate::run_report::{InputFile, ResumedWork, RunReport, Stage, check_distinct};
use crate::scratch::create_private_directory;
use crate::staging::StagedFile;

use feed::{FeedReport, Feeder};
use header::LaneGroups;

/// What to align and how.
#[derive(Clone, Debug)]
pub struct AlignOptions {
    /// The reference, with its index beside it.
    pub reference: PathBuf,
    /// Files of each lane: one, or read 1 and read 2.
    pub lanes: Vec<Vec<PathBuf>>,
    /// `@RG` lines: none, one for all lanes, or one for each. `\t` stands for a tab.
    pub read_groups: Vec<String>,
    /// Names the output and fills `SM` of read groups that are made.
    pub sample: String,
    /// Output directory; made where it is missing.
    pub out: PathBuf,
    /// What `markdup` has too.
    pub job: JobOptions,
    /// Bases per block: bwa's `-K`.
    pub block_bases: u64,
    /// Options of `bwa mem` that change records.
    pub aligner_args: Vec<String>,
    /// Relax the FASTQ reader.
    pub lenient: bool,
    /// Go on with a run that was stopped.
    pub resume: bool,
}

/// Runs the main job and returns its report, which is also in `run.json`.
///
/// What it does is kept in a run directory until the outputs have their names, so that another run with
/// [`AlignOptions::resume`] can go on after whatever stopped this one.
///
/// # Errors
/// [`PipelineError`]; no output has its name then.
pub fn align(
    options: &AlignOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunReport, PipelineError> {
    let started = Instant::now();
    options.job.check()?;
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (inputs, outputs) = checked_inputs(options)?;
    observer.event(&Event::Stage { name: "checking the index" });
    current_index(&options.reference)?;
    let checked = Instant::now();
    let lane_groups = LaneGroups::new(options)?;
    let facts = identity::facts(options, &lane_groups)?;
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    for directory in [&options.out, temp] {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    let run = match resume::open(options, &outputs, &facts, observer)? {
        resume::Found::Work(run) => Arc::new(run),
        resume::Found::Complete(report) => return Ok(report),
    };
    let job =
        AlignJob { options, inputs, outputs: &outputs, lane_groups, facts, observer, cancelled, started, checked };
    let outcome = job.run(memory, temp, &run);
    resume::close(outcome, run, &outputs, observer)
}

/// What is to be done, once it is known to make sense.
struct AlignJob<'r> {
    options: &'r AlignOptions,
    inputs: Vec<InputFile>,
    outputs: &'r Outputs,
    lane_groups: LaneGroups,
    facts: Vec<Fact>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
    started: Instant,
    checked: Instant,
}

impl AlignJob<'_> {
    fn run(self, memory: MemoryPlan, temp: &Path, run: &Arc<RunDirectory>) -> Result<RunReport, PipelineError> {
        let Self { options, mut inputs, outputs, lane_groups, facts, observer, cancelled, started, checked } = self;
        let bam = StagedFile::keep(&outputs.bam).map_err(PipelineError::file("write", &outputs.bam))?;
        observer.event(&Event::Stage { name: "aligning" });
        let session = BwaOptions {
            program: None,
            reference: options.reference.clone(),
            threads: options.job.threads,
            arguments: options.aligner_args.clone(),
            share_index: false,
        }
        .start()?;
        let hello = session.hello().clone();
        let header = header::of_run(&hello, &lane_groups, options)?;
        let read_groups =
            ReadGroups::new(&header.read_groups().map_err(|source| header::invalid("the read groups", source))?)?;
        let collector =
            Collector::new(options.job.reduce_options(memory, temp), &read_groups, cancelled, Some(run.clone()))?;
        let lane_options = LaneOptions {
            block_bases: options.block_bases,
            decompress_threads: options.job.threads,
            lenient: options.lenient,
            ..LaneOptions::default()
        };
        let lanes = lane_groups.feed_lanes(&options.lanes, &read_groups);
        let lane_libraries = lanes.iter().map(|lane| lane.membership.library).collect();
        let exchange = AlignRun { observer, cancelled, collector, lane_libraries, progress: SharedProgress::default() };
        let (writer, reader, child) = session.split();
        let feeder = Feeder { lanes, lane_options, writer, run };
        let (collector, fed) = exchange.exchange(feeder, reader, &child)?;
        let aligned = Instant::now();
        for (input, checksum) in inputs[1..].iter_mut().zip(&fed.checksums) {
            input.blake3 = checksum.clone();
        }
        let reduced = collector.write(&header, &hello.genome, outputs, bam, observer, cancelled)?;
        let resumed = ResumedWork { blocks: fed.blocks_before, partitions: reduced.kept_partitions };
        let stages = stages(&fed, &reduced, (checked - started).as_secs_f64(), (aligned - checked).as_secs_f64());
        let report = RunReport::new("align", &options.job.command, ("bwa", &hello.engine_version))
            .inputs(inputs)
            .stages(stages)
            .reduced(&reduced, started.elapsed())
            .ran(options.job.threads, resumed, started.elapsed());
        report.publish(&options.out.join("run.json"), reduced, outputs, &facts, Some(run))?;
        Ok(report)
    }
}

/// What is read and what is to be written, checked against each other.
fn checked_inputs(options: &AlignOptions) -> Result<(Vec<InputFile>, Outputs), PipelineError> {
    if options.lanes.len() >= BlockId::MAX_LANES as usize {
        return Err(PipelineError::Options { problem: format!("more than {} lanes", BlockId::MAX_LANES - 1) });
    }
    let inputs = input_files(options)?;
    let outputs =
        Outputs { bam: options.out.join(format!("{}.bam", options.sample)), stem: options.out.join(&options.sample) };
    check_distinct(&inputs, &outputs.bam)?;
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
        Stage { name: "write", seconds: reduced.writing_seconds, rows: reduced.records, bytes: reduced.bam_bytes },
    ]
}

/// What the feeding thread tells the one that takes answers, for progress.
#[derive(Default)]
struct SharedProgress {
    bytes_total: AtomicU64,
    /// Bytes of input up to the end of each block that was fed and has not come back, oldest first. The aligner bounds it.
    block_ends: Mutex<VecDeque<u64>>,
    feeding_done: AtomicBool,
}

struct AlignRun<'r> {
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
    collector: Collector,
    /// Index of the library of each lane.
    lane_libraries: Vec<u16>,
    progress: SharedProgress,
}

impl AlignRun<'_> {
    /// Feeds and takes at the same time, until both ends are done. The first failure stops the child, which ends the
    /// other side; it is the one reported.
    fn exchange(
        self,
        feeder: Feeder<'_>,
        reader: BlockReader,
        child: &godwit_engines::ChildHandle,
    ) -> Result<(Collector, FeedReport), PipelineError> {
        let (fed, taken) = std::thread::scope(|scope| {
            let feeding = scope.spawn(|| {
                let fed = feeder.run(&self.progress, self.cancelled);
                if fed.is_err() {
                    child.kill();
                }
                fed
            });
            let watching = scope.spawn(|| self.kill_when_cancelled(child));
            let taken = self.take_blocks(reader);
            if taken.is_err() {
                child.kill();
            }
            let fed = feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.progress.feeding_done.store(true, Ordering::Release);
            watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (fed, taken)
        });
        if self.cancelled.load(Ordering::Relaxed) {
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
        Ok((self.collector, fed))
    }

    /// A child that is busy aligning does not notice a signal to its parent; this thread does.
    fn kill_when_cancelled(&self, child: &godwit_engines::ChildHandle) {
        while !self.progress.feeding_done.load(Ordering::Acquire) {
            if self.cancelled.load(Ordering::Relaxed) {
                child.kill();
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }

    /// Returns the number of reads that came back.
    fn take_blocks(&self, mut reader: BlockReader) -> Result<u64, PipelineError> {
        let mut reads = 0;
        while let Some(block) = reader.next_block()? {
            reads += block.reads;
            let id = block.id;
            self.take_block(block)?;
            let total = self.progress.bytes_total.load(Ordering::Relaxed);
            let end = self.progress.block_ends.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let fraction = end.filter(|_| total > 0).map(|end| (end as f64 / total as f64).min(1.0));
            self.observer.event(&Event::Aligned { lane: id.lane, block: id.ordinal, reads, fraction });
        }
        Ok(reads)
    }

    fn take_block(&self, block: AlignedBlock) -> Result<(), PipelineError> {
        let library = usize::from(self.lane_libraries[usize::from(block.id.lane)]);
        let mut counts = vec![DuplicateCounts::default(); library + 1];
        counts[library] = block.counts;
        let signatures = BlockSignatures { pairs: block.pairs, ends: block.ends, counts };
        let mut keys = Vec::with_capacity(block.records as usize);
        let mut chunks: Vec<BinaryArray> = Vec::with_capacity(block.batches.len());
        for batch in block.batches {
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
        self.collector.add_block(block.id, chunks, &keys, &signatures)
    }
}

/// Of the failures of both sides, the one that came first: whatever is not the engine's led godwit to stop the engine.
fn root_cause(feeding: PipelineError, taking: PipelineError) -> PipelineError {
    match (&feeding, &taking) {
        (PipelineError::Engine(_), PipelineError::Engine(EngineError::Died { .. })) => taking,
        (PipelineError::Engine(EngineError::Died { .. }), PipelineError::Engine(_)) => feeding,
        (PipelineError::Engine(_), _) => taking,
        _ => feeding,
    }
}
