//! SAM and CRAM files as datasets of aligned reads. These files are read sequentially, without an index.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use godwit_columnar::{AlignmentBatchBuilder, AlignmentLayout};
use godwit_cram::DecodeRequest;
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_formats::bam::RecordBuffer;
use godwit_formats::sam::{self, Header, LineEncoder};
use godwit_model::{IntervalSet, RawRecord};

use crate::bam_dataset::{ReadsTable, intervals_in, take_rows};
use crate::batch_reader::{fused_reader, single_part};
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// Number of bytes of records that are decoded at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Options for reading CRAM files.
#[derive(Clone, Debug)]
pub struct CramOptions {
    /// Path of the godwit program, which is started as a separate process to decode CRAM.
    pub program: PathBuf,
    /// Path of the FASTA reference of the CRAM files, and of a directory for temporary files. If `None`, only CRAM
    /// files that need no reference can be read.
    pub reference: Option<(PathBuf, PathBuf)>,
}

impl CramOptions {
    fn open_reader(&self, path: &Path) -> Result<godwit_cram::Reader, DatasetError> {
        let request = DecodeRequest { path: path.to_owned(), reference: self.reference.clone(), threads: 1 };
        godwit_cram::Reader::open(&self.program, &request).map_err(dataset_error)
    }
}

/// Format of a file of aligned reads that is read sequentially.
#[derive(Clone, Debug)]
pub(crate) enum ReadsFormat {
    Sam,
    Cram(CramOptions),
}

/// A dataset of the aligned reads in a SAM or CRAM file.
#[derive(Debug)]
pub(crate) struct SamCramDataset {
    store: FileStore,
    snapshot: FileSnapshot,
    format: ReadsFormat,
    header: Header,
    table: ReadsTable,
    version: u64,
}

impl SamCramDataset {
    pub(crate) fn open(store: &FileStore, seen: &DatasetSnapshot, format: ReadsFormat) -> Result<Self, DatasetError> {
        let of = seen.single_file()?;
        let header = match &format {
            ReadsFormat::Sam => sam::Reader::new(store.open_text(of)?).map_err(dataset_error)?.header().clone(),
            ReadsFormat::Cram(access) => access.open_reader(&of.path)?.header().clone(),
        };
        let table = ReadsTable::new(&header)?;
        let (store, snapshot, version) = (store.clone(), of.clone(), seen.version);
        Ok(Self { store, snapshot, format, header, table, version })
    }

    fn record_reader(&self) -> Result<RecordReader, DatasetError> {
        let source = match &self.format {
            ReadsFormat::Sam => {
                let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
                let reader = sam::Reader::new(self.store.open_text(&self.snapshot)?).map_err(dataset_error)?;
                SamCramSource::Sam { reader: Box::new(reader), encoder: Box::new(LineEncoder::new(&genome)) }
            }
            ReadsFormat::Cram(access) => SamCramSource::Cram(Box::new(access.open_reader(&self.snapshot.path)?)),
        };
        Ok(RecordReader { source, path: self.snapshot.path.clone() })
    }
}

impl Dataset for SamCramDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.snapshot.bytes
    }

    fn sample(&self) -> Option<&str> {
        self.table.sample.as_deref()
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        true
    }

    fn sorted_by(&self) -> &[&'static str] {
        self.table.sorted_by()
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(single_part())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let spans = match &scan.regions {
            Some(regions) => {
                let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
                Some(intervals_in(&genome, regions, &self.snapshot.path)?)
            }
            None => None,
        };
        let mut records = self.record_reader()?;
        let mut chunks = RecordBatches::new(move |chunk| records.next_chunk(chunk), self.table.columns(scan), spans);
        Ok(fused_reader(move || chunks.next_batch()))
    }
}

/// Converts buffers of records to record batches, and drops records that no requested interval overlaps.
pub(crate) struct RecordBatches<F> {
    /// Function that replaces the content of the buffer by the next records. It returns false if there are no more
    /// records.
    read_next: F,
    columns: AlignmentBatchBuilder<Arc<AlignmentLayout>>,
    intervals: Option<IntervalSet>,
    chunk: RecordBuffer,
    /// Index in the buffer of the next record to convert.
    next_record: usize,
}

impl<F: FnMut(&mut RecordBuffer) -> Result<bool, DatasetError>> RecordBatches<F> {
    pub(crate) fn new(
        read_next: F,
        columns: AlignmentBatchBuilder<Arc<AlignmentLayout>>,
        intervals: Option<IntervalSet>,
    ) -> Self {
        Self { read_next, columns, intervals, chunk: RecordBuffer::default(), next_record: 0 }
    }

    /// Returns the next batch of rows that overlap a requested interval; `None` after the last record.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        let Self { read_next, columns, intervals, chunk, next_record } = self;
        while !columns.is_full() {
            if *next_record == chunk.end_offsets.len() {
                *next_record = 0;
                if !read_next(chunk)? {
                    chunk.end_offsets.clear();
                    break;
                }
                continue;
            }
            let start = if *next_record == 0 { 0 } else { chunk.end_offsets[*next_record - 1] };
            let record = RawRecord::from_trusted_bytes(&chunk.data[start..chunk.end_offsets[*next_record]]);
            *next_record += 1;
            if overlaps_intervals(record, intervals.as_ref()) {
                columns.push(record, record.flag());
            }
        }
        take_rows(columns)
    }
}

fn overlaps_intervals(record: RawRecord, spans: Option<&IntervalSet>) -> bool {
    spans.is_none_or(|spans| {
        let (start, end) = (record.position().max(0) as u32, record.end_position(record.flag()).max(0) as u32);
        spans.overlaps(record.contig() as u32, start, end)
    })
}

enum SamCramSource {
    Sam { reader: Box<sam::Reader>, encoder: Box<LineEncoder> },
    Cram(Box<godwit_cram::Reader>),
}

struct RecordReader {
    source: SamCramSource,
    path: PathBuf,
}

/// An error in a line of a SAM file.
#[derive(Debug, thiserror::Error)]
#[error("{}, line {line}", path.display())]
struct InvalidSamLine {
    path: PathBuf,
    line: u64,
    #[source]
    source: sam::SamError,
}

impl RecordReader {
    /// Replaces the content of the buffer by the next records. Returns false if there are no more records.
    fn next_chunk(&mut self, chunk: &mut RecordBuffer) -> Result<bool, DatasetError> {
        match &mut self.source {
            SamCramSource::Cram(reader) => reader.read_chunk(chunk, CHUNK_BYTES).map_err(dataset_error),
            SamCramSource::Sam { reader, encoder } => {
                let Some(lines) = reader.next_lines(CHUNK_BYTES).map_err(dataset_error)? else { return Ok(false) };
                chunk.data.clear();
                chunk.end_offsets.clear();
                for (at, line) in (0..).zip(lines.lines()) {
                    let bad =
                        |source| InvalidSamLine { path: self.path.clone(), line: lines.first_line_number + at, source };
                    encoder.encode(line, &mut chunk.data).map_err(|source| DatasetError::Data(bad(source).into()))?;
                    chunk.end_offsets.push(chunk.data.len());
                }
                Ok(true)
            }
        }
    }
}
