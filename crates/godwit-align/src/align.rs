//! The alignment job: aligns the reads of all lanes, marks duplicates, sorts the records and writes them to the output
//! files. The aligner runs in a process of its own, or on the workers of a cluster run.

pub(crate) mod align_plan;
mod aligner;
mod cluster;
mod feed;
mod fingerprint;
mod header;
mod lanes;
mod read_names;
mod resume;
mod trim;

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use godwit_cluster::ClusterOptions;
use godwit_engines::aligner::{AlignedBlock, AlignerChoice, BlockReader, BlockWriter};
use godwit_formats::fastq::LaneOptions;
use godwit_formats::sam::Header;
use godwit_kernels::markdup::BlockSignatures;
use godwit_model::{DuplicateCounts, Genome};
use godwit_pipeline::job_directory::JobDirectory;
use godwit_pipeline::job_report::{ExchangeReport, InputFile, JobReport, ResumedWork, Stage, check_distinct_files};
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::python_step::PythonStep;
use godwit_pipeline::read_groups::ReadGroups;
use godwit_pipeline::reduce::{
    BamTail, Collector, Format, JobMonitor, OutputFiles, Outputs, PicardMetricsRequest, UnpublishedOutputs,
    check_known_sites,
};
use godwit_pipeline::scratch::create_private_directory;
use godwit_pipeline::{FingerprintEntry, JobOptions, MemoryPlan, PipelineError};
use parking_lot::Mutex;

use crate::aligner_selection::{AlignerLocation, SelectedAligner};
use crate::aligner_threads::{records_and_keys, root_cause};
use crate::reference;
use crate::report_publication::{ReportDestination, publish_report};
use aligner::{InstalledAligner, RunningAligner};
use cluster::{AlignHead, ClusterAlignJob};
use feed::{FeedLane, FeedReport, Feeder};
use header::LaneReadGroups;
use lanes::Lane;
pub use lanes::ReadsOptions;

/// Inputs, outputs and options of an alignment.
#[derive(Clone, Debug)]
pub struct AlignOptions {
    /// File of the reference sequence; the aligner's index files are in the same directory.
    pub reference: PathBuf,
    /// Input files of each lane: a single file, or one file for read 1 and one for read 2. The path
    /// [`godwit_io::bgzf::STDIN_PATH`] stands for standard input.
    pub lanes: Vec<Vec<PathBuf>>,
    /// Options for reading and trimming reads.
    pub reads: ReadsOptions,
    /// `@RG` header lines: a single line for all lanes, or one line for each; if empty, they are generated. The two
    /// characters `\t` mean a tab.
    pub read_groups: Vec<String>,
    /// Sample name: the base name of the output files, and the value of `SM` in generated read groups.
    pub sample: String,
    /// Output directory; created if it is missing.
    pub out: PathBuf,
    /// Formats of the output files, at least one.
    pub formats: Vec<Format>,
    /// The options that `align` shares with `markdup`.
    pub job: JobOptions,
    /// Number of bases in a block of reads, which the aligner processes at once; the same as `-K` of `bwa mem`.
    pub block_bases: u64,
    /// The aligner that the user selected.
    pub aligner: AlignerChoice,
    /// Additional command-line options for the aligner; rejected for a command template.
    pub aligner_args: Vec<String>,
    /// True to accept a BGZF file without its empty last block, and `+` lines with a title that differs from the read
    /// name.
    pub lenient: bool,
    /// True to resume a stopped job in the output directory.
    pub resume: bool,
}

