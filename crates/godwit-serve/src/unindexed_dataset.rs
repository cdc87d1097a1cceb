//! FASTA, FASTQ, BED, GFF and chain files as datasets. These files are read sequentially, without an index.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use arrow_array::builder::{BinaryBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use godwit_columnar::chain::{self, ChainBlock, ChainReader};
use godwit_dataset::{BatchReader, Dataset, DatasetError, DatasetKind, Scan, ScanPart};
use godwit_formats::fasta::{FastaError, Reader as FastaReader};
use godwit_formats::fastq::{LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::intervals::{Interval, IntervalFormat, IntervalReader};
use godwit_model::{IntervalSet, Region};

use crate::batch_reader::{fused_reader, single_part};
use crate::file_snapshot::{DatasetSnapshot, FileSnapshot};
use crate::file_store::FileStore;
use crate::read_error::dataset_error;

/// Maximum number of bases in a row of a FASTA dataset. It keeps rows much smaller than a chromosome.
pub(crate) const ROW_BASES: usize = 1 << 16;
/// Number of rows in a batch of a FASTA dataset.
const BATCH_ROWS: usize = 32;

/// Format of a file that is read sequentially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnindexedFormat {
    /// FASTA: contigs, split into rows of up to 65,536 bases.
    Fasta,
    /// FASTQ: reads with their qualities.
    Fastq,
    /// BED or GFF: genomic intervals.
    Intervals(IntervalFormat),
    /// A chain file: blocks that two assemblies share.
    Chain,
}

/// A dataset of the rows in a FASTA, FASTQ, BED, GFF or chain file.
#[derive(Debug)]
pub(crate) struct UnindexedDataset {
    store: FileStore,
    snapshot: FileSnapshot,
    format: UnindexedFormat,
    schema: SchemaRef,
    version: u64,
    /// Names of the contigs that occur in the rows, computed on first use; `None` if the file cannot be read.
    contigs: OnceLock<Option<HashSet<String>>>,
}

impl UnindexedFormat {
    pub(crate) fn schema(self) -> SchemaRef {
        let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
        let place = |name: &str| Field::new(name, DataType::Int64, false);
        Arc::new(Schema::new(match self {
            Self::Fasta => vec![text("contig", false), place("position"), place("end_position"), text("bases", false)],
            Self::Fastq => vec![
                text("name", false),
                text("comment", true),
                text("bases", false),
                Field::new("qualities", DataType::Binary, true),
            ],
            Self::Intervals(format) => return format.schema(),
            Self::Chain => return chain::schema(),
        }))
    }
}

impl UnindexedDataset {
    pub(crate) fn open(
        store: &FileStore,
        seen: &DatasetSnapshot,
        format: UnindexedFormat,
    ) -> Result<Self, DatasetError> {
        let (store, snapshot, version) = (store.clone(), seen.single_file()?.clone(), seen.version);
        Ok(Self { store, snapshot, format, schema: format.schema(), version, contigs: OnceLock::new() })
    }

    /// Reads the whole file and returns the names of the contigs in its rows, because the file has no header that lists
    /// them.
    fn read_contigs(&self) -> Result<HashSet<String>, DatasetError> {
        let mut contigs = HashSet::new();
        match self.format {
            UnindexedFormat::Fasta => {
                let mut reader = FastaReader::new(self.store.open_text(&self.snapshot)?);
                while let Some(contig) = reader.next_contig().map_err(dataset_error)? {
                    contigs.insert(contig);
                }
            }
            UnindexedFormat::Fastq => {}
            UnindexedFormat::Intervals(format) => {
                let mut reader = IntervalReader::new(self.store.open_text(&self.snapshot)?, format);
                let found = RefCell::new(&mut contigs);
                let note = |interval: &Interval| note_contig(&found, interval.contig);
                while reader.next_batch(note).map_err(dataset_error)?.is_some() {}
            }
            UnindexedFormat::Chain => {
                let mut reader = ChainReader::new(self.store.open_text(&self.snapshot)?);
                let found = RefCell::new(&mut contigs);
                let note = |block: &ChainBlock| note_contig(&found, block.contig);
                while reader.next_batch(note).map_err(dataset_error)?.is_some() {}
            }
        }
        Ok(contigs)
    }

