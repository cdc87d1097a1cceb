//! The plan of a `markdup` job: estimates of the resources that it needs, and problems that would prevent its start.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};

use godwit_kernels::markdup::DuplicateMode;
use godwit_pipeline::DuplicatePolicy;
use godwit_pipeline::MemoryPlan;
use godwit_pipeline::PipelineError;
use godwit_pipeline::host_resources;
use godwit_pipeline::observer::{Event, Observer};
use godwit_pipeline::read_groups::ReadGroups;
use godwit_pipeline::reduce::{PicardInputs, check_metrics_reference};
use godwit_pipeline::scanned_reference::ScannedReference;

use super::alignment_reader::{AlignmentReader, AlignmentReaderOptions, RecordEncoder};
use super::{BLOCK_BYTES, MarkdupOptions, MarkdupSetup, not_grouped_error};
use crate::job_plan::{
    DiskNeed, JobPlan, MemoryNeed, REDUCE_SECONDS_PER_RECORD, RecordBytes, UncertaintyFactors, check_outputs_writable,
    index_seconds, replaced_outputs,
};

/// Number of uncompressed bytes of input that are read to make a plan.
const INSPECTED_BYTES: usize = 8 << 20;

/// Checks the options and inputs and estimates the resources that [`markdup`](super::markdup()) would need. Writes no
/// output.
///
/// # Errors
/// The [`PipelineError`] with which the job would fail at its start.
pub fn plan_markdup(
    options: &MarkdupOptions,
    observer: &dyn Observer,
    cancelled: &Arc<AtomicBool>,
) -> Result<JobPlan, PipelineError> {
    let checked = MarkdupSetup::check(options)?;
    let temp = options.job.temp.as_deref().unwrap_or(&checked.directory);
    check_outputs_writable(&checked.outputs, &[&checked.directory, temp])?;
    observer.event(&Event::Stage { name: "inspecting the input" });
    let seen = match checked.input.bytes {
        Some(file_bytes) => {
            inspect_input(options, file_bytes, cancelled).map_err(|error| error.or_interrupted(cancelled))?
        }
        None => InputEstimate::default(),
    };
    let InputEstimate { records, record_bytes, is_exact } = seen;
    let threads = options.job.threads;
    let cpu = records.map(|records| records as f64 * REDUCE_SECONDS_PER_RECORD);
    let signatures = options.job.duplicates != DuplicatePolicy::None;
    let scratch_bytes = |records| record_bytes.scratch_bytes(records, &checked.memory, signatures, false);
    let formats = checked.outputs.paths().len();
    let plan = JobPlan {
        verb: "markdup",
        aligner: None,
        aligner_reason: None,
        lanes: Vec::new(),
        reads: records,
        blocks: records.map(|records| (records as f64 * record_bytes.packed / BLOCK_BYTES as f64).ceil() as u64),
        workers: None,
        threads,
        memory: MemoryNeed {
            godwit_bytes: MemoryPlan::markdup_limit(options.job.memory_bytes, BLOCK_BYTES, threads),
            aligner_bytes: 0,
            free_bytes: host_resources::free_memory_bytes(),
        },
        index: None,
        output: DiskNeed::new(&checked.directory, records.map(|records| record_bytes.output_bytes(records, formats))),
        scratch: DiskNeed::new(temp, records.map(scratch_bytes)),
        cpu_seconds: cpu,
        seconds: cpu.map(|cpu| (cpu + index_seconds(checked.input.bytes.unwrap_or(0))) / threads as f64),
        uncertainty: UncertaintyFactors { reads: if is_exact { 1.0 } else { 1.5 }, memory: 1.5, disk: 2.0, time: 3.0 },
        notes: replaced_outputs(&checked.outputs),
        problems: Vec::new(),
    };
    Ok(plan.with_problems())
}

/// Estimates for the whole input, from the first records of the file.
#[derive(Default)]
struct InputEstimate {
    /// Number of records; `None` if the input is a pipe.
    records: Option<u64>,
    record_bytes: RecordBytes,
    /// True if the whole input was read, so that the numbers are exact.
    is_exact: bool,
}

fn inspect_input(
    options: &MarkdupOptions,
    file_bytes: u64,
    cancelled: &Arc<AtomicBool>,
) -> Result<InputEstimate, PipelineError> {
    // Planning must not write into the output directory, so temporary files are in that of the system.
    let scratch = std::env::temp_dir();
    let reference = options.reference.as_deref().map(|reference| (reference, scratch.as_path()));
    let how = AlignmentReaderOptions { program: &options.job.godwit_program, reference, threads: 1 };
    let (mut source, header) = AlignmentReader::open(&options.input, how, cancelled)?;
    let genome = header.genome().map_err(|error| source.header_error(error))?;
    if options.job.marking.mode == DuplicateMode::Query && header.is_coordinate_sorted() {
        return Err(not_grouped_error(&options.input));
    }
    ReadGroups::new(&header.read_groups().map_err(|error| source.header_error(error))?)?;
    if let Some(reference) = options.job.metrics_reference(options.reference.as_deref()) {
        ScannedReference::check_header_md5(reference, &options.input, &header)?;
        check_metrics_reference(reference, &genome)?;
        if let Some(request) = &options.job.picard_metrics {
            PicardInputs::open(request, reference, &header, &options.input.to_string_lossy())?;
        }
    }
    let (mut records, mut plain_bytes, mut record_bytes, mut whole) = (0, 0, RecordBytes::default(), false);
    if let Some(chunk) = source.next_block(INSPECTED_BYTES)? {
        plain_bytes = chunk.size_bytes();
        let (data, offsets) =
            RecordEncoder::new(&genome, mpsc::channel().0).encode_block(chunk, &options.input, |_| None)?;
        records = offsets.len() as u64 - 1;
        record_bytes = RecordBytes::measure(&data, records);
    }
    if plain_bytes < INSPECTED_BYTES / 2 {
        whole = source.next_block(INSPECTED_BYTES)?.is_none();
    }
    // A record of compressed input is assumed to be as large as one of the compressed output.
    let record_file_bytes = match source.plain_bytes() {
        Some(_) => plain_bytes as f64 / records.max(1) as f64,
        None => record_bytes.output,
    };
    let estimated = if whole { records } else { (file_bytes as f64 / record_file_bytes.max(1.0)) as u64 };
    Ok(InputEstimate { records: Some(estimated), record_bytes, is_exact: whole })
}
