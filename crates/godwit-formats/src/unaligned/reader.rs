//! A reader of templates from records.

use std::path::Path;

use godwit_model::{RawRecord, flags};

use super::error::{ReadProblem, UnalignedError};
use super::read::Read;
use crate::bam::{self, RecordBuffer};
use crate::bgzf;
use crate::sam::{self, Header, LineEncoder};

/// Bytes of records or lines per read.
const BUFFER_BYTES: usize = 1 << 20;

/// A selection of records by read group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadGroupFilter {
    /// All records, of any read group.
    All,
    /// All records; another read group than this one is an error.
    Single(Vec<u8>),
    /// The records of one read group, in a file that has these.
    OneOf {
        /// ID of the read group.
        id: Vec<u8>,
        /// IDs of all read groups, `id` among them.
        known_ids: Vec<Vec<u8>>,
    },
}

/// A selection of the records and tags of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The records.
    pub read_groups: ReadGroupFilter,
    /// The tags.
    pub tags: Vec<[u8; 2]>,
}

/// A reader of templates.
#[derive(Debug)]
pub struct Reader {
    records: RecordStream,
    selection: Selection,
    paired: bool,
    /// The next read, if it was peeked; its fields are in `first`.
    peeked: Option<ReadOrigin>,
    first: Read,
    second: Read,
}

/// FLAG and number of the record of a read.
#[derive(Clone, Copy, Debug)]
struct ReadOrigin {
    flag: u16,
    /// 1-based number in the file.
    record: u64,
}

/// A stream of packed records.
#[derive(Debug)]
struct RecordStream {
    source: RecordInput,
    buffer: RecordBuffer,
    /// Index in the buffer of the next record.
    next_index: usize,
}

#[derive(Debug)]
enum RecordInput {
    Bam(bam::Reader),
    Sam(sam::Reader, LineEncoder),
    Other(Box<dyn RecordSource>),
}

/// A file of records in a format that this crate does not read.
pub trait RecordSource: std::fmt::Debug + Send {
    /// Returns the path of the file.
    fn path(&self) -> &Path;

    /// Returns the header.
    fn header(&self) -> &Header;

    /// Replaces the records of the buffer by the next ones, checked: about `max_bytes`, at least one record. Returns false,
    /// with no records, at the end of the file.
    ///
    /// # Errors
    /// Any error of the file, with its name.
    fn read_records(
        &mut self,
        chunk: &mut RecordBuffer,
        max_bytes: usize,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>>;

    /// Returns the bytes of the file read so far; may stay 0 until all of it is read.
    fn compressed_bytes_read(&self) -> u64;
}

impl Reader {
    /// Reads a BAM file from its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its first read.
    pub fn from_bam(reader: bam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(RecordInput::Bam(reader), selection)
    }

    /// Reads a SAM file from its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its header or its first read.
    pub fn from_sam(reader: sam::Reader, selection: Selection) -> Result<Self, UnalignedError> {
        let path = reader.input().path().to_owned();
        let genome = reader
            .header()
            .genome()
            .map_err(|source| sam::SamReadError::from(sam::FileHeaderError { path, source }))?;
        let encoder = LineEncoder::new(&genome);
        Self::new(RecordInput::Sam(reader, encoder), selection)
    }

    /// Reads another source from its first record.
    ///
    /// # Errors
    /// [`UnalignedError`] about its first read.
    pub fn from_source(source: Box<dyn RecordSource>, selection: Selection) -> Result<Self, UnalignedError> {
        Self::new(RecordInput::Other(source), selection)
    }

    fn new(source: RecordInput, selection: Selection) -> Result<Self, UnalignedError> {
        let records = RecordStream { source, buffer: RecordBuffer::default(), next_index: 0 };
        let (first, second) = (Read::default(), Read::default());
        let mut reader = Self { records, selection, paired: false, peeked: None, first, second };
        reader.peeked = reader.read_first_mate()?;
        reader.paired = reader.peeked.is_some_and(ReadOrigin::is_paired);
        if reader.peeked.is_none() && !matches!(reader.selection.read_groups, ReadGroupFilter::OneOf { .. }) {
            return Err(UnalignedError::Empty { file: reader.records.source.path().to_owned() });
        }
        Ok(reader)
    }

