//! What an alignment would need, and whether it could begin.

use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use godwit_engines::aligner::bwa::{INDEX_EXTENSIONS, check_arguments};
use godwit_formats::fastq::{LaneEvent, LaneOptions, LaneReader};

use super::header::LaneGroups;
use super::{AlignOptions, checked_inputs};
use crate::error::PipelineError;
use crate::machine;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::record_bytes::Weighing;
use crate::reduce::DuplicatePolicy;
use crate::reference::current_index;
use crate::run_plan::{
    Certainty, DiskNeed, LanePlan, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, RunPlan, check_room,
    index_seconds,
};

/// Text of a lane that is looked at, bytes.
const SAMPLE_BYTES: u64 = 16 << 20;
/// Bases that `bwa mem` 0.7.17 aligns in a second of one thread: 0.8 million on a loaded virtual machine, 1.3 to 1.6
/// million on an idle one, for reads of 148 bases (bench/results).
const BWA_BASES_PER_THREAD_SECOND: f64 = 1.2e6;
/// Bytes that the aligner holds per base of a block, and besides: `bwa mem` peaks at 960 MB with `-K 100000000` and at 135
/// MB with `-K 10000000`, its index apart.
const ALIGNER_BYTES_PER_BASE: f64 = 9.2;
const ALIGNER_BASE_BYTES: u64 = 48 << 20;

/// Checks what can be checked without working, and tells what [`align`](super::align()) would need. Writes nothing.
///
/// # Errors
/// What the run would begin with: [`PipelineError`].
pub fn plan_align(options: &AlignOptions, observer: &dyn Observer) -> Result<RunPlan, PipelineError> {
    options.job.check()?;
    let memory = MemoryPlan::for_align(options.job.memory_bytes, options.block_bases)?;
    let (_, outputs) = checked_inputs(options)?;
    observer.event(&Event::Stage { name: "checking the index" });
    current_index(&options.reference)?;
    let groups = LaneGroups::new(options)?;
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    check_room(&outputs.bam, &[&options.out, temp])?;
    check_arguments(&options.aligner_args)?;
    observer.event(&Event::Stage { name: "looking at the reads" });
    let mut weighing = Weighing::default();
    let mut lanes = Vec::new();
    for (files, id) in options.lanes.iter().zip(groups.ids()) {
        lanes.push(lane(files, id, options, &mut weighing)?);
    }
    Ok(plan(options, lanes, weighing.mean(), &memory).judged())
}

fn plan(options: &AlignOptions, lanes: Vec<LanePlan>, bytes: RecordBytes, memory: &MemoryPlan) -> RunPlan {
    let sum = |of: fn(&LanePlan) -> Option<u64>| lanes.iter().map(of).sum::<Option<u64>>();
    let (reads, bases) = (sum(|lane| lane.reads), sum(|lane| lane.bases));
    let index_bytes = |extensions: &[&str]| extensions.iter().map(|end| size(&options.reference, end)).sum::<u64>();
    let loaded_bytes = index_bytes(&INDEX_EXTENSIONS);
    let largest_block = lanes.iter().map(|lane| lane.bases).max().flatten().unwrap_or(options.block_bases);
    let block_bases = largest_block.min(options.block_bases);
    let cpu = reads
        .zip(bases)
        .map(|(reads, bases)| bases as f64 / BWA_BASES_PER_THREAD_SECOND + reads as f64 * REDUCE_SECONDS_PER_RECORD);
    let checking_seconds = index_seconds(loaded_bytes + size(&options.reference, ""));
    let temp = options.job.temp.as_ref().unwrap_or(&options.out);
    let signatures = options.job.duplicates != DuplicatePolicy::None;
    let counted = lanes.iter().all(|lane| lane.sampled >= 1.0);
    RunPlan {
        verb: "align",
        reads,
        blocks: sum(|lane| lane.blocks),
        threads: options.job.threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::align_limit(options.job.memory_bytes, options.block_bases),
            aligner_bytes: loaded_bytes + ALIGNER_BASE_BYTES + (block_bases as f64 * ALIGNER_BYTES_PER_BASE) as u64,
            free_bytes: machine::free_memory_bytes(),
        },
        output: DiskNeed::new(&options.out, reads.map(|reads| bytes.output_bytes(reads))),
        scratch: DiskNeed::new(temp, reads.map(|reads| bytes.scratch_bytes(reads, memory, signatures, true))),
        cpu_seconds: cpu.map(|cpu| cpu + checking_seconds),
        seconds: cpu.map(|cpu| cpu / options.job.threads as f64 + checking_seconds),
        within: Certainty { reads: if counted { 1.0 } else { 1.1 }, memory: 1.5, disk: 1.5, time: 3.0 },
        problems: Vec::new(),
        lanes,
    }
}

fn size(reference: &Path, extension: &str) -> u64 {
    let mut path = reference.as_os_str().to_owned();
    path.push(extension);
    std::fs::metadata(PathBuf::from(path)).map_or(0, |found| found.len())
}

/// Looks at the head of a lane. Pipes can be read only once and stay untouched.
fn lane(
    files: &[PathBuf],
    read_group: &str,
    options: &AlignOptions,
    weighing: &mut Weighing,
) -> Result<LanePlan, PipelineError> {
    let (files, read_group) = (files.to_vec(), read_group.to_owned());
    if !files.iter().all(|file| file.is_file()) {
        return Ok(LanePlan { files, read_group, reads: None, bases: None, blocks: None, sampled: 0.0 });
    }
    let lane_options = LaneOptions {
        block_bases: options.block_bases,
        batch_bytes: 1 << 20,
        decompress_threads: 1,
        lenient: options.lenient,
    };
    let mut reader = LaneReader::open(&files, &lane_options)?;
    let (mut reads, mut bases, mut blocks, mut text_bytes, mut whole) = (0, 0, 0, 0, true);
    while let Some(event) = reader.next()? {
        match event {
            LaneEvent::BlockEnd { .. } => blocks += 1,
            LaneEvent::Reads(batch) => {
                reads += batch.num_rows() as u64;
                bases += value_bytes(&batch, "sequence");
                text_bytes += text_bytes_of(&batch);
                weighing.add(&batch, read_group.len(), files.len() == 2);
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
    let total_bytes = reader.compressed_bytes_total().unwrap_or(0).max(1);
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
