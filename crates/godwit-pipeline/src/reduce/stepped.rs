//! A partition whose records a step sees between marking and writing.
//!
//! The runs are merged into a table, the function looks at it, and what it keeps is written. Where it keeps records as they are, these are
//! the bytes that were aligned: they are kept beside the table up to a limit ([`KeptRecords`]), and beyond that the runs are merged once more.

mod kept_records;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use godwit_formats::columnar::{ArrowFile, ColumnLayout, RowEncoder, RowError, Rows, TableStream};
use godwit_formats::sam::Header;
use godwit_formats::with_causes;
use godwit_model::{ContigId, Genome, RawRecord, SortKey};

use self::kept_records::KeptRecords;
use super::collector::Collected;
use super::outputs::Outputs;
use super::partition::{Known, Part, RecordMarker, RecordWriter, merge};
use super::sink::Targets;
use crate::error::PipelineError;
use crate::runs::SplitPartition;
use crate::step::{Kept, PartitionName, Step, StepWorker};

/// Most bytes of a table that lie in memory, for each thread that writes; as many of what comes back, and as many of its records.
const TABLE_BYTES: usize = 64 << 20;

/// What has a limit of its own: tables, what comes back, records.
const SHARES: usize = 3;

/// A step on the partitions of a file, for all threads that write.
pub(super) struct StepJob {
    step: Step,
    sample: String,
    layout: ColumnLayout,
    /// Partitions of the file.
    count: usize,
    limit_bytes: usize,
    scratch: PathBuf,
    /// Where the function puts its own files.
    out: PathBuf,
    /// Memory for records that nobody has in use.
    spare: Mutex<Vec<KeptRecords>>,
}

/// What a step is told of the file.
pub(super) struct StepPlace {
    pub(super) sample: String,
    /// Partitions of the file.
    pub(super) count: usize,
    /// Memory that tables of one thread may take, bytes.
    pub(super) memory_bytes: usize,
    pub(super) scratch: PathBuf,
    /// Where the function puts its own files.
    pub(super) out: PathBuf,
}

impl StepJob {
    /// A step on records under this header.
    ///
    /// # Errors
    /// [`PipelineError::Columns`]: a header that columns cannot hold.
    pub(super) fn new(step: &Step, header: &Header, place: StepPlace) -> Result<Self, PipelineError> {
        let StepPlace { sample, count, memory_bytes, scratch, out } = place;
        let layout = ColumnLayout::new(header).map_err(PipelineError::Columns)?;
        let limit_bytes = TABLE_BYTES.min(memory_bytes / SHARES);
        let (step, spare) = (step.clone(), Mutex::default());
        Ok(Self { step, sample, layout, count, limit_bytes, scratch, out, spare })
    }

    /// The step of a file that this process writes, where there is one.
    ///
    /// # Errors
    /// As for [`StepJob::new`].
    pub(super) fn of(
        collected: &Collected,
        targets: &Targets,
        header: &Header,
        count: usize,
        outputs: &Outputs,
    ) -> Result<Option<Self>, PipelineError> {
        let (Some(step), Some(out)) = (&collected.options.writing.step, &targets.step) else { return Ok(None) };
        let options = &collected.options;
        let place = StepPlace {
            sample: outputs.stem.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            count,
            memory_bytes: options.memory.merge_bytes / 2,
            scratch: options.temp.clone(),
            out: out.place().map_err(PipelineError::file("find", &outputs.stem))?,
        };
        Self::new(step, header, place).map(Some)
    }

    /// Memory of one thread, bytes.
    pub(super) fn thread_bytes(&self) -> usize {
        SHARES * self.limit_bytes
    }