    fn fasta_batches(&self, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let contigs: Option<Vec<String>> =
            scan.regions.as_ref().map(|regions| regions.iter().map(|region| region.contig.clone()).collect());
        let spans = scan.regions.as_ref().map(|regions| {
            IntervalSet::new((0..).zip(regions).map(|(contig, region)| (contig, region.start, region.end)))
        });
        let reader = FastaReader::new(self.store.open_text(&self.snapshot)?);
        let rows = FastaRows { reader, contig: None, position: 0, pending_bases: Vec::new(), is_finished: false };
        let schema = self.schema.clone();
        let columns = scan.columns.clone();
        let wanted = move |row: &FastaRow| match (&contigs, &spans) {
            (Some(contigs), Some(spans)) => (0..).zip(contigs).any(|(at, contig)| {
                *contig == row.contig
                    && spans.overlaps(at, row.start as u32, (row.start as usize + row.bases.len()) as u32)
            }),
            _ => true,
        };
        let mut batches = FastaBatches { rows, schema, columns, is_selected: Box::new(wanted) };
        Ok(fused_reader(move || batches.next_batch()))
    }

    fn fastq_batches(&self, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let input = LaneInput::Single(self.store.open_text(&self.snapshot)?);
        let mut reader = LaneReader::new(input, &LaneOptions::default());
        let (schema, columns) = (self.schema.clone(), scan.columns.clone());
        Ok(fused_reader(move || {
            loop {
                match reader.next().map_err(dataset_error)? {
                    Some(LaneEvent::Reads(batch)) => {
                        return project_columns(fastq_to_text(&batch, &schema)?, columns.as_deref()).map(Some);
                    }
                    Some(LaneEvent::BlockEnd { .. }) => {}
                    None => return Ok(None),
                }
            }
        }))
    }

    fn interval_batches(&self, format: IntervalFormat, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let mut reader = IntervalReader::new(self.store.open_text(&self.snapshot)?, format);
        let (regions, columns) = (scan.regions.clone(), scan.columns.clone());
        let wanted =
            move |row: &Interval| overlaps_regions(regions.as_deref(), row.contig, row.start.into(), row.end.into());
        Ok(fused_reader(move || {
            let batch = reader.next_batch(&wanted).map_err(dataset_error)?;
            batch.map(|batch| project_columns(batch, columns.as_deref())).transpose()
        }))
    }

    fn chain_batches(&self, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let mut reader = ChainReader::new(self.store.open_text(&self.snapshot)?);
        let (regions, columns) = (scan.regions.clone(), scan.columns.clone());
        let wanted =
            move |row: &ChainBlock| overlaps_regions(regions.as_deref(), row.contig, row.start.into(), row.end.into());
        Ok(fused_reader(move || {
            let batch = reader.next_batch(&wanted).map_err(dataset_error)?;
            batch.map(|batch| project_columns(batch, columns.as_deref())).transpose()
        }))
    }
}

/// Returns whether an interval overlaps a region. An interval without bases counts as one base long.
fn overlaps_regions(regions: Option<&[Region]>, contig: &str, start: i64, end: i64) -> bool {
    regions.is_none_or(|regions| {
        regions.iter().any(|region| {
            region.contig == contig && start < i64::from(region.end) && end.max(start + 1) > i64::from(region.start)
        })
    })
}

/// Adds a contig to a set. Returns false, so that a reader with this predicate returns no rows.
fn note_contig(contigs: &RefCell<&mut HashSet<String>>, contig: &str) -> bool {
    let mut contigs = contigs.borrow_mut();
    if !contigs.contains(contig) {
        contigs.insert(contig.to_owned());
    }
    false
}

