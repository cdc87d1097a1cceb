//! Writing of a partition whose records are processed by a Python step, between duplicate marking and output.
//!
//! The runs are merged into a table, the Python function processes the table, and the records that the function keeps
//! are written. If the function only selects rows, the aligned records are written unchanged. They are stored in memory
//! up to a limit ([`RecordBuffer`]); beyond it, the runs are merged a second time.

mod record_buffer;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use godwit_columnar::{AlignmentLayout, AlignmentRows, AlignmentStreamWriter, ArrowFile, RowEncoder, RowError};
use godwit_formats::sam::Header;
use godwit_model::message_with_causes;
use godwit_model::{ContigId, Genome, RawRecord, SortKey};
use parking_lot::Mutex;

use self::record_buffer::RecordBuffer;
use super::collector::CollectedRuns;
use super::outputs::Outputs;
use super::partition::{NumberedPartition, PartitionContext, RecordMarker, RecordWriter, merge_runs};
use super::sink::PartitionedOutputs;
use crate::error::PipelineError;
use crate::python_step::{PartitionInfo, PythonStep, PythonStepOutput, PythonStepProcess};
use crate::runs::SplitPartition;

/// Maximum size of a table in memory for each thread, bytes. The same limit applies to the returned table and to the
/// records of the table.
const MAX_TABLE_BYTES: usize = 64 << 20;

/// Number of buffers per thread to which the limit applies: table, returned table and records.
const BUFFERS_PER_THREAD: usize = 3;

/// The Python step of a job, which all writing threads share.
pub(super) struct PythonStepJob {
    python_step: PythonStep,
    sample: String,
    layout: AlignmentLayout,
    /// Number of partitions in the file.
    partition_count: usize,
    limit_bytes: usize,
    scratch: PathBuf,
    /// Directory for files that the Python function writes.
    output_directory: PathBuf,
    /// Record buffers that no thread is using.
    spare_buffers: Mutex<Vec<RecordBuffer>>,
}

/// Options for the tables of a Python step.
pub(super) struct StepTableContext {
    pub(super) sample: String,
    /// Number of partitions in the file.
    pub(super) partition_count: usize,
    /// Memory limit for the tables of one thread, bytes.
    pub(super) memory_bytes: usize,
    pub(super) scratch: PathBuf,
    /// Directory for files that the Python function writes.
    pub(super) output_directory: PathBuf,
}

impl PythonStepJob {
    /// Creates the Python step for records with this header.
    ///
    /// # Errors
    /// [`PipelineError::Columns`] if the header cannot be represented in columns.
    pub(super) fn new(step: &PythonStep, header: &Header, place: StepTableContext) -> Result<Self, PipelineError> {
        let StepTableContext { sample, partition_count, memory_bytes, scratch, output_directory } = place;
        let layout = AlignmentLayout::new(header).map_err(PipelineError::Columns)?;
        let limit_bytes = MAX_TABLE_BYTES.min(memory_bytes / BUFFERS_PER_THREAD);
        let (python_step, spare_buffers) = (step.clone(), Mutex::default());
        Ok(Self { python_step, sample, layout, partition_count, limit_bytes, scratch, output_directory, spare_buffers })
    }

    /// Creates the Python step for outputs that this process writes; `None` if the job has no Python step.
    ///
    /// # Errors
    /// The errors of [`PythonStepJob::new`].
    pub(super) fn for_outputs(
        collected: &CollectedRuns,
        targets: &PartitionedOutputs,
        header: &Header,
        partition_count: usize,
        outputs: &Outputs,
    ) -> Result<Option<Self>, PipelineError> {
        let (Some(step), Some(out)) = (&collected.options.writing.python_step, &targets.step_files) else {
            return Ok(None);
        };
        let options = &collected.options;
        let place = StepTableContext {
            sample: outputs.stem.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            partition_count,
            memory_bytes: options.memory.merge_bytes / 2,
            scratch: options.temp.clone(),
            output_directory: out.directory_path().map_err(PipelineError::file("find", &outputs.stem))?,
        };
        Self::new(step, header, place).map(Some)
    }

    /// Returns the memory that the tables of one thread need, bytes.
    pub(super) fn thread_bytes(&self) -> usize {
        BUFFERS_PER_THREAD * self.limit_bytes
    }