    /// Writes what the function keeps of a partition. Returns who marked its records.
    pub(super) fn write<'c>(
        &self,
        known: Known<'c>,
        part: Part,
        out: &mut RecordWriter,
        cancelled: &AtomicBool,
    ) -> io::Result<RecordMarker<'c>> {
        let mut worker = self.step.worker(cancelled)?;
        let name = self.name_of(part, known.genome);
        let mut marker = RecordMarker::new(known);
        let table = worker.table(self.limit_bytes as u64, &self.scratch)?;
        let mut table = TableStream::new(&self.layout, self.step.columns(), table).map_err(io::Error::other)?;
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut records = spare.unwrap_or_else(|| KeptRecords::new(self.limit_bytes));
        records.clear();
        merge(known, part.split, cancelled, |record, judgement| match marker.mark(record, judgement) {
            Some((record, flag)) => {
                records.push(record, flag);
                table.push(record, flag)
            }
            None => Ok(()),
        })?;
        let (table, rows) = table.finish()?;
        let again = Again { known, split: part.split, records };
        let (kept, written) = match worker.ask(&name, table, cancelled)? {
            Kept::All => (rows, again.write_some(out, std::iter::repeat(true), cancelled)?),
            Kept::Some(mask, kept) => {
                let bits = mask.iter().flat_map(|bits| bits.iter());
                (kept, again.write_some(out, bits, cancelled)?)
            }
            Kept::Changed(changed, kept) => {
                (kept, self.write_changed(&worker, &name, (known.genome, part.split), out, &changed)?)
            }
        };
        // What arrived has to be what was sent.
        if written != kept || kept > rows {
            let problem = format!("it told of {kept} rows to keep of {rows}, but {written} came through");
            return Err(worker.returned(&name, problem));
        }
        out.drop_records(rows - kept);
        self.step.put_back(worker);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(again.records);
        Ok(marker)
    }

    /// Makes records of rows and writes them. They have to be in order, and in the partition.
    fn write_changed(
        &self,
        worker: &StepWorker,
        name: &PartitionName,
        (genome, split): (&Genome, &SplitPartition),
        out: &mut RecordWriter,
        changed: &ArrowFile,
    ) -> io::Result<u64> {
        let mut encoder = RowEncoder::new(genome, self.layout.read_group_ids());
        let mut batches = changed.batches(0..usize::MAX, None);
        let (mut last, mut written) = (split.from, 0u64);
        let wrong = |problem| worker.returned(name, problem);
        while let Some(batch) = batches.next_batch().map_err(|error| wrong(with_causes(&error)))? {
            let columns = Rows::of(&batch).map_err(|error| wrong(error.to_string()))?;
            for row in 0..batch.num_rows() {
                let record = encoder.encode(&columns, row).map_err(|error| match error {
                    RowError::Row { problem, .. } => wrong(format!("row {written}: {problem}")),
                    error @ RowError::Schema { .. } => wrong(error.to_string()),
                })?;
                let key = record.sort_key();
                if key < split.from || key >= split.until {
                    let problem = format!("row {written} lies at {}, outside of the partition", place(key, genome));
                    return Err(wrong(problem));
                }
                if key < last {
                    let order = "rows stay in the order of contig_id (null last), position, and strand, forward first";
                    return Err(wrong(format!("row {written} comes before the one in front of it; {order}")));
                }
                last = key;
                out.write(record, record.flag())?;
                written += 1;
            }
        }
        Ok(written)
    }

    fn name_of(&self, part: Part, genome: &Genome) -> PartitionName {
        let (from, until) = (part.split.from, part.split.until);
        let named = |key: SortKey| {
            let contig = genome.contig(ContigId(u32::try_from(key.contig()).ok()?))?;
            Some((contig.name.clone(), i64::from(key.position().max(0))))
        };
        PartitionName {
            sample: self.sample.clone(),
            index: part.at,
            count: self.count,
            region: region(from, until, genome),
            start: named(from),
            end: named(until),
            out: self.out.clone(),
        }
    }
}

/// The records that a table was made of, once more.
struct Again<'c, 'p> {
    known: Known<'c>,
    split: &'p SplitPartition,
    records: KeptRecords,
}

impl Again<'_, '_> {
    /// Writes the records that a mask keeps, as they were aligned and marked. Returns how many.
    fn write_some(
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
        match self.records.all() {
            Some(mut records) => records.try_for_each(|(record, flag)| write(record, flag))?,
            None => {
                let mut marker = RecordMarker::new(self.known);
                merge(self.known, self.split, cancelled, |record, judgement| match marker.mark(record, judgement) {
                    Some((record, flag)) => write(record, flag),
                    None => Ok(()),
                })?;
            }
        }
        Ok(written)
    }
}

/// A place for people, 1-based.
fn place(key: SortKey, genome: &Genome) -> String {
    let contig = u32::try_from(key.contig()).ok().and_then(|id| genome.contig(ContigId(id)));
    contig.map_or("no contig".to_owned(), |contig| format!("{}:{}", contig.name, i64::from(key.position()) + 1))
}

/// A stretch of the genome for people, 1-based and closed.
fn region(from: SortKey, until: SortKey, genome: &Genome) -> String {
    let contigs = genome.contigs();
    let first = usize::try_from(from.contig()).ok().and_then(|id| contigs.get(id));
    let Some(first) = first else { return "reads without a contig".to_owned() };
    let start = i64::from(from.position().max(0)) + 1;
    // What comes behind it may be the start of a contig, or what is on none.
    let (last, end) = match usize::try_from(until.contig()).ok().and_then(|id| Some((id, contigs.get(id)?))) {
        // A position may be cut between its strands, and is in both then.
        Some((_, contig)) if until > SortKey::new(until.contig(), 0, false) => {
            (contig, i64::from(until.position()) + i64::from(until != until.forward_of_position()))
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
    fn regions_are_told_as_people_write_them() {
        let contig = |name: &str, length| Contig { name: name.to_owned(), length, alternate: false };
        let genome = Genome::new(vec![contig("chr1", 1000), contig("chr2", 500)]).unwrap();
        let at = |contig, position| SortKey::new(contig, position, false);
        for (from, until, expected) in [
            (SortKey::FIRST, at(0, 100), "chr1:1-100"),
            (at(0, 100), at(0, 200), "chr1:101-200"),
            (at(0, 100), SortKey::new(0, 200, true), "chr1:101-201"),
            (at(0, 100), at(1, 0), "chr1:101-1000"),
            (at(0, 100), at(1, 40), "chr1:101 to chr2:40"),
            (at(1, 40), SortKey::UNPLACED, "chr2:41-500"),
            (SortKey::UNPLACED, SortKey(u64::MAX), "reads without a contig"),
        ] {
            assert_eq!(region(from, until, &genome), expected);
        }
    }
}
