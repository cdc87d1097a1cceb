//! What marking a file would need, and whether it could begin.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use super::source::{Encoder, OpenOptions, Source};
use super::{BLOCK_BYTES, Checked, MarkdupOptions, not_grouped};
use crate::DuplicateMode;
use crate::call::ScannedReference;
use crate::error::PipelineError;
use crate::machine;
use crate::memory::MemoryPlan;
use crate::observer::{Event, Observer};
use crate::read_groups::ReadGroups;
use crate::reduce::{DuplicatePolicy, check_compared};
use crate::run_plan::{
    Certainty, DiskNeed, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, RunPlan, check_room, index_seconds,
    replaced,
};

/// Bytes of input, uncompressed, that are looked at.
const SAMPLE_BYTES: usize = 8 << 20;

/// Checks what can be checked without working, and tells what [`markdup`](super::markdup()) would need. Writes nothing.
///
/// # Errors
/// What the run would begin with: [`PipelineError`].
pub fn plan_markdup(
    options: &MarkdupOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<RunPlan, PipelineError> {
    let checked = Checked::of(options)?;
    let temp = options.job.temp.as_deref().unwrap_or(&checked.directory);
    check_room(&checked.outputs, &[&checked.directory, temp])?;
    observer.event(&Event::Stage { name: "looking at the input" });
    let seen = match checked.input.bytes {
        Some(file_bytes) => look(options, file_bytes, cancelled).map_err(|error| error.unless_cancelled(cancelled))?,
        None => Seen::default(),
    };
    let Seen { records, bytes, counted } = seen;
    let threads = options.job.threads;
    let cpu = records.map(|records| records as f64 * REDUCE_SECONDS_PER_RECORD);
    let signatures = options.job.duplicates != DuplicatePolicy::None;
    let scratch_bytes = |records| bytes.scratch_bytes(records, &checked.memory, signatures, false);
    let formats = checked.outputs.paths().len();
    let plan = RunPlan {
        verb: "markdup",
        aligner: None,
        aligner_reason: None,
        lanes: Vec::new(),
        reads: records,
        blocks: records.map(|records| (records as f64 * bytes.packed / BLOCK_BYTES as f64).ceil() as u64),
        nodes: None,
        threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::markdup_limit(options.job.memory_bytes, BLOCK_BYTES, threads),
            aligner_bytes: 0,
            free_bytes: machine::free_memory_bytes(),
        },
        index: None,
        output: DiskNeed::new(&checked.directory, records.map(|records| bytes.output_bytes(records, formats))),
        scratch: DiskNeed::new(temp, records.map(scratch_bytes)),
        cpu_seconds: cpu,
        seconds: cpu.map(|cpu| (cpu + index_seconds(checked.input.bytes.unwrap_or(0))) / threads as f64),
        within: Certainty { reads: if counted { 1.0 } else { 1.5 }, memory: 1.5, disk: 2.0, time: 3.0 },
        notes: replaced(&checked.outputs),
        problems: Vec::new(),
    };
    Ok(plan.judged())
}

/// What the start of the input tells of all of it.
#[derive(Default)]
struct Seen {
    /// `None`: nothing can be told, the input is a pipe.
    records: Option<u64>,
    bytes: RecordBytes,
    /// Whether all of it was seen.
    counted: bool,
}

fn look(options: &MarkdupOptions, file_bytes: u64, cancelled: &Arc<AtomicBool>) -> Result<Seen, PipelineError> {
    // Files of a moment must not lie where outputs go.
    let scratch = std::env::temp_dir();
    let reference = options.reference.as_deref().map(|reference| (reference, scratch.as_path()));
    let how = OpenOptions { program: &options.job.program, reference, threads: 1 };
    let (mut source, header) = Source::open(&options.input, how, cancelled)?;
    let genome = header.genome().map_err(|error| source.header_error(error))?;
    if options.job.marking.mode == DuplicateMode::Query && header.is_coordinate_sorted() {
        return Err(not_grouped(&options.input));
    }
    ReadGroups::new(&header.read_groups().map_err(|error| source.header_error(error))?)?;
    if let Some(reference) = options.job.compared_with(options.reference.as_deref()) {
        ScannedReference::compare(reference, &options.input, &header)?;
        check_compared(reference, &genome)?;
    }
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
    // A compressed input takes about the bytes per record that the output will.
    let record_file_bytes = match source.plain_bytes() {
        Some(_) => plain_bytes as f64 / records.max(1) as f64,
        None => bytes.output,
    };
    let estimated = if whole { records } else { (file_bytes as f64 / record_file_bytes.max(1.0)) as u64 };
    Ok(Seen { records: Some(estimated), bytes, counted: whole })
}