/// Runs an alignment and returns its report, which is also in `run.json`. With `cluster`, workers align and write.
///
/// Checkpoints stay in a job directory until the output files have their final names, so that a later call with
/// [`AlignOptions::resume`] can resume after any stop.
///
/// # Errors
/// [`PipelineError`] if a step of the job fails; no output file has its final name then.
pub fn align(
    options: &AlignOptions,
    cluster: Option<&ClusterOptions>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<JobReport, PipelineError> {
    align_with_tail(options, cluster, None, observer, cancelled)
}

/// Runs an alignment like [`align`]. `bam_tail` reads the output BAM while it is written.
///
/// # Errors
/// The errors of [`align`].
pub fn align_with_tail(
    options: &AlignOptions,
    cluster: Option<&ClusterOptions>,
    bam_tail: Option<&dyn BamTail>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<JobReport, PipelineError> {
    let started_at = Instant::now();
    options.job.check()?;
    if cluster.is_some() {
        cluster::check_cluster_support(options)?;
    }
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (inputs, outputs) = check_inputs_and_outputs(options)?;
    observer.event(&Event::Stage { name: "checking the index" });
    let place = match cluster {
        None => AlignerLocation::Local { processes: 1 },
        Some(spread) if spread.single_host => AlignerLocation::Local { processes: u64::from(spread.workers) },
        Some(_) => AlignerLocation::Remote,
    };
    let aligner = InstalledAligner::find_installed(options, place)?;
    // In a cluster run, each worker selects its own aligner program, and `run.json` lists all of them.
    let selected = aligner.selected().filter(|_| cluster.is_none()).and_then(SelectedAligner::fallback_note);
    for message in aligner::aligner_note(&options.aligner).into_iter().chain(selected) {
        observer.event(&Event::Warning { message });
    }
    let checked_at = Instant::now();
    let trimmer_version = trim::check_fastp(&options.reads)?;
    let lanes = lanes::plan_lanes(options, cancelled)?;
    let groups = LaneReadGroups::new(options, &lanes)?;
    for message in groups.warnings() {
        observer.event(&Event::Warning { message: message.clone() });
    }
    let python_step =
        PythonStep::for_job(options.job.python_step.as_ref(), &options.job.marking, cluster.is_none(), cancelled)?;
    let fingerprint =
        fingerprint::align_fingerprint(options, &groups, trimmer_version.as_deref(), python_step.as_ref(), &aligner)?;
    let input = AlignInput { lanes, groups, trimmer_version, python_step };
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    for directory in [&options.out, temp] {
        create_private_directory(directory).map_err(PipelineError::file("create", directory))?;
    }
    let job_directory = match resume::open_job_directory(
        options,
        &outputs,
        &fingerprint,
        cluster.map(cluster::new_cluster_run).transpose()?,
        observer,
    )? {
        resume::ResumeState::Unfinished(run) => Arc::from(run),
        resume::ResumeState::Complete(report) => return Ok(*report),
    };
    let outputs = &outputs;
    let job = AlignJob {
        options,
        cluster,
        bam_tail,
        inputs,
        outputs,
        input,
        aligner,
        fingerprint,
        observer,
        cancelled,
        started_at,
        checked_at,
    };
    let outcome = job.run(memory, temp, &job_directory);
    resume::close_job_directory(outcome, job_directory, outputs, observer)
}

/// The lanes, their read groups and the additional programs, as checked before the alignment starts.
struct AlignInput {
    lanes: Vec<Lane>,
    groups: LaneReadGroups,
    /// Version of fastp, which trims the reads; `None` if reads are not trimmed.
    trimmer_version: Option<String>,
    /// The Python step, which processes records before they are written.
    python_step: Option<PythonStep>,
}

impl AlignInput {
    /// Returns the 0-based numbers of the lanes whose input can be read only once.
    fn read_once_lanes(&self) -> BTreeSet<u16> {
        let lanes = self.lanes.iter().enumerate();
        lanes.filter(|(_, lane)| lane.is_read_once()).map(|(number, _)| number as u16).collect()
    }
}

/// An alignment job after the check of its options.
struct AlignJob<'r> {
    options: &'r AlignOptions,
    cluster: Option<&'r ClusterOptions<'r>>,
    bam_tail: Option<&'r dyn BamTail>,
    inputs: Vec<InputFile>,
    outputs: &'r Outputs,
    input: AlignInput,
    aligner: InstalledAligner,
    fingerprint: Vec<FingerprintEntry>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
    started_at: Instant,
    checked_at: Instant,
}

impl AlignJob<'_> {
    fn run(
        self,
        memory: MemoryPlan,
        temp: &Path,
        job_directory: &Arc<JobDirectory>,
    ) -> Result<JobReport, PipelineError> {
        let Self { options, cluster, bam_tail, mut inputs, outputs, input, aligner, fingerprint, .. } = self;
        let Self { observer, cancelled, started_at, checked_at, .. } = self;
        let mut opened = outputs.create_files(cluster.is_none())?;
        observer.event(&Event::Stage { name: "aligning" });
        let mut head = match cluster {
            Some(cluster) => Some(AlignHead::open(cluster, options, &input, job_directory, observer, cancelled)?),
            None => None,
        };
        let AlignInput { lanes, groups, trimmer_version, python_step } = input;
        let mut engine = match &mut head {
            Some(head) => aligner.into_remote(head.wait_for_first_hello()?),
            None => aligner.start(options)?,
        };
        let header = header::build_header(&engine, &groups, options, trimmer_version.as_deref())?;
        let compared = options.job.metrics_reference(Some(&options.reference));
        opened.prepare(outputs, &header, (compared, options.job.picard_metrics.as_ref()), temp)?;
        write_header_file(options, outputs, &header, job_directory)?;
        let read_groups =
            ReadGroups::new(&header.read_groups().map_err(|source| header::header_error("the read groups", source))?)?;
        let reduce_options = options.job.reduce_options(memory, temp, Some(&options.reference), python_step.clone());
        let collector = Collector::new(reduce_options, &read_groups, cancelled, Some(job_directory.clone()))?;
        let lanes = groups.feed_lanes(lanes, &read_groups);
        let lane_libraries: Vec<u16> = lanes.iter().map(|lane| lane.read_group_indexes.library).collect();
        let progress = FeedProgress::default();
        progress.bytes_total.store(feed::total_input_bytes(&lanes, options), Ordering::Relaxed);
        let (groups, read_groups, genome) = (&groups, &read_groups, &engine.hello().genome.clone());
        let context = AlignContext {
            options,
            groups,
            read_groups,
            lane_libraries: &lane_libraries,
            header: &header,
            genome,
            outputs,
            job_directory,
            progress: &progress,
            bam_tail,
            observer,
            cancelled,
        };
        let result = match head {
            Some(head) => {
                let job = ClusterAlignJob { context, spool: &head.spool() };
                job.run(head, lanes, collector, opened)?
            }
            None => LocalAlignJob { context, collector }.run(lanes, &mut engine, opened)?,
        };
        let AlignResult { mut feed_report, outputs: mut reduced, aligned_at, exchange } = result;
        for input in &mut inputs {
            input.blake3 = feed_report.checksums.remove(&input.path);
            input.read_from_offset = feed_report.start_offsets.remove(&input.path);
        }
        reduced.files.append(std::mem::take(&mut feed_report.trim_reports));
        let resumed = ResumedWork { blocks: feed_report.resumed_blocks, partitions: reduced.resumed_partitions };
        let (checking_s, aligning_s) =
            ((checked_at - started_at).as_secs_f64(), (aligned_at - checked_at).as_secs_f64());
        let stages = stage_reports(&feed_report, &reduced, checking_s, aligning_s);
        let aligner = engine.to_report(options, exchange.as_ref());
        let report = JobReport::new("align", &options.job.command, (&aligner.name, &aligner.version))
            .with_aligner(aligner.clone())
            .with_program("fastp", trimmer_version.as_deref())
            .with_python_step(python_step.as_ref(), reduced.dropped_by_step)
            .with_inputs(inputs)
            .with_stages(stages)
            .with_outputs(&reduced, started_at.elapsed())
            .with_resumed_work(options.job.threads, resumed, started_at.elapsed())
            .with_exchange(exchange);
        bam_tail.map_or(Ok(()), |follower| follower.finish(&reduced.files))?;
        publish_report(report, reduced, &report_destination(options, outputs, &fingerprint, job_directory))
    }
}

