//! The plan of an alignment job: estimates of its memory, disk space and time, and checks of whether it could start.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use godwit_engines::aligner::bwa::IndexKind;
use godwit_formats::fastq::{LaneEvent, LaneOptions};
use godwit_io::bgzf::STDIN_PATH;
use godwit_pipeline::DuplicatePolicy;
use godwit_pipeline::MemoryPlan;
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;
use godwit_pipeline::job_directory;
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::python_step::PythonStep;
use godwit_pipeline::reduce::{Format, Outputs};

use super::aligner::{self, InstalledAligner};
use super::header::LaneReadGroups;
use super::lanes::{self, Lane};
use super::{AlignOptions, check_inputs_and_outputs, cluster, trim};
use crate::aligner_selection::{AlignerLocation, working_bytes};
use crate::job_plan::{
    DiskNeed, JobPlan, LanePlan, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, UncertaintyFactors,
    check_outputs_writable, index_seconds, replaced_outputs,
};
use crate::record_size_estimator::RecordSizeEstimator;

/// Bytes of names, bases and qualities that a plan reads of each lane to estimate the whole lane.
const INSPECTED_BYTES_PER_LANE: u64 = 16 << 20;
/// Bases that `bwa mem` 0.7.17 aligns per second and thread. Measured for reads of 148 bases (bench/results): 0.8
/// million on a loaded virtual machine, 1.3 to 1.6 million on an idle one.
const BWA_BASES_PER_THREAD_SECOND: f64 = 1.2e6;
/// Bases that bwa-mem3 0.15.0 aligns per second and thread. Measured with AVX-512BW: 3.3 million to a genome of 400 Mb,
/// more to a smaller genome.
const BWA_MEM3_BASES_PER_THREAD_SECOND: f64 = 4e6;

/// Worker processes of a planned cluster run.
#[derive(Clone, Copy, Debug)]
pub struct PlannedWorkers {
    /// Number of workers, at least 1.
    pub workers: u32,
    /// True if all workers are on this host.
    pub single_host: bool,
    /// Number of threads of each worker.
    pub threads: usize,
}

