//! What marking a file would need, and whether it could begin.

use std::sync::mpsc;

use super::source::{Encoder, Source};
use super::{BLOCK_BYTES, Checked, MarkdupOptions, not_grouped};
use crate::DuplicateMode;
use crate::error::PipelineError;
use crate::machine;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::read_groups::ReadGroups;
use crate::reduce::DuplicatePolicy;
use crate::run_plan::{
    Certainty, DiskNeed, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, RunPlan, check_room, index_seconds,
};

/// Bytes of input, uncompressed, that are looked at.
const SAMPLE_BYTES: usize = 8 << 20;

/// Checks what can be checked without working, and tells what [`markdup`](super::markdup()) would need. Writes nothing.
///
/// # Errors
/// What the run would begin with: [`PipelineError`].
pub fn plan_markdup(options: &MarkdupOptions, observer: &dyn Observer) -> Result<RunPlan, PipelineError> {
    let checked = Checked::of(options)?;
    let temp = options.job.temp.as_deref().unwrap_or(&checked.directory);
    observer.event(&Event::Stage { name: "looking at the input" });
    let (mut source, header) = Source::open(&options.input, 1)?;
    let genome = header.genome().map_err(|error| source.header_error(error))?;
    if options.job.marking.mode == DuplicateMode::Query && header.is_coordinate_sorted() {
        return Err(not_grouped(&options.input));
    }
    ReadGroups::new(&header.read_groups().map_err(|error| source.header_error(error))?)?;
    check_room(&options.out, &[&checked.directory, temp])?;
    let (mut records, mut plain_bytes, mut bytes, mut whole) = (0, 0, RecordBytes::default(), false);
    if let Some(chunk) = source.next_chunk(SAMPLE_BYTES)? {
        plain_bytes = chunk.bytes();
        let (data, offsets) = Encoder::new(&genome, mpsc::channel().0).packed(chunk, &options.input, |_| None)?;
        records = offsets.len() as u64 - 1;
        bytes = RecordBytes::measured(&data, records);
    }
    if plain_bytes < SAMPLE_BYTES / 2 {
        whole = source.next_chunk(SAMPLE_BYTES)?.is_none();
    }
    let file_bytes = checked.input.bytes.unwrap_or(0);
    // A compressed input takes about the bytes per record that the output will.
    let record_file_bytes = match source.plain_bytes() {
        Some(_) => plain_bytes as f64 / records.max(1) as f64,
        None => bytes.output,
    };
    let estimated = if whole { records } else { (file_bytes as f64 / record_file_bytes.max(1.0)) as u64 };
    let threads = options.job.threads;
    let cpu = estimated as f64 * REDUCE_SECONDS_PER_RECORD;
    let signatures = options.job.duplicates != DuplicatePolicy::None;
    let plan = RunPlan {
        verb: "markdup",
        lanes: Vec::new(),
        reads: Some(estimated),
        blocks: Some((estimated as f64 * bytes.packed / BLOCK_BYTES as f64).ceil() as u64),
        threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::markdup_limit(options.job.memory_bytes, BLOCK_BYTES, threads),
            aligner_bytes: 0,
            free_bytes: machine::free_memory_bytes(),
        },
        output: DiskNeed::new(&checked.directory, Some(bytes.output_bytes(estimated))),
        scratch: DiskNeed::new(temp, Some(bytes.scratch_bytes(estimated, &checked.memory, signatures, false))),
        cpu_seconds: Some(cpu),
        seconds: Some(cpu / threads as f64 + index_seconds(file_bytes) / threads as f64),
        within: Certainty { reads: if whole { 1.0 } else { 1.5 }, memory: 1.5, disk: 2.0, time: 3.0 },
        problems: Vec::new(),
    };
    Ok(plan.judged())
}
