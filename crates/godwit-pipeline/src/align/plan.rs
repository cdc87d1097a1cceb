//! What an alignment would need, and whether it could begin.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use godwit_engines::aligner::bwa::IndexKind;
use godwit_formats::fastq::{LaneEvent, LaneOptions};

use super::engine::{self, FoundEngine};
use super::header::LaneGroups;
use super::lanes::{self, Lane};
use super::{AlignOptions, checked_inputs, spread, trim};
use crate::aligner_selection::{Place, working_bytes};
use crate::error::PipelineError;
use crate::machine;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::record_bytes::Weighing;
use crate::reduce::{DuplicatePolicy, Format, Outputs};
use crate::run_directory;
use crate::run_plan::{
    Certainty, DiskNeed, LanePlan, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, RunPlan, check_room,
    index_seconds, replaced,
};
use crate::step::Step;

/// Text of a lane that is looked at, bytes.
const SAMPLE_BYTES: u64 = 16 << 20;
/// Bases that `bwa mem` 0.7.17 aligns in a second of one thread: 0.8 million on a loaded virtual machine, 1.3 to 1.6
/// million on an idle one, for reads of 148 bases (bench/results).
const BWA_BASES_PER_THREAD_SECOND: f64 = 1.2e6;
/// Bases that bwa-mem3 0.15.0 aligns in a second of one thread: 3.3 million to a genome of 400 Mb with AVX-512BW, more to a small
/// one.
const BWA_MEM3_BASES_PER_THREAD_SECOND: f64 = 4e6;

/// Processes that a run is spread over.
#[derive(Clone, Copy, Debug)]
pub struct PlannedNodes {
    /// How many, at least 1.
    pub nodes: u32,
    /// True if all of them are on this host.
    pub one_machine: bool,
    /// Threads of each.
    pub threads: usize,
}

/// Checks what can be checked without working, and tells what [`align`](super::align()) would need. Writes nothing.
///
/// # Errors
/// What the run would begin with: [`PipelineError`].
pub fn plan_align(
    options: &AlignOptions,
    nodes: Option<PlannedNodes>,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunPlan, PipelineError> {
    options.job.check()?;
    let place = match nodes {
        None => Place::Here { processes: 1 },
        Some(PlannedNodes { nodes, one_machine: true, .. }) => Place::Here { processes: u64::from(nodes) },
        Some(_) => Place::Elsewhere,
    };
    if nodes.is_some() {
        spread::check(options)?;
    }
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (_, outputs) = checked_inputs(options)?;
    observer.event(&Event::Stage { name: "checking the index" });
    let engine = FoundEngine::find(options, place)?;
    let trimmer = trim::checked_version(&options.reads)?;
    Step::of(&options.job, false, cancelled)?;
    let planned = lanes::plan(options, cancelled)?;
    let groups = LaneGroups::new(options, &planned)?;
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    check_room(&outputs, &[&options.out, temp])?;
    let mut notes = notes(options, &outputs, trimmer, run_directory::has_stopped_run(&options.out)?);
    notes.extend_from_slice(groups.warnings());
    engine.check(options, &groups, &planned)?;
    observer.event(&Event::Stage { name: "looking at the reads" });
    let mut weighing = Weighing::default();
    let mut lanes = Vec::new();
    for (number, planned) in planned.iter().enumerate() {
        let lane = lane(planned, groups.id(number), options, &mut weighing, cancelled);
        lanes.push(lane.map_err(|error| error.unless_cancelled(cancelled))?);
    }
    let plan = plan(options, &engine, lanes, weighing.mean(), &memory);
    let plan = RunPlan { notes, ..plan };
    Ok(nodes.map_or(plan.clone(), |nodes| spread_over(plan, nodes)).judged())
}

/// The plan of a run whose work nodes do: each has an aligner with its index, and the least memory that writing takes. What
/// lies in scratch differs more there: nodes keep what they aligned, and what they own of what others aligned.
fn spread_over(plan: RunPlan, PlannedNodes { nodes, threads, .. }: PlannedNodes) -> RunPlan {
    let all_threads = nodes as usize * threads;
    let memory = MemoryNeed {
        godwit_bytes: plan.memory.godwit_bytes + u64::from(nodes) * MemoryPlan::align_limit(None, 0),
        aligner_bytes: plan.memory.aligner_bytes * u64::from(nodes),
        ..plan.memory
    };
    // What does not depend on threads is done by all nodes at once.
    let fixed = plan.seconds.zip(plan.cpu_seconds).map(|(wall, cpu)| (wall - cpu / plan.threads as f64).max(0.0));
    let seconds = plan.cpu_seconds.zip(fixed).map(|(cpu, fixed)| cpu / all_threads as f64 + fixed);
    let within = Certainty { disk: plan.within.disk.max(3.0), ..plan.within };
    RunPlan { nodes: Some(nodes), threads: all_threads, memory, seconds, within, ..plan }
}

fn notes(options: &AlignOptions, outputs: &Outputs, trimmer: Option<String>, is_stopped: bool) -> Vec<String> {
    let out = options.out.display();
    let trimming = trimmer.map(|version| format!("reads are told of as they are before fastp {version} trims them"));
    let about_run = match (is_stopped, options.resume) {
        (true, true) => vec![format!("{out} has a run that was stopped: this is what all of it needs")],
        (true, false) => {
            vec![format!("{out} has a run that was stopped: --resume goes on with it, else it is dropped")]
        }
        (false, true) => Vec::new(),
        (false, false) => replaced(outputs),
    };
    engine::note(&options.aligner).into_iter().chain(trimming).chain(about_run).collect()
}

fn plan(
    options: &AlignOptions,
    engine: &FoundEngine,
    lanes: Vec<LanePlan>,
    bytes: RecordBytes,
    memory: &MemoryPlan,
) -> RunPlan {
    let sum = |of: fn(&LanePlan) -> Option<u64>| lanes.iter().map(of).sum::<Option<u64>>();
    let (reads, bases) = (sum(|lane| lane.reads), sum(|lane| lane.bases));
    let index = engine.index_need(options);
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
    let counted = lanes.iter().all(|lane| lane.sampled >= 1.0);
    RunPlan {
        verb: "align",
        aligner: Some(engine.text(options)),
        aligner_reason: engine.selected().and_then(|selected| selected.reason.clone()),
        reads,
        blocks: sum(|lane| lane.blocks),
        nodes: None,
        threads: options.job.threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::align_limit(options.job.memory_bytes, options.block_bases),
            aligner_bytes: loaded_bytes
                + working_bytes(selected.unwrap_or(IndexKind::Bwa), options.job.threads, block_bases),
            free_bytes: machine::free_memory_bytes(),
        },
        index: Some(index),
        output: DiskNeed::new(&options.out, reads.map(|reads| bytes.output_bytes(reads, options.formats.len()))),
        scratch: DiskNeed::new(temp, reads.map(|reads| bytes.scratch_bytes(reads, memory, signatures, true))),
        cpu_seconds: cpu.map(|cpu| cpu + checking_seconds),
        seconds: cpu.map(|cpu| cpu / options.job.threads as f64 + checking_seconds),
        within: certainty(options, selected, counted),
        notes: Vec::new(),
        problems: Vec::new(),
        lanes,
    }
}

