//! SAM and CRAM files as datasets: aligned reads that are read from front to back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use godwit_cram::DecodeRequest;
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::bam::RecordChunk;
use godwit_formats::columnar::{ColumnLayout, Columns};
use godwit_formats::sam::{self, Header, LineEncoder};
use godwit_model::{RawRecord, SpanSet};

use crate::batches::{blamed, one_part, until_done};
use crate::reads::{ReadsTable, spans_in, taken};
use crate::store::{Seen, SeenFile, Store};

/// Bytes of records that are decoded at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// How CRAM files are read.
#[derive(Clone, Debug)]
pub struct CramAccess {
    /// godwit itself, which decodes in a process of its own.
    pub program: PathBuf,
    /// The reference that files were made with, FASTA, and a directory for scratch files. Without it only files that hold
    /// none of it can be read.
    pub reference: Option<(PathBuf, PathBuf)>,
}

impl CramAccess {
    fn open(&self, path: &Path) -> Result<godwit_cram::Reader, DatasetError> {
        let request = DecodeRequest { path: path.to_owned(), reference: self.reference.clone(), threads: 1 };
        godwit_cram::Reader::open(&self.program, &request).map_err(blamed)
    }
}

/// Where records come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Sam,
    Cram(CramAccess),
}

/// Aligned reads of a file that has no places to begin at.
#[derive(Debug)]
pub(crate) struct StreamedReads {
    store: Store,
    of: SeenFile,
    origin: Origin,
    header: Header,
    table: ReadsTable,
    version: u64,
}

impl StreamedReads {
    pub(crate) fn open(store: &Store, seen: &Seen, origin: Origin) -> Result<Self, DatasetError> {
        let of = seen.file()?;
        let header = match &origin {
            Origin::Sam => sam::Reader::new(store.open_text(of)?).map_err(blamed)?.header().clone(),
            Origin::Cram(access) => access.open(&of.path)?.header().clone(),
        };
        let table = ReadsTable::new(&header)?;
        let (store, of, version) = (store.clone(), of.clone(), seen.version);
        Ok(Self { store, of, origin, header, table, version })
    }

    fn records(&self) -> Result<Records, DatasetError> {
        let source = match &self.origin {
            Origin::Sam => {
                let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
                let reader = sam::Reader::new(self.store.open_text(&self.of)?).map_err(blamed)?;
                Source::Sam { reader: Box::new(reader), encoder: Box::new(LineEncoder::new(&genome)) }
            }
            Origin::Cram(access) => Source::Cram(Box::new(access.open(&self.of.path)?)),
        };
        Ok(Records { source, path: self.of.path.clone() })
    }
}

impl Dataset for StreamedReads {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn bytes(&self) -> u64 {
        self.of.bytes
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

    fn parts(&self, _scan: &Scan, _most: usize) -> Result<Vec<Part>, DatasetError> {
        Ok(one_part())
    }

    fn read(&self, scan: &Scan, part: &Part) -> Result<BatchReader, DatasetError> {
        if part.stretches.is_empty() {
            return Ok(Box::new(std::iter::empty()));
        }
        let spans = match &scan.regions {
            Some(regions) => {
                let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
                Some(spans_in(&genome, regions, &self.of.path)?)
            }
            None => None,
        };
        let mut records = self.records()?;
        let mut chunks = Chunks::new(move |chunk| records.next_chunk(chunk), self.table.columns(scan), spans);
        Ok(until_done(move || chunks.next_batch()))
    }
}

/// Records that come in chunks, as batches of columns.
pub(crate) struct Chunks<F> {
    /// Replaces the records of a chunk by the next ones; false where there are none.
    next: F,
    columns: Columns<Arc<ColumnLayout>>,
    spans: Option<SpanSet>,
    chunk: RecordChunk,
    /// The next record of the chunk.
    at: usize,
}

impl<F: FnMut(&mut RecordChunk) -> Result<bool, DatasetError>> Chunks<F> {
    pub(crate) fn new(next: F, columns: Columns<Arc<ColumnLayout>>, spans: Option<SpanSet>) -> Self {
        Self { next, columns, spans, chunk: RecordChunk::default(), at: 0 }
    }

    /// The next rows that overlap a span; `None` where there are no more.
    pub(crate) fn next_batch(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        let Self { next, columns, spans, chunk, at } = self;
        while !columns.is_full() {
            if *at == chunk.ends.len() {
                *at = 0;
                if !next(chunk)? {
                    chunk.ends.clear();
                    break;
                }
                continue;
            }
            let start = if *at == 0 { 0 } else { chunk.ends[*at - 1] };
            let record = RawRecord::trusted(&chunk.data[start..chunk.ends[*at]]);
            *at += 1;
            if is_wanted(record, spans.as_ref()) {
                columns.push(record, record.flag());
            }
        }
        taken(columns)
    }
}

fn is_wanted(record: RawRecord, spans: Option<&SpanSet>) -> bool {
    spans.is_none_or(|spans| {
        let (start, end) = (record.position().max(0) as u32, record.end_position(record.flag()).max(0) as u32);
        spans.overlaps(record.contig() as u32, start, end)
    })
}

enum Source {
    Sam { reader: Box<sam::Reader>, encoder: Box<LineEncoder> },
    Cram(Box<godwit_cram::Reader>),
}

struct Records {
    source: Source,
    path: PathBuf,
}

/// A line of SAM that is none.
#[derive(Debug, thiserror::Error)]
#[error("{}, line {line}", path.display())]
struct BadLine {
    path: PathBuf,
    line: u64,
    #[source]
    source: sam::SamError,
}

impl Records {
    /// Replaces the records of a chunk by the next ones; false where there are none.
    fn next_chunk(&mut self, chunk: &mut RecordChunk) -> Result<bool, DatasetError> {
        match &mut self.source {
            Source::Cram(reader) => reader.read_chunk(chunk, CHUNK_BYTES).map_err(blamed),
            Source::Sam { reader, encoder } => {
                let Some(lines) = reader.next_lines(CHUNK_BYTES).map_err(blamed)? else { return Ok(false) };
                chunk.data.clear();
                chunk.ends.clear();
                for (at, line) in (0..).zip(lines.lines()) {
                    let bad = |source| BadLine { path: self.path.clone(), line: lines.first_line + at, source };
                    encoder.encode(line, &mut chunk.data).map_err(|source| DatasetError::Data(bad(source).into()))?;
                    chunk.ends.push(chunk.data.len());
                }
                Ok(true)
            }
        }
    }
}
