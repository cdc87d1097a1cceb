//! Runs that are not over, as datasets: the reads that are aligned by now.
//!
//! Which reads are duplicates is known last. Until then the column `duplicate` is null, and `flags` has no bit for it.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::bam::RecordChunk;
use godwit_formats::sam::Header;
use godwit_model::{Genome, SpanSet};

use crate::batches::until_done;
use crate::reads::{ReadsTable, spans_in};
use crate::streamed_reads::Chunks;

/// Ending of their names.
pub(crate) const ENDING: &str = ".live";
/// Whether a read is a duplicate; null as long as nobody knows.
const DUPLICATE: &str = "duplicate";

/// The reads of a run that is not over. Frames are stretches of records that lie together, as two numbers whose meaning it knows.
pub trait LiveReads: std::fmt::Debug + Send + Sync {
    /// The header of what the run is to write.
    fn header(&self) -> &Header;

    /// Not the same for two runs; reads that come do not change it.
    fn version(&self) -> u64;

    /// Records by now, and their bytes.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn counts(&self) -> Result<(u64, u64), DatasetError>;

    /// Frames by now, or those of them that may have a record that overlaps a span.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn frames(&self, spans: Option<&SpanSet>) -> Result<Vec<(u64, u64)>, DatasetError>;

    /// The records of a frame.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn read_frame(&self, frame: (u64, u64), chunk: &mut RecordChunk) -> Result<(), DatasetError>;
}

/// Finds runs.
pub trait LiveRuns: std::fmt::Debug + Send + Sync {
    /// The name of the run that works in a directory; `None` where there is none.
    fn name_in(&self, directory: &Path) -> Option<String>;

    /// That run.
    ///
    /// # Errors
    /// [`DatasetError`].
    fn open(&self, directory: &Path) -> Result<Arc<dyn LiveReads>, DatasetError>;
}

#[derive(Debug)]
pub(crate) struct LiveDataset {
    reads: Arc<dyn LiveReads>,
    table: ReadsTable,
    genome: Genome,
    schema: SchemaRef,
    /// Records and bytes when it was opened.
    counts: (u64, u64),
}

impl LiveDataset {
    pub(crate) fn open(reads: Arc<dyn LiveReads>) -> Result<Self, DatasetError> {
        let table = ReadsTable::new(reads.header())?;
        let genome = reads.header().genome().map_err(|error| DatasetError::Data(error.into()))?;
        let duplicate = Arc::new(Field::new(DUPLICATE, DataType::Boolean, true));
        let fields: Vec<_> = table.schema.fields().iter().cloned().chain([duplicate]).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, table.schema.metadata().clone()));
        let counts = reads.counts()?;
        Ok(Self { reads, table, genome, schema, counts })
    }

    fn spans(&self, scan: &Scan) -> Result<Option<SpanSet>, DatasetError> {
        let spans = |regions: &Vec<_>| spans_in(&self.genome, regions, Path::new("the run"));
        scan.regions.as_ref().map(spans).transpose()
    }

    /// The scan of what the records have, and whether what they do not have is asked for.
    fn of_records(&self, scan: &Scan) -> (Scan, bool) {
        let own = self.table.schema.fields().len();
        let Some(columns) = &scan.columns else { return (scan.clone(), true) };
        let known = columns.iter().copied().filter(|at| *at < own).collect();
        (Scan { columns: Some(known), regions: scan.regions.clone() }, columns.contains(&own))
    }
}

impl Dataset for LiveDataset {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        Some(self.counts.0)
    }

    fn bytes(&self) -> u64 {
        self.counts.1
    }

    fn sample(&self) -> Option<&str> {
        self.table.sample.as_deref()
    }

    fn version(&self) -> u64 {
        self.reads.version()
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        Some(self.genome.find(name).is_some())
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<Part>, DatasetError> {
        let frames = self.reads.frames(self.spans(scan)?.as_ref())?;
        let share = frames.len().div_ceil(most.max(1)).max(1);
        Ok(frames.chunks(share).map(|frames| Part { stretches: frames.to_vec() }).collect())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        let (of_records, with_duplicate) = self.of_records(scan);
        let (reads, mut frames) = (self.reads.clone(), part.stretches.clone().into_iter());
        let next = move |chunk: &mut RecordChunk| match frames.next() {
            Some(frame) => reads.read_frame(frame, chunk).map(|()| true),
            None => Ok(false),
        };
        let mut chunks = Chunks::new(next, self.table.columns(&of_records), self.spans(scan)?);
        let (scanned, all) = (scan.columns.clone(), self.schema.clone());
        Ok(until_done(move || {
            let Some(batch) = chunks.next_batch()? else { return Ok(None) };
            if with_duplicate { with_unknown(&batch, &all, scanned.as_deref()).map(Some) } else { Ok(Some(batch)) }
        }))
    }
}

/// A batch with the column that nobody knows yet behind its own.
fn with_unknown(batch: &RecordBatch, all: &SchemaRef, scanned: Option<&[usize]>) -> Result<RecordBatch, DatasetError> {
    let failed = |error: arrow_schema::ArrowError| DatasetError::Data(error.into());
    let schema = match scanned {
        Some(columns) => Arc::new(all.project(columns).map_err(failed)?),
        None => all.clone(),
    };
    let unknown: ArrayRef = Arc::new(BooleanArray::new_null(batch.num_rows()));
    let columns = batch.columns().iter().cloned().chain([unknown]).collect();
    RecordBatch::try_new(schema, columns).map_err(failed)
}