/// Time and memory were measured with bwa, and room with BAM; for others the same numbers are less sure.
fn certainty(options: &AlignOptions, selected: Option<IndexKind>, counted: bool) -> Certainty {
    let (memory, time) = match selected {
        Some(IndexKind::Bwa) => (1.5, 3.0),
        Some(_) => (2.0, 4.0),
        None => (4.0, 10.0),
    };
    let disk = if options.formats == [Format::Bam] { 1.5 } else { 3.0 };
    Certainty { reads: if counted { 1.0 } else { 1.1 }, memory, disk, time }
}

/// Looks at the head of a lane, as it is before it is trimmed. Pipes can be read only once: their reads stay unknown.
fn lane(
    planned: &Lane,
    read_group: &str,
    options: &AlignOptions,
    weighing: &mut Weighing,
    cancelled: &Arc<AtomicBool>,
) -> Result<LanePlan, PipelineError> {
    let (files, read_group) = (planned.files.clone(), read_group.to_owned());
    let lane_options = LaneOptions {
        block_bases: options.block_bases,
        batch_bytes: 1 << 20,
        decompress_threads: 1,
        lenient: options.lenient,
    };
    let Some(mut reader) = planned.look(&lane_options, options, cancelled)? else {
        return Ok(LanePlan { files, read_group, reads: None, bases: None, blocks: None, sampled: 0.0 });
    };
    let paired = reader.is_paired();
    let (mut reads, mut bases, mut blocks, mut text_bytes, mut whole) = (0, 0, 0, 0, true);
    while let Some(event) = reader.next()? {
        match event {
            LaneEvent::BlockEnd { .. } => blocks += 1,
            LaneEvent::Reads(batch) => {
                reads += batch.num_rows() as u64;
                bases += value_bytes(&batch, "sequence");
                text_bytes += text_bytes_of(&batch);
                weighing.add(&batch, read_group.len(), paired);
                if text_bytes >= SAMPLE_BYTES {
                    whole = false;
                    break;
                }
            }
        }
    }
    if whole {
        let [reads, bases, blocks] = [reads, bases, blocks].map(Some);
        return Ok(LanePlan { files, read_group, reads, bases, blocks, sampled: 1.0 });
    }
    let Some(total_bytes) = reader.compressed_bytes_total().map(|bytes| bytes.max(1)) else {
        return Ok(LanePlan { files, read_group, reads: None, bases: None, blocks: None, sampled: 0.0 });
    };
    let sampled = (reader.compressed_bytes_returned().max(1) as f64 / total_bytes as f64).min(1.0);
    let (reads, bases) = ((reads as f64 / sampled) as u64, (bases as f64 / sampled) as u64);
    let blocks = bases.div_ceil(options.block_bases).max(blocks);
    Ok(LanePlan { files, read_group, reads: Some(reads), bases: Some(bases), blocks: Some(blocks), sampled })
}

/// Names, bases and qualities of a batch, with as many qualities as bases.
fn text_bytes_of(batch: &RecordBatch) -> u64 {
    value_bytes(batch, "name") + 2 * value_bytes(batch, "sequence")
}

fn value_bytes(batch: &RecordBatch, column: &str) -> u64 {
    let values = batch.column_by_name(column).map(|column| column.as_binary::<i32>().value_data().len());
    values.unwrap_or(0) as u64
}