/// Writes the SAM header of the outputs into the job directory, from which a reader of an unfinished job loads it.
fn write_header_file(
    options: &AlignOptions,
    outputs: &Outputs,
    header: &Header,
    job_directory: &JobDirectory,
) -> Result<(), PipelineError> {
    let stem = outputs.stem.file_name().unwrap_or_default().to_string_lossy();
    let written = job_directory.write_header_file(&stem, header);
    written.map_err(PipelineError::file("write to the job directory in", &options.out))
}

fn report_destination<'a>(
    options: &'a AlignOptions,
    outputs: &'a Outputs,
    fingerprint: &'a [FingerprintEntry],
    job_directory: &'a Arc<JobDirectory>,
) -> ReportDestination<'a> {
    ReportDestination {
        outputs,
        json_path: options.out.join("run.json"),
        html_path: options.out.join("report.html"),
        sample: options.sample.clone(),
        reference: Some(&options.reference),
        fingerprint,
        job_directory: Some(job_directory),
    }
}

/// Returns the input files and the outputs. Rejects an input that is used twice and an output that would overwrite an
/// input.
fn check_inputs_and_outputs(options: &AlignOptions) -> Result<(Vec<InputFile>, Outputs), PipelineError> {
    let inputs = inspect_inputs(options)?;
    let outputs = Outputs {
        stem: options.out.join(&options.sample),
        formats: options.formats.clone(),
        reference: Some(options.reference.clone()),
        has_step_directory: options.job.python_step.is_some(),
        recipients: options.job.recipients.clone(),
    };
    outputs.check_recipients()?;
    check_distinct_files(&inputs, &outputs.paths())?;
    outputs.check_names(&[options.out.join("run.json"), options.out.join("report.html")])?;
    if let Some(recalibration) = &options.job.recalibration {
        check_known_sites(&recalibration.known_sites)?;
    }
    let reads_reference = options.job.metrics || options.job.recalibration.is_some();
    if reads_reference || options.formats.contains(&Format::Cram) {
        reference::check_access(&options.reference)?;
    }
    Ok((inputs, outputs))
}