impl Dataset for UnindexedDataset {
    fn kind(&self) -> DatasetKind {
        DatasetKind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.snapshot.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        self.format != UnindexedFormat::Fastq
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        // A FASTA file lists its contigs. Other files may lack a contig of the genome because the contig has no rows, so
        // only contigs that occur are known to exist.
        let contigs = self.contigs.get_or_init(|| self.read_contigs().ok());
        let is_found = contigs.as_ref()?.contains(name);
        (is_found || self.format == UnindexedFormat::Fasta).then_some(is_found)
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<ScanPart>, DatasetError> {
        Ok(single_part())
    }

    fn read(&self, scan: &Scan, part: &ScanPart) -> Result<BatchReader, DatasetError> {
        if part.ranges.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        match self.format {
            UnindexedFormat::Fasta => self.fasta_batches(scan),
            UnindexedFormat::Fastq => self.fastq_batches(scan),
            UnindexedFormat::Intervals(format) => self.interval_batches(format, scan),
            UnindexedFormat::Chain => self.chain_batches(scan),
        }
    }
}

/// Returns a batch with only the requested columns; `None` means all columns.
pub(crate) fn project_columns(batch: RecordBatch, columns: Option<&[usize]>) -> Result<RecordBatch, DatasetError> {
    match columns {
        Some(columns) => batch.project(columns).map_err(|error| DatasetError::Data(error.into())),
        None => Ok(batch),
    }
}

struct FastaRow {
    contig: String,
    start: i64,
    bases: Vec<u8>,
}

struct FastaRows {
    reader: FastaReader,
    contig: Option<String>,
    position: i64,
    /// Bases that belong to the row that is not complete yet.
    pending_bases: Vec<u8>,
    is_finished: bool,
}

impl FastaRows {
    fn next_row(&mut self) -> Result<Option<FastaRow>, FastaError> {
        loop {
            let Some(contig) = &self.contig else {
                if self.is_finished {
                    return Ok(None);
                }
                self.contig = self.reader.next_contig()?;
                self.position = 0;
                self.is_finished = self.contig.is_none();
                continue;
            };
            while self.pending_bases.len() < ROW_BASES {
                match self.reader.next_bases()? {
                    Some(bases) => self.pending_bases.extend_from_slice(bases),
                    None => break,
                }
            }
            if self.pending_bases.is_empty() {
                self.contig = None;
                continue;
            }
            let rest = self.pending_bases.split_off(ROW_BASES.min(self.pending_bases.len()));
            let bases = std::mem::replace(&mut self.pending_bases, rest);
            let start = self.position;
            self.position += bases.len() as i64;
            return Ok(Some(FastaRow { contig: contig.clone(), start, bases }));
        }
    }
}

struct FastaBatches {
    rows: FastaRows,
    schema: SchemaRef,
    columns: Option<Vec<usize>>,
    is_selected: Box<dyn Fn(&FastaRow) -> bool + Send>,
}

impl FastaBatches {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        let (mut contigs, mut starts, mut ends) = (StringBuilder::new(), Int64Builder::new(), Int64Builder::new());
        let (mut bases, mut rows) = (StringBuilder::new(), 0);
        while rows < BATCH_ROWS {
            let Some(row) = self.rows.next_row().map_err(dataset_error)? else { break };
            if !(self.is_selected)(&row) {
                continue;
            }
            rows += 1;
            contigs.append_value(&row.contig);
            starts.append_value(row.start);
            ends.append_value(row.start + row.bases.len() as i64);
            bases.append_value(String::from_utf8_lossy(&row.bases));
        }
        if rows == 0 {
            return Ok(None);
        }
        let columns: Vec<ArrayRef> = vec![
            Arc::new(contigs.finish()),
            Arc::new(starts.finish()),
            Arc::new(ends.finish()),
            Arc::new(bases.finish()),
        ];
        let batch = RecordBatch::try_new(self.schema.clone(), columns);
        let batch = batch.map_err(|error| DatasetError::Data(error.into()))?;
        project_columns(batch, self.columns.as_deref()).map(Some)
    }
}

/// Converts a batch of FASTQ reads: names and bases to text columns, and qualities to Phred scores.
fn fastq_to_text(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DatasetError> {
    use arrow_array::Array as _;
    use arrow_array::cast::AsArray as _;

    let text = |column: usize| {
        let values = batch.column(column).as_binary::<i32>();
        let mut texts = StringBuilder::with_capacity(values.len(), values.values().len());
        for row in 0..values.len() {
            texts.append_option((!values.is_null(row)).then(|| String::from_utf8_lossy(values.value(row))));
        }
        Arc::new(texts.finish()) as ArrayRef
    };
    let letters = batch.column(3).as_binary::<i32>();
    let mut scores = BinaryBuilder::with_capacity(letters.len(), letters.values().len());
    for row in 0..letters.len() {
        let one = || letters.value(row).iter().map(|letter| letter.saturating_sub(b'!')).collect::<Vec<u8>>();
        scores.append_option((!letters.is_null(row)).then(one));
    }
    let columns = vec![text(0), text(1), text(2), Arc::new(scores.finish()) as ArrayRef];
    RecordBatch::try_new(schema.clone(), columns).map_err(|error| DatasetError::Data(error.into()))
}