    /// Returns the BLAKE3 of the file as it is on disk, hexadecimal; `None` before its end was read, and for other sources.
    pub fn checksum(&self) -> Option<String> {
        self.records.source.bgzf_reader()?.checksum()
    }

    /// Returns the bytes read from the file so far, as they are on disk.
    pub fn compressed_bytes_read(&self) -> u64 {
        match &self.records.source {
            RecordInput::Other(source) => source.compressed_bytes_read(),
            source => source.bgzf_reader().map_or(0, bgzf::Reader::compressed_bytes_read),
        }
    }

    /// Returns the bytes of the file up to the templates returned so far, estimated; all of them at the end.
    pub fn compressed_bytes_consumed(&self) -> u64 {
        match &self.records.source {
            RecordInput::Other(source) => source.compressed_bytes_read(),
            source => source.bgzf_reader().map_or(0, bgzf::Reader::compressed_bytes_consumed),
        }
    }

    /// Returns the bytes of the file on disk; `None` where progress is unknown: for a pipe, and other sources.
    pub fn compressed_bytes_total(&self) -> Option<u64> {
        match &self.records.source {
            RecordInput::Other(_) => None,
            source => source.bgzf_reader()?.compressed_bytes_total(),
        }
    }

    /// Returns the header.
    pub fn header(&self) -> &Header {
        self.records.source.header()
    }

    /// Reports whether the reads are pairs.
    pub fn is_paired(&self) -> bool {
        self.paired
    }

    /// Returns the name of the first read, before the first template was returned; empty where there is none.
    pub fn first_name(&self) -> &[u8] {
        &self.first.name
    }

    /// Passes the next read, or read 1 and read 2, to `push` and returns their number: 0 at the end of the file.
    ///
    /// # Errors
    /// [`UnalignedError`]; the reader cannot be used afterwards.
    pub fn next_template(&mut self, mut push: impl FnMut(&Read)) -> Result<u64, UnalignedError> {
        let peeked = self.peeked.take();
        let Some(first) = peeked.map_or_else(|| self.read_first_mate(), |ahead| Ok(Some(ahead)))? else { return Ok(0) };
        let record_error =
            |reader: &Self, problem| reader.records.record_error(first.record, &reader.first.name, problem);
        if first.is_paired() != self.paired {
            return Err(record_error(self, ReadProblem::Mixed { paired: first.is_paired() }));
        }
        if !self.paired {
            push(&self.first);
            return Ok(1);
        }
        let second = self.records.read_next(&self.selection, &mut self.second)?;
        let Some(second) = second.filter(|_| self.first.name == self.second.name) else {
            return Err(record_error(self, ReadProblem::NoMate));
        };
        let ends = flags::FIRST | flags::LAST;
        match (first.flag & ends, second.flag & ends) {
            (flags::FIRST, flags::LAST) if second.is_paired() => [&self.first, &self.second].map(&mut push),
            (flags::LAST, flags::FIRST) if second.is_paired() => [&self.second, &self.first].map(&mut push),
            _ => {
                let problem = ReadProblem::NotReadOneAndTwo { first: first.flag, second: second.flag };
                return Err(record_error(self, problem));
            }
        };
        Ok(2)
    }

