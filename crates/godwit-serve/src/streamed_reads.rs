//! SAM and CRAM files as datasets: aligned reads that are read from front to back.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use godwit_cram::{CramError, DecodeRequest};
use godwit_flight::{BatchReader, Dataset, DatasetError, Kind, Part, Scan};
use godwit_formats::bam::RecordChunk;
use godwit_formats::columnar::{ColumnLayout, Columns};
use godwit_formats::is_system_failure;
use godwit_formats::sam::{self, Header, LineEncoder};
use godwit_model::{RawRecord, SpanSet};

use crate::reads::{ReadsTable, no_contig};
use crate::whole_files::one_part;

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
        godwit_cram::Reader::open(&self.program, &request).map_err(of_cram)
    }
}

fn of_cram(error: CramError) -> DatasetError {
    if is_system_failure(&error) { DatasetError::Machine(error.into()) } else { DatasetError::Data(error.into()) }
}

fn of_sam<E: std::error::Error + Send + Sync + 'static>(error: E) -> DatasetError {
    if is_system_failure(&error) { DatasetError::Machine(error.into()) } else { DatasetError::Data(error.into()) }
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
    path: PathBuf,
    origin: Origin,
    header: Header,
    table: ReadsTable,
    bytes: u64,
    version: u64,
}

impl StreamedReads {
    pub(crate) fn open(path: &Path, origin: Origin, version: u64) -> Result<Self, DatasetError> {
        let bytes = fs::metadata(path).map_err(|source| crate::root::cannot_open(path, source))?.len();
        let header = match &origin {
            Origin::Sam => sam::Reader::open(path, 1).map_err(of_sam)?.header().clone(),
            Origin::Cram(access) => access.open(path)?.header().clone(),
        };
        let table = ReadsTable::new(&header)?;
        Ok(Self { path: path.to_owned(), origin, header, table, bytes, version })
    }

    fn records(&self) -> Result<Records, DatasetError> {
        let source = match &self.origin {
            Origin::Sam => {
                let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
                let reader = sam::Reader::open(&self.path, 1).map_err(of_sam)?;
                Source::Sam { reader: Box::new(reader), encoder: Box::new(LineEncoder::new(&genome)) }
            }
            Origin::Cram(access) => Source::Cram(Box::new(access.open(&self.path)?)),
        };
        Ok(Records { source, path: self.path.clone() })
    }
}

impl Dataset for StreamedReads {
    fn kind(&self) -> Kind {
        Kind::Reads
    }

    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn rows(&self) -> Option<u64> {
        None
    }

    fn bytes(&self) -> u64 {
        self.bytes
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
        let spans = scan.regions.as_ref().map(|regions| {
            let genome = self.header.genome().map_err(|error| DatasetError::Data(error.into()))?;
            let span = |region: &godwit_model::Region| {
                let contig = genome.find(&region.contig).ok_or_else(|| no_contig(&region.contig, &self.path))?;
                Ok((contig.0, region.start, region.end))
            };
            Ok::<_, DatasetError>(SpanSet::new(regions.iter().map(span).collect::<Result<Vec<_>, DatasetError>>()?))
        });
        Ok(Box::new(Batches {
            records: self.records()?,
            chunk: RecordChunk::default(),
            at: 0,
            spans: spans.transpose()?,
            columns: self.table.columns(scan),
            is_over: false,
        }))
    }
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
            Source::Cram(reader) => reader.read_chunk(chunk, CHUNK_BYTES).map_err(of_cram),
            Source::Sam { reader, encoder } => {
                let Some(lines) = reader.next_lines(CHUNK_BYTES).map_err(of_sam)? else { return Ok(false) };
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

struct Batches {
    records: Records,
    chunk: RecordChunk,
    /// Records of the chunk that were looked at.
    at: usize,
    spans: Option<SpanSet>,
    columns: Columns<Arc<ColumnLayout>>,
    is_over: bool,
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").finish_non_exhaustive()
    }
}

impl Batches {
    fn fill(&mut self) -> Result<Option<RecordBatch>, DatasetError> {
        while !self.columns.is_full() {
            if self.at == self.chunk.ends.len() {
                self.at = 0;
                if !self.records.next_chunk(&mut self.chunk)? {
                    self.is_over = true;
                    break;
                }
            }
            let start = if self.at == 0 { 0 } else { self.chunk.ends[self.at - 1] };
            let end = self.chunk.ends.get(self.at).copied().unwrap_or(start);
            self.at += 1;
            let record = RawRecord::trusted(&self.chunk.data[start..end]);
            let wanted = self.spans.as_ref().is_none_or(|spans| {
                let (start, end) = (record.position().max(0) as u32, record.end_position(record.flag()).max(0) as u32);
                spans.overlaps(record.contig() as u32, start, end)
            });
            if wanted {
                self.columns.push(record, record.flag());
            }
        }
        if self.columns.rows() == 0 {
            return Ok(None);
        }
        self.columns.take_batch().map(Some).map_err(|error| DatasetError::Data(error.into()))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let filled = self.fill();
        self.is_over |= filled.is_err();
        filled.transpose()
    }
}