fn inspect_inputs(options: &AlignOptions) -> Result<Vec<InputFile>, PipelineError> {
    let mut inputs = vec![InputFile::inspect("the reference", &options.reference)?];
    let known_sites = options.job.recalibration.iter().flat_map(|recalibration| &recalibration.known_sites);
    for sites in known_sites {
        inputs.push(InputFile::inspect("the known sites", sites)?);
    }
    let lists = options.job.picard_metrics.iter().flat_map(PicardMetricsRequest::interval_lists);
    for list in lists {
        inputs.push(InputFile::inspect("the interval list", list)?);
    }
    for file in options.lanes.iter().flatten() {
        inputs.push(InputFile::inspect("the file of reads", file)?);
    }
    Ok(inputs)
}

fn stage_reports(
    fed: &FeedReport,
    reduced: &UnpublishedOutputs,
    checking_seconds: f64,
    aligning_seconds: f64,
) -> Vec<Stage> {
    vec![
        Stage { name: "check index", seconds: checking_seconds, rows: 0, bytes: 0 },
        Stage { name: "read", seconds: fed.seconds, rows: fed.reads, bytes: fed.bytes },
        Stage { name: "align and sort", seconds: aligning_seconds, rows: fed.records, bytes: reduced.spilled_bytes },
        Stage { name: "decide duplicates", seconds: reduced.deciding_seconds, rows: reduced.records, bytes: 0 },
        Stage { name: "write", seconds: reduced.writing_seconds, rows: reduced.records, bytes: reduced.written_bytes },
    ]
}

