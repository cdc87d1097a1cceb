//! Files that are read from front to back only: FASTA, FASTQ, BED and GFF.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use arrow_array::builder::{BinaryBuilder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::fasta::{FastaError, Reader as FastaReader};
use godwit_formats::fastq::{LaneEvent, LaneInput, LaneOptions, LaneReader};
use godwit_formats::intervals::{Interval, IntervalFormat, IntervalReader};
use godwit_model::SpanSet;

use crate::batches::{blamed, one_part, until_done};
use crate::store::{Seen, SeenFile, Store};

/// Bases of a row of a reference: so that no row is a chromosome.
pub(crate) const ROW_BASES: usize = 1 << 16;
/// Rows of such a batch.
const BATCH_ROWS: usize = 32;

/// What such a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Contigs, in rows of up to 65,536 bases.
    Fasta,
    /// Reads.
    Fastq,
    /// Places.
    Intervals(IntervalFormat),
}

/// A file that is read from front to back.
#[derive(Debug)]
pub(crate) struct WholeFile {
    store: Store,
    of: SeenFile,
    content: Content,
    schema: SchemaRef,
    version: u64,
    /// The contigs that rows are on, once somebody has asked; `None` where they cannot be read.
    contigs: OnceLock<Option<HashSet<String>>>,
}

impl Content {
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
        }))
    }
}

impl WholeFile {
    pub(crate) fn open(store: &Store, seen: &Seen, content: Content) -> Result<Self, DatasetError> {
        let (store, of, version) = (store.clone(), seen.file()?.clone(), seen.version);
        Ok(Self { store, of, content, schema: content.schema(), version, contigs: OnceLock::new() })
    }

    /// Reads the whole file for the contigs that its rows are on: no header lists them.
    fn read_contigs(&self) -> Result<HashSet<String>, DatasetError> {
        let mut contigs = HashSet::new();
        match self.content {
            Content::Fasta => {
                let mut reader = FastaReader::new(self.store.open_text(&self.of)?);
                while let Some(contig) = reader.next_contig().map_err(blamed)? {
                    contigs.insert(contig);
                }
            }
            Content::Fastq => {}
            Content::Intervals(format) => {
                let mut reader = IntervalReader::new(self.store.open_text(&self.of)?, format);
                let found = RefCell::new(&mut contigs);
                let note = |interval: &Interval| {
                    let mut found = found.borrow_mut();
                    if !found.contains(interval.contig) {
                        found.insert(interval.contig.to_owned());
                    }
                    false
                };
                while reader.next_batch(note).map_err(blamed)?.is_some() {}
            }
        }
        Ok(contigs)
    }

    fn contigs(&self, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let contigs: Option<Vec<String>> =
            scan.regions.as_ref().map(|regions| regions.iter().map(|region| region.contig.clone()).collect());
        let spans = scan
            .regions
            .as_ref()
            .map(|regions| SpanSet::new((0..).zip(regions).map(|(contig, region)| (contig, region.start, region.end))));
        let reader = FastaReader::new(self.store.open_text(&self.of)?);
        let rows = FastaRows { reader, contig: None, position: 0, held: Vec::new(), ended: false };
        let schema = self.schema.clone();
        let columns = scan.columns.clone();
        let wanted = move |row: &FastaRow| match (&contigs, &spans) {
            (Some(contigs), Some(spans)) => (0..).zip(contigs).any(|(at, contig)| {
                *contig == row.contig
                    && spans.overlaps(at, row.start as u32, (row.start as usize + row.bases.len()) as u32)
            }),
            _ => true,
        };
        let mut batches = FastaBatches { rows, schema, columns, wanted: Box::new(wanted) };
        Ok(until_done(move || batches.fill()))
    }

    fn reads(&self, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let input = LaneInput::Single(self.store.open_text(&self.of)?);
        let mut reader = LaneReader::new(input, &LaneOptions::default());
        let (schema, columns) = (self.schema.clone(), scan.columns.clone());
        Ok(until_done(move || {
            loop {
                match reader.next().map_err(blamed)? {
                    Some(LaneEvent::Reads(batch)) => {
                        return projected(as_text(&batch, &schema)?, columns.as_deref()).map(Some);
                    }
                    Some(LaneEvent::BlockEnd { .. }) => {}
                    None => return Ok(None),
                }
            }
        }))
    }

    fn intervals(&self, format: IntervalFormat, scan: &Scan) -> Result<BatchReader, DatasetError> {
        let mut reader = IntervalReader::new(self.store.open_text(&self.of)?, format);
        let (regions, columns) = (scan.regions.clone(), scan.columns.clone());
        let wanted = move |interval: &Interval| {
            regions.as_ref().is_none_or(|regions| {
                regions.iter().any(|region| {
                    let (start, end) = (i64::from(interval.start), i64::from(interval.end));
                    region.contig == interval.contig
                        && start < i64::from(region.end)
                        && end.max(start + 1) > i64::from(region.start)
                })
            })
        };
        Ok(until_done(move || {
            let batch = reader.next_batch(&wanted).map_err(blamed)?;
            batch.map(|batch| projected(batch, columns.as_deref())).transpose()
        }))
    }
}

impl Dataset for WholeFile {
    fn kind(&self) -> Kind {
        Kind::Table
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.of.bytes
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn has_regions(&self) -> bool {
        self.content != Content::Fastq
    }

    fn has_contig(&self, name: &str) -> Option<bool> {
        // A contig of the genome without a row is not in the file: only those that are found are known.
        let contigs = self.contigs.get_or_init(|| self.read_contigs().ok());
        contigs.as_ref()?.contains(name).then_some(true)
    }

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(one_part())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        match self.content {
            Content::Fasta => self.contigs(scan),
            Content::Fastq => self.reads(scan),
            Content::Intervals(format) => self.intervals(format, scan),
        }
    }
}

/// Only the columns that are wanted.
pub(crate) fn projected(batch: RecordBatch, columns: Option<&[usize]>) -> Result<RecordBatch, DatasetError> {
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
    /// Bases of the row in the making.
    held: Vec<u8>,
    ended: bool,
}

impl FastaRows {
    fn next(&mut self) -> Result<Option<FastaRow>, FastaError> {
        loop {
            let Some(contig) = &self.contig else {
                if self.ended {
                    return Ok(None);
                }
                self.contig = self.reader.next_contig()?;
                self.position = 0;
                self.ended = self.contig.is_none();
                continue;
            };
            while self.held.len() < ROW_BASES {
                match self.reader.next_bases()? {
                    Some(bases) => self.held.extend_from_slice(bases),
                    None => break,
                }
            }
            if self.held.is_empty() {
                self.contig = None;
                continue;
            }
            let rest = self.held.split_off(ROW_BASES.min(self.held.len()));
            let bases = std::mem::replace(&mut self.held, rest);
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
    wanted: Box<dyn Fn(&FastaRow) -> bool + Send>,
}

impl FastaBatches {
    fn fill(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        let (mut contigs, mut starts, mut ends) = (StringBuilder::new(), Int64Builder::new(), Int64Builder::new());
        let (mut bases, mut rows) = (StringBuilder::new(), 0);
        while rows < BATCH_ROWS {
            let Some(row) = self.rows.next().map_err(blamed)? else { break };
            if !(self.wanted)(&row) {
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
        projected(batch, self.columns.as_deref()).map(Some)
    }
}

/// Names and bases as text, qualities as Phred scores.
fn as_text(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DatasetError> {
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