    /// Calls the Python function on the table of a partition and writes the records that the function keeps. Returns
    /// the marker, which has counted the duplicates.
    pub(super) fn write_partition<'c>(
        &self,
        context: PartitionContext<'c>,
        part: NumberedPartition,
        out: &mut RecordWriter,
        cancelled: &AtomicBool,
    ) -> io::Result<RecordMarker<'c>> {
        let mut worker = self.python_step.acquire_process(cancelled)?;
        let name = self.partition_info(part, context.genome);
        let mut marker = RecordMarker::new(context);
        let table = worker.create_table(self.limit_bytes as u64, &self.scratch)?;
        let mut table =
            AlignmentStreamWriter::new(&self.layout, self.python_step.columns(), table).map_err(io::Error::other)?;
        let spare = self.spare_buffers.lock().pop();
        let mut records = spare.unwrap_or_else(|| RecordBuffer::new(self.limit_bytes));
        records.clear();
        merge_runs(context, part.split, cancelled, |record, judgement| match marker.mark(record, judgement) {
            Some((record, flag)) => {
                records.push(record, flag);
                table.push(record, flag)
            }
            None => Ok(()),
        })?;
        let (table, rows) = table.finish()?;
        let again = RecordReplay { context, split: part.split, records };
        let (kept, written) = match worker.process_table(&name, table, cancelled)? {
            PythonStepOutput::Unchanged => (rows, again.write_masked(out, std::iter::repeat(true), cancelled)?),
            PythonStepOutput::Mask(mask, kept) => {
                let bits = mask.iter().flat_map(|bits| bits.iter());
                (kept, again.write_masked(out, bits, cancelled)?)
            }
            PythonStepOutput::Replaced(changed, kept) => {
                (kept, self.write_changed(&worker, &name, (context.genome, part.split), out, &changed)?)
            }
        };
        // The Python process must send as many rows as it announced, and not more than it received.
        if written != kept || kept > rows {
            let problem = format!("the Python process announced {kept} of {rows} rows, but sent {written}");
            return Err(worker.output_error(&name, problem));
        }
        out.drop_records(rows - kept);
        self.python_step.release_process(worker);
        self.spare_buffers.lock().push(again.records);
        Ok(marker)
    }

    /// Converts the rows that the function returned to records and writes them. Returns an error if rows are out of
    /// order or outside the partition.
    fn write_changed(
        &self,
        worker: &PythonStepProcess,
        name: &PartitionInfo,
        (genome, split): (&Genome, &SplitPartition),
        out: &mut RecordWriter,
        changed: &ArrowFile,
    ) -> io::Result<u64> {
        let mut encoder = RowEncoder::new(genome, self.layout.read_group_ids());
        let mut batches = changed.batches(0..usize::MAX, None);
        let (mut last, mut written) = (split.from, 0u64);
        let wrong = |problem| worker.output_error(name, problem);
        while let Some(batch) = batches.next_batch().map_err(|error| wrong(message_with_causes(&error)))? {
            let columns = AlignmentRows::from_batch(&batch).map_err(|error| wrong(error.to_string()))?;
            for row in 0..batch.num_rows() {
                let record = encoder.encode(&columns, row).map_err(|error| match error {
                    RowError::Row { problem, .. } => wrong(format!("row {written}: {problem}")),
                    error @ RowError::Schema { .. } => wrong(error.to_string()),
                })?;
                let key = record.sort_key();
                if key < split.from || key >= split.until {
                    let problem = format!(
                        "row {written} is at {}, outside of the partition that the function received",
                        format_position(key, genome)
                    );
                    return Err(wrong(problem));
                }
                if key < last {
                    let order = "the function must keep rows in the order of contig_id (null last), position, and \
                                 strand (forward first)";
                    return Err(wrong(format!("row {written} is out of order; {order}")));
                }
                last = key;
                out.write(record, record.flag())?;
                written += 1;
            }
        }
        Ok(written)
    }

    fn partition_info(&self, part: NumberedPartition, genome: &Genome) -> PartitionInfo {
        let (from, until) = (part.split.from, part.split.until);
        let named = |key: SortKey| {
            let contig = genome.contig(ContigId(u32::try_from(key.contig()).ok()?))?;
            Some((contig.name.clone(), i64::from(key.position().max(0))))
        };
        PartitionInfo {
            sample: self.sample.clone(),
            index: part.index,
            partition_count: self.partition_count,
            region: format_interval(from, until, genome),
            start: named(from),
            end: named(until),
            output_directory: self.output_directory.clone(),
        }
    }
}