/// Checks inputs and options without aligning, and returns estimates of the memory, disk space and time that
/// [`align`](super::align()) would need. Writes no files.
///
/// # Errors
/// [`PipelineError`] with which the job itself would fail at its start.
pub fn plan_align(
    options: &AlignOptions,
    nodes: Option<PlannedWorkers>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<JobPlan, PipelineError> {
    let CheckedStart { memory, outputs, engine, trimmer, lanes: planned, groups } =
        check_start(options, nodes, observer, cancelled)?;
    PythonStep::for_job(options.job.python_step.as_ref(), &options.job.marking, false, cancelled)?;
    if let Some(temp) = &options.job.temp {
        check_outputs_writable(&outputs, &[temp])?;
    }
    let mut notes = plan_notes(options, &outputs, trimmer, job_directory::has_unfinished_job(&options.out)?);
    notes.extend_from_slice(groups.warnings());
    observer.event(&Event::Stage { name: "inspecting the reads" });
    let mut weighing = RecordSizeEstimator::default();
    let mut lanes = Vec::new();
    for (number, planned) in planned.iter().enumerate() {
        let lane = plan_lane(planned, groups.read_group_id(number), options, &mut weighing, cancelled);
        lanes.push(lane.map_err(|error| error.or_interrupted(cancelled))?);
    }
    let plan = build_plan(options, &engine, lanes, weighing.mean_bytes(), &memory);
    let plan = JobPlan { notes, ..plan };
    Ok(nodes.map_or(plan.clone(), |nodes| scale_to_workers(plan, nodes)).with_problems())
}

/// Checks inputs, outputs and options of an alignment that workers on other hosts run, before its job is submitted.
/// Programs that this host lacks may be installed there, so the head checks them, and the scratch directory of each
/// host. Reads from a pipe are not read. Writes no files.
///
/// # Errors
/// [`PipelineError`] with which the job itself would fail at its start.
pub fn check_align(
    options: &AlignOptions,
    workers: Option<PlannedWorkers>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<(), PipelineError> {
    if options.lanes.iter().flatten().any(|file| is_pipe(file)) {
        options.job.check()?;
        return check_inputs_and_outputs(options).map(drop);
    }
    match check_start(options, workers, observer, cancelled) {
        Err(error) if !error.is_missing_program() => Err(error),
        _ => Ok(()),
    }
}

fn is_pipe(file: &Path) -> bool {
    file == Path::new(STDIN_PATH) || std::fs::metadata(file).is_ok_and(|found| found.file_type().is_fifo())
}

/// Inputs, outputs and options of an alignment that were checked before its start.
struct CheckedStart {
    memory: MemoryPlan,
    outputs: Outputs,
    engine: InstalledAligner,
    /// Version of fastp, if it trims the reads.
    trimmer: Option<String>,
    lanes: Vec<Lane>,
    groups: LaneReadGroups,
}

fn check_start(
    options: &AlignOptions,
    nodes: Option<PlannedWorkers>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<CheckedStart, PipelineError> {
    options.job.check()?;
    let place = match nodes {
        None => AlignerLocation::Local { processes: 1 },
        Some(PlannedWorkers { workers, single_host: true, .. }) => {
            AlignerLocation::Local { processes: u64::from(workers) }
        }
        Some(_) => AlignerLocation::Remote,
    };
    if nodes.is_some() {
        cluster::check_cluster_support(options)?;
    }
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (_, outputs) = check_inputs_and_outputs(options)?;
    check_outputs_writable(&outputs, &[&options.out])?;
    observer.event(&Event::Stage { name: "checking the index" });
    let engine = InstalledAligner::find_installed(options, place)?;
    let trimmer = trim::check_fastp(&options.reads)?;
    let lanes = lanes::plan_lanes(options, cancelled)?;
    let groups = LaneReadGroups::new(options, &lanes)?;
    engine.check_options(options, &groups, &lanes)?;
    Ok(CheckedStart { memory, outputs, engine, trimmer, lanes, groups })
}

/// Returns the plan of a cluster run. Each worker loads an aligner index and has the default memory limit of godwit.
/// Scratch space is less certain: a worker stores the blocks that it aligned, and fetched slices of the blocks of other
/// workers.
fn scale_to_workers(plan: JobPlan, PlannedWorkers { workers, threads, .. }: PlannedWorkers) -> JobPlan {
    let all_threads = workers as usize * threads;
    let memory = MemoryNeed {
        godwit_bytes: plan.memory.godwit_bytes + u64::from(workers) * MemoryPlan::align_limit(None, 0),
        aligner_bytes: plan.memory.aligner_bytes * u64::from(workers),
        ..plan.memory
    };
    // Workers run in parallel: time that does not depend on the number of threads, such as loading the index, counts
    // once.
    let fixed = plan.seconds.zip(plan.cpu_seconds).map(|(wall, cpu)| (wall - cpu / plan.threads as f64).max(0.0));
    let seconds = plan.cpu_seconds.zip(fixed).map(|(cpu, fixed)| cpu / all_threads as f64 + fixed);
    let uncertainty = UncertaintyFactors { disk: plan.uncertainty.disk.max(3.0), ..plan.uncertainty };
    JobPlan { workers: Some(workers), threads: all_threads, memory, seconds, uncertainty, ..plan }
}

fn plan_notes(options: &AlignOptions, outputs: &Outputs, trimmer: Option<String>, is_stopped: bool) -> Vec<String> {
    let out = options.out.display();
    let trimming = trimmer.map(|version| format!("the numbers of reads are those before trimming by fastp {version}"));
    let about_run = match (is_stopped, options.resume) {
        (true, true) => {
            vec![format!("{out} contains a stopped job: this plan is for the whole job, as without --resume")]
        }
        (true, false) => {
            vec![format!("{out} contains a stopped job: --resume resumes it; without --resume its results are removed")]
        }
        (false, true) => Vec::new(),
        (false, false) => replaced_outputs(outputs),
    };
    aligner::aligner_note(&options.aligner).into_iter().chain(trimming).chain(about_run).collect()
}

fn build_plan(
    options: &AlignOptions,
    engine: &InstalledAligner,
    lanes: Vec<LanePlan>,
    bytes: RecordBytes,
    memory: &MemoryPlan,
) -> JobPlan {
    let sum = |of: fn(&LanePlan) -> Option<u64>| lanes.iter().map(of).sum::<Option<u64>>();
    let (reads, bases) = (sum(|lane| lane.reads), sum(|lane| lane.bases));
    let index = engine.estimate_index(options);
    let loaded_bytes = index.resident_bytes;
    let largest_block = lanes.iter().map(|lane| lane.bases).max().flatten().unwrap_or(options.block_bases);
    let block_bases = largest_block.min(options.block_bases);
    let selected = engine.selected().map(|selected| selected.kind);
    let speed = match selected {
        Some(IndexKind::BwaMem3) => BWA_MEM3_BASES_PER_THREAD_SECOND,
        _ => BWA_BASES_PER_THREAD_SECOND,
    };
    let cpu = reads.zip(bases).map(|(reads, bases)| bases as f64 / speed + reads as f64 * REDUCE_SECONDS_PER_RECORD);
    let checking_seconds =
        index_seconds(loaded_bytes + std::fs::metadata(&options.reference).map_or(0, |found| found.len()));
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    let signatures = options.job.duplicates != DuplicatePolicy::None;
    let counted = lanes.iter().all(|lane| lane.inspected_fraction >= 1.0);
    JobPlan {
        verb: "align",
        aligner: Some(engine.label(options)),
        aligner_reason: engine.selected().and_then(|selected| selected.reason.clone()),
        reads,
        blocks: sum(|lane| lane.blocks),
        workers: None,
        threads: options.job.threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::align_limit(options.job.memory_bytes, options.block_bases),
            aligner_bytes: loaded_bytes
                + working_bytes(selected.unwrap_or(IndexKind::Bwa), options.job.threads, block_bases),
            free_bytes: host_resources::free_memory_bytes(),
        },
        index: Some(index),
        output: DiskNeed::new(&options.out, reads.map(|reads| bytes.output_bytes(reads, options.formats.len()))),
        scratch: DiskNeed::new(temp, reads.map(|reads| bytes.scratch_bytes(reads, memory, signatures, true))),
        cpu_seconds: cpu.map(|cpu| cpu + checking_seconds),
        seconds: cpu.map(|cpu| cpu / options.job.threads as f64 + checking_seconds),
        uncertainty: uncertainty_factors(options, selected, counted),
        notes: Vec::new(),
        problems: Vec::new(),
        lanes,
    }
}

/// Returns the uncertainty factors of a plan. Time and memory were measured with bwa, and disk space with BAM output.
/// Estimates for other aligners and other formats are less certain.
fn uncertainty_factors(options: &AlignOptions, selected: Option<IndexKind>, counted: bool) -> UncertaintyFactors {
    let (memory, time) = match selected {
        Some(IndexKind::Bwa) => (1.5, 3.0),
        Some(_) => (2.0, 4.0),
        None => (4.0, 10.0),
    };
    let disk = if options.formats == [Format::Bam] { 1.5 } else { 3.0 };
    UncertaintyFactors { reads: if counted { 1.0 } else { 1.1 }, memory, disk, time }
}

/// Estimates the reads of a lane from its start, before trimming. A pipe can be read only once, so its number of reads
/// stays unknown.
fn plan_lane(
    planned: &Lane,
    read_group: &str,
    options: &AlignOptions,
    weighing: &mut RecordSizeEstimator,
    cancelled: &Arc<AtomicBool>,
) -> Result<LanePlan, PipelineError> {
    let (files, read_group) = (planned.files.clone(), read_group.to_owned());
    let lane_options = LaneOptions {
        block_bases: options.block_bases,
        batch_bytes: 1 << 20,
        decompress_threads: 1,
        lenient: options.lenient,
    };
    let Some(mut reader) = planned.open_for_inspection(&lane_options, options, cancelled)? else {
        return Ok(LanePlan { files, read_group, reads: None, bases: None, blocks: None, inspected_fraction: 0.0 });
    };
    let paired = reader.is_paired();
    let (mut reads, mut bases, mut blocks, mut text_bytes, mut whole) = (0, 0, 0, 0, true);
    while let Some(event) = reader.next()? {
        match event {
            LaneEvent::BlockEnd { .. } => blocks += 1,
            LaneEvent::Reads(batch) => {
                reads += batch.num_rows() as u64;
                bases += value_bytes(&batch, "sequence");
                text_bytes += batch_text_bytes(&batch);
                weighing.add(&batch, read_group.len(), paired);
                if text_bytes >= INSPECTED_BYTES_PER_LANE {
                    whole = false;
                    break;
                }
            }
        }
    }
    if whole {
        let [reads, bases, blocks] = [reads, bases, blocks].map(Some);
        return Ok(LanePlan { files, read_group, reads, bases, blocks, inspected_fraction: 1.0 });
    }
    let Some(total_bytes) = reader.compressed_bytes_total().map(|bytes| bytes.max(1)) else {
        return Ok(LanePlan { files, read_group, reads: None, bases: None, blocks: None, inspected_fraction: 0.0 });
    };
    let inspected_fraction = (reader.compressed_bytes_returned().max(1) as f64 / total_bytes as f64).min(1.0);
    let (reads, bases) = ((reads as f64 / inspected_fraction) as u64, (bases as f64 / inspected_fraction) as u64);
    let blocks = bases.div_ceil(options.block_bases).max(blocks);
    Ok(LanePlan { files, read_group, reads: Some(reads), bases: Some(bases), blocks: Some(blocks), inspected_fraction })
}

/// Returns the total bytes of names, bases and qualities of a batch; there is one quality byte for each base.
fn batch_text_bytes(batch: &RecordBatch) -> u64 {
    value_bytes(batch, "name") + 2 * value_bytes(batch, "sequence")
}

fn value_bytes(batch: &RecordBatch, column: &str) -> u64 {
    let values = batch.column_by_name(column).map(|column| column.as_binary::<i32>().value_data().len());
    values.unwrap_or(0) as u64
}