    fn read_first_mate(&mut self) -> Result<Option<ReadOrigin>, UnalignedError> {
        self.records.read_next(&self.selection, &mut self.first)
    }
}

impl ReadOrigin {
    fn is_paired(self) -> bool {
        self.flag & flags::PAIRED != 0
    }
}

impl RecordStream {
    /// Reads the next selected record.
    fn read_next(&mut self, selection: &Selection, read: &mut Read) -> Result<Option<ReadOrigin>, UnalignedError> {
        loop {
            if self.next_index == self.buffer.end_offsets.len() && !self.fill_buffer()? {
                return Ok(None);
            }
            let start = if self.next_index == 0 { 0 } else { self.buffer.end_offsets[self.next_index - 1] };
            let record =
                RawRecord::from_trusted_bytes(&self.buffer.data[start..self.buffer.end_offsets[self.next_index]]);
            self.next_index += 1;
            if record.flag() & flags::NOT_PRIMARY != 0 {
                continue;
            }
            let result = match selection.includes(record) {
                Ok(false) => continue,
                Ok(true) => read.fill_from_record(record, &selection.tags),
                Err(problem) => Err(problem),
            };
            let number = self.buffer.first_record + self.next_index as u64;
            return match result {
                Ok(()) => Ok(Some(ReadOrigin { flag: record.flag(), record: number })),
                Err(problem) => Err(self.record_error(number, record.name(), problem)),
            };
        }
    }

    /// Fills the buffer; returns false at the end of the file.
    fn fill_buffer(&mut self) -> Result<bool, UnalignedError> {
        self.next_index = 0;
        match &mut self.source {
            RecordInput::Bam(reader) => Ok(reader.read_records(&mut self.buffer, BUFFER_BYTES)?),
            RecordInput::Sam(reader, encoder) => {
                self.buffer.first_record += self.buffer.end_offsets.len() as u64;
                self.buffer.data.clear();
                self.buffer.end_offsets.clear();
                let Some(lines) = reader.next_lines(BUFFER_BYTES)? else { return Ok(false) };
                for (index, line) in lines.lines().enumerate() {
                    encoder.encode(line, &mut self.buffer.data).map_err(|source| UnalignedError::Line {
                        file: reader.input().path().to_owned(),
                        line: lines.first_line_number + index as u64,
                        source,
                    })?;
                    self.buffer.end_offsets.push(self.buffer.data.len());
                }
                reader.recycle(lines.bytes);
                Ok(true)
            }
            RecordInput::Other(source) => {
                source.read_records(&mut self.buffer, BUFFER_BYTES).map_err(UnalignedError::Other)
            }
        }
    }

    fn record_error(&self, record: u64, name: &[u8], problem: ReadProblem) -> UnalignedError {
        let name = String::from_utf8_lossy(name).into_owned();
        UnalignedError::Record { file: self.source.path().to_owned(), record, name, problem }
    }
}

impl RecordInput {
    /// Returns the BGZF reader; `None` for other sources.
    fn bgzf_reader(&self) -> Option<&bgzf::Reader> {
        match self {
            Self::Bam(reader) => Some(reader.input()),
            Self::Sam(reader, _) => Some(reader.input()),
            Self::Other(_) => None,
        }
    }

    fn path(&self) -> &Path {
        match self {
            Self::Bam(reader) => reader.input().path(),
            Self::Sam(reader, _) => reader.input().path(),
            Self::Other(source) => source.path(),
        }
    }

    fn header(&self) -> &Header {
        match self {
            Self::Bam(reader) => reader.header(),
            Self::Sam(reader, _) => reader.header(),
            Self::Other(source) => source.header(),
        }
    }
}

impl Selection {
    fn includes(&self, record: RawRecord<'_>) -> Result<bool, ReadProblem> {
        if self.read_groups == ReadGroupFilter::All {
            return Ok(true);
        }
        let found = record.read_group();
        let is_included = match &self.read_groups {
            ReadGroupFilter::All => Some(true),
            ReadGroupFilter::Single(id) => found.is_none_or(|found| found == id).then_some(true),
            ReadGroupFilter::OneOf { id, known_ids } => {
                found.filter(|found| known_ids.iter().any(|known| known == found)).map(|found| found == id)
            }
        };
        is_included
            .ok_or_else(|| ReadProblem::ReadGroup { found: found.map(|id| String::from_utf8_lossy(id).into_owned()) })
    }
}