/// The records of a table, which can be read again after the Python function has processed the table.
struct RecordReplay<'c, 'p> {
    context: PartitionContext<'c>,
    split: &'p SplitPartition,
    records: RecordBuffer,
}

impl RecordReplay<'_, '_> {
    /// Writes the records that `mask` selects, unchanged. Returns the number of written records.
    fn write_masked(
        &self,
        out: &mut RecordWriter,
        mut mask: impl Iterator<Item = bool>,
        cancelled: &AtomicBool,
    ) -> io::Result<u64> {
        let mut written = 0;
        let mut write = |record: RawRecord, flag| match mask.next() {
            Some(true) => {
                written += 1;
                out.write(record, flag)
            }
            _ => Ok(()),
        };
        match self.records.records() {
            Some(mut records) => records.try_for_each(|(record, flag)| write(record, flag))?,
            None => {
                let mut marker = RecordMarker::new(self.context);
                merge_runs(self.context, self.split, cancelled, |record, judgement| {
                    match marker.mark(record, judgement) {
                        Some((record, flag)) => write(record, flag),
                        None => Ok(()),
                    }
                })?;
            }
        }
        Ok(written)
    }
}

/// Returns a position as text for error messages, 1-based.
fn format_position(key: SortKey, genome: &Genome) -> String {
    let contig = u32::try_from(key.contig()).ok().and_then(|id| genome.contig(ContigId(id)));
    contig.map_or("no contig".to_owned(), |contig| format!("{}:{}", contig.name, i64::from(key.position()) + 1))
}

/// Returns an interval as text for error messages, 1-based and closed.
fn format_interval(from: SortKey, until: SortKey, genome: &Genome) -> String {
    let contigs = genome.contigs();
    let first = usize::try_from(from.contig()).ok().and_then(|id| contigs.get(id));
    let Some(first) = first else { return "reads without a contig".to_owned() };
    let start = i64::from(from.position().max(0)) + 1;
    // `until` may be the start of the next contig, or be after all contigs.
    let (last, end) = match usize::try_from(until.contig()).ok().and_then(|id| Some((id, contigs.get(id)?))) {
        // A partition may end between the forward and the reverse records of one position. Then both partitions include
        // the position.
        Some((_, contig)) if until > SortKey::new(until.contig(), 0, false) => {
            (contig, i64::from(until.position()) + i64::from(until != until.forward_strand()))
        }
        Some((id, contig)) => {
            let last = contigs.get(id.wrapping_sub(1)).unwrap_or(contig);
            (last, i64::from(last.length))
        }
        None => contigs.last().map_or((first, 0), |last| (last, i64::from(last.length))),
    };
    match last.name == first.name {
        true => format!("{}:{start}-{end}", first.name),
        false => format!("{}:{start} to {}:{end}", first.name, last.name),
    }
}

#[cfg(test)]
mod tests {
    use godwit_model::Contig;

    use super::*;

    #[test]
    fn intervals_are_written_1_based_and_closed() {
        let contig = |name: &str, length| Contig { name: name.to_owned(), length, alternate: false };
        let genome = Genome::new(vec![contig("chr1", 1000), contig("chr2", 500)]).unwrap();
        let at = |contig, position| SortKey::new(contig, position, false);
        for (from, until, expected) in [
            (SortKey::MIN, at(0, 100), "chr1:1-100"),
            (at(0, 100), at(0, 200), "chr1:101-200"),
            (at(0, 100), SortKey::new(0, 200, true), "chr1:101-201"),
            (at(0, 100), at(1, 0), "chr1:101-1000"),
            (at(0, 100), at(1, 40), "chr1:101 to chr2:40"),
            (at(1, 40), SortKey::UNPLACED, "chr2:41-500"),
            (SortKey::UNPLACED, SortKey(u64::MAX), "reads without a contig"),
        ] {
            assert_eq!(format_interval(from, until, &genome), expected);
        }
    }
}