/// Progress of the thread that feeds the aligner, shared with the thread that receives records.
#[derive(Default)]
struct FeedProgress {
    bytes_total: AtomicU64,
    /// For each block that the aligner has received but not returned, oldest first: input bytes up to the end of the
    /// block. The aligner's queue limits the length of this list.
    block_end_bytes: Mutex<VecDeque<u64>>,
    feeding_done: AtomicBool,
}

impl FeedProgress {
    /// Removes the oldest entry of `block_end_bytes`, and returns the fraction of the input up to the end of its block;
    /// `None` if unknown. If blocks are returned out of order, this is the fraction of the same number of blocks in
    /// input order.
    fn fraction_after_block(&self) -> Option<f64> {
        let total = self.bytes_total.load(Ordering::Relaxed);
        let end = self.block_end_bytes.lock().pop_front();
        end.filter(|_| total > 0).map(|end| (end as f64 / total as f64).min(1.0))
    }
}

impl AlignOptions {
    /// Returns the options for reading lanes.
    fn lane_options(&self) -> LaneOptions {
        LaneOptions {
            block_bases: self.block_bases,
            decompress_threads: self.job.threads,
            lenient: self.lenient,
            ..LaneOptions::default()
        }
    }
}

/// The inputs and options that are known before the first read is aligned, and the progress since.
#[derive(Clone, Copy)]
struct AlignContext<'r> {
    options: &'r AlignOptions,
    groups: &'r LaneReadGroups,
    read_groups: &'r ReadGroups,
    /// For each lane, the index of the library of its read group.
    lane_libraries: &'r [u16],
    header: &'r Header,
    genome: &'r Genome,
    outputs: &'r Outputs,
    job_directory: &'r JobDirectory,
    progress: &'r FeedProgress,
    /// Reader of the BAM while it is being written; `None` if there is none.
    bam_tail: Option<&'r dyn BamTail>,
    observer: &'r dyn Observer,
    cancelled: &'r Arc<AtomicBool>,
}

/// The result of an alignment. The output files still have temporary names.
struct AlignResult {
    feed_report: FeedReport,
    outputs: UnpublishedOutputs,
    /// Time at which the last block was aligned.
    aligned_at: Instant,
    /// Report of the data exchange of a cluster run; `None` without workers.
    exchange: Option<ExchangeReport>,
}

/// An alignment in this process, with its checked inputs.
struct LocalAlignJob<'r> {
    context: AlignContext<'r>,
    collector: Collector,
}

