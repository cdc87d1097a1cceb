//! Unfinished alignment jobs as datasets, which contain the reads that have been aligned so far.
//!
//! A job marks duplicates only at its end. Before that, the column `duplicate` is null, and the duplicate bit in
//! `flags` is 0.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_formats::bam::RecordBuffer;
use godwit_formats::sam::Header;
use godwit_model::{Genome, IntervalSet};

use crate::bam_dataset::{ReadsTable, intervals_in};
use crate::batch_reader::fused_reader;
use crate::sam_cram_dataset::RecordBatches;

/// Suffix of the dataset names of unfinished jobs.
pub(crate) const DATASET_SUFFIX: &str = ".live";
/// Name of the column that marks duplicates. It is null until the job has marked them.
const DUPLICATE_COLUMN: &str = "duplicate";

/// The reads of an unfinished job, stored in frames. A frame is a range of records that are stored together, identified
/// by two numbers whose meaning only the implementation knows.
pub trait UnfinishedJobReads: std::fmt::Debug + Send + Sync {
    /// Returns the SAM header of the job's output.
    fn header(&self) -> &Header;

    /// Returns a version that differs between any two jobs. It does not change when the job aligns more reads.
    fn version(&self) -> u64;

    /// Returns the number of records that have been aligned so far, and their size in bytes.
    ///
    /// # Errors
    /// [`DatasetError`] if the job directory cannot be read.
    fn record_and_byte_counts(&self) -> Result<(u64, u64), DatasetError>;

    /// Returns the frames that exist so far. If `spans` is set, returns only frames that may contain a record that
    /// overlaps one of these intervals.
    ///
    /// # Errors
    /// [`DatasetError`] if the job directory cannot be read.
    fn frames(&self, spans: Option<&IntervalSet>) -> Result<Vec<(u64, u64)>, DatasetError>;

    /// Reads the records of a frame into `chunk`.
    ///
    /// # Errors
    /// [`DatasetError`] if the frame cannot be read.
    fn read_frame(&self, frame: (u64, u64), chunk: &mut RecordBuffer) -> Result<(), DatasetError>;
}

/// Finds unfinished jobs by their job directories and opens them.
pub trait UnfinishedJobs: std::fmt::Debug + Send + Sync {
    /// Returns the dataset name of the unfinished job in a directory, without suffix; `None` if the directory contains
    /// no such job.
    fn dataset_name_in(&self, directory: &Path) -> Option<String>;

    /// Opens the unfinished job in a directory.
    ///
    /// # Errors
    /// [`DatasetError`] if the job cannot be read.
    fn open(&self, directory: &Path) -> Result<Arc<dyn UnfinishedJobReads>, DatasetError>;
}

#[derive(Debug)]
pub(crate) struct UnfinishedJobDataset {
    reads: Arc<dyn UnfinishedJobReads>,
    table: ReadsTable,
    genome: Genome,
    schema: SchemaRef,
    /// Number of records and their size in bytes when the dataset was opened.
    counts: (u64, u64),
}

impl UnfinishedJobDataset {
    pub(crate) fn open(reads: Arc<dyn UnfinishedJobReads>) -> Result<Self, DatasetError> {
        let table = ReadsTable::new(reads.header())?;
        let genome = reads.header().genome().map_err(|error| DatasetError::Data(error.into()))?;
        let duplicate = Arc::new(Field::new(DUPLICATE_COLUMN, DataType::Boolean, true));
        let fields: Vec<_> = table.schema.fields().iter().cloned().chain([duplicate]).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, table.schema.metadata().clone()));
        let counts = reads.record_and_byte_counts()?;
        Ok(Self { reads, table, genome, schema, counts })
    }

    fn intervals(&self, scan: &Scan) -> Result<Option<IntervalSet>, DatasetError> {
        let spans = |regions: &Vec<_>| intervals_in(&self.genome, regions, Path::new("the run"));
        scan.regions.as_ref().map(spans).transpose()
    }

    /// Returns the scan without the `duplicate` column, and whether that column is requested as well.
    fn record_scan(&self, scan: &Scan) -> (Scan, bool) {
        let own = self.table.schema.fields().len();
        let Some(columns) = &scan.columns else { return (scan.clone(), true) };
        let known = columns.iter().copied().filter(|at| *at < own).collect();
        (Scan { columns: Some(known), regions: scan.regions.clone() }, columns.contains(&own))
    }
}

impl Dataset for UnfinishedJobDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Reads
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
        Some(self.genome.contig_id(name).is_some())
    }

    fn parts(&self, scan: &Scan, most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        let frames = self.reads.frames(self.intervals(scan)?.as_ref())?;
        let share = frames.len().div_ceil(most.max(1)).max(1);
        Ok(frames.chunks(share).map(|frames| ScanPart { ranges: frames.to_vec() }).collect())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        let (of_records, with_duplicate) = self.record_scan(scan);
        let (reads, mut frames) = (self.reads.clone(), part.ranges.clone().into_iter());
        let next = move |chunk: &mut RecordBuffer| match frames.next() {
            Some(frame) => reads.read_frame(frame, chunk).map(|()| true),
            None => Ok(false),
        };
        let mut chunks = RecordBatches::new(next, self.table.columns(&of_records), self.intervals(scan)?);
        let (scanned, all) = (scan.columns.clone(), self.schema.clone());
        Ok(fused_reader(move || {
            let Some(batch) = chunks.next_batch()? else { return Ok(None) };
            if with_duplicate {
                with_null_duplicates(&batch, &all, scanned.as_deref()).map(Some)
            } else {
                Ok(Some(batch))
            }
        }))
    }
}

/// Appends the column `duplicate`, with only null values, to a batch.
fn with_null_duplicates(
    batch: &RecordBatch,
    all: &SchemaRef,
    scanned: Option<&[usize]>,
) -> Result<RecordBatch, DatasetError> {
    let failed = |error: arrow_schema::ArrowError| DatasetError::Data(error.into());
    let schema = match scanned {
        Some(columns) => Arc::new(all.project(columns).map_err(failed)?),
        None => all.clone(),
    };
    let unknown: ArrayRef = Arc::new(BooleanArray::new_null(batch.num_rows()));
    let columns = batch.columns().iter().cloned().chain([unknown]).collect();
    RecordBatch::try_new(schema, columns).map_err(failed)
}
