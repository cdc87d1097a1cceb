//! VCF and BCF files read by index, for lookups and for several readers at once.
//!
//! Flows in: a BGZF file, chunks of it from an index, and the requested regions. Flows out: records, in the order of the
//! file.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use godwit_model::IntervalSet;

use super::bcf::{Dictionaries, RecordDecoder};
use super::error::VcfError;
use super::header::Header;
use super::reader::{Reader, read_record_line};
use super::record::Record;
use crate::bgzf::{IndexedReader, SeekReader, VirtualOffset};
use crate::binning_index::FileChunk;
use crate::random_access::RandomAccess;

/// A bgzipped VCF, or a BCF: its header, known before its records are read.
#[derive(Debug)]
pub struct VcfFile {
    source: Arc<dyn RandomAccess>,
    header: Arc<Header>,
    /// Dictionaries of BCF; `None` for VCF.
    dictionaries: Option<Arc<Dictionaries>>,
    first_record_offset: VirtualOffset,
}

impl VcfFile {
    /// Reads the header of a file that is BGZF.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn open(source: Arc<dyn RandomAccess>) -> Result<Self, VcfError> {
        let (header, decoder, input) = Reader::new(SeekReader::new(source.clone()))?.into_parts();
        let dictionaries = decoder.map(|decoder| decoder.dictionaries().clone());
        Ok(Self { source, header: Arc::new(header), dictionaries, first_record_offset: input.virtual_offset() })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// Returns the length, bytes.
    pub fn byte_len(&self) -> u64 {
        self.source.byte_len()
    }

    /// Returns the header.
    pub fn header(&self) -> &Arc<Header> {
        &self.header
    }

    /// Returns the contig numbers of the index by name, if the file numbers contigs, as BCF does.
    pub fn contig_ids(&self) -> Option<HashMap<String, u32>> {
        self.dictionaries.as_ref().map(|dictionaries| dictionaries.contig_ids())
    }

    /// Returns the virtual offset of the first record; that of the end of the header where the file has none.
    pub fn first_record_offset(&self) -> VirtualOffset {
        self.first_record_offset
    }

    /// Reads the records that begin in the given chunks, each of which begins with a record. An end of `u64::MAX` is the
    /// end of the file.
    pub fn records_in_chunks(&self, chunks: Vec<FileChunk>) -> IndexedRecords {
        IndexedRecords {
            input: IndexedReader::new(self.source.clone(), chunks),
            header: self.header.clone(),
            decoder: self.dictionaries.clone().map(RecordDecoder::new),
            interval_filter: None,
            line: Vec::new(),
        }
    }
}

/// A stream of records of a file.
#[derive(Debug)]
pub struct IndexedRecords {
    input: IndexedReader,
    header: Arc<Header>,
    decoder: Option<RecordDecoder>,
    interval_filter: Option<IntervalFilter>,
    line: Vec<u8>,
}

/// A filter of records by interval.
#[derive(Debug)]
struct IntervalFilter {
    intervals: IntervalSet,
    contig_ids: HashMap<String, u32>,
    /// The contig of the previous record, mostly the next one's too.
    last_contig: (String, u32),
}

impl IndexedRecords {
    /// Skips records that overlap none of the intervals, whose contigs are numbered by `contig_ids`, as `bcftools view -r`
    /// does (bcftools 1.16): by `REF`, or by `END` where a record has it.
    pub fn with_intervals(mut self, intervals: IntervalSet, contig_ids: HashMap<String, u32>) -> Self {
        self.interval_filter = Some(IntervalFilter { intervals, contig_ids, last_contig: (String::new(), u32::MAX) });
        self
    }

    /// Returns the next record.
    ///
    /// # Errors
    /// [`VcfError`].
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, VcfError> {
        while let Some(end) = self.read_next()? {
            let parsed = Record::parse(&self.line, 0, &self.header, end);
            let record = parsed.map_err(|problem| self.record_error(problem))?;
            if self.interval_filter.as_mut().is_none_or(|wanted| wanted.matches(&record)) {
                // Parsed once more, because the borrow of a loop cannot leave it.
                let parsed = Record::parse(&self.line, 0, &self.header, end);
                return parsed.map(Some).map_err(|problem| record_error_at(&self.input, problem));
            }
        }
        Ok(None)
    }

    /// Returns an error about the record that was read last.
    pub fn record_error(&self, problem: String) -> VcfError {
        record_error_at(&self.input, problem)
    }

    /// Reads the line of the next record, and returns the end that BCF stores for it; `None` at the end.
    fn read_next(&mut self) -> Result<Option<Option<i32>>, VcfError> {
        let Self { input, decoder, line, .. } = self;
        let path = input.path().to_owned();
        let (mut end, mut record_problem) = (None, None);
        let more = input.read_next_with(|input| match decoder {
            None => read_record_line(input, &path, line, &mut 0),
            Some(decoder) => match decoder.decode_next(input, line)? {
                Ok(found) => {
                    end = found.and_then(|found| found.end_position);
                    Ok(found.is_some())
                }
                Err(problem) => {
                    record_problem = Some(problem);
                    Ok(true)
                }
            },
        })?;
        match record_problem {
            Some(problem) => Err(record_error_at(input, problem)),
            None => Ok(more.then_some(end)),
        }
    }
}

fn record_error_at(input: &IndexedReader, problem: String) -> VcfError {
    VcfError::RecordAt { path: input.path().to_owned(), offset: input.record_offset(), problem }
}

impl IntervalFilter {
    fn matches(&mut self, record: &Record) -> bool {
        if self.last_contig.0 != record.contig {
            self.last_contig =
                (record.contig.to_owned(), self.contig_ids.get(record.contig).copied().unwrap_or(u32::MAX));
        }
        let (start, end) = (record.position.max(0) as u32, record.end_position().max(0) as u32);
        self.intervals.overlaps(self.last_contig.1, start, end)
    }
}