impl LocalAlignJob<'_> {
    /// Aligns all lanes and writes the output files.
    fn run(
        self,
        lanes: Vec<FeedLane>,
        engine: &mut RunningAligner,
        opened: OutputFiles,
    ) -> Result<AlignResult, PipelineError> {
        let feed_report = self.align_lanes(lanes, engine)?;
        let aligned_at = Instant::now();
        let AlignContext { header, genome, outputs, bam_tail, observer, cancelled, .. } = self.context;
        let monitor = JobMonitor { bam_tail, observer, cancelled };
        let outputs = self.collector.write(header, genome, outputs, opened, monitor)?;
        Ok(AlignResult { feed_report, outputs, aligned_at, exchange: None })
    }

    /// Aligns all lanes, with one aligner process for all of them or one process for each.
    fn align_lanes(&self, lanes: Vec<FeedLane>, engine: &mut RunningAligner) -> Result<FeedReport, PipelineError> {
        let AlignContext { options, groups, job_directory, .. } = self.context;
        let lane_options = options.lane_options();
        let mut fed = FeedReport::default();
        let mut lanes = lanes.into_iter().enumerate();
        let lanes_at_once = engine.lanes_per_process(lanes.len());
        loop {
            let some: Vec<(usize, FeedLane)> = lanes.by_ref().take(lanes_at_once).collect();
            let Some((first, lane)) = some.first() else { break };
            let (sink, reader, child) = engine.start_lane_process(options, groups, *first, &lane.lane)?;
            let feeder = Feeder {
                lanes: some,
                lane_options: lane_options.clone(),
                sink,
                options,
                trim_directory: &options.out,
                job_directory,
                previous_report: fed,
            };
            fed = self.run_aligner_process(feeder, reader, &child)?;
        }
        feed::check_resumed_blocks(&fed, job_directory)?;
        Ok(fed)
    }

    /// Feeds the aligner and receives its records at the same time, until both directions have ended. The first failure
    /// kills the aligner process, which also ends the other direction. Returns that first failure.
    fn run_aligner_process(
        &self,
        feeder: Feeder<'_, BlockWriter>,
        reader: BlockReader,
        child: &godwit_engines::ChildHandle,
    ) -> Result<FeedReport, PipelineError> {
        let returned_before = feeder.previous_report.reads - feeder.previous_report.resumed_reads;
        let AlignContext { progress, cancelled, .. } = self.context;
        progress.feeding_done.store(false, Ordering::Release);
        let (fed, taken) = std::thread::scope(|scope| {
            let feeding = scope.spawn(|| {
                let fed = feeder.run(progress, cancelled);
                if fed.is_err() {
                    child.kill();
                }
                fed
            });
            let watching = scope.spawn(|| self.kill_when_cancelled(child));
            let taken = self.collect_blocks(reader, returned_before);
            if taken.is_err() {
                child.kill();
            }
            let fed = feeding.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            progress.feeding_done.store(true, Ordering::Release);
            watching.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (fed, taken)
        });
        if cancelled.load(Ordering::Relaxed) {
            return Err(PipelineError::Interrupted);
        }
        let (mut fed, returned) = match (fed, taken) {
            (Err(feeding), Err(taking)) => return Err(root_cause(feeding, taking)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => return Err(error),
            (Ok(fed), Ok(returned)) => (fed, returned),
        };
        child.wait()?;
        let due = fed.reads - fed.resumed_reads;
        if returned != due {
            return Err(PipelineError::CountMismatch { items: "reads", expected: due, actual: returned });
        }
        fed.records = self.collector.records();
        Ok(fed)
    }

    /// Kills the aligner process when the job is cancelled: an aligner at work does not notice that godwit received a
    /// signal.
    fn kill_when_cancelled(&self, child: &godwit_engines::ChildHandle) {
        while !self.context.progress.feeding_done.load(Ordering::Acquire) {
            if self.context.cancelled.load(Ordering::Relaxed) {
                child.kill();
                return;
            }
            std::thread::park_timeout(std::time::Duration::from_millis(50));
        }
    }

    /// Collects all blocks that the aligner returns. Returns the number of their reads, added to `reads` from earlier
    /// processes.
    fn collect_blocks(&self, mut reader: BlockReader, mut reads: u64) -> Result<u64, PipelineError> {
        while let Some(block) = reader.next_block()? {
            reads += block.reads;
            let id = block.id;
            self.collect_block(block)?;
            let fraction = self.context.progress.fraction_after_block();
            self.context.observer.event(&Event::Aligned { lane: id.lane, block: id.ordinal, reads, fraction });
        }
        Ok(reads)
    }

    fn collect_block(&self, block: AlignedBlock) -> Result<(), PipelineError> {
        let library = usize::from(self.context.lane_libraries[usize::from(block.id.lane)]);
        let mut counts = vec![DuplicateCounts::default(); library + 1];
        counts[library] = block.counts;
        let signatures = BlockSignatures { pairs: block.pairs, ends: block.ends, counts };
        let (chunks, keys) = records_and_keys(block.batches, block.records);
        self.collector.add_block(block.id, chunks, &keys, &signatures)
    }
}
